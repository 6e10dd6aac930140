package preflight

import (
	"context"

	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/osindex"
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
	// beside images.
	Sources []containerfiles.Source
	Inputs  BuildInputs
	// Described is the image, said exactly; nil as long as Describe was not called.
	Described *description.Description
}

// Describe says which image the recipe means.
func (r *Recipe) Describe(ctx context.Context) (err error) {
	request := description.Request{
		Config: r.Configuration, Sources: r.Sources, Base: r.Base.Image, Extensions: r.Extensions, IsChoice: r.Base.IsChoice, BuildInputs: r.Inputs.Items,
	}
	for _, p := range r.Base.Platforms {
		request.Platforms = append(request.Platforms, description.Platform{
			Architecture: p.Architecture, Open: func() (*osindex.Index, error) { return p.Open(ctx) },
		})
	}
	r.Described, err = description.Describe(request)
	return err
}
