package recipe

import (
	"context"
	"errors"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/machineconfigs"
)

// Recipe is what an image is made of.
type Recipe struct {
	// Base is the OS image, and Extensions, by digest, where extensions and kernels come from;
	// empty where no one named one.
	Base       *Base
	Extensions string
	// Configuration is the pool's rendered one.
	Configuration *machineconfigs.Config
	// Sources are the administrator's Containerfiles, and Inputs what their RUN lines can use
	// beside images and the context of their own.
	Sources []containerfiles.Source
	Inputs  BuildInputs
	// Described is the image, said exactly; nil as long as Describe was not called.
	Described *Description
}

// BuildInputs are the optional objects that RUN lines can use, as far as they are there: published
// names, in the controller's namespace.
type BuildInputs struct {
	// Inputs are for the backend, and Items for the keys: a build with other certificates or
	// repositories is another build.
	Inputs []backend.Input
	Items  []plan.Item
}

// Describe says which image the recipe means. Errors are Terminal (internal/fault) with the reason
// of a condition: InvalidContainerfile, or InvalidMachineConfig for what the configuration asks for
// and this base image cannot have, or what opening the base image says. All that is wrong is
// joined, each part with object, place and fix.
func (r *Recipe) Describe(ctx context.Context) error {
	if len(r.Base.Platforms) == 0 {
		return errors.New("describing an image: no architecture is given")
	}
	d := &Description{recipe: *r}
	var errs []error
	for _, platform := range r.Base.Platforms {
		index, err := platform.Open(ctx)
		if err != nil {
			return err
		}
		described, err := d.describe(platform.Architecture, index)
		d.Platforms = append(d.Platforms, described)
		errs = append(errs, err)
	}
	if err := joinOnce(errs); err != nil {
		return err
	}
	var err error
	if d.Inputs, err = d.inputs(); err != nil {
		return err
	}
	d.Keys, r.Described = d.Inputs.Keys(), d
	return nil
}
