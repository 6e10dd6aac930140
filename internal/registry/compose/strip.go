package compose

import (
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/layerwright/layerwright/internal/registry/failure"
)

// WithoutConfiguration is the image that Append puts a configuration layer on, when it is given
// this one: without the layer that an earlier Append has put on top. An image without such a layer
// is returned as it is. Errors are those of reading the image's manifest and config, and Terminal
// ones for a config that can't be read.
func WithoutConfiguration(from v1.Image) (v1.Image, error) {
	c, err := opened(from)
	if err != nil {
		return nil, err
	}
	below, replaced, err := c.Stripped()
	if err != nil || !replaced {
		return from, err
	}
	return below.Image(), nil
}

// opened is an image that someone else has opened.
func opened(from v1.Image) (c *Content, err error) {
	digest, err := from.Digest()
	if err != nil {
		return nil, fmt.Errorf("reading an image's digest: %w", err)
	}
	c = &Content{Call: failure.Call{Doing: "reading image", Subject: digest.String()}}
	if c.MediaType, err = from.MediaType(); err != nil {
		return nil, c.Call.Fail(err)
	}
	if c.Raw, err = from.RawManifest(); err != nil {
		return nil, c.Call.Fail(err)
	}
	if c.RawConfig, err = from.RawConfigFile(); err != nil {
		return nil, c.Call.Fail(err)
	}
	if err := c.ReadManifest(); err != nil {
		return nil, err
	}
	if err := c.ReadConfig(); err != nil {
		return nil, err
	}
	layers, err := from.Layers()
	c.Layers = slices.Clone(layers)
	return c, c.Call.Fail(err)
}
