package registry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

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

// source is an image in a registry, or an index of them.
type source struct {
	client *Client
	puller *remote.Puller
	ref    name.Reference
	desc   *remote.Descriptor
	index  *index // nil for a single image
	call   call
}

// open reads the manifest.
func (c *Client) open(ctx context.Context, ref name.Reference) (*source, error) {
	s := &source{client: c, ref: ref, call: c.reading("reading image", ref, ref.Context())}
	var err error
	if s.puller, err = c.puller(ctx, ref.Context()); err != nil {
		return nil, s.call.fail(err)
	}
	if s.desc, err = s.puller.Get(ctx, ref); err != nil {
		return nil, s.call.fail(err)
	}
	if s.desc.MediaType.IsIndex() {
		s.index, err = parseIndex(s.call, s.desc.Manifest)
	}
	return s, err
}

// index is a list of images.
type index struct{ manifest *v1.IndexManifest }

func parseIndex(call call, manifest []byte) (*index, error) {
	parsed, err := v1.ParseIndexManifest(bytes.NewReader(manifest))
	if err != nil {
		return nil, call.refuse(call.unsupported(fmt.Sprintf("its index can't be read: %v", err)))
	}
	return &index{parsed}, nil
}

// images are the images of the index that a machine can run. What builders add about them, such as
// attestations, has an unknown platform; indexes in an index are not looked into.
func (i *index) images() []v1.Descriptor {
	return slices.DeleteFunc(slices.Clone(i.manifest.Manifests), func(d v1.Descriptor) bool {
		const unknown = "unknown"
		p := d.Platform
		return !d.MediaType.IsImage() || p == nil || p.OS == "" || p.OS == unknown || p.Architecture == "" || p.Architecture == unknown
	})
}

// choice is one image of a source.
type choice struct {
	// desc is the descriptor in the index; that of the manifest itself for a single image.
	desc v1.Descriptor
	// platform is what the image has to be for; the zero one is anything.
	platform v1.Platform
	single   bool
}

// pick chooses the images for the wanted platforms, in the order of the index; all of them where
// none is named. Of two images for a platform it takes the first, as container engines do.
func (s *source) pick(wanted []v1.Platform) ([]choice, error) {
	if s.index == nil {
		return s.pickSingle(wanted)
	}
	images := s.index.images()
	if len(wanted) == 0 {
		for _, d := range images {
			wanted = append(wanted, *d.Platform)
		}
	}
	chosen := map[int]bool{}
	for _, w := range wanted {
		i := find(images, w)
		if i < 0 {
			return nil, s.lacks(images, w)
		}
		chosen[i] = true
	}
	var choices []choice
	for i, d := range images {
		if chosen[i] {
			choices = append(choices, choice{desc: d, platform: *d.Platform})
		}
	}
	if len(choices) == 0 {
		return nil, s.lacks(images, v1.Platform{})
	}
	return choices, nil
}

func (s *source) pickSingle(wanted []v1.Platform) ([]choice, error) {
	c := choice{desc: s.desc.Descriptor, single: true}
	for i, w := range wanted {
		if i > 0 && !matches(w, c.platform) {
			return nil, s.call.refuse(absent(fmt.Sprintf("it is a single image, and both %s and %s are wanted", c.platform, w)))
		}
		c.platform = w
	}
	return []choice{c}, nil
}

// find is the place of the image for a platform, -1 where there is none. The zero platform finds
// the only image.
func find(images []v1.Descriptor, wanted v1.Platform) int {
	if wanted.Equals(v1.Platform{}) {
		if len(images) == 1 {
			return 0
		}
		return -1
	}
	exact := slices.IndexFunc(images, func(d v1.Descriptor) bool {
		return matches(wanted, *d.Platform) && variant(wanted) == variant(*d.Platform)
	})
	if exact >= 0 {
		return exact
	}
	return slices.IndexFunc(images, func(d v1.Descriptor) bool { return matches(wanted, *d.Platform) })
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

func (s *source) lacks(images []v1.Descriptor, wanted v1.Platform) error {
	var there []string
	for _, d := range images {
		there = append(there, d.Platform.String())
	}
	switch {
	case len(there) == 0:
		return s.call.refuse(absent("its index has no image for any platform"))
	case wanted.Equals(v1.Platform{}):
		return s.call.refuse(absent("it is for several platforms: " + strings.Join(there, ", ")))
	}
	return s.call.refuse(absent(fmt.Sprintf("it has no image for %s, only for %s", wanted, strings.Join(there, ", "))))
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

// load reads manifest and config of a choice, and checks that it is an image of the wanted
// platform.
func (s *source) load(ctx context.Context, chosen choice) (*content, error) {
	c := &content{choice: chosen, ref: s.ref, call: s.call}
	desc := s.desc
	if !chosen.single {
		c.ref = s.ref.Context().Digest(chosen.desc.Digest.String())
		c.call.subject = c.ref.String()
		var err error
		if desc, err = s.puller.Get(ctx, c.ref); err != nil {
			return nil, c.call.fail(err)
		}
	}
	c.raw, c.mediaType = desc.Manifest, desc.MediaType
	if err := c.readManifest(); err != nil {
		return nil, err
	}
	remoteImage, err := desc.Image()
	if err != nil {
		return nil, c.call.fail(err)
	}
	if c.rawConfig, err = remoteImage.RawConfigFile(); err != nil {
		return nil, c.call.fail(err)
	}
	if err := c.readConfig(); err != nil {
		return nil, err
	}
	for i, layer := range c.manifest.Layers {
		c.layers = append(c.layers, &sourceLayer{image: remoteImage, desc: layer, diffID: c.config.RootFS.DiffIDs[i], call: c.call})
	}
	return c, nil
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

// image opens the chosen image as it is.
func (s *source) image(ctx context.Context, chosen choice) (v1.Image, error) {
	c, err := s.load(ctx, chosen)
	if err != nil {
		return nil, err
	}
	return c.image(), nil
}

func (c *content) image() *image {
	return &image{mediaType: c.mediaType, manifest: c.raw, config: c.rawConfig, layers: c.layers}
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
