package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// driven is the folder of a machine that this program, run by a test, is to boot.
const driven = "LAYERWRIGHT_TEST_DRIVEN"

// TestDriver boots a machine until it is told to end, where a test has started this program for it.
func TestDriver(t *testing.T) {
	dir := os.Getenv(driven)
	if dir == "" {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the end of the input ends it
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	m := Machine{Dir: dir, Disk: filepath.Join(dir, "disk"), Console: filepath.Join(dir, "console"), Memory: 64, CPUs: 1}
	if err := m.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestQEMUEndsWithItsDriver has a program stand in for QEMU, and looks who still has a pipe that
// every process below the driver has inherited.
func TestQEMUEndsWithItsDriver(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(driver *exec.Cmd, input io.Closer) error{
		"that is told to end": func(_ *exec.Cmd, input io.Closer) error { return input.Close() },
		"that is killed":      func(driver *exec.Cmd, _ io.Closer) error { return driver.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := socketDir(t)
			require.NoError(t, os.Rename(makeDisk(t), filepath.Join(dir, "disk")))
			programs := t.TempDir()
			standIn := "#!/bin/sh\ncase \"$*\" in *isa-debug-exit*) exit 1 ;; esac\necho runs >&3\nexec sleep 600\n"
			require.NoError(t, os.WriteFile(filepath.Join(programs, emulator), []byte(standIn), 0o700))
			r, w, err := os.Pipe()
			require.NoError(t, err)
			t.Cleanup(func() { _ = r.Close() })
			driver := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDriver$")
			driver.Env = append(os.Environ(), driven+"="+dir, "PATH="+programs+":"+os.Getenv("PATH"))
			driver.ExtraFiles = []*os.File{w}
			input, err := driver.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, driver.Start())
			require.NoError(t, w.Close())
			require.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
			said := make([]byte, len("runs\n"))
			_, err = io.ReadFull(r, said)
			require.NoError(t, err)

			require.NoError(t, end(driver, input))
			_, err = r.Read(said)
			require.ErrorIs(t, err, io.EOF, "a process is left")
			_ = driver.Wait() // one of them was killed
		})
	}
}
