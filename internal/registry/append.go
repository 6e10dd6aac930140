package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// AppendRequest says which image gets a configuration layer, and where the result goes.
type AppendRequest struct {
	// Content is the image to append to, by digest: a single image or an index.
	Content string
	// Images are joined into an index in place of Content.
	Images []PlatformImage
	// Source reads Content, with the credentials for that; nil is the client itself.
	Source *Client
	// Platforms are those that the result is for; all of the content's where empty. A single image
	// stays one, and has to be for the one platform that is wanted; an index stays an index, of
	// exactly these.
	Platforms []v1.Platform
	// Repository is where the result goes, and Tags are given to it in the end, in this order.
	Repository string
	Tags       []string
	// Before is an image of Repository, by digest, that probably has most of the layers too, such
	// as the one that this one takes the place of. What it has is not asked for one by one. It may
	// be empty, gone, or in another repository.
	Before string
	// BeforeTags, if it is set, is asked when everything else is in the repository: an error is the
	// end, and no tag is set. Registries have no conditions, so whoever may no longer name an image
	// has to know by itself.
	BeforeTags func(context.Context) error
	// Layer makes the configuration layers. Where it, or what it returns, is nil, the image keeps
	// the layers that it has.
	Layer compose.LayerFunc
	// Labels are added to those of the content, and win.
	Labels map[string]string
	// Annotations are added to those of manifests and index, and win. Docker's formats have none.
	Annotations map[string]string
	// Created is when the image is said to have been made, in whole seconds; zero is what the
	// content says. The same time gives the same digest.
	Created time.Time
}

// PlatformImage is the image of one platform.
type PlatformImage struct {
	Platform v1.Platform
	// Image is it by digest: a single image, or an index that has it.
	Image string
	// Source reads it, as AppendRequest.Source does; nil is that.
	Source *Client
}

// Result is what Append did.
type Result struct {
	// Image is the result by digest.
	Image string
	// Digest is that of its manifest or index.
	Digest v1.Hash
	// Platforms are its images.
	Platforms []PlatformResult
	// Reused reports whether the repository had the image already, so that nothing was uploaded but
	// tags that were missing.
	Reused bool
	// Immutable are the tags that stand for another image, which the registry lets no one change.
	Immutable []string
	// Traffic is what went over the wire to both registries, and Duration how long all of it took.
	Traffic  wire.Traffic
	Duration time.Duration
}

// PlatformResult is the image of one platform.
type PlatformResult struct {
	Platform v1.Platform
	// Digest is that of the image's manifest.
	Digest v1.Hash
	// Size is what all layers take in the registry, in bytes.
	Size int64
	// Layers is what each of them takes, the lowest first.
	Layers []int64
	// New is what those layers take that AppendRequest.Before does not have; nil where that is not
	// known.
	New *int64
	// Layer describes the configuration layer; its digest is empty where there is none.
	Layer v1.Descriptor
	// Replaced reports whether the content had a configuration layer, which is gone.
	Replaced bool
	// NotCopied are layers that may not be distributed. They are part of the image by the URLs that
	// the content names, as they were; whether the registry takes such an image is for the registry
	// to say.
	NotCopied []v1.Descriptor
}

// Append puts a configuration layer on top of an image, in the registry: manifest and config come
// down, one layer, one config and one manifest go up, and all other layers are mounted, or streamed
// where the registry does not mount. Blobs go first, then manifests by digest, then tags, so that
// whatever happens on the way no tag names half an image; doing it again continues and ends in the
// same digest.
//
// Content that is gone or may not be pulled is Terminal with the reason ImageNotFound, a repository
// that may not be written to with PushDenied.
func (c *Client) Append(ctx context.Context, request AppendRequest) (*Result, error) {
	begin, meter := c.clock.Now(), &wire.Meter{}
	a, err := c.newAppending(request, meter)
	if err != nil {
		return nil, err
	}
	if err := a.read(ctx); err != nil {
		return nil, err
	}
	if err := a.push(ctx); err != nil {
		return nil, err
	}
	a.result.Traffic, a.result.Duration = meter.Traffic(), c.clock.Since(begin)
	return &a.result, nil
}

// artifact is what a registry stores under a name: an image or an index.
type artifact interface {
	remote.Taggable
	partial.Describable
}

// appending is one Append.
type appending struct {
	request AppendRequest
	client  *Client
	parts   []part
	target  name.Repository
	tags    []name.Tag

	// images are those of the choices, in order.
	images  []*compose.Image
	choices []compose.Choice
	// list is the content if that is an index.
	list   *source
	final  artifact
	pusher *remote.Pusher // logged in, once it has pushed
	cache  *wire.CallCache
	result Result
}

// part is content to read, with whom, and the platforms to take of it.
type part struct {
	source    *Client
	content   name.Digest
	platforms []v1.Platform
}

