package wanted

import (
	"context"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
)

// BuildOf is the name of the build of the wanted image, in the repository that it is wanted in: the
// one that has the name of its key, unless that made the image for another repository.
func (i *Image) BuildOf(config *mcfgv1.MachineOSConfig, builds []*mcfgv1.MachineOSBuild) string {
	key := i.Record.Keys.Build
	plain := names.MachineOSBuild(config.Name, key)
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil { // which is told before anything is made
		return plain
	}
	elsewhere := names.MachineOSBuild(config.Name, names.InRepository(key, repository))
	for _, name := range []string{plain, elsewhere} {
		if b := objects.Named(builds, name); b != nil && objects.PushesTo(repository, b) {
			return name
		}
	}
	if objects.Named(builds, plain) == nil {
		return plain
	}
	return elsewhere
}

// ContentImage is the tag of what has to be built for the wanted image; empty where that is
// nothing.
func (i *Image) ContentImage(config *mcfgv1.MachineOSConfig) string {
	if i == nil || !i.HasContent {
		return ""
	}
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil {
		return ""
	}
	return i.content.In(repository).String()
}

// PushSpec is where the image is pushed to.
func (i *Image) PushSpec(config *mcfgv1.MachineOSConfig) (mcfgv1.ImageTagFormat, error) {
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil {
		return "", err
	}
	return mcfgv1.ImageTagFormat(i.target(config, repository).String()), nil
}

func (i *Image) target(config *mcfgv1.MachineOSConfig, repository string) order.Target {
	return order.Target{Repository: repository, Tag: names.ImageTag(config.Spec.MachineConfigPool.Name, i.Record.Keys.Build)}
}

// Tag gives a tag to an image, with the credentials that the wanted image is pushed with.
func (i *Image) Tag(ctx context.Context, image, tag string) error {
	return i.Credentials.Push.Tag(ctx, image, tag)
}

// InRegistry reports whether the registry has the wanted image: the one that a build made, by its
// digest, or one under the image's tag. Where that is about to become the current image, the
// registry is asked now: it may be that of weeks ago.
func (f *Finder) InRegistry(ctx context.Context, config *mcfgv1.MachineOSConfig, i *Image, build *mcfgv1.MachineOSBuild) (bool, error) {
	with := i.Credentials
	if build != nil {
		if status.BuildStageOf(build.Status.Conditions) != mcfgv1.BuildStageSucceeded {
			return false, nil
		}
		image := build.Status.DigestedImagePushSpec
		fresh := image != config.Status.CurrentImagePullSpec || objects.WantsRecheck(config)
		found, err := f.options.Checker.Has(ctx, with.Push, with.Access+"|push", string(image), fresh)
		if err == nil && !found && build.Annotations[mcfgv1.AnnotationPreBuiltImage] != "" { // it may be anywhere
			found, err = f.options.Checker.Has(ctx, with.Pull, with.Access+"|pull", string(image), fresh)
		}
		return found, err
	}
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil {
		return false, err
	}
	image, err := f.options.Registry.FindImage(ctx, with, i.target(config, repository), i.Record.Keys.Build, i.Base.Platforms)
	if image != "" { // where it can't be verified now, the build waits for that, and says so
		return true, nil
	}
	return false, err
}

// HasContentImage reports whether the registry has what would be built.
func (f *Finder) HasContentImage(ctx context.Context, config *mcfgv1.MachineOSConfig, i *Image) (bool, error) {
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil {
		return false, err
	}
	image, _, err := f.options.Registry.FindContent(ctx, i.Credentials, i.content, repository, func(ctx context.Context, invocation string) (bool, error) {
		return objects.IsRebuilt(ctx, f.options.Client, i.content, repository, "", invocation)
	})
	if image != "" { // where it can't be verified now, the build waits for that, and says so
		return true, nil
	}
	return false, err
}

// CanPush reports whether the wanted image may be pushed.
func (f *Finder) CanPush(ctx context.Context, config *mcfgv1.MachineOSConfig, i *Image) error {
	return f.options.Checker.CanPush(ctx, i.Credentials, config.Spec.RenderedImagePushSpec, objects.WantsRebuild(config))
}
