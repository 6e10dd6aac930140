package order

import (
	"github.com/layerwright/layerwright/internal/registry"
)

// Image is one that stands in the registry.
type Image struct {
	// Pinned is it by digest.
	Pinned    string
	Platforms []registry.PlatformResult
	// Message says how it came to be.
	Message string
	// Immutable are the tags that it was not given, since they stand for another image for good.
	Immutable []string
	// Content is what the configuration was appended to, by digest, where that was built.
	Content string
	// Previous is the image that Pulls Compares with.
	Previous string
	// Pulls are what a node pulls that runs Previous, in bytes, in the order of Platforms; nil
	// where that is not known.
	Pulls []int64
}

// Compare says what nodes pull: beside the image that the pool had, where its layers are known, or
// else beside the base image.
func (i *Image) Compare(o *Order) *Image {
	before, base := make([]int64, 0, len(i.Platforms)), make([]int64, 0, len(i.Platforms))
	for at := range i.Platforms {
		p := &i.Platforms[at]
		if p.New != nil {
			before = append(before, *p.New)
		}
		// That they lie on the base image's is checked before the image is signed.
		if below := o.Base.Layers(p.Platform); below > 0 && below <= len(p.Layers) {
			var above int64
			for _, size := range p.Layers[below:] {
				above += size
			}
			base = append(base, above)
		}
	}
	switch len(i.Platforms) {
	case len(before):
		i.Previous, i.Pulls = o.Before, before
	case len(base):
		i.Previous, i.Pulls = o.Base.Image, base
	}
	return i
}
