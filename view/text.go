package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/layerwright/layerwright/rollout/words"
)

// Limits of the text, in columns and bytes.
const (
	minWidth  = 40
	wide      = 1 << 20
	maxReason = 600
	indent    = 2
)

// Style is how a tree is written.
type Style struct {
	// Now is the time that ages count from.
	Now time.Time
	// Width is how many columns a line has at most; 40 at least. Zero leaves lines as long as they
	// are, and adds columns.
	Width int
	// Nodes writes each node on a line of its own, and needs a tree that has them so. Health names
	// all objects that have the same trouble, who acts next, and what they have and should have.
	Nodes, Health bool
	// PoolsOnly writes the first table alone.
	PoolsOnly bool
	// Color marks assessments for a terminal.
	Color bool
}

// Text writes a tree for people: tables of pools, builds and nodes, and then what someone has to
// act upon, with the command that shows more or helps. Commands are whole, so that they can be
// copied. Columns that have no room are below their row.
func Text(w io.Writer, t Tree, style Style) error {
	p := newPrinter(style)
	p.section("Pools", p.pools(t.ofKind(KindPool)))
	if !style.PoolsOnly {
		p.section("Builds", p.builds(t.ofKind(KindConfig, KindBuild, KindImage)))
		p.section("Rollout", p.nodes(t.ofKind(KindNode)))
		p.health(&t)
	}
	_, err := io.WriteString(w, p.out.String())
	return err
}

// ofKind are the items of some kinds, of the tree and of its pools.
func (t *Tree) ofKind(kinds ...string) []Item {
	var found []Item
	for i := range t.Items {
		for _, of := range slices.Concat(t.Items[i].Items, t.Items[i:i+1]) {
			if slices.Contains(kinds, of.Kind) {
				found = append(found, of)
			}
		}
	}
	return found
}

// printer writes a text.
type printer struct {
	Style

	out    strings.Builder
	isWide bool
}

func newPrinter(style Style) *printer {
	p := &printer{Style: style, isWide: style.Width == 0}
	if p.Width = max(style.Width, minWidth); p.isWide {
		p.Width = wide
	}
	return p
}

func (p *printer) pools(pools []Item) *table {
	t := &table{columns: []string{"POOL", assessment, "COMPLETION", "STREAM", "IMAGE", "WAITS FOR"}}
	for i := range pools {
		of := &pools[i]
		completion := strconv.Itoa(of.Updated) + "/" + strconv.Itoa(of.Total)
		waitsFor := of.Step
		if of.Assessment == Done {
			waitsFor = ""
		}
		t.add(of, nameOf(of), of.Assessment.String(), completion, of.Stream, of.Image, waitsFor)
	}
	return t
}

// shortKinds are the names that kubectl takes too.
var shortKinds = map[string]string{KindConfig: "mosc", KindBuild: "mosb", KindImage: "mosi"}

func (p *printer) builds(items []Item) *table {
	t := &table{columns: []string{"OBJECT", assessment, "STEP", "SINCE", "IMAGE", "MESSAGE"}}
	for i := range items {
		of := &items[i]
		message := p.message(of)
		if of.Kind == KindConfig && slices.ContainsFunc(items, func(b Item) bool { return b.Kind == KindBuild && slices.Equal(b.WaitsFor, of.WaitsFor) }) {
			message = "" // that of its build
		}
		t.add(of, shortKinds[of.Kind]+"/"+nameOf(of), of.Assessment.String(), of.Step, p.since(of), of.Image, message)
	}
	return t
}

func (p *printer) nodes(nodes []Item) *table {
	t := &table{columns: []string{"NODE", assessment, "STEP", "SINCE", "IMAGE", "MESSAGE"}}
	if p.isWide {
		t.columns = slices.Insert(t.columns, 5, "HAS", "SHOULD HAVE")
	}
	for i := range nodes {
		of := &nodes[i]
		cells := []string{nameOf(of), of.Assessment.String(), of.Step, p.since(of), of.Image, p.message(of)}
		if p.isWide {
			cells = slices.Insert(cells, 5, of.Has, of.Wanted)
		}
		t.add(of, cells...)
	}
	return t
}

// message is why an item is not what it should be. What someone has to act upon is below the
// tables, and in them one line of it.
func (p *printer) message(i *Item) string {
	if i.Assessment == Done {
		return ""
	}
	return words.Shorten(strings.Join(i.WaitsFor, "; "), maxReason)
}

