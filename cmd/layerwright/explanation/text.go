package explanation

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/layerwright/layerwright/view"
)

// maxChanges is how many changes are listed for people.
const maxChanges = 20

// text is what is being written. Objects say what they like, and no line of it controls a terminal.
type text struct{ strings.Builder }

func (t *text) line(name, format string, args ...any) {
	said := strings.TrimSpace(view.Visible(fmt.Sprintf(format, args...)))
	if said != "" {
		_, _ = fmt.Fprintf(t, "  %-14s %s\n", name, said) // a builder takes everything
	}
}

// Text is for people.
func (e *Explanation) Text() string {
	t := &text{}
	title := "Image " + e.imageName() + " of pool " + e.Pool + ", whose build is gone"
	if e.Build != "" {
		title = "Build " + e.Build + " of pool " + e.Pool
	}
	_, _ = fmt.Fprintln(t, view.Visible(title))
	e.writeEnd(t)
	e.writeWhy(t)
	e.writeHow(t)
	if e.Image != nil {
		e.Image.write(t)
	}
	return t.String()
}

func (e *Explanation) imageName() string {
	if e.Image == nil {
		return ""
	}
	return e.Image.Name
}

func (e *Explanation) writeEnd(t *text) {
	state := e.State
	if e.Reason != "" && e.Reason != e.State {
		state += ", " + e.Reason
	}
	t.line("state", "%s", state)
	t.line("", "%s", e.Message)
	t.line("do", "%s", e.Do)
}

func (e *Explanation) writeWhy(t *text) {
	t.line("why", "%s", e.Why)
	if e.ComparedWith != "" && len(e.Changes) == 0 {
		t.line("changes", "no input differs from build %s", e.ComparedWith)
	}
	for i, change := range e.Changes {
		name := ""
		if i == 0 {
			t.line("changes", "since build %s", e.ComparedWith)
		}
		if i == maxChanges {
			t.line(name, "and %d more (-o json has all)", len(e.Changes)-i)
			break
		}
		t.line(name, "%s", change)
	}
}

func (e *Explanation) writeHow(t *text) {
	t.line("how", "%s", e.Strategy)
	if e.Waited >= time.Second {
		t.line("waited", "%s before it began", e.Waited)
	}
	if e.Took > 0 {
		t.line("took", "%s", e.Took)
	}
	for _, s := range e.Steps {
		took := time.Duration(s.Milliseconds) * time.Millisecond
		t.line("  "+string(s.Step), "%s, %s in %d layers %s", took.Round(time.Second/10), humanize.Bytes(uint64(max(s.Bytes, 0))), s.Layers, s.Architecture)
	}
}

func (i *Image) write(t *text) {
	t.line("image", "%s", i.Image)
	t.line("base image", "%s", i.Base)
	t.line("stream", "%s", i.Stream)
	t.line("configuration", "%s", i.MachineConfig)
	for _, a := range i.Architectures {
		if a.Size == nil {
			continue
		}
		pull := ""
		if a.PullSize != nil {
			pull = fmt.Sprintf("; a node that has %s pulls %s", i.Previous.Short(), humanize.Bytes(uint64(max(*a.PullSize, 0))))
		}
		t.line("size", "%s for %s%s", humanize.Bytes(uint64(max(*a.Size, 0))), a.Architecture, pull)
	}
	t.line("signed", "%s", i.Signed)
	t.line("attested", "%s", i.Attested)
	t.line("", "%s", i.Missing)
	t.line("verified", "%s", i.Verified)
	t.line("ready", "%s", i.Ready)
	t.line("quarantine", "%s", i.Quarantine)
}
