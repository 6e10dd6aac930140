package lint

import (
	"cmp"
	"fmt"
	"strings"
)

// Error means that a Containerfile was not rendered because of its findings.
type Error struct {
	// File is where the text is from.
	File string
	// Findings are all findings of severity Error, by line; at least one.
	Findings []Finding
}

// maxRefusal is about how long the text of an Error gets: conditions have room for little more.
const maxRefusal = 700

// Error is what is wrong and what to do about it, as many findings as there is room for, and how
// many more there are.
func (e *Error) Error() string {
	text := cmp.Or(e.File, "Containerfile")
	if place := e.Findings[0].place(); place != "" {
		text += " " + place
	}
	text += ": " + e.Findings[0].advice()
	for i, f := range e.Findings[1:] {
		more := strings.TrimPrefix(f.place()+": ", ": ")
		if e.Findings[i].Reason == f.Reason { // and so with the same to do
			more += f.Message
		} else {
			more += f.advice()
		}
		if len(text)+len(more) > maxRefusal {
			left := len(e.Findings) - 1 - i
			return text + fmt.Sprintf("; and %d more %s", left, plural(left, "error"))
		}
		text += "; " + more
	}
	return text
}

// advice is the message and what to do.
func (f Finding) advice() string {
	if f.Fix == "" {
		return f.Message
	}
	return f.Message + ". " + strings.TrimSuffix(f.Fix, ".")
}

// plural is a noun for a number of things.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