// since is the age of the step of an item.
func (p *printer) since(i *Item) string {
	if i.Since.IsZero() {
		return ""
	}
	return age(p.Now.Sub(i.Since))
}

// nameOf names one object, or a group.
func nameOf(i *Item) string {
	if more := len(i.Names) - 2; more > 0 {
		return fmt.Sprintf("%s, +%d", i.Names[0], more+1)
	}
	return strings.Join(i.Names, ", ")
}

// healthOrder has objects that say the most of a reason before those that repeat it.
var healthOrder = []string{KindBuild, KindImage, KindConfig, KindNode, KindCondition, KindStreams, KindMachines, KindPool}

// health writes what has failed, and what stays as it is until someone acts: of each pool, each
// reason once, with the object that says the most of it.
func (p *printer) health(t *Tree) {
	isFirst := true
	for i := range t.Items {
		items := slices.Concat(t.Items[i].Items, t.Items[i:i+1])
		slices.SortStableFunc(items, func(a, b Item) int { return slices.Index(healthOrder, a.Kind) - slices.Index(healthOrder, b.Kind) })
		var said []*Item
		for j := range items {
			of := &items[j]
			isSaid := func(reason string) bool {
				return slices.ContainsFunc(said, func(by *Item) bool { return by.says(reason, of.Command) })
			}
			if of.Assessment < Held || !slices.ContainsFunc(of.WaitsFor, func(reason string) bool { return !isSaid(reason) }) {
				continue
			}
			if isFirst {
				p.title("Health")
				isFirst = false
			}
			said = append(said, of)
			p.trouble(of)
		}
	}
}

// says reports whether an item shows a reason, or with the same command less of it: a part, or what
// it is because of.
func (i *Item) says(reason, command string) bool {
	whole := words.Shorten(reason, wide)
	_, because, _ := strings.Cut(whole, ": ")
	return slices.ContainsFunc(i.WaitsFor, func(text string) bool {
		shown := words.Shorten(text, maxReason)
		isPart := strings.Contains(whole, shown) || because != "" && strings.Contains(shown, because)
		return text == reason || strings.Contains(shown, whole) || i.Command == command && isPart
	})
}

func (p *printer) trouble(i *Item) {
	title := i.Kind + " " + nameOf(i) + ": " + i.Assessment.String()
	if since := p.since(i); since != "" {
		title += " for " + since
	}
	if i.Step != "" && i.Kind != KindPool {
		title += ", " + i.Step
	}
	p.line(indent, title)
	for _, reason := range i.WaitsFor {
		p.line(2*indent, words.Shorten(reason, maxReason))
	}
	if p.Health {
		for _, detail := range []struct{ name, text string }{
			{"objects: ", strings.Join(i.Names, ", ")}, {"has: ", i.Has}, {"should have: ", i.Wanted}, {"acts next: ", string(i.Next)}, {"runbook: ", i.Runbook},
		} {
			if detail.text != "" {
				p.line(2*indent, detail.name+detail.text)
			}
		}
	}
	if i.Command != "" {
		p.out.WriteString(strings.Repeat(" ", 2*indent) + "$ " + Visible(i.Command) + "\n")
	}
}

func (p *printer) title(text string) {
	if p.out.Len() > 0 {
		p.out.WriteByte('\n')
	}
	p.line(0, text)
}

// line writes a text in as many lines as it takes.
func (p *printer) line(margin int, text string) {
	p.out.WriteString(strings.Repeat(" ", margin))
	p.wrap(margin, margin+2*indent, text)
	p.out.WriteByte('\n')
}

// wrap writes a text from a column on, and goes on at another one in the lines below.
func (p *printer) wrap(used, margin int, text string) {
	isFirst := true
	next := func() {
		p.out.WriteString("\n" + strings.Repeat(" ", margin))
		used = margin
	}
	for _, word := range strings.Fields(Visible(text)) {
		if !isFirst && used+1+utf8.RuneCountInString(word) <= p.Width {
			p.out.WriteByte(' ')
			used++
		} else if !isFirst {
			next()
		}
		isFirst = false
		for { // a word that is longer than a line
			part := cut(word, p.Width-used)
			p.out.WriteString(part)
			used += utf8.RuneCountInString(part)
			if word = word[len(part):]; word == "" {
				break
			}
			next()
		}
	}
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

// Visible is a text without what controls a terminal, or the direction of the text: objects say
// what they like.
func Visible(text string) string {
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
