package machineconfigs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/document"
)

// maxErrors is how many mistakes of one MachineConfig are reported. Messages end up in a condition,
// which people read.
const maxErrors = 20

// Error is one mistake: in which MachineConfig, where in it, and what is wrong. Functions of this
// package that find several mistakes return them joined (errors.Join), sorted by MachineConfig and
// place; errors.As finds the first.
type Error struct {
	// MachineConfig is the name of the object; empty where the mistake is in no single one.
	MachineConfig string
	// Path is where the mistake is: inside spec.config as Ignition names it, such as
	// storage.files[3].contents.source; anywhere else from the root of the object, such as
	// spec.kernelType. Empty where the object as a whole is meant.
	Path string
	// Element names what the path leads to, such as file "/etc/chrony.conf"; empty where there is
	// no name.
	Element string
	// Line and Column, from 1, are the place in the JSON of spec.config; 0 where none is known. A
	// MachineConfig that was read from a cluster has all of its JSON in one line.
	Line, Column int
	// Reason is the reason for a pool's condition RenderDegraded: mcfgv1.ReasonInvalidMachineConfig
	// or mcfgv1.ReasonOSImageURLConflict.
	Reason string
	// Err says what is wrong, and what to do about it.
	Err error
}

// Error is the message for people.
func (e *Error) Error() string {
	var parts []string
	if e.MachineConfig != "" {
		parts = append(parts, fmt.Sprintf("MachineConfig %q", e.MachineConfig))
	}
	if where := e.where(); where != "" {
		parts = append(parts, where)
	}
	return strings.Join(append(parts, e.Err.Error()), ": ")
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) where() string {
	where := e.Path
	switch {
	case e.Element != "" && where != "":
		where += " (" + e.Element + ")"
	case e.Element != "":
		where = e.Element
	}
	if e.Line == 0 {
		return where
	}
	place := fmt.Sprintf("line %d, column %d", e.Line, e.Column)
	if where == "" {
		return place
	}
	return where + ", " + place
}

// invalid is a mistake in a MachineConfig.
func invalid(name, path string, err error) *Error {
	return &Error{MachineConfig: name, Path: path, Reason: mcfgv1.ReasonInvalidMachineConfig, Err: err}
}

// joinErrors makes one error of many: each once, sorted by place, and no more of one MachineConfig
// than people read.
func joinErrors(found []*Error) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b *Error) int {
		return cmp.Or(
			strings.Compare(a.MachineConfig, b.MachineConfig),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			comparePaths(a.Path, b.Path),
		)
	})
	said := map[string]bool{}
	found = slices.DeleteFunc(found, func(e *Error) bool {
		text := e.Error()
		again := said[text]
		said[text] = true
		return again
	})
	joined := make([]error, 0, len(found))
	for from := 0; from < len(found); {
		to := from
		for to < len(found) && found[to].MachineConfig == found[from].MachineConfig {
			to++
		}
		for _, e := range found[from:min(to, from+maxErrors)] {
			joined = append(joined, e)
		}
		if more := to - from - maxErrors; more > 0 {
			joined = append(joined, invalid(found[from].MachineConfig, "", fmt.Errorf("%d more mistakes", more)))
		}
		from = to
	}
	return errors.Join(joined...)
}

// comparePaths sorts files[2] before files[10].
func comparePaths(a, b string) int {
	as, bs := document.PathSegments(a), document.PathSegments(b)
	for i := range min(len(as), len(bs)) {
		an, aIsNumber := as[i].(int)
		bn, bIsNumber := bs[i].(int)
		var order int
		if aIsNumber && bIsNumber {
			order = cmp.Compare(an, bn)
		} else {
			order = strings.Compare(fmt.Sprint(as[i]), fmt.Sprint(bs[i]))
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(as), len(bs))
}
