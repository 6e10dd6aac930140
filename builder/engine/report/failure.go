package report

import (
	"errors"
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// maxMessage is how many characters of a failure's message are kept. The end is cut: what failed
// comes first.
const maxMessage = 1024

// Error is a failure that knows who can do something about it.
type Error struct {
	// Class says who, and Reason is that of the condition.
	Class  fault.Class
	Reason string
	// Output are the last lines that a RUN line wrote.
	Output []string
	// At is what the step was doing when it was told to end.
	At  string
	err error
}

// NewAdmin is a failure that the same inputs meet again.
func NewAdmin(reason string, err error) *Error {
	return &Error{Class: fault.Terminal, Reason: reason, err: err}
}

// NewInfrastructure is a failure that another attempt may not meet.
func NewInfrastructure(err error) *Error {
	return &Error{Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, err: err}
}

// NewInterrupted is the end of a step that was told to end while it was doing what at says; empty
// where that is not known.
func NewInterrupted(at string, err error) *Error {
	return &Error{Class: fault.Transient, Reason: mcfgv1.ReasonInterrupted, At: at, err: err}
}

// Error is what happened.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap is what happened.
func (e *Error) Unwrap() error { return e.err }

// IsAdmin reports whether err is marked as one that the same inputs meet again.
func IsAdmin(err error) bool {
	var known *Error
	return errors.As(err, &known) && known.Class == fault.Terminal
}

// FailureOf is what a report says of an error: the outermost class that is known, Transient where
// none is. URLs in the text lose their secrets.
func FailureOf(err error) *backend.StepFailure { return Secrets{}.FailureOf(err) }

// FailureOf is the package's FailureOf, without the secrets.
func (s Secrets) FailureOf(err error) *backend.StepFailure {
	known := &Error{}
	if !errors.As(err, &known) {
		known = classify(err)
	}
	return &backend.StepFailure{
		Class:   known.Class,
		Reason:  known.Reason,
		Message: shorten(Printable(fault.Clean(s.Remove(err.Error()))), maxMessage), // half a secret would not be found
		Output:  known.Output,
		At:      s.Remove(known.At),
	}
}

// classify is for errors of our own packages, and for those that no one marked.
func classify(err error) *Error {
	switch {
	case fault.IsCancellation(err):
		return NewInterrupted("", err)
	case fault.IsTransient(err):
		return NewInfrastructure(err)
	}
	return &Error{Class: fault.ClassOf(err), Reason: fault.Reason(err), err: err}
}

// ExitCode is what the process of a step ends with.
func ExitCode(failure *backend.StepFailure) int {
	switch {
	case failure == nil:
		return 0
	case failure.Class == fault.Terminal:
		return backend.ExitAdmin
	default:
		return backend.ExitInfrastructure
	}
}

// Panicked is the failure of a step that a mistake in the program ended. Where it happened goes to
// the log.
func Panicked(value any) *Error {
	return NewInfrastructure(fmt.Errorf("the builder has a mistake that ended it: %v", value))
}

// shorten cuts a text to so many characters.
func shorten(text string, characters int) string {
	runes := []rune(text)
	if len(runes) <= characters {
		return text
	}
	return strings.TrimSpace(string(runes[:characters-1])) + "…"
}
