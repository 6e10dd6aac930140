package containerfiles

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// Error is about one place in a Containerfile.
type Error struct {
	// File is where the text is from, in the administrator's words; "Containerfile" stands in for
	// an empty one.
	File string
	// Line and EndLine are the first and the last line of the instruction, from 1; 0 where the
	// whole file is meant.
	Line, EndLine int
	// Instruction is the keyword in upper case; empty outside of instructions.
	Instruction string
	// Reason is one of Rules.
	Reason string
	// Err says what is wrong.
	Err error
}

// Error is for example `Containerfile line 7: COPY: no stage is named "tools"`.
func (e *Error) Error() string {
	text := cmp.Or(e.File, "Containerfile")
	if e.Line > 0 {
		text += fmt.Sprintf(" line %d", e.Line)
	}
	if e.Instruction != "" {
		text += ": " + e.Instruction
	}
	return text + ": " + e.Err.Error()
}

// Unwrap is Err.
func (e *Error) Unwrap() error { return e.Err }

// MissingError means that a MachineOSConfig refers to something that is not there yet. Whoever gets
// it can wait for it.
type MissingError struct {
	// Field is the entry that refers to it, such as spec.containerFile[NoArch].
	Field string
	// ConfigMap is the name, and Key the key in it; Key is empty where the whole ConfigMap is
	// missing.
	ConfigMap, Key string
}

// Error names what is missing and who wants it.
func (e *MissingError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s: ConfigMap %q does not exist", e.Field, e.ConfigMap)
	}
	return fmt.Sprintf("%s: ConfigMap %q has no key %q", e.Field, e.ConfigMap, e.Key)
}

var (
	errNotUTF8 = errors.New("the text is not valid UTF-8")
	errNUL     = errors.New("the text has a NUL byte")
	errTooLong = fmt.Errorf("the text is longer than %d characters", MaxLength)
	errLine    = fmt.Errorf("the line is longer than %d bytes", maxLine)
)

// ErrPairs means that ENV, LABEL or ARG does not say which name has which value.
var ErrPairs = errors.New(`wants name=value pairs, with "=" and without spaces around it; quote values that have spaces`)

// parseError is an error of BuildKit's parser with its lines. Texts of ENV, LABEL and ARG may quote
// a value, and are replaced.
func (c *Containerfile) parseError(err error) *Error {
	e := &Error{File: c.name, Reason: ReasonSyntax, Err: err}
	located := &parser.LocationError{}
	if !errors.As(err, &located) || len(located.Locations) == 0 || len(located.Locations[0]) == 0 {
		return e
	}
	lines := located.Locations[0]
	e.Line, e.EndLine = lines[0].Start.Line, lines[len(lines)-1].End.Line
	e.Instruction = c.keywordAt(e.Line)
	switch e.Instruction {
	case "ENV", "LABEL", "ARG":
		e.Err = ErrPairs
	default:
		e.Err = errors.New(Clean(err.Error())) // BuildKit's error carries a stack trace of its own
	}
	return e
}

// Clean takes what would break a line of a condition out of a text, and shortens it.
func Clean(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	if runes := []rune(text); len(runes) > maxMessage {
		text = string(runes[:maxMessage]) + "..."
	}
	return text
}
