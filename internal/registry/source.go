package registry

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/failure"
)

// source is an image in a registry, or an index of them.
type source struct {
	client *Client
	puller *remote.Puller
	ref    name.Reference
	// place is where it is read: ref, or a mirror.
	place name.Reference
	desc  *remote.Descriptor
	index *index // nil for a single image
	call  failure.Call
}

// open reads the manifest. What else there is of the image is read in the same place.
func (c *Client) open(ctx context.Context, ref name.Reference) (*source, error) {
	return each(ctx, c, "reading image", ref, func(place name.Reference, call failure.Call) (*source, error) {
		puller, err := c.puller(ctx, place.Context())
		if err != nil {
			return nil, call.Fail(err)
		}
		s := &source{client: c, puller: puller, ref: ref, place: place, call: call}
		err = s.read(ctx)
		return s, err
	})
}

func (s *source) read(ctx context.Context) (err error) {
	if s.desc, err = s.puller.Get(ctx, s.place); err != nil {
		return s.call.Fail(err)
	}
	if s.desc.MediaType.IsIndex() {
		s.index, err = parseIndex(s.call, s.desc.Manifest)
	}
	return err
}

// child reads an image of the index. A mirror may have the index without all of its images.
func (s *source) child(ctx context.Context, digest v1.Hash) (*source, error) {
	child := &source{
		client: s.client, puller: s.puller, call: s.call,
		ref: s.ref.Context().Digest(digest.String()), place: s.place.Context().Digest(digest.String()),
	}
	child.call.Subject = child.place.String()
	err := child.read(ctx)
	if err == nil || len(s.client.mirrors) == 0 || ctx.Err() != nil {
		return child, err
	}
	return s.client.open(ctx, child.ref)
}

// index is a list of images.
type index struct{ manifest *v1.IndexManifest }

func parseIndex(call failure.Call, manifest []byte) (*index, error) {
	parsed, err := v1.ParseIndexManifest(bytes.NewReader(manifest))
	if err != nil {
		return nil, call.Refuse(failure.Unsupported, fmt.Sprintf("its index can't be read: %v", err))
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

// pick chooses the images for the wanted platforms, in the order of the index; all of them where
// none is named. Of two images for a platform it takes the first, as container engines do.
func (s *source) pick(wanted []v1.Platform) ([]compose.Choice, error) {
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
	var choices []compose.Choice
	for i, d := range images {
		if chosen[i] {
			choices = append(choices, compose.Choice{Desc: d, Platform: *d.Platform})
		}
	}
	if len(choices) == 0 {
		return nil, s.lacks(images, v1.Platform{})
	}
	return choices, nil
}

func (s *source) pickSingle(wanted []v1.Platform) ([]compose.Choice, error) {
	c := compose.Choice{Desc: s.desc.Descriptor, Single: true}
	for i, w := range wanted {
		if i > 0 && !compose.Matches(w, c.Platform) {
			return nil, s.call.Refuse(failure.NotFound, fmt.Sprintf("it is a single image, and both %s and %s are wanted", c.Platform, w))
		}
		c.Platform = w
	}
	return []compose.Choice{c}, nil
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
		return compose.Matches(wanted, *d.Platform) && compose.Variant(wanted) == compose.Variant(*d.Platform)
	})
	if exact >= 0 {
		return exact
	}
	return slices.IndexFunc(images, func(d v1.Descriptor) bool { return compose.Matches(wanted, *d.Platform) })
}

func (s *source) lacks(images []v1.Descriptor, wanted v1.Platform) error {
	var there []string
	for _, d := range images {
		there = append(there, d.Platform.String())
	}
	switch {
	case len(there) == 0:
		return s.call.Refuse(failure.NotFound, "its index has no image for any platform")
	case wanted.Equals(v1.Platform{}):
		return s.call.Refuse(failure.NotFound, "it is for several platforms: "+strings.Join(there, ", "))
	}
	return s.call.Refuse(failure.NotFound, fmt.Sprintf("it has no image for %s, only for %s", wanted, strings.Join(there, ", ")))
}

// load reads manifest and config of a choice, and checks that it is an image of the wanted
// platform.
func (s *source) load(ctx context.Context, chosen compose.Choice) (*compose.Content, error) {
	from := s
	if !chosen.Single {
		var err error
		if from, err = s.child(ctx, chosen.Desc.Digest); err != nil {
			return nil, err
		}
	}
	desc := from.desc
	c := &compose.Content{Choice: chosen, Place: from.place, Call: from.call, Raw: desc.Manifest, MediaType: desc.MediaType}
	if err := c.ReadManifest(); err != nil {
		return nil, err
	}
	remoteImage, err := desc.Image()
	if err != nil {
		return nil, c.Call.Fail(err)
	}
	if c.RawConfig, err = remoteImage.RawConfigFile(); err != nil {
		return nil, c.Call.Fail(err)
	}
	if err := c.ReadConfig(); err != nil {
		return nil, err
	}
	c.TakeLayers(remoteImage)
	return c, nil
}

// image opens the chosen image as it is.
func (s *source) image(ctx context.Context, chosen compose.Choice) (v1.Image, error) {
	c, err := s.load(ctx, chosen)
	if err != nil {
		return nil, err
	}
	return c.Image(), nil
}
