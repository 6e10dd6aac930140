package words

import (
	"fmt"
	"strings"
	"unicode"
)

// List names a few nodes, and says how many more there are.
func List(names []string) string {
	const named = 3
	if more := len(names) - named; more > 0 {
		return fmt.Sprintf("nodes %s and %d more", strings.Join(names[:named], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Shorten cuts a text in the middle where it is longer than limit bytes: the beginning says what it
// is about, and the end names the cause. It becomes one line that a terminal can show: nodes say
// what they like.
func Shorten(text string, limit int) string {
	const gap = " ... "
	if len(text) > limit {
		head := (limit - len(gap)) / 3
		tail := limit - len(gap) - head
		text = strings.ToValidUTF8(beforeSpace(text[:head]), "") + gap + strings.ToValidUTF8(afterSpace(text[len(text)-tail:]), "")
	}
	return strings.Map(printable, text)
}

// longWord is how much of a text is given up at most so that it is not cut within a word.
const longWord = 24

func beforeSpace(text string) string {
	if i := strings.LastIndexByte(text, ' '); i >= 0 && len(text)-i <= longWord {
		return text[:i]
	}
	return text
}

func afterSpace(text string) string {
	if i := strings.IndexByte(text, ' '); i >= 0 && i < longWord {
		return text[i+1:]
	}
	return text
}

// printable is a character, or a space in place of one that controls a terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}
