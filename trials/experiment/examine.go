package experiment

import (
	"context"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/trials/trial"
)

// examine compares the two sides, on the first architecture that both have.
func (e *experiment) examine(ctx context.Context) (*compare.Report, error) {
	images, known := e.options.Base.(trial.Images)
	if !known {
		return nil, fmt.Errorf("what reads base images here cannot tell their packages")
	}
	now, next, found := commonPlatform(e.now.Base, e.next.Base)
	if !found {
		return nil, fault.NewTerminal(mcfgv1.ReasonUnsuitableBaseImage, fmt.Errorf("the OS image of stream %q has no architecture that the pool's has", e.Stream))
	}
	request := &trial.Request{
		Pool: e.Pool.Name, Then: e.Then, Containerfiles: e.next.Sources, Before: e.now.describedInputs(), After: e.next.describedInputs(), Problem: e.next.problem,
		Blockers: append(trial.Overrides(e.Config), e.failed...),
	}
	for _, p := range e.next.Base.Platforms {
		request.Architectures = append(request.Architectures, p.Architecture)
	}
	var err error
	if request.From, err = e.os(ctx, e.now, now); err != nil {
		return nil, err
	}
	if request.To, err = e.os(ctx, e.next, next); err != nil {
		return nil, err
	}
	request.From.Stream = e.now.Base.Stream
	if choice := e.Pool.Status.OSImageStream.Name; choice != "" {
		request.From.Stream = choice
	}
	request.To.Stream = e.Stream
	return trial.Examine(ctx, images, request)
}

func commonPlatform(a, b *recipe.Base) (recipe.Platform, recipe.Platform, bool) {
	for _, p := range a.Platforms {
		for _, q := range b.Platforms {
			if p.Architecture == q.Architecture {
				return p, q, true
			}
		}
	}
	return recipe.Platform{}, recipe.Platform{}, false
}

// os opens the images of one side for one architecture.
func (e *experiment) os(ctx context.Context, side *side, p recipe.Platform) (trial.OS, error) {
	os := trial.OS{Reference: side.Base.Image, HasExtensions: side.Configuration.ExtensionsImage != ""}
	var err error
	if os.Index, err = p.Open(ctx); err != nil {
		return os, err
	}
	image, err := e.credentials.Pull.Image(ctx, side.Base.Image, p.Platform)
	if err != nil {
		return os, err
	}
	if os.Image, err = registry.WithoutConfiguration(image); err != nil {
		return os, err
	}
	if side == e.next && side.Extensions != "" {
		os.Extensions, err = e.credentials.Pull.Image(ctx, side.Extensions, v1.Platform{OS: p.Platform.OS, Architecture: p.Platform.Architecture})
	}
	return os, err
}
