package registry

import (
	"bytes"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// maxConfig is the largest config that is read, in bytes. Those of operating systems have some 20
// KB.
const maxConfig = 8 << 20

// choice is one image of a source.
type choice struct {
	// desc is the descriptor in the index; that of the manifest itself for a single image.
	desc v1.Descriptor
	// platform is what the image has to be for; the zero one is anything.
	platform v1.Platform
	single   bool
}

// matches reports whether an image for a platform serves where another is wanted, which may leave
// the variant open.
func matches(wanted, has v1.Platform) bool {
	return osOf(wanted) == osOf(has) && wanted.Architecture == has.Architecture &&
		(wanted.Variant == "" || variant(wanted) == variant(has))
}

func osOf(p v1.Platform) string {
	if p.OS == "" {
		return "linux"
	}
	return p.OS
}

// variant knows that 64-bit Arm is v8 where nothing else is said.
func variant(p v1.Platform) string {
	if p.Architecture == "arm64" && p.Variant == "" {
		return "v8"
	}
	return p.Variant
}

// absent is the meaning of an image that is there, but not for the platform.
func absent(problem string) meaning {
	return meaning{kind: notFound, class: fault.Terminal, reason: mcfgv1.ReasonImageNotFound, problem: problem}
}

// content is one image that has been read: all but its layers.
type content struct {
	choice
	call      call
	ref       name.Reference
	mediaType types.MediaType
	manifest  *v1.Manifest
	raw       []byte // the manifest
	rawConfig []byte
	config    *v1.ConfigFile
	layers    []v1.Layer
}

func (c *content) refuse(format string, args ...any) error {
	return c.call.refuse(c.call.unsupported(fmt.Sprintf(format, args...)))
}

func (c *content) readManifest() (err error) {
	if c.mediaType.IsSchema1() {
		return c.call.fail(remote.ErrSchema1)
	}
	if c.manifest, err = v1.ParseManifest(bytes.NewReader(c.raw)); err != nil {
		return c.refuse("its manifest can't be read: %v", err)
	}
	if !c.mediaType.IsImage() && c.manifest.MediaType != "" { // some registries say "application/json" to everything
		c.mediaType = c.manifest.MediaType
	}
	switch {
	case !c.mediaType.IsImage():
		return c.refuse("it has a manifest of the unknown type %q", c.mediaType)
	case !c.manifest.Config.MediaType.IsConfig():
		return c.refuse("it is no container image: its config has the type %q", c.manifest.Config.MediaType)
	case c.manifest.Config.Size > maxConfig:
		return c.refuse("its config is larger than %d bytes", maxConfig)
	}
	for _, part := range append(c.manifest.Layers[:len(c.manifest.Layers):len(c.manifest.Layers)], c.manifest.Config) {
		if part.Size < 0 { // go-containerregistry reads such a part without end
			return c.refuse("its part %s has the size %d", part.Digest, part.Size)
		}
	}
	return nil
}

func (c *content) readConfig() (err error) {
	if hasManyValues(c.rawConfig) {
		return c.refuse("its config has more than %d values", maxValues)
	}
	if c.config, err = v1.ParseConfigFile(bytes.NewReader(c.rawConfig)); err != nil {
		return c.refuse("its config can't be read: %v", err)
	}
	if layers, ids := len(c.manifest.Layers), len(c.config.RootFS.DiffIDs); layers != ids {
		return c.refuse("it has %d layers in its manifest and %d in its config", layers, ids)
	}
	has := v1.Platform{OS: c.config.OS, Architecture: c.config.Architecture, Variant: c.config.Variant}
	switch wanted := c.platform; {
	case !c.single: // its index says what it is for
		return nil
	case wanted.Equals(v1.Platform{}), matches(wanted, has):
		c.platform = has
		return nil
	case has.Architecture == "":
		return c.refuse("its config does not say what platform it is for")
	default:
		return c.call.refuse(absent(fmt.Sprintf("it is an image for %s, and %s is wanted", has, wanted)))
	}
}

func (c *content) image() *image {
	return &image{mediaType: c.mediaType, manifest: c.raw, config: c.rawConfig, layers: c.layers}
}

// takeLayers opens the layers of the manifest.
func (c *content) takeLayers(from v1.Image) {
	for i, layer := range c.manifest.Layers {
		c.layers = append(c.layers, &sourceLayer{image: from, desc: layer, diffID: c.config.RootFS.DiffIDs[i], call: c.call})
	}
}

// sourceLayer is a layer in a registry. It knows what its manifest says about it, and classifies
// the errors of reading it.
type sourceLayer struct {
	image  v1.Image
	desc   v1.Descriptor
	diffID v1.Hash
	call   call
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

// Compressed streams the layer from its registry.
func (l *sourceLayer) Compressed() (io.ReadCloser, error) { return l.open(v1.Layer.Compressed) }

// Uncompressed streams the layer from its registry and unpacks it.
func (l *sourceLayer) Uncompressed() (io.ReadCloser, error) { return l.open(v1.Layer.Uncompressed) }

func (l *sourceLayer) open(how func(v1.Layer) (io.ReadCloser, error)) (io.ReadCloser, error) {
	call := l.call
	call.doing = fmt.Sprintf("reading layer %s of image", l.desc.Digest)
	layer, err := l.image.LayerByDigest(l.desc.Digest)
	if err != nil {
		return nil, call.fail(err)
	}
	body, err := how(layer)
	return body, call.fail(err)
}
