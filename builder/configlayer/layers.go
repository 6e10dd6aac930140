package configlayer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// OnBase makes the configuration layer of each architecture for the base image of a described
// recipe, when it is asked for.
func (s Sources) OnBase(r *recipe.Recipe) compose.LayerFunc {
	return s.layers(r, func(ctx context.Context, i int, _ v1.Image) (*layer.Plan, *osindex.Index, error) {
		index, err := r.Base.Platforms[i].Open(ctx)
		return r.Described.Platforms[i].Layer, index, err
	})
}

// OnContent makes it for what was built. Where that was built on top of the configuration, it is
// what the configuration had to wait for.
func (s Sources) OnContent(r *recipe.Recipe) compose.LayerFunc {
	return s.layers(r, func(ctx context.Context, i int, below v1.Image) (*layer.Plan, *osindex.Index, error) {
		return r.Described.LayerOn(&r.Described.Platforms[i], func() (*osindex.Index, error) { return s.Base.Index(ctx, below) })
	})
}

// layers makes layers of plans, by the place of the architecture in the description.
func (s Sources) layers(
	r *recipe.Recipe, planFor func(ctx context.Context, i int, below v1.Image) (*layer.Plan, *osindex.Index, error),
) compose.LayerFunc {
	return func(ctx context.Context, platform v1.Platform, below v1.Image) (registry.Opener, error) {
		i := slices.IndexFunc(r.Base.Platforms, func(p recipe.Platform) bool { return p.Platform.Architecture == platform.Architecture })
		if i < 0 {
			return nil, fmt.Errorf("the image has the architecture %q, which was not described", platform.Architecture)
		}
		planned, index, err := planFor(ctx, i, below)
		if err != nil || planned == nil {
			return nil, err
		}
		made, err := s.Make(ctx, planned, Below{Image: below, Index: index})
		var content *ContentError
		if errors.As(err, &content) {
			return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForRemoteFile, time.Minute, err)
		}
		if err != nil {
			return nil, err
		}
		return opener(made), nil
	}
}

// opener streams a layer, so that its archive is never in memory as a whole.
func opener(l *layer.Layer) registry.Opener {
	return func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			_, err := l.WriteTo(writer)
			_ = writer.CloseWithError(err) // never fails
		}()
		return reader, nil
	}
}