// newAppending reads the request's names, before anything is asked.
func (c *Client) newAppending(request AppendRequest, meter *wire.Meter) (a *appending, err error) {
	a = &appending{request: request, client: c.metered(meter), cache: wire.NewCallCache()}
	a.client.transport = a.cache.Wrap(a.client.transport)
	if err := a.addParts(meter); err != nil {
		return nil, err
	}
	if a.target, err = c.repository(request.Repository); err != nil {
		return nil, err
	}
	for _, text := range request.Tags {
		tag, err := c.tag(a.target, text)
		if err != nil {
			return nil, err
		}
		a.tags = append(a.tags, tag)
	}
	return a, nil
}

func (a *appending) addParts(meter *wire.Meter) error {
	add := func(image string, source *Client, platforms ...v1.Platform) error {
		p := part{source: a.client, platforms: platforms}
		if source = cmp.Or(source, a.request.Source); source != nil {
			p.source = source.metered(meter)
			p.source.transport = a.cache.Wrap(p.source.transport)
		}
		var err error
		p.content, err = p.source.pinned(image)
		a.parts = append(a.parts, p)
		return err
	}
	if len(a.request.Images) == 0 {
		return add(a.request.Content, nil, a.request.Platforms...)
	}
	for _, image := range a.request.Images {
		if err := add(image.Image, image.Source, image.Platform); err != nil {
			return err
		}
	}
	return nil
}

// read reads the content and makes the final image of it, in memory.
func (a *appending) read(ctx context.Context) error {
	for _, p := range a.parts {
		if err := a.readPart(ctx, p); err != nil {
			return err
		}
	}
	var err error
	if a.final, err = a.assemble(); err != nil {
		return err
	}
	a.result.Digest, err = a.final.Digest()
	a.result.Image = a.target.Digest(a.result.Digest.String()).String()
	return err
}

func (a *appending) readPart(ctx context.Context, p part) error {
	source, err := p.source.open(ctx, p.content)
	if err != nil {
		return err
	}
	choices, err := source.pick(p.platforms)
	if err != nil {
		return err
	}
	for _, chosen := range choices {
		if err := a.add(ctx, source, chosen); err != nil {
			return err
		}
	}
	if len(a.request.Images) > 0 { // an index of its own
		for i := range choices {
			choices[i].Desc = v1.Descriptor{Platform: &choices[i].Platform}
		}
	} else if source.index != nil {
		a.list = source
	}
	a.choices = append(a.choices, choices...)
	return nil
}

// add makes the image of one platform.
func (a *appending) add(ctx context.Context, source *source, chosen compose.Choice) error {
	loaded, err := source.load(ctx, chosen)
	if err != nil {
		return err
	}
	base, replaced, err := loaded.Stripped()
	if err != nil {
		return err
	}
	layer, err := a.layer(ctx, base)
	if err != nil {
		return err
	}
	if layer == nil {
		base, replaced = loaded, false
	}
	final, err := base.Changed(compose.Change{
		Labels: a.request.Labels, Annotations: a.request.Annotations, Created: a.request.Created, Layer: layer,
	})
	if err != nil {
		return err
	}
	if from, ok := a.mountsFrom(loaded.Place); ok {
		final.MountFrom = from
	}
	a.images = append(a.images, final)
	return a.report(base, final, PlatformResult{Platform: base.Platform, Replaced: replaced})
}

// layer makes the configuration layer, nil for none.
func (a *appending) layer(ctx context.Context, base *compose.Content) (v1.Layer, error) {
	if a.request.Layer == nil {
		return nil, nil
	}
	below := base.Image()
	open, err := a.request.Layer(ctx, base.Platform, below)
	if err != nil {
		return nil, fmt.Errorf("making the configuration layer for %s: %w", base.Platform, err)
	}
	if open == nil {
		return nil, nil
	}
	return base.Packed(open)
}

// mountsFrom reports whether the target's registry has the content's layers in another repository.
// It need not mount those of the same one.
func (a *appending) mountsFrom(content name.Reference) (name.Digest, bool) {
	pinned, isPinned := content.(name.Digest)
	other := content.Context()
	return pinned, isPinned && a.target.RegistryStr() == other.RegistryStr() && a.target.RepositoryStr() != other.RepositoryStr()
}

func (a *appending) report(base *compose.Content, final *compose.Image, r PlatformResult) error {
	manifest, err := final.Manifest()
	if err != nil {
		return err
	}
	if r.Digest, err = final.Digest(); err != nil {
		return err
	}
	if n := len(base.Layers); len(manifest.Layers) > n {
		r.Layer = manifest.Layers[n]
	}
	for _, layer := range manifest.Layers {
		r.Size += layer.Size
		r.Layers = append(r.Layers, layer.Size)
		if !layer.MediaType.IsDistributable() {
			r.NotCopied = append(r.NotCopied, layer)
		}
	}
	a.result.Platforms = append(a.result.Platforms, r)
	return nil
}

