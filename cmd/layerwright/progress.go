package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/layerwright/layerwright/view"
)

// progressLine shows on standard error how far something is: in one line of a terminal, with a
// bar, or else in a line for each change.
type progressLine struct {
	to io.Writer
	// width is that of the terminal; 0 where it is none.
	width int
	shown string
}

func newProgressLine(to io.Writer) *progressLine {
	p := &progressLine{to: to}
	if f, isFile := to.(*os.File); isFile && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		p.width, _, _ = term.GetSize(int(f.Fd()))
	}
	return p
}

// share finds how much of a step is done.
var share = regexp.MustCompile(`\b([0-9]{1,9}) of ([0-9]{1,9})\b`)

// bar is how much of a step is done, in 20 columns; empty where the text does not say it.
func bar(text string) string {
	const columns = 20
	found := share.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	done, _ := strconv.Atoi(found[1]) // it has digits alone
	total, _ := strconv.Atoi(found[2])
	if total == 0 {
		return ""
	}
	full := min(columns*done/total, columns)
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", columns-full) + "] "
}

// show shows how far it is.
func (p *progressLine) show(text string) {
	text = view.Visible(text)
	if text == p.shown {
		return
	}
	p.shown = text
	if p.width == 0 {
		_, _ = fmt.Fprintln(p.to, text)
		return
	}
	line := []rune(bar(text) + text)
	_, _ = fmt.Fprint(p.to, "\r\x1b[K"+string(line[:min(len(line), p.width-1)]))
}

// say writes a line that stays.
func (p *progressLine) say(text string) {
	p.end()
	_, _ = fmt.Fprintln(p.to, "layerwright: "+view.Visible(text))
}

// end takes the line away.
func (p *progressLine) end() {
	if p.width > 0 && p.shown != "" {
		_, _ = fmt.Fprint(p.to, "\r\x1b[K")
	}
	p.shown = ""
}
