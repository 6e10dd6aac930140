package registry

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// What callers of a Client name, whatever room it is in.
type (
	// Error is what went wrong between a client and a registry.
	Error = failure.Error
	// RateLimits remember which registries asked for a pause.
	RateLimits = wire.RateLimits
	// Opener opens an uncompressed tar archive.
	Opener = compose.Opener
)

// WithoutConfiguration is the image that Append puts a configuration layer on, when it is given
// this one: see [compose.WithoutConfiguration].
func WithoutConfiguration(from v1.Image) (v1.Image, error) { return compose.WithoutConfiguration(from) }

// IsNotFound reports whether err says that an image or a part of it does not exist.
func IsNotFound(err error) bool { return failure.IsNotFound(err) }

// IsDenied reports whether err says that the credentials, or their lack, do not allow what was
// tried.
func IsDenied(err error) bool { return failure.IsDenied(err) }

// IsImmutable reports whether err says that a tag stands for something else already, and that the
// registry lets no one change that.
func IsImmutable(err error) bool { return failure.IsImmutable(err) }