// assemble is the only image, or an index of all with the content's own format, annotations and
// order.
func (a *appending) assemble() (artifact, error) {
	var manifest *v1.IndexManifest
	switch {
	case a.list != nil:
		mediaType := a.list.desc.MediaType
		manifest = &v1.IndexManifest{MediaType: mediaType, Annotations: compose.Annotations(mediaType, a.list.index.manifest.Annotations, a.request.Annotations)}
	case len(a.request.Images) > 0:
		mediaType := indexOf(a.images[0].Type)
		manifest = &v1.IndexManifest{MediaType: mediaType, Annotations: compose.Annotations(mediaType, nil, a.request.Annotations)}
	default:
		return a.images[0], nil
	}
	manifest.SchemaVersion = 2 //nolint:mnd // the only one
	for i, made := range a.images {
		digest, err := made.Digest()
		if err != nil {
			return nil, err
		}
		manifest.Manifests = append(manifest.Manifests, v1.Descriptor{
			MediaType: made.Type, Size: int64(len(made.Text)), Digest: digest,
			Platform: a.choices[i].Desc.Platform, Annotations: compose.Annotations(manifest.MediaType, a.choices[i].Desc.Annotations, nil),
		})
	}
	return compose.NewList(manifest, a.images)
}

// indexOf is the format of an index whose images have a format.
func indexOf(image types.MediaType) types.MediaType {
	if image == types.DockerManifestSchema2 {
		return types.DockerManifestList
	}
	return types.OCIImageIndex
}

// push brings the final image and its tags to the target.
func (a *appending) push(ctx context.Context) error {
	puller, err := a.client.puller(ctx, a.target)
	if err != nil {
		return err
	}
	pinned := a.target.Digest(a.result.Digest.String())
	if _, a.result.Reused, err = a.client.head(ctx, puller, pinned); err != nil {
		return err
	}
	if !a.result.Reused {
		a.cache.MarkAbsent(a.result.Digest.String())
		for _, made := range a.images { // some KB: to ask whether it is there costs as much as to send it
			if config, err := made.ConfigName(); err == nil {
				a.cache.MarkAbsent(config.String())
			}
		}
		a.readKnownLayers(ctx, puller)
		if err := a.pushAssumingKnownLayers(ctx, pinned, func() error {
			return a.uploadWithFallback(func() error { return a.upload(ctx, pinned) })
		}); err != nil {
			return err
		}
	}
	if a.request.BeforeTags != nil {
		if err := a.request.BeforeTags(ctx); err != nil {
			return err
		}
	}
	for _, tag := range a.tags {
		err := a.pushAssumingKnownLayers(ctx, pinned, func() error { return a.tag(ctx, puller, tag) })
		switch {
		case failure.IsImmutable(err): // the image is there, by its digest
			a.result.Immutable = append(a.result.Immutable, tag.TagStr())
		case err != nil:
			return err
		}
	}
	return nil
}

// uploadWithFallback uploads with mounts and then, if need be, without. Some registries refuse the
// login when it asks for a repository that the account may not read, and mounting asks. Layers that
// can't be mounted are copied with the source's credentials.
func (a *appending) uploadWithFallback(upload func() error) error {
	err := upload()
	if !failure.IsDenied(err) {
		return err
	}
	mounted := false
	for _, made := range a.images {
		mounted = mounted || made.MountFrom != nil
		made.MountFrom = nil
	}
	if !mounted {
		return err
	}
	a.pusher = nil
	return upload()
}

// upload pushes layers and configs, then manifests. What the repository has already is not sent
// again.
func (a *appending) upload(ctx context.Context, pinned name.Digest) error {
	if err := a.logIn(ctx); err != nil {
		return err
	}
	call := a.client.writing("pushing image", pinned, a.target)
	err := a.pusher.Push(ctx, pinned, a.final)
	if layer, missed := a.undistributableLayer(err); missed {
		return call.Refuse(failure.Unsupported, fmt.Sprintf(
			"layer %s may not be distributed, and the registry takes no image with such a layer", layer.Digest))
	}
	return call.Fail(err)
}

// undistributableLayer reports whether a registry refuses the image because of a layer that may not
// be distributed and was not uploaded.
func (a *appending) undistributableLayer(err error) (v1.Descriptor, bool) {
	var answer *transport.Error
	if !errors.As(err, &answer) || !slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestBlobUnknownErrorCode
	}) {
		return v1.Descriptor{}, false
	}
	for _, p := range a.result.Platforms {
		if len(p.NotCopied) > 0 {
			return p.NotCopied[0], true
		}
	}
	return v1.Descriptor{}, false
}

// tag sets a tag, unless an image that was there already has it.
func (a *appending) tag(ctx context.Context, puller *remote.Puller, tag name.Tag) error {
	if a.result.Reused {
		digest, there, err := a.client.head(ctx, puller, tag)
		if err != nil || there && digest == a.result.Digest {
			return err
		}
	}
	if err := a.logIn(ctx); err != nil {
		return err
	}
	return a.client.writing("tagging image", tag, a.target).Fail(a.pusher.Put(ctx, tag, a.final))
}

func (a *appending) logIn(ctx context.Context) (err error) {
	if a.pusher == nil {
		a.pusher, err = remote.NewPusher(a.client.options(ctx, a.target)...)
	}
	return err
}
