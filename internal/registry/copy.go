package registry

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/layerwright/layerwright/internal/registry/wire"
)

// copyAtOnce is how many layers are copied side by side.
const copyAtOnce = 4

// CopyLayers brings the layers of an image into a repository, byte for byte, without an image: by
// mounting where both are in one registry that does that, else by streaming. What the repository
// has is not sent again. Whoever pushes an image with these layers then need not have them as they
// are: tools that keep layers unpacked pack them anew otherwise, and nodes would take them for
// others.
//
// Of the request it goes by Content, Source, Platforms and Repository. Errors are those of Append.
func (c *Client) CopyLayers(ctx context.Context, request AppendRequest) (wire.Traffic, error) {
	meter := &wire.Meter{}
	a, err := c.metered(meter).newAppending(AppendRequest{
		Content: request.Content, Source: request.Source, Platforms: request.Platforms, Repository: request.Repository,
	}, meter)
	if err != nil {
		return wire.Traffic{}, err
	}
	if err := a.read(ctx); err != nil {
		return wire.Traffic{}, err
	}
	err = a.uploadWithFallback(func() error { return a.copyLayers(ctx) })
	return meter.Traffic(), err
}

func (a *appending) copyLayers(ctx context.Context) error {
	if err := a.logIn(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copyAtOnce)
	for _, made := range a.images {
		layers, err := made.Layers()
		if err != nil {
			return fmt.Errorf("reading the layers of %s: %w", a.request.Content, err)
		}
		for _, layer := range layers {
			mediaType, err := layer.MediaType()
			if err != nil {
				return fmt.Errorf("reading the layers of %s: %w", a.request.Content, err)
			}
			if !mediaType.IsDistributable() {
				continue
			}
			group.Go(func() error {
				return a.client.writing("copying layers to", a.target, a.target).Fail(a.pusher.Upload(ctx, a.target, layer))
			})
		}
	}
	return group.Wait()
}
