package guest

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serve answers as the machine's end of the serial port does, once for each answer. An empty one
// ends the machine.
func serve(t *testing.T, dir string, answers ...string) <-chan string {
	t.Helper()
	asked := make(chan string, len(answers))
	listener, err := net.Listen("unix", filepath.Join(dir, controlPort))
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for _, answer := range answers {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			id, script, _ := strings.Cut(strings.TrimSpace(line), " ")
			text, _ := base64.StdEncoding.DecodeString(script)
			asked <- string(text)
			if answer != "" {
				_, _ = fmt.Fprintf(conn, "OLDID 0 b2xk\n%s %s\n", id, answer)
			}
			_ = conn.Close()
		}
	}()
	return asked
}

// socketDir is short, because a socket's path has to be.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "guest") //nolint:usetesting // the folder has to be short, or on a disk
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestControl(t *testing.T) {
	t.Parallel()
	output := base64.StdEncoding.EncodeToString([]byte("two\nlines"))
	t.Run("returns what a script prints", func(t *testing.T) {
		t.Parallel()
		dir := socketDir(t)
		asked := serve(t, dir, "0 "+output)
		out, err := Connect(dir).Run(t.Context(), "echo two; echo 'lines'")
		require.NoError(t, err)
		require.Equal(t, "two\nlines", out)
		require.Equal(t, "echo two; echo 'lines'", <-asked)
	})
	t.Run("says how a script failed", func(t *testing.T) {
		t.Parallel()
		dir := socketDir(t)
		serve(t, dir, "3 "+output)
		_, err := Connect(dir).Run(t.Context(), "false")
		exit := (*ExitError)(nil)
		require.ErrorAs(t, err, &exit)
		require.Equal(t, ExitError{Code: 3, Output: "two\nlines"}, *exit)
	})
	t.Run("asks again after the machine ended", func(t *testing.T) {
		t.Parallel()
		dir := socketDir(t)
		serve(t, dir, "", "0")
		out, err := Connect(dir).Run(t.Context(), "true")
		require.NoError(t, err)
		require.Empty(t, out)
	})
	t.Run("waits for a machine no longer than it may", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := Connect(socketDir(t)).Run(ctx, "true")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestShutdownReason(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}`:    "guest-reset",
		`{"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}`: "guest-shutdown",
		`{"event": "POWERDOWN"}`: "", `{"QMP": {}}`: "", "": "", "{": "",
	} {
		require.Equal(t, want, shutdownReason([]byte(line)), line)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	m := Machine{
		Dir: "/m", Disk: "/m/disk.img", Console: "/logs/m.log", Memory: 512, CPUs: 2,
		Forwards: []Forward{{Address: "10.250.0.181", Port: 10250}},
	}
	line := strings.Join(m.arguments(Entry{Options: "root=/dev/vda ostree=/x"}, byEmulation), " ")
	for _, want := range []string{
		"-accel tcg,", "-append root=/dev/vda ostree=/x", "-kernel /m/kernel", "-initrd /m/initrd", "file=/m/disk.img,", "-m 512 -smp 2", "-no-reboot",
		"-netdev user,id=net,hostfwd=tcp:10.250.0.181:10250-:10250 ", "path=/logs/m.log", "path=/m/control",
	} {
		require.Contains(t, line, want)
	}
}
