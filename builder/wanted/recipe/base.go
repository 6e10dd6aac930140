package recipe

import (
	"context"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// Base is an OS image: what it is called, and what it has.
type Base struct {
	// Image is it by digest, the manifest list where there is one.
	Image string
	// Stream is the stream that it says it is of; empty where it says nothing.
	Stream string
	// Created is when it says that it was made, the newest of its architectures; zero where it says
	// nothing.
	Created time.Time
	// Platforms are those of the architectures that were asked for, in the image's order.
	Platforms []Platform
	// IsChoice reports whether the image is for several architectures, whether or not all of them
	// were asked for.
	IsChoice bool
}

// Below is what the image of a pool is made of, by digest: that of the only architecture which was
// asked for, or the manifest list.
func (b *Base) Below() string {
	if len(b.Platforms) == 1 {
		return b.Platforms[0].Image
	}
	return b.Image
}

// Architectures are those that were asked for.
func (b *Base) Architectures() []mcfgv1.Architecture {
	out := make([]mcfgv1.Architecture, len(b.Platforms))
	for i, p := range b.Platforms {
		out[i] = mcfgv1.Architecture(p.Architecture)
	}
	return out
}

// Platform is the image for one architecture.
type Platform struct {
	Architecture mcfgv1.ContainerfileArch
	// Platform is how the image list names it.
	Platform v1.Platform
	// Image is the image of this architecture alone, by digest.
	Image string
	// Layers is the number of layers it has.
	Layers int
	// Open is what it has. That takes much memory: one is let go before the next is opened, and
	// none is kept.
	Open func(ctx context.Context) (*osindex.Index, error)
}

// Layers is the number of layers that the base image has for a platform; 0 where it has none.
func (b *Base) Layers(platform v1.Platform) int {
	for i := range b.Platforms {
		if p := &b.Platforms[i]; p.Platform.Architecture == platform.Architecture {
			return p.Layers
		}
	}
	return 0
}
