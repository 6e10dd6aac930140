package registry

import (
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
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
	below, replaced, err := c.stripped()
	if err != nil || !replaced {
		return from, err
	}
	return below.image(), nil
}

// opened is an image that someone else has opened.
func opened(from v1.Image) (c *content, err error) {
	digest, err := from.Digest()
	if err != nil {
		return nil, fmt.Errorf("reading an image's digest: %w", err)
	}
	c = &content{call: call{doing: "reading image", subject: digest.String()}}
	if c.mediaType, err = from.MediaType(); err != nil {
		return nil, c.call.fail(err)
	}
	if c.raw, err = from.RawManifest(); err != nil {
		return nil, c.call.fail(err)
	}
	if c.rawConfig, err = from.RawConfigFile(); err != nil {
		return nil, c.call.fail(err)
	}
	if err := c.readManifest(); err != nil {
		return nil, err
	}
	if err := c.readConfig(); err != nil {
		return nil, err
	}
	layers, err := from.Layers()
	c.layers = slices.Clone(layers)
	return c, c.call.fail(err)
}
