package report

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapes are what terminals take for colours, titles and movements of the cursor (ECMA-48).
var escapes = regexp.MustCompile(`\x1b(\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(\x07|\x1b\\)?|[\x40-\x5a\x5c\x5e\x5f])`)

// Printable is the text in one line, without what a terminal would act on. What carriage returns
// wrote over is gone, as on a screen.
func Printable(text string) string {
	text = escapes.ReplaceAllString(strings.ToValidUTF8(text, string(utf8.RuneError)), "")
	text = strings.TrimRight(text, "\r\n")
	if over := strings.LastIndexByte(text, '\r'); over >= 0 {
		text = text[over+1:]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r): // Cf turns the direction of text around, or hides it
			return -1
		}
		return r
	}, text)
	return strings.TrimSpace(text)
}

// Instruction is an instruction of a Containerfile as a message has it: one line, not long.
func Instruction(text string) string {
	const enough = 160
	return shorten(Printable(text), enough)
}
