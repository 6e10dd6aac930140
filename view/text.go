package view

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/layerwright/layerwright/rollout/words"
)

// Limits of the text, in columns and bytes.
const (
	minWidth  = 40
	maxReason = 600
	indent    = 2
)

// Text writes a tree for people, in lines of at most so many columns, with ages at a time. Commands
// are whole, so that they can be copied.
func Text(w io.Writer, t Tree, now time.Time, width int) error {
	p := &printer{now: now, width: max(width, minWidth)}
	for i, section := range sections {
		items := section.of(&t)
		if len(items) == 0 {
			continue
		}
		if i > 0 && p.out.Len() > 0 {
			p.out.WriteByte('\n')
		}
		p.line(0, section.title)
		for j := range items {
			p.item(&items[j])
		}
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

// sections are the parts of the text.
var sections = []struct {
	title string
	of    func(*Tree) []Item
}{
	{"Pools", func(t *Tree) []Item { return t.ofKind(false, KindPool) }},
	{"Builds", func(t *Tree) []Item { return t.ofKind(true, KindConfig, KindBuild, KindImage) }},
	{"Rollout", func(t *Tree) []Item { return t.ofKind(true, KindNode) }},
	{"Health", func(t *Tree) []Item { return t.ofKind(true, KindCondition, KindStreams, KindMachines) }},
}

// ofKind are the items of some kinds, of the tree or of its pools.
func (t *Tree) ofKind(isBelow bool, kinds ...string) []Item {
	var found []Item
	add := func(items []Item) {
		for i := range items {
			for _, kind := range kinds {
				if items[i].Kind == kind {
					found = append(found, items[i])
				}
			}
		}
	}
	for i := range t.Items {
		if isBelow && t.Items[i].Kind == KindPool {
			add(t.Items[i].Items)
		}
	}
	add(t.Items)
	return found
}

// printer writes a text.
type printer struct {
	out   strings.Builder
	now   time.Time
	width int
}

func (p *printer) item(i *Item) {
	title := words.List(i.Names) + ": " + i.Assessment.String()
	if i.Kind != KindPool && i.Kind != KindNode && i.Kind != KindCondition {
		title = i.Kind + " " + title
	}
	if !i.Since.IsZero() {
		title += " for " + age(p.now.Sub(i.Since))
	}
	if i.Step != "" {
		title += ", " + i.Step
	}
	p.line(indent, title)
	if i.Has != "" {
		p.line(2*indent, "has: "+i.Has)
	}
	if i.Assessment == Done || i.Assessment == Unmanaged {
		return
	}
	if i.Wanted != "" {
		p.line(2*indent, "should have: "+i.Wanted)
	}
	for _, reason := range i.WaitsFor {
		p.line(2*indent, "because: "+words.Shorten(reason, maxReason))
	}
	if i.Next != NoOne {
		p.line(2*indent, "acts next: "+string(i.Next))
	}
	if i.Command != "" {
		p.out.WriteString(strings.Repeat(" ", 2*indent) + "$ " + visible(i.Command) + "\n")
	}
}

// line writes a text in as many lines as it takes.
func (p *printer) line(margin int, text string) {
	used := p.start(margin)
	isFirst := true
	for _, word := range strings.Fields(visible(text)) {
		if !isFirst && used+1+utf8.RuneCountInString(word) <= p.width {
			p.out.WriteByte(' ')
			used++
		} else if !isFirst {
			p.out.WriteByte('\n')
			used = p.start(margin + 2*indent)
		}
		isFirst = false
		for { // a word that is longer than a line
			part := cut(word, p.width-used)
			p.out.WriteString(part)
			used += utf8.RuneCountInString(part)
			if word = word[len(part):]; word == "" {
				break
			}
			p.out.WriteByte('\n')
			used = p.start(margin + 2*indent)
		}
	}
	p.out.WriteByte('\n')
}

// start begins a line.
func (p *printer) start(margin int) int {
	p.out.WriteString(strings.Repeat(" ", margin))
	return margin
}

// cut is as much of a word as has room.
func cut(word string, room int) string {
	for at := range word {
		if room == 0 {
			return word[:at]
		}
		room--
	}
	return word
}

// visible is a text without what controls a terminal, or the direction of the text: objects say
// what they like.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// age is a duration in one unit.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}
