package report

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/builder/backend"
)

// interval is how often progress is written while what is being done stays the same.
const interval = time.Second

// Output is the standard output of a step: lines for people, and lines of progress for the backend.
// It may be used by several goroutines; lines of one are never mixed with those of another.
type Output struct {
	mutex sync.Mutex
	w     io.Writer
	step  backend.Step
	clock clock.PassiveClock
	last  backend.Progress
	wrote time.Time
}

// NewOutput writes to w.
func NewOutput(w io.Writer, step backend.Step, clk clock.PassiveClock) *Output {
	return &Output{w: w, step: step, clock: clk}
}

// Progress writes how far the step is: at once where what it does changed or it is done, else once
// a second. Errors of the writer are ignored, because no one is left to tell.
func (o *Output) Progress(done, total int64, now string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	progress := backend.Progress{Step: o.step, Done: done, Total: total, Now: Instruction(now)}
	at := o.clock.Now()
	if progress == o.last || progress.Now == o.last.Now && done != total && at.Sub(o.wrote) < interval {
		return
	}
	text, err := json.Marshal(progress)
	if err != nil {
		return
	}
	o.last, o.wrote = progress, at
	_, _ = o.w.Write(append([]byte(backend.ProgressPrefix), append(text, '\n')...))
}

// Now is what the step is doing, as it said last.
func (o *Output) Now() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.last.Now
}

// Lines is a writer for text that is someone else's. It passes on whole lines, and a line that
// looks like progress gets a space in front. Close passes on a line that has no end.
func (o *Output) Lines() io.WriteCloser { return &lines{output: o} }

// line writes one line, which has its end.
func (o *Output) line(text []byte) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if bytes.HasPrefix(text, bytes.TrimSpace([]byte(backend.ProgressPrefix))) {
		text = append([]byte{' '}, text...)
	}
	_, _ = o.w.Write(text)
}

// lines collects a line until it ends.
type lines struct {
	mutex   sync.Mutex
	output  *Output
	partial []byte
}

// longest is how much of a line is held back until its end comes.
const longest = 64 << 10

func (l *lines) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	rest := p
	for {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		l.partial = append(l.partial, line...)
		if !ended && len(l.partial) < longest {
			return len(p), nil
		}
		l.end()
		if !ended {
			return len(p), nil
		}
		rest = after
	}
}

func (l *lines) end() {
	l.output.line(append(l.partial, '\n'))
	l.partial = nil
}

// Close passes on what is left.
func (l *lines) Close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.partial) > 0 {
		l.end()
	}
	return nil
}
