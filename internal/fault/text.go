package fault

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxMessage is the length in runes to which Cut cuts. It holds the line, the instruction and the
// last output of a failed RUN, and is still read in one glance with kubectl describe; the API would
// take 32 KiB.
const MaxMessage = 1024

// ellipsis stands where Cut took text out.
const ellipsis = " ... "

// Message is the text of err for people: without secrets of URLs, printable and cut. It is empty
// for nil.
func Message(err error) string {
	if err == nil {
		return ""
	}
	return Clean(err.Error())
}

// Clean makes any text fit for a condition: what Redact and Cut do, in that order, so that no
// secret hides behind a cut.
func Clean(text string) string { return Cut(Redact(text)) }

// Cut brings text to at most MaxMessage runes. It takes the middle out, because an error begins
// with what was tried and ends with why that failed; no rune is ever cut in two. Bytes that are no
// UTF-8 become U+FFFD, control characters (a build's colours) go except for new lines and tabs, and
// space at both ends goes. Cutting twice is the same as cutting once.
func Cut(text string) string {
	text = strings.TrimSpace(printable(text))
	if utf8.RuneCountInString(text) <= MaxMessage {
		return text
	}
	const room = MaxMessage - len(ellipsis)
	const head = room / 2
	return strings.TrimRightFunc(firstRunes(text, head), unicode.IsSpace) + ellipsis +
		strings.TrimLeftFunc(lastRunes(text, room-head), unicode.IsSpace)
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

func firstRunes(text string, n int) string {
	end := 0
	for ; n > 0 && end < len(text); n-- {
		_, size := utf8.DecodeRuneInString(text[end:])
		end += size
	}
	return text[:end]
}

func lastRunes(text string, n int) string {
	start := len(text)
	for ; n > 0 && start > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
	}
	return text[start:]
}
