package main

import (
	"bytes"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxColumns is how long comment lines may be; a tab has tabColumns.
	maxColumns = 100
	tabColumns = 4
)

// comment is a comment line.
type comment struct {
	line   int
	indent string
	// text is all of it, from the slashes.
	text string
	// alone reports whether nothing but the indentation is before it.
	alone bool
}

// comments are the lines of a Go file that have a comment of the form "// ...".
func comments(text []byte) (all []comment) {
	each(text, func(position token.Position, tok token.Token, literal string) {
		if tok != token.COMMENT || !strings.HasPrefix(literal, "//") {
			return
		}
		indent := string(text[position.Offset-position.Column+1 : position.Offset])
		all = append(all, comment{
			line: position.Line, indent: indent, text: strings.TrimRight(literal, "\r\n"), alone: strings.TrimSpace(indent) == "",
		})
	})
	return all
}

func (c comment) width() int { return columns(c.indent) + utf8.RuneCountInString(c.text) }

func columns(indent string) int {
	return len(indent) + (tabColumns-1)*strings.Count(indent, "\t")
}

// isDirective reports whether a tool reads the line.
func (c comment) isDirective() bool {
	return !strings.HasPrefix(c.text, "// ") || strings.HasPrefix(c.text, "// +") || strings.HasPrefix(c.text, "// Output:")
}

// special finds lines that are no prose: code, lists, headings, tables, links, and "Deprecated:".
var special = regexp.MustCompile(`^// (\s|[-*+•#|>]|\d+[.)]\s|\[[^\]]+\]:|Deprecated:)`)

// isProse reports whether the line is one of a paragraph.
func (c comment) isProse() bool {
	return c.alone && !c.isDirective() && strings.TrimSpace(c.text) != "//" && !special.MatchString(c.text)
}

// breakable reports whether wrapping can make the line shorter.
func breakable(c comment) bool {
	return !c.isProse() || len(wrapped(c.indent, strings.TrimPrefix(c.text, "// "))) > 1
}

// wrapComments wraps the paragraphs that have a line which is too long.
func wrapComments(text []byte) []byte {
	source := bytes.Split(text, []byte("\n"))
	var out [][]byte
	taken := 0 // lines of the source
	all := comments(text)
	for begin := 0; begin < len(all); {
		end := begin + 1
		for end < len(all) && all[begin].isProse() && all[end].isProse() && all[end].line == all[end-1].line+1 && all[end].indent == all[begin].indent {
			end++
		}
		paragraph := all[begin:end]
		begin = end
		if !paragraph[0].isProse() || !isLong(paragraph) {
			continue
		}
		out = append(out, source[taken:paragraph[0].line-1]...)
		taken = paragraph[len(paragraph)-1].line
		var prose []string
		for _, c := range paragraph {
			prose = append(prose, strings.TrimPrefix(c.text, "// "))
		}
		for _, line := range wrapped(paragraph[0].indent, strings.Join(prose, " ")) {
			out = append(out, []byte(paragraph[0].indent+"// "+line))
		}
	}
	return bytes.Join(append(out, source[taken:]...), []byte("\n"))
}

func isLong(paragraph []comment) bool {
	for _, c := range paragraph {
		if c.width() > maxColumns {
			return true
		}
	}
	return false
}

// wrapped breaks prose into lines that fit. No line begins like a list, a heading or a directive, since
// gofmt and generators would take it for one: the word before it goes along.
func wrapped(indent, prose string) []string {
	room := maxColumns - columns(indent) - len("// ")
	var lines []string
	var line []string
	length := 0
	for _, word := range strings.Fields(prose) {
		width := utf8.RuneCountInString(word)
		if length > 0 && length+1+width > room {
			next := []string{word}
			for special.MatchString("// "+strings.Join(next, " ")+" ") && len(line) > 1 {
				next = append([]string{line[len(line)-1]}, next...)
				line = line[:len(line)-1]
			}
			lines = append(lines, strings.Join(line, " "))
			line, length = next, utf8.RuneCountInString(strings.Join(next, " "))
			continue
		}
		if length > 0 {
			length++
		}
		line, length = append(line, word), length+width
	}
	return append(lines, strings.Join(line, " "))
}
