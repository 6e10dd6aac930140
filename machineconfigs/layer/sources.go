package layer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
)

// Fields of a MachineConfig that an Error of its images is about.
const (
	FieldOSImageURL      = "spec.osImageURL"
	FieldExtensionsImage = "spec.baseOSExtensionsContainerImage"
)

// InSources is an error about a rendered MachineConfig that names those which people wrote: what is
// wrong is where they have it. The sources are in the order in which they were joined; what none of
// them has stays as it is.
func InSources(err error, sources []*machineconfigs.Config) error {
	text := err.Error()
	for _, e := range errorsIn(err) {
		text = strings.ReplaceAll(text, e.Error(), e.in(sources).Error())
	}
	if text == err.Error() {
		return err
	}
	return &renamedError{text: text, err: err}
}

// IsAbout reports whether an error is about items of a configuration.
func IsAbout(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// renamedError has another text than the error that it is.
type renamedError struct {
	text string
	err  error
}

// Error is the other text.
func (e *renamedError) Error() string { return e.text }

// Unwrap is the error.
func (e *renamedError) Unwrap() error { return e.err }

// errorsIn are all of a tree of errors.
func errorsIn(err error) []*Error {
	switch e := err.(type) { //nolint:errorlint // the tree is walked
	case *Error:
		return []*Error{e}
	case interface{ Unwrap() error }:
		return errorsIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*Error
		for _, part := range e.Unwrap() {
			all = append(all, errorsIn(part)...)
		}
		return all
	}
	return nil
}

// in is the error with the place where the last source has it, which is the one that wins, and the
// names of others that have a part in it.
func (e *Error) in(sources []*machineconfigs.Config) *Error {
	found := *e
	var also []string
	for _, source := range slices.Backward(sources) {
		switch at := e.placeIn(source); {
		case at == "":
		case found.MachineConfig == e.MachineConfig:
			found.MachineConfig, found.Path = source.Name, at
		default:
			also = append(also, fmt.Sprintf("%q", source.Name))
		}
	}
	if len(also) > 0 {
		found.Item += " (also in MachineConfig " + strings.Join(also, ", ") + ")"
	}
	return &found
}

// placeIn is where a MachineConfig has what the error is about; empty where it has no part in it.
func (e *Error) placeIn(cfg *machineconfigs.Config) string {
	kind, name, _ := strings.Cut(e.Item, " ")
	storage, units := cfg.Ignition.Storage, cfg.Ignition.Systemd.Units
	switch {
	case kind == "file":
		return placeAt("storage.files", slices.IndexFunc(storage.Files, func(f types.File) bool { return f.Path == name }))
	case kind == "directory":
		return placeAt("storage.directories", slices.IndexFunc(storage.Directories, func(d types.Directory) bool { return d.Path == name }))
	case kind == "link":
		return placeAt("storage.links", slices.IndexFunc(storage.Links, func(l types.Link) bool { return l.Path == name }))
	case kind == "unit":
		return placeAt("systemd.units", slices.IndexFunc(units, func(u types.Unit) bool { return u.Name == name }))
	case kind == "drop-in":
		dropin, of, _ := strings.Cut(name, " of unit ")
		return placeAt("systemd.units", slices.IndexFunc(units, func(u types.Unit) bool {
			return u.Name == of && slices.ContainsFunc(u.Dropins, func(d types.Dropin) bool { return d.Name == dropin })
		}))
	case e.Path == FieldOSImageURL && cfg.OSImageURL != "", e.Path == FieldExtensionsImage && cfg.ExtensionsImage != "":
		return e.Path
	}
	return ""
}

func placeAt(list string, i int) string {
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("spec.config.%s[%d]", list, i)
}
