package compose

import (
	"bytes"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// MaxConfig is the largest config that is read, in bytes. Those of operating systems have some 20
// KB.
const MaxConfig = 8 << 20

// Choice is one image of a source.
type Choice struct {
	// Desc is the descriptor in the index; that of the manifest itself for a single image.
	Desc v1.Descriptor
	// Platform is what the image has to be for; the zero one is anything.
	Platform v1.Platform
	Single   bool
}

// Matches reports whether an image for a platform serves where another is wanted, which may leave
// the variant open.
func Matches(wanted, has v1.Platform) bool {
	return osOf(wanted) == osOf(has) && wanted.Architecture == has.Architecture &&
		(wanted.Variant == "" || Variant(wanted) == Variant(has))
}

func osOf(p v1.Platform) string {
	if p.OS == "" {
		return "linux"
	}
	return p.OS
}

// Variant knows that 64-bit Arm is v8 where nothing else is said.
func Variant(p v1.Platform) string {
	if p.Architecture == "arm64" && p.Variant == "" {
		return "v8"
	}
	return p.Variant
}

// Content is one image that has been read: all but its layers.
type Content struct {
	Choice
	Call failure.Call
	// Place is where it was read, which may be a mirror.
	Place     name.Reference
	MediaType types.MediaType
	manifest  *v1.Manifest
	Raw       []byte // the manifest
	RawConfig []byte
	Config    *v1.ConfigFile
	Layers    []v1.Layer
}

func (c *Content) refuse(format string, args ...any) error {
	return c.Call.Refuse(failure.Unsupported, fmt.Sprintf(format, args...))
}

// ReadManifest reads Raw, and refuses what is no image.
func (c *Content) ReadManifest() (err error) {
	if c.MediaType.IsSchema1() {
		return c.Call.Fail(remote.ErrSchema1)
	}
	if c.manifest, err = v1.ParseManifest(bytes.NewReader(c.Raw)); err != nil {
		return c.refuse("its manifest can't be read: %v", err)
	}
	if !c.MediaType.IsImage() && c.manifest.MediaType != "" { // some registries say "application/json" to everything
		c.MediaType = c.manifest.MediaType
	}
	switch {
	case !c.MediaType.IsImage():
		return c.refuse("it has a manifest of the unknown type %q", c.MediaType)
	case !c.manifest.Config.MediaType.IsConfig():
		return c.refuse("it is no container image: its config has the type %q", c.manifest.Config.MediaType)
	case c.manifest.Config.Size > MaxConfig:
		return c.refuse("its config is larger than %d bytes", MaxConfig)
	}
	for _, part := range append(c.manifest.Layers[:len(c.manifest.Layers):len(c.manifest.Layers)], c.manifest.Config) {
		if part.Size < 0 { // go-containerregistry reads such a part without end
			return c.refuse("its part %s has the size %d", part.Digest, part.Size)
		}
	}
	return nil
}

// ReadConfig reads RawConfig, and refuses what contradicts the manifest.
func (c *Content) ReadConfig() (err error) {
	if wire.HasManyValues(c.RawConfig) {
		return c.refuse("its config has more than %d values", wire.MaxValues)
	}
	if c.Config, err = v1.ParseConfigFile(bytes.NewReader(c.RawConfig)); err != nil {
		return c.refuse("its config can't be read: %v", err)
	}
	if layers, ids := len(c.manifest.Layers), len(c.Config.RootFS.DiffIDs); layers != ids {
		return c.refuse("it has %d layers in its manifest and %d in its config", layers, ids)
	}
	has := v1.Platform{OS: c.Config.OS, Architecture: c.Config.Architecture, Variant: c.Config.Variant}
	switch wanted := c.Platform; {
	case !c.Single: // its index says what it is for
		return nil
	case wanted.Equals(v1.Platform{}), Matches(wanted, has):
		c.Platform = has
		return nil
	case has.Architecture == "":
		return c.refuse("its config does not say what platform it is for")
	default:
		return c.Call.Refuse(failure.NotFound, fmt.Sprintf("it is an image for %s, and %s is wanted", has, wanted))
	}
}

// Image is the content as an image.
func (c *Content) Image() *Image {
	return &Image{Type: c.MediaType, Text: c.Raw, config: c.RawConfig, layers: c.Layers}
}

// TakeLayers opens the layers of the manifest.
func (c *Content) TakeLayers(from v1.Image) {
	for i, layer := range c.manifest.Layers {
		c.Layers = append(c.Layers, &sourceLayer{image: from, desc: layer, diffID: c.Config.RootFS.DiffIDs[i], call: c.Call})
	}
}

// sourceLayer is a layer in a registry. It knows what its manifest says about it, and classifies
// the errors of reading it.
type sourceLayer struct {
	image  v1.Image
	desc   v1.Descriptor
	diffID v1.Hash
	call   failure.Call
}

var _ v1.Layer = (*sourceLayer)(nil)

// Digest is that of the manifest.
func (l *sourceLayer) Digest() (v1.Hash, error) { return l.desc.Digest, nil }

// DiffID is that of the config.
func (l *sourceLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

// Size is that of the manifest.
func (l *sourceLayer) Size() (int64, error) { return l.desc.Size, nil }

// MediaType is that of the manifest.
func (l *sourceLayer) MediaType() (types.MediaType, error) { return l.desc.MediaType, nil }

// Source is the image that the layer is of, and its registry.
func (l *sourceLayer) Source() (image, registry string) { return l.call.Subject, l.call.Host }

// Compressed streams the layer from its registry.
func (l *sourceLayer) Compressed() (io.ReadCloser, error) { return l.open(v1.Layer.Compressed) }

// Uncompressed streams the layer from its registry and unpacks it.
func (l *sourceLayer) Uncompressed() (io.ReadCloser, error) { return l.open(v1.Layer.Uncompressed) }

func (l *sourceLayer) open(how func(v1.Layer) (io.ReadCloser, error)) (io.ReadCloser, error) {
	call := l.call
	call.Doing = fmt.Sprintf("reading layer %s of image", l.desc.Digest)
	layer, err := l.image.LayerByDigest(l.desc.Digest)
	if err != nil {
		return nil, call.Fail(err)
	}
	body, err := how(layer)
	return body, call.Fail(err)
}
