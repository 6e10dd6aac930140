package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// readiness is the receiving end of a Spec's Readiness.
type readiness struct {
	socket *net.UnixConn // sd_notify, or nil
	line   *regexp.Regexp
	log    string
	offset int64 // where this process's part of the log begins
}

// listen prepares, before the process starts, to hear that it is ready.
func (m *Manager) listen(spec *Spec) (*readiness, error) {
	r := &readiness{line: spec.Ready.LogLine, log: m.LogFile(spec.Name)}
	if info, err := os.Stat(r.log); err == nil {
		r.offset = info.Size()
	}
	if !spec.Ready.Notify {
		return r, nil
	}
	path := filepath.Join(m.dir, spec.Name+".notify")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	r.socket = socket
	return r, nil
}

// CheckSocketPath refuses a path that is too long for a unix socket.
func CheckSocketPath(path string) error {
	const longest = 107
	if len(path) > longest {
		return fmt.Errorf("the path %s has %d bytes and a unix socket's may have %d: choose a shorter cache folder (LAYERWRIGHT_CACHE) or cluster name",
			path, len(path), longest)
	}
	return nil
}

func (r *readiness) env() []string {
	if r.socket == nil {
		return nil
	}
	return []string{"NOTIFY_SOCKET=" + r.socket.LocalAddr().String()}
}

func (r *readiness) close() {
	if r.socket != nil {
		_ = r.socket.Close() // removes the socket file as well
	}
}

// wait returns nil once the process has said that it is ready.
func (r *readiness) wait(ctx context.Context) error {
	switch {
	case r.socket != nil:
		return r.waitNotify(ctx)
	case r.line != nil:
		return Follow(ctx, r.log, r.offset, func(line []byte) bool { return !r.line.Match(line) })
	default:
		return nil
	}
}

func (r *readiness) waitNotify(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = r.socket.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buffer := make([]byte, 4096)
	for {
		n, err := r.socket.Read(buffer)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		for state := range bytes.Lines(buffer[:n]) {
			if string(bytes.TrimSpace(state)) == "READY=1" {
				return nil
			}
		}
	}
}
