package registry

import (
	"bytes"
	"context"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/layerwright/layerwright/internal/registry/compose"
)

// readKnownLayers reads which layers the repository has from an image that was there before: no
// registry deletes the layers of an image that it keeps. Other layers are asked for as usual.
func (a *appending) readKnownLayers(ctx context.Context, puller *remote.Puller) {
	before, err := a.client.pinned(a.request.Before)
	if err != nil || before.Context() != a.target {
		return
	}
	known := map[v1.Hash]bool{}
	a.addLayers(ctx, puller, before, known, len(a.images))
	if len(known) == 0 {
		return
	}
	for i, made := range a.images {
		made.Known = known
		a.result.Platforms[i].New = sizeWithout(made, known)
		// Only an append that was interrupted has left it there; sending it again is right then
		// too.
		a.cache.MarkAbsent(a.result.Platforms[i].Layer.Digest.String())
	}
}

// sizeWithout is what the layers of an image take that are not known.
func sizeWithout(made *compose.Image, known map[v1.Hash]bool) *int64 {
	manifest, err := made.Manifest()
	if err != nil {
		return nil
	}
	var size int64
	for _, layer := range manifest.Layers {
		if !known[layer.Digest] {
			size += layer.Size
		}
	}
	return &size
}

// addLayers adds the layers of an image, or of at most so many images of an index.
func (a *appending) addLayers(ctx context.Context, puller *remote.Puller, image name.Digest, known map[v1.Hash]bool, most int) {
	desc, err := puller.Get(ctx, image)
	if err != nil {
		return
	}
	if desc.MediaType.IsImage() {
		if manifest, err := v1.ParseManifest(bytes.NewReader(desc.Manifest)); err == nil {
			for _, layer := range manifest.Layers {
				known[layer.Digest] = true
			}
		}
		return
	}
	list, err := parseIndex(a.client.reading("reading image", image, a.target), desc.Manifest)
	if err != nil {
		return
	}
	for i, one := range list.images() {
		if i < most {
			a.addLayers(ctx, puller, a.target.Digest(one.Digest.String()), known, 0)
		}
	}
}

// pushAssumingKnownLayers pushes without asking for known layers. If that fails for whatever
// reason, it asks for every layer and pushes again.
func (a *appending) pushAssumingKnownLayers(ctx context.Context, pinned name.Digest, push func() error) error {
	err := push()
	if err == nil || !a.forgetKnown() || ctx.Err() != nil {
		return err
	}
	if err := a.uploadWithFallback(func() error { return a.uploadAll(ctx, pinned) }); err != nil {
		return err
	}
	return push()
}

// forgetKnown drops what is known of the repository, and reports whether that was anything.
func (a *appending) forgetKnown() bool {
	was := false
	for _, made := range a.images {
		was = was || len(made.Known) > 0
		made.Known = nil
	}
	return was
}

// uploadAll brings every layer and config to the repository, also where that has the manifest
// already.
func (a *appending) uploadAll(ctx context.Context, pinned name.Digest) error {
	a.pusher = nil // it remembers what it has been told before
	if err := a.logIn(ctx); err != nil {
		return err
	}
	call := a.client.writing("pushing image", pinned, a.target)
	for _, made := range a.images {
		layers, err := made.Layers()
		if err != nil {
			return call.Fail(err)
		}
		config, err := partial.ConfigLayer(made)
		if err != nil {
			return call.Fail(err)
		}
		for _, layer := range append(layers, config) {
			if err := a.pusher.Upload(ctx, a.target, layer); err != nil {
				return call.Fail(err)
			}
		}
	}
	return nil
}
