package lint

import (
	"cmp"
	"fmt"
)

// Error means that a Containerfile was not rendered because of its findings.
type Error struct {
	// File is where the text is from.
	File string
	// Findings are all findings of severity Error, by line; at least one.
	Findings []Finding
}

// Error is the first finding, and how many more there are.
func (e *Error) Error() string {
	text := cmp.Or(e.File, "Containerfile") + " " + e.Findings[0].place() + ": " + e.Findings[0].Message
	if e.Findings[0].Line == 0 {
		text = cmp.Or(e.File, "Containerfile") + ": " + e.Findings[0].Message
	}
	if more := len(e.Findings) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more %s)", more, plural(more, "error"))
	}
	return text
}

// plural is a noun for a number of things.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
