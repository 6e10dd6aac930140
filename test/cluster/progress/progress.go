package progress

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	redraw    = 200 * time.Millisecond
	heartbeat = 30 * time.Second
	// defaultColumns is the width of a terminal that does not tell it.
	defaultColumns = 80
)

// Printer prints steps. Steps may overlap; it is safe for concurrent use.
type Printer struct {
	out      io.Writer
	terminal bool
	columns  func() int // of the terminal
	now      func() time.Time
	begin    time.Time

	mu      sync.Mutex
	active  []*Step // in the order in which they began
	drawn   int     // lines at the cursor that are drawn anew
	stopped chan struct{}
}

// New returns a Printer that writes to out. Close ends it.
func New(out io.Writer) *Printer {
	p := &Printer{out: out, columns: func() int { return defaultColumns }, now: time.Now, begin: time.Now(), stopped: make(chan struct{})}
	if f, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd())) && os.Getenv("CI") == ""
		p.columns = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 {
				return defaultColumns
			}
			return width
		}
	}
	go p.tick()
	return p
}

// Step is something that takes time.
type Step struct {
	printer *Printer
	title   string
	begin   time.Time
	spoke   time.Time
	detail  string
	lines   []namedLine
}

// namedLine is one of the lines of a step.
type namedLine struct{ name, text string }

// Do runs a step and prints how it ended. The error is returned as it is.
func (p *Printer) Do(title string, run func(*Step) error) error {
	s := p.start(title)
	err := run(s)
	p.finish(s, err)
	return err
}

// Detail says which part of the step is under way.
func (s *Step) Detail(format string, args ...any) {
	s.printer.mu.Lock()
	defer s.printer.mu.Unlock()
	s.detail = fmt.Sprintf(format, args...)
	s.printer.draw()
}

// Line shows a line above the step, in place of the one with that name and in their order. Where
// lines can't be redrawn, each change is a line of its own.
func (s *Step) Line(name, text string) {
	p := s.printer
	p.mu.Lock()
	defer p.mu.Unlock()
	line := namedLine{name, text}
	i, found := slices.BinarySearchFunc(s.lines, name, func(l namedLine, name string) int { return strings.Compare(l.name, name) })
	switch {
	case !found:
		s.lines = slices.Insert(s.lines, i, line)
	case s.lines[i] == line:
		return
	default:
		s.lines[i] = line
	}
	if !p.terminal {
		p.line("%s\n", line)
	}
	p.draw()
}

func (l namedLine) String() string { return fmt.Sprintf("  %-12s%s", l.name, l.text) }

// Note prints a line that stays.
func (p *Printer) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(format+"\n", args...)
}

// Elapsed is the time since the Printer was made.
func (p *Printer) Elapsed() time.Duration { return p.now().Sub(p.begin) }

// Close removes the status line and ends the Printer.
func (p *Printer) Close() {
	close(p.stopped)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

func (p *Printer) start(title string) *Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &Step{printer: p, title: title, begin: p.now(), spoke: p.now()}
	p.active = append(p.active, s)
	p.draw()
	return s
}

// errorMark and the others are printed before a finished step.
const (
	doneMark  = "✓"
	errorMark = "✗"
)

func (p *Printer) finish(s *Step, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.active {
		if a == s {
			p.active = append(p.active[:i], p.active[i+1:]...)
			break
		}
	}
	mark := doneMark
	if err != nil {
		mark = errorMark
	}
	for _, line := range s.lines {
		if p.terminal {
			p.line("%s\n", line)
		}
	}
	if !errors.Is(err, ErrNothingToDo) {
		p.line("%s %-44s %6s   at %6s\n", mark, s.title, seconds(p.now().Sub(s.begin)), seconds(p.Elapsed()))
	}
	p.draw()
}

// ErrNothingToDo may be returned by a step that found its work done: it is
// then not printed. Do returns it like any other error.
var ErrNothingToDo = errors.New("nothing to do")

func (p *Printer) tick() {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-p.stopped:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// draw shows the oldest active step; callers hold the lock.
func (p *Printer) draw() {
	if p.terminal {
		p.erase()
		if len(p.active) > 0 {
			s := p.active[0]
			line := fmt.Sprintf("… %s %s %s", s.title, seconds(p.now().Sub(s.begin)), s.detail)
			for _, below := range s.lines {
				_, _ = fmt.Fprintln(p.out, fit(below.String(), p.columns()))
			}
			_, _ = fmt.Fprint(p.out, fit(line, p.columns()))
			p.drawn = 1 + len(s.lines)
		}
		return
	}
	for _, s := range p.active {
		if p.now().Sub(s.spoke) >= heartbeat {
			s.spoke = p.now()
			_, _ = fmt.Fprintf(p.out, "… %s: %s so far %s\n", s.title, seconds(p.now().Sub(s.begin)), s.detail)
		}
	}
}

// fit makes text one line of a terminal: what wraps can't be erased.
func fit(text string, columns int) string {
	runes := []rune(strings.ReplaceAll(text, "\n", " "))
	if len(runes) >= columns {
		runes = append(runes[:max(0, columns-2)], '…')
	}
	return string(runes)
}

func (p *Printer) line(format string, args ...any) {
	p.erase()
	_, _ = fmt.Fprintf(p.out, format, args...)
}

func (p *Printer) erase() {
	if p.drawn > 0 {
		_, _ = fmt.Fprint(p.out, "\r\033[K"+strings.Repeat("\033[A\033[K", p.drawn-1))
		p.drawn = 0
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
