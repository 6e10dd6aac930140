package guest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Control runs commands in a machine by its virtual serial port, whatever state its network and its
// kubelet are in.
type Control struct{ socket string }

// Connect returns the control of the machine with that folder, which need not run yet.
func Connect(dir string) *Control { return &Control{filepath.Join(dir, controlPort)} }

// ExitError says that a script failed.
type ExitError struct {
	Code   int
	Output string
}

// Error shows what the script printed.
func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d: %s", e.Code, e.Output) }

// errGone means that the machine ended before it answered.
var errGone = errors.New("the machine ended before it answered")

// Run runs a script in bash and returns what it prints. It waits for a machine that boots. A script
// may run again if the machine ends meanwhile, so whoever reboots it uses [Control.Start].
func (c *Control) Run(ctx context.Context, script string) (string, error) {
	for {
		out, err := c.try(ctx, script)
		if !errors.Is(err, errGone) || ctx.Err() != nil {
			return out, err
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(connectEvery):
		}
	}
}

// Start runs a script that may end the machine, and does not wait for it.
func (c *Control) Start(ctx context.Context, script string) error {
	_, err := c.Run(ctx, "systemd-run --quiet --no-block --collect bash -c "+strconv.Quote(script))
	return err
}

// try runs the script once.
func (c *Control) try(ctx context.Context, script string) (string, error) {
	conn, err := dial(ctx, c.socket)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	out, err := exchange(conn, rand.Text(), script)
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	return out, err
}

// exchange sends a script, and reads lines until one is the answer: earlier ones answer to those
// who went away.
func exchange(conn net.Conn, id, script string) (string, error) {
	if _, err := fmt.Fprintf(conn, "%s %s\n", id, base64.StdEncoding.EncodeToString([]byte(script))); err != nil {
		return "", errGone
	}
	for reader := bufio.NewReader(conn); ; {
		line, err := reader.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) || !errors.Is(err, context.DeadlineExceeded) {
				return "", errGone
			}
			return "", err
		}
		code, output, ok := parseAnswer(line, id)
		if !ok {
			continue
		}
		if code != 0 {
			return output, &ExitError{Code: code, Output: output}
		}
		return output, nil
	}
}

// parseAnswer reads "<id> <exit code> <output in base64>".
func parseAnswer(line, id string) (code int, output string, ok bool) {
	fields := strings.Fields(line)
	const least = 2
	if len(fields) < least || fields[0] != id {
		return 0, "", false
	}
	code, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0, "", false
	}
	if len(fields) > least {
		text, err := base64.StdEncoding.DecodeString(fields[2])
		if err != nil {
			return 0, "", false
		}
		output = string(text)
	}
	return code, output, true
}
