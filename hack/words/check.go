package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"unicode"
)

// entry is what not to write, and what to write instead.
type entry struct {
	wrong *regexp.Regexp
	right string
}

func parseGlossary(text string) (all []entry, err error) {
	for _, line := range lines(text) {
		wrong, right, found := strings.Cut(line, "\t")
		if !found {
			return nil, fmt.Errorf("glossary: %q has no tab", line)
		}
		pattern, err := regexp.Compile(`(?i)\b(?:` + wrong + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("glossary: %w", err)
		}
		all = append(all, entry{pattern, right})
	}
	return all, nil
}

// check finds words of the glossary and comment lines that are too long.
func check(file string, text []byte, glossary []entry) []string {
	if strings.HasSuffix(file, ".go") {
		return checkGo(file, text, glossary)
	}
	var found []string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		found = append(found, words(fmt.Sprintf("%s:%d", file, number), line, glossary)...)
	}
	return found
}

// words finds words of the glossary in a text.
func words(where, text string, glossary []entry) (found []string) {
	for _, e := range glossary {
		for _, wrong := range e.wrong.FindAllString(text, -1) {
			found = append(found, fmt.Sprintf("%s: %q: write %s", where, wrong, e.right))
		}
	}
	return found
}

func checkGo(file string, text []byte, glossary []entry) (found []string) {
	for _, comment := range comments(text) {
		if width := comment.width(); comment.alone && width > maxColumns && !comment.isDirective() && strings.Contains(comment.text, " ") && breakable(comment) {
			found = append(found, fmt.Sprintf("%s:%d: the comment has %d columns: %d are enough", file, comment.line, width, maxColumns))
		}
	}
	each(text, func(position token.Position, tok token.Token, literal string) {
		switch tok {
		case token.IDENT:
			literal = spaced(literal)
		case token.COMMENT, token.STRING:
		default:
			return
		}
		found = append(found, words(fmt.Sprintf("%s:%d", file, position.Line), literal, glossary)...)
	})
	return found
}

// each calls a function with each token of Go source.
func each(text []byte, do func(token.Position, token.Token, string)) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return
		}
		do(file.Position(pos), tok, literal)
	}
}

// spaced is a name as its words: "comeBack" is "come back".
func spaced(name string) string {
	var out strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			out.WriteByte(' ')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
