package fault

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Class is what an error means for whoever repeats the work.
type Class int

const (
	// Transient is the class of every error that no one marked: trying again, later and later, may
	// help.
	Transient Class = iota
	// Waiting means that someone else is expected to act: the work goes on without an error once
	// they have.
	Waiting
	// Terminal means that trying again can't help until the spec, or something a person looks
	// after, changes.
	Terminal
)

// String is the name of the class as logs and tests show it.
func (c Class) String() string {
	return cmp.Or(map[Class]string{Waiting: "Waiting", Terminal: "Terminal"}[c], "Transient")
}

// inReports are the words for classes in the reports that steps of builds leave: who can act.
var inReports = map[Class]string{Transient: "Infrastructure", Waiting: "Waiting", Terminal: "Admin"}

// MarshalText is the class as reports have it.
func (c Class) MarshalText() ([]byte, error) { return []byte(inReports[c]), nil }

// UnmarshalText reads what MarshalText writes. Every other word is Transient: it comes from a pod.
func (c *Class) UnmarshalText(text []byte) error {
	*c = Transient
	for class, word := range inReports {
		if word == string(text) {
			*c = class
		}
	}
	return nil
}

// markedError gives a class to the error that it wraps.
type markedError struct {
	class  Class
	reason string
	after  time.Duration
	err    error
}

// NewWaiting marks err as Waiting. The reason is that of the condition it ends in, such as
// "WaitingForPushSecret". The work is looked at again after the given time; zero means that a watch
// is certain to tell. Without an err the reason is its text.
func NewWaiting(reason string, after time.Duration, err error) error {
	return &markedError{class: Waiting, reason: reason, after: max(after, 0), err: err}
}

// NewTerminal marks err as Terminal. The reason is that of the condition it ends in; the text of
// err must tell a person what to change. Without an err the reason is its text.
func NewTerminal(reason string, err error) error {
	return &markedError{class: Terminal, reason: reason, err: err}
}

// Error is the text of the marked error: a mark adds nothing to it.
func (e *markedError) Error() string {
	if e.err == nil {
		return cmp.Or(e.reason, e.class.String())
	}
	return e.err.Error()
}

// Unwrap gives the marked error.
func (e *markedError) Unwrap() error { return e.err }

// ClassOf is the class of err: that of the outermost mark, Transient if there is none. Who wraps an
// error may therefore mark it anew, as when retries are used up. Of nil it is Transient too: ask
// only about errors.
func ClassOf(err error) Class {
	if mark, ok := markOf(err); ok {
		return mark.class
	}
	return Transient
}

// IsTransient reports whether err is an error that trying again may cure.
func IsTransient(err error) bool { return err != nil && ClassOf(err) == Transient }

// IsWaiting reports whether err waits for someone else.
func IsWaiting(err error) bool { return ClassOf(err) == Waiting }

// IsTerminal reports whether err can't be cured by trying again.
func IsTerminal(err error) bool { return ClassOf(err) == Terminal }

// IsCancellation reports whether err says that whoever asked wants no answer any more, or ran out
// of time: of what was asked about it says nothing.
func IsCancellation(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Reason is the reason that err was marked with, empty for a Transient one.
func Reason(err error) string {
	if mark, ok := markOf(err); ok {
		return mark.reason
	}
	return ""
}

// After is the time after which a Waiting err is to be looked at again, zero for every other.
func After(err error) time.Duration {
	if mark, ok := markOf(err); ok {
		return mark.after
	}
	return 0
}

// Join is errors.Join for errors of things that were tried independently of each other. The whole
// has the class that comes back soonest, so that one hopeless part never keeps the others from
// being tried again: Transient before Waiting before Terminal. Of several Waiting parts the
// shortest time counts; the reason is that of the first part of the class that won.
func Join(errs ...error) error {
	joined := errors.Join(errs...)
	if joined == nil {
		return nil
	}
	mark := &markedError{class: Terminal, err: joined}
	for _, err := range errs {
		if err != nil {
			mark.class = min(mark.class, ClassOf(err))
		}
	}
	for _, err := range errs {
		if err == nil || ClassOf(err) != mark.class {
			continue
		}
		mark.reason = cmp.Or(mark.reason, Reason(err))
		mark.after = sooner(mark.after, After(err))
	}
	return mark
}

// sooner is the shorter of two times of which zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// markOf finds the outermost mark.
func markOf(err error) (*markedError, bool) {
	var mark *markedError
	ok := errors.As(err, &mark)
	return mark, ok
}
