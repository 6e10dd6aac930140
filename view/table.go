package view

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// minMessage is how many columns the last cell of a row needs at least; with fewer it is below.
const minMessage = 30

// gap is between columns, assessment the name of one of them.
const (
	gap        = "  "
	assessment = "ASSESSMENT"
)

// Table writes rows for people as Text does, below a title. The last column is a text that may take
// several lines. Zero as the width leaves lines as long as they are.
func Table(w io.Writer, title string, columns []string, rows [][]string, width int) error {
	t := &table{columns: columns}
	for _, cells := range rows {
		t.add(&Item{}, slices.Clone(cells)...)
	}
	p := newPrinter(Style{Width: width})
	p.section(title, t)
	_, err := io.WriteString(w, p.out.String())
	return err
}

// table has rows of cells, the last one of which is a text that may take several lines.
type table struct {
	columns []string
	rows    []row
}

// row is an item with its cells.
type row struct {
	*Item

	cells []string
}

func (t *table) add(of *Item, cells ...string) {
	for i := range cells {
		cells[i] = strings.TrimSpace(Visible(cells[i]))
	}
	t.rows = append(t.rows, row{of, cells})
}

// layout is where the columns of a table are.
type layout struct {
	widths []int
	// shown are the columns that are side by side. All others are below, each in a line with its
	// name.
	shown []int
	// message is where the last one begins; zero where it is below too.
	message int
}

// layout finds columns that have room. One that no row has is not shown.
func (t *table) layout(width int) layout {
	last := len(t.columns) - 1
	l := layout{widths: make([]int, last+1)}
	for i, name := range t.columns {
		for _, r := range t.rows {
			if n := utf8.RuneCountInString(r.cells[i]); n > 0 {
				l.widths[i] = max(l.widths[i], n, len(name))
			}
		}
	}
	l.widths[0] = min(l.widths[0], width/2) // a name that is longer has a line of its own
	at := indent
	for i := range last {
		if l.widths[i] == 0 {
			continue
		}
		if at+l.widths[i] > width {
			return l
		}
		l.shown = append(l.shown, i)
		at += l.widths[i] + len(gap)
	}
	if l.widths[last] > 0 && width-at >= minMessage {
		l.message = at
	}
	return l
}

func (p *printer) section(title string, t *table) {
	if len(t.rows) == 0 {
		return
	}
	p.title(title)
	l := t.layout(p.Width)
	last := len(t.columns) - 1
	heads := []string{}
	for _, i := range l.shown {
		heads = append(heads, pad(t.columns[i], l.widths[i]))
	}
	if l.message > 0 {
		heads = append(heads, t.columns[last])
	}
	p.out.WriteString(strings.TrimRight(strings.Repeat(" ", indent)+strings.Join(heads, gap), " ") + "\n")
	for i := range t.rows {
		p.row(t, &l, &t.rows[i])
	}
}

func (p *printer) row(t *table, l *layout, r *row) {
	last := len(t.columns) - 1
	message := r.cells[last]
	var cells []string
	for _, i := range l.shown {
		text := r.cells[i]
		if i == 0 && utf8.RuneCountInString(text) > l.widths[0] {
			p.line(indent, text)
			text = ""
		}
		cell := pad(text, l.widths[i])
		if p.Color && text != "" && t.columns[i] == assessment {
			cell = strings.Replace(cell, text, colored(r.Assessment, text), 1)
		}
		cells = append(cells, cell)
	}
	line := strings.Repeat(" ", indent) + strings.Join(cells, gap)
	if l.message > 0 && message != "" {
		p.out.WriteString(line + gap)
		p.wrap(l.message, l.message, p.short(r.Item, message, l.message))
	} else {
		p.out.WriteString(strings.TrimRight(line, " "))
	}
	p.out.WriteByte('\n')
	for i, text := range r.cells[:last] {
		if text != "" && !slices.Contains(l.shown, i) {
			p.line(2*indent, t.columns[i]+" "+text)
		}
	}
	if l.message == 0 && message != "" {
		p.line(2*indent, p.short(r.Item, message, 2*indent))
	}
}

// short is one line of what is said as a whole below the tables.
func (p *printer) short(i *Item, text string, at int) string {
	if i.Assessment < Held || i.Kind == KindPool || utf8.RuneCountInString(text) <= p.Width-at {
		return text
	}
	return strings.TrimSpace(cut(text, p.Width-at-1)) + "…"
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// colored marks the word of an assessment with the colours that terminals have had from the first.
func colored(a Assessment, text string) string {
	const green, yellow, red, cyan = "32", "33", "31", "36"
	color := map[Assessment]string{Done: green, Waiting: yellow, Held: yellow, Degraded: red, Progressing: cyan}[a]
	if color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
