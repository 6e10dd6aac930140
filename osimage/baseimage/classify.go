package baseimage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/failure"
)

// classify marks what a registry has answered. That an image is missing or may not be pulled is for
// a person to change; all else, from too many requests to no answer at all, may pass.
func classify(err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) || fault.IsTerminal(err) {
		return err
	}
	if slices.Contains([]failure.Kind{failure.NotFound, failure.Denied}, failure.KindOfAnswer(answer)) {
		return fault.NewTerminal(mcfgv1.ReasonImageNotFound, err)
	}
	return err
}

// MissingError says that an image does not have files that were to be read from it.
type MissingError struct {
	// Paths are sorted.
	Paths []string
}

// Error names the paths.
func (e *MissingError) Error() string {
	return "the image has no such file: " + quoted(e.Paths)
}

// TooLargeError says that a file is bigger than what is read.
type TooLargeError struct {
	// Path is the file's path or, where it has several, one of its names in its layer.
	Path string
	// Size and Limit are in bytes.
	Size, Limit int64
	// Together reports whether the limit is for all files that are read at once.
	Together bool
}

// Error names all.
func (e *TooLargeError) Error() string {
	if e.Together {
		return fmt.Sprintf("file %q has %d bytes, the limit is %d for all files that are read of the image", e.Path, e.Size, e.Limit)
	}
	return fmt.Sprintf("file %q has %d bytes, the limit is %d", e.Path, e.Size, e.Limit)
}

func quoted(paths []string) string {
	all := make([]string, len(paths))
	for i, path := range paths {
		all[i] = fmt.Sprintf("%q", path)
	}
	return strings.Join(all, ", ")
}
