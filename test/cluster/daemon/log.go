package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// tailWindow is how much of a log's end is looked at for its last lines.
const tailWindow = 32 << 10

// Tail returns the last n lines of a file, or a remark in their place when
// there are none.
func Tail(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return "  (no log: " + err.Error() + ")"
	}
	defer func() { _ = f.Close() }()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-tailWindow), io.SeekStart)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return "  (log not readable: " + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return "  (it printed nothing)"
	}
	lines = lines[max(0, len(lines)-n):]
	return "  " + strings.Join(lines, "\n  ")
}

// Follow calls each for every line that a file has or gets from offset on,
// until each returns false or ctx ends.
func Follow(ctx context.Context, path string, offset int64, each func(line []byte) (more bool)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("following %s: %w", path, err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(path); err != nil {
		return fmt.Errorf("following %s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	reader := &lineReader{reader: bufio.NewReader(f)}
	for {
		if more, err := reader.drain(each); !more || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-watcher.Errors:
			return fmt.Errorf("following %s: %w", path, err)
		case <-watcher.Events:
		}
	}
}

// lineReader keeps the part of a line whose end has not been written yet.
type lineReader struct {
	reader  *bufio.Reader
	partial []byte
}

func (l *lineReader) drain(each func([]byte) bool) (more bool, err error) {
	for {
		part, err := l.reader.ReadBytes('\n')
		l.partial = append(l.partial, part...)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		line := bytes.TrimRight(l.partial, "\n")
		l.partial = nil
		if !each(line) {
			return false, nil
		}
	}
}
