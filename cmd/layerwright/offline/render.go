package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/render"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
)

// Options say what to describe, and with what.
type Options struct {
	// Cluster are the objects.
	Cluster *Cluster
	// Pool is the pool whose image it is; empty means Cluster.PoolName.
	Pool string
	// Containerfile stands in for those of the pool's MachineOSConfig; nil leaves them.
	Containerfile *containerfiles.Source
	// Base stands in for the pool's OS image: an image in a registry, or oci:FOLDER[:TAG]; empty
	// leaves it.
	Base string
	// Extensions stands in for the pool's extensions image: an image in a registry; empty leaves
	// it.
	Extensions string
	// Architectures are those to describe; empty means all that the base image has.
	Architectures []mcfgv1.ContainerfileArch
	// Version goes into the rendered MachineConfig's annotation.
	Version string

	// Indexer reads base images, Fetcher other files, and Registry says how to reach registries.
	Indexer  Indexer
	Fetcher  configlayer.Fetcher
	Registry []remote.Option
}

// Result is an image, described from files.
type Result struct {
	Pool     string
	Rendered *machineconfigs.Rendered
	// Base and Extensions are name@digest; Extensions may be empty.
	Base, Extensions string
	Description      *recipe.Description
	// Platforms are in the order of Description.Platforms.
	Platforms []PlatformResult
	// Unused are things in the files that play no part, for people.
	Unused []string
}

// PlatformResult is the image of one architecture.
type PlatformResult struct {
	*recipe.PlatformDescription
	// Containerfile is what a build would run; nil where there is nothing to build.
	Containerfile *render.Rendered
	// Config is the configuration layer; nil where the built content has to bring something that it
	// needs.
	Config *layer.Layer
}

type renderer struct{ Options }

// Wanted is the image that files mean, as far as they say it: registries say the rest.
type Wanted struct {
	Pool     string
	Rendered *machineconfigs.Rendered
	// OSConfig is the pool's MachineOSConfig; nil if there is none.
	OSConfig *mcfgv1.MachineOSConfig
	// Sources are the administrator's Containerfiles.
	Sources []containerfiles.Source
	// Base and Extensions are what names the images; Extensions may be empty.
	Base, Extensions string
}

// Wanted is what the files say.
func (o *Options) Wanted() (*Wanted, error) {
	w := &Wanted{Pool: cmp.Or(o.Pool, o.Cluster.PoolName())}
	var err error
	if w.Rendered, err = o.Cluster.Render(w.Pool, o.Version); err != nil {
		return nil, err
	}
	w.OSConfig = o.Cluster.OSConfig(w.Pool)
	if w.Sources, err = o.Cluster.Sources(w.OSConfig, o.Containerfile); err != nil {
		return nil, err
	}
	w.Base, w.Extensions = o.Base, o.Extensions
	if w.OSConfig != nil {
		w.Base = cmp.Or(w.Base, string(w.OSConfig.Spec.BaseOSImagePullSpec))
		w.Extensions = cmp.Or(w.Extensions, string(w.OSConfig.Spec.BaseOSExtensionsImagePullSpec))
	}
	w.Base, w.Extensions = cmp.Or(w.Base, w.Rendered.Config.OSImageURL), cmp.Or(w.Extensions, w.Rendered.Config.ExtensionsImage)
	if w.Base == "" {
		return nil, errors.New("nothing names a base image: give one with --base, or add an OSImageStream, or baseOSImagePullSpec to the MachineOSConfig")
	}
	return w, nil
}

// InSources names the MachineConfigs that an error about the rendered one is about.
func (o *Options) InSources(w *Wanted, err error) error {
	return layer.InSources(err, o.Cluster.parsed(w.Rendered.Sources))
}

// Render describes an image.
func Render(ctx context.Context, options Options) (*Result, error) {
	r := &renderer{options}
	wanted, err := r.Wanted()
	if err != nil {
		return nil, err
	}
	r.Pool = wanted.Pool
	made := recipe.Recipe{Configuration: wanted.Rendered.Config, Sources: wanted.Sources}
	base, err := r.openBase(ctx, wanted.Base, r.Architectures)
	if err != nil {
		return nil, err
	}
	made.Base = base.described()
	if made.Extensions, err = r.pinExtensions(ctx, wanted.Extensions); err != nil {
		return nil, err
	}
	if err := made.Describe(ctx); err != nil {
		return nil, r.InSources(wanted, err)
	}
	result := &Result{
		Pool: r.Pool, Rendered: wanted.Rendered, Description: made.Described,
		Base: made.Base.Image, Extensions: made.Extensions, Unused: r.unused(made.Sources, made.Described),
	}
	if err := r.addPlatforms(ctx, base, result); err != nil {
		return nil, r.InSources(wanted, err)
	}
	return result, nil
}

// pinExtensions resolves what names the extensions image; empty where nothing does.
func (r *renderer) pinExtensions(ctx context.Context, reference string) (string, error) {
	if reference == "" {
		return "", nil
	}
	pinned, err := r.pin(ctx, reference)
	if err != nil {
		return "", fmt.Errorf("resolving the extensions image %q: %w", reference, err)
	}
	return pinned, nil
}

// unused adds the Containerfiles that no architecture of the base image takes.
func (r *renderer) unused(sources []containerfiles.Source, d *recipe.Description) []string {
	unused := r.Cluster.Unused
	for _, source := range sources {
		used := false
		for _, p := range d.Platforms {
			used = used || p.Source.Name == source.Name
		}
		if !used {
			unused = append(unused, fmt.Sprintf("Containerfile for %s (%s): the image is for other architectures", source.Arch, source.Name))
		}
	}
	return unused
}

func (r *renderer) addPlatforms(ctx context.Context, base *baseImage, result *Result) error {
	sources := configlayer.Sources{Fetcher: r.Fetcher, Base: r.Indexer}
	for i := range result.Description.Platforms {
		p := PlatformResult{PlatformDescription: &result.Description.Platforms[i]}
		var err error
		if len(p.Layer.Expected) == 0 {
			below := configlayer.Below{Image: base.platforms[i].image, Index: base.platforms[i].index}
			if p.Config, err = sources.Make(ctx, p.Layer, below); err != nil {
				return fmt.Errorf("making the configuration layer for %s: %w", p.Architecture, err)
			}
		}
		text, err := result.Description.Render(p.PlatformDescription, result.configImage(), nil)
		if err != nil {
			return err
		}
		if !text.Empty {
			p.Containerfile = text
		}
		result.Platforms = append(result.Platforms, p)
	}
	return nil
}

// configImage stands for the base image with the configuration in it, which exists in a registry
// only once a controller has put it there: its name has the build key where its digest would be.
func (r *Result) configImage() string {
	return "localhost/" + containerfiles.StageBaseWithConfigs + "@sha256:" + r.Description.Keys.Build + r.Description.Keys.Build
}
