package wanted

import (
	"context"
	"errors"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
)

// ErrChanged means that the inputs of a build no longer give the key that it was requested with:
// someone has changed something, or this program means something else by it than the one before.
var ErrChanged = errors.New("the MachineOSConfig or its pool has changed since this build was requested; another build follows")

// recipeAge is how old a recipe may be for a build to go by it: secrets may have changed, which
// nothing tells of. A build that finds none reads its inputs again, as after a restart.
const recipeAge = time.Minute

// handedOn is a recipe that was described at a time.
type handedOn struct {
	recipe.Recipe

	at time.Time
}

// HandOn has a build take what was just found, instead of reading everything again.
func (f *Finder) HandOn(build string, found *Answer) {
	if found.recipe != nil {
		f.memory.recipes.Add(build, found.recipe)
	}
}

// Drop forgets the recipe of a build that has ended.
func (f *Finder) Drop(build string) { f.memory.recipes.Remove(build) }

// Order is what a build was asked to make. Its recipe is complete once Describe was called.
func (f *Finder) Order(ctx context.Context, config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild) (*order.Order, error) {
	o, err := objects.OrderOf(config, build)
	if err != nil {
		return nil, err
	}
	if o.Credentials, err = f.options.Checker.Credentials(ctx, config); err != nil {
		return nil, err
	}
	asked := build.Asked()
	o.Key, o.Extensions = backend.KeyOf(build), string(asked.ExtensionsImage)
	if o.Base, err = f.options.Checker.BaseImage(ctx, o.Credentials, string(asked.BaseImage), asked.Inputs.Architectures); err != nil {
		return nil, err
	}
	o.IsStale = func(ctx context.Context, invocation string) (bool, error) {
		return objects.IsRebuilt(ctx, f.options.Client, order.ContentOf(&o.Recipe), o.Target.Repository, build.UID, invocation)
	}
	return o, nil
}

// Describe completes the recipe of an order: with what was handed on, or with what is there now. It
// is ErrChanged where that gives another key, and then the wanted image is found out anew.
func (f *Finder) Describe(ctx context.Context, config *mcfgv1.MachineOSConfig, o *order.Order) error {
	known := get[handedOn](f.memory.recipes, o.Key.Build)
	if known == nil || known.Configuration.Name != o.Rendered || f.options.Clock.Since(known.at) > recipeAge {
		known = &handedOn{Recipe: o.Recipe, at: f.options.Clock.Now()}
		if err := f.read(ctx, config, o, &known.Recipe); err != nil {
			return err
		}
	}
	if known.Described.Keys.Build != o.Record.Keys.Build {
		f.memory.outdate(config.Name)
		return ErrChanged
	}
	f.memory.recipes.Add(o.Key.Build, known)
	o.Recipe = known.Recipe
	return nil
}

// read reads and describes what the image of an order is made of.
func (f *Finder) read(ctx context.Context, config *mcfgv1.MachineOSConfig, o *order.Order, into *recipe.Recipe) (err error) {
	if into.Configuration, err = objects.ReadConfiguration(ctx, f.options.Reader, o.Rendered); err != nil {
		return err
	}
	if o.Record.Inputs.HasContent() {
		if into.Sources, err = f.options.Checker.Sources(ctx, config); err != nil {
			return err
		}
		if into.Inputs, err = f.options.Checker.BuildInputs(ctx, o.Pool); err != nil {
			return err
		}
	}
	return into.Describe(ctx)
}
