package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/trials/trial"
)

// notBuilt is why a report from files has no trial image.
const notBuilt = "this report was made from objects and from what the registry has; annotate the MachineOSConfig with " +
	mcfgv1.AnnotationTryStream + " to have an image made too"

// Trial says what the pool's move to another stream would change. Base and Extensions of the
// options stand in for the images that the pool has now, and not for those of the other stream.
func Trial(ctx context.Context, options Options, images trial.Images, stream string) (*compare.Report, error) {
	r := &renderer{options}
	now, err := r.Wanted()
	if err != nil {
		return nil, err
	}
	r.Pool = now.Pool
	then, err := trial.Render(trial.Objects{
		Pool: r.Cluster.Pool(r.Pool), Worker: r.Cluster.Pool(mcfgv1.PoolWorker), Streams: r.Cluster.Streams, Configs: r.Cluster.MachineConfigs, Version: r.Version,
	}, stream)
	if err != nil {
		return nil, fmt.Errorf("trying stream %q for pool %q: %w", stream, r.Pool, err)
	}
	from, err := r.openBase(ctx, now.Base, r.Architectures)
	if err != nil {
		return nil, err
	}
	if string(then.Stream.OSImage) == "" {
		return nil, fmt.Errorf("trying stream %q for pool %q: it has no OS image", stream, r.Pool)
	}
	to, err := r.openBase(ctx, string(then.Stream.OSImage), r.Architectures)
	if err != nil {
		return nil, err
	}
	request := &trial.Request{
		Pool: r.Pool, Then: then, Containerfiles: now.Sources, Blockers: trial.Overrides(now.OSConfig),
		From: trial.OS{Stream: r.streamOf(r.Pool), Reference: from.pinned, Image: from.platforms[0].image, Index: from.platforms[0].index},
		To:   trial.OS{Stream: stream, Reference: to.pinned, Image: to.platforms[0].image, Index: to.platforms[0].index},
	}
	for _, p := range to.platforms {
		request.Architectures = append(request.Architectures, p.arch)
	}
	if err := r.openExtensions(ctx, then, to.platforms[0].arch, &request.To); err != nil {
		return nil, err
	}
	nowExtensions, err := r.pinExtensions(ctx, now.Extensions)
	if err != nil {
		return nil, err
	}
	request.Before, _ = r.inputs(ctx, now.Rendered.Config, now.Sources, from, nowExtensions) // what is wrong with it now is no matter of the move
	thenExtensions, err := r.pinExtensions(ctx, then.Config.ExtensionsImage)
	if err != nil {
		return nil, err
	}
	if request.After, request.Problem = r.inputs(ctx, then.Config, now.Sources, to, thenExtensions); request.Problem != nil {
		request.Problem = layer.InSources(request.Problem, r.Cluster.parsed(then.Rendered.Sources))
	}
	report, err := trial.Examine(ctx, images, request)
	if report != nil {
		report.NotBuilt = notBuilt
	}
	return report, err
}

// inputs are what an image is made of.
func (*renderer) inputs(ctx context.Context, config *machineconfigs.Config, sources []containerfiles.Source, base *baseImage, extensions string) (*plan.Inputs, error) {
	made := recipe.Recipe{Configuration: config, Sources: sources, Base: base.described(), Extensions: extensions}
	if err := made.Describe(ctx); err != nil {
		return nil, err
	}
	return &made.Described.Inputs, nil
}

// streamOf is the stream that a pool follows now, as far as the objects say.
func (r *renderer) streamOf(pool string) string {
	p := r.Cluster.Pool(pool)
	name := cmp.Or(p.Status.OSImageStream.Name, p.Spec.OSImageStream.Name)
	if name == "" && r.Cluster.Streams != nil {
		name = r.Cluster.Streams.Status.DefaultStream
	}
	return name
}

// openExtensions opens the other stream's extensions image, where anything is taken from it.
func (r *renderer) openExtensions(ctx context.Context, then *trial.Rendered, arch mcfgv1.ContainerfileArch, os *trial.OS) error {
	reference := string(then.Stream.OSExtensionsImage)
	if os.HasExtensions = reference != ""; !os.HasExtensions || !trial.UsesExtensions(then.Config) {
		return nil
	}
	found, _, err := r.open(ctx, reference)
	if err != nil {
		return fmt.Errorf("reading the extensions image %q: %w", reference, err)
	}
	os.Extensions, err = imageOf(found, arch)
	if err != nil {
		return fmt.Errorf("reading the extensions image %q: %w", reference, err)
	}
	return nil
}

// imageOf is the image of one architecture.
func imageOf(found *manifest, arch mcfgv1.ContainerfileArch) (v1.Image, error) {
	if !found.media.IsIndex() {
		return found.image()
	}
	index, err := found.index()
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list.Manifests, func(d v1.Descriptor) bool {
		return d.Platform != nil && d.Platform.Architecture == containerfiles.GoArch(arch)
	})
	if i < 0 {
		return nil, errors.New("it has no image for " + string(arch))
	}
	return index.Image(list.Manifests[i].Digest)
}
