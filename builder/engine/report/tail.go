package report

import (
	"bytes"
	"slices"
	"sync"
)

// Limits of a Tail: what of a RUN line's output is of help, and goes into a report.
const (
	maxLines = 20
	maxLine  = 300
)

// Tail keeps the last lines that were written to it, made printable. Lines without text are left
// out. Its memory is bounded, whatever is written. The zero value is empty; it may be used by
// several goroutines.
type Tail struct {
	mutex   sync.Mutex
	lines   []string
	partial []byte
}

// Write takes all of p.
func (t *Tail) Write(p []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		t.extend(line)
		if !ended {
			return len(p), nil
		}
		t.endLine()
		rest = after
	}
}

// extend adds to the line that has no end yet. Of one that is long, the beginning is kept, and what
// follows its last carriage return.
func (t *Tail) extend(text []byte) {
	const enough = 4 * maxLine // bytes of as many characters
	if over := bytes.LastIndexByte(bytes.TrimRight(text, "\r"), '\r'); over >= 0 {
		t.partial, text = t.partial[:0], text[over+1:]
	}
	t.partial = append(t.partial, text[:min(len(text), enough-min(enough, len(t.partial)))]...)
}

func (t *Tail) endLine() {
	if line := shorten(Printable(string(t.partial)), maxLine); line != "" {
		if len(t.lines) == maxLines {
			t.lines = slices.Delete(t.lines, 0, 1)
		}
		t.lines = append(t.lines, line)
	}
	t.partial = t.partial[:0]
}

// Lines are the last lines, oldest first, with one that has no end.
func (t *Tail) Lines() []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	all := slices.Clone(t.lines)
	if line := shorten(Printable(string(t.partial)), maxLine); line != "" {
		all = append(all, line)
	}
	return all[max(0, len(all)-maxLines):]
}

// Reset forgets everything.
func (t *Tail) Reset() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.lines, t.partial = nil, nil
}
