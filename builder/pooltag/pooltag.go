package pooltag

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/status"
)

// MayHoldBack reports whether anything is configured that can keep an image from nodes after it was
// built.
func MayHoldBack(config *mcfgv1.MachineOSConfig, isGated bool) bool {
	return isGated || config.Spec.Verification != nil
}

// Tags are the tags that a build gives to its image. The pool's own is among them where nothing
// can hold the image back.
func Tags(tag, pool string, mayHoldBack bool) (tags []string, policy mcfgv1.PoolTagPolicy) {
	if mayHoldBack {
		return []string{tag}, mcfgv1.PoolTagWhenReady
	}
	return []string{tag, names.PoolTag(pool)}, ""
}

// IsAmong reports whether a pool's tag is one of several.
func IsAmong(tags []string, pool string) bool { return slices.Contains(tags, names.PoolTag(pool)) }

// Registry gives a tag to an image; what finds images for a MachineOSConfig is one.
type Registry interface {
	Tag(ctx context.Context, image, tag string) error
}

// Wanted is the build of the image that is to have the tag, and all builds of its MachineOSConfig.
type Wanted struct {
	Config *mcfgv1.MachineOSConfig
	Build  *mcfgv1.MachineOSBuild
	Builds []*mcfgv1.MachineOSBuild
}

// Move gives the pool's tag to the wanted image, unless it has it, and writes down since when. It
// returns the tag.
func Move(ctx context.Context, registry Registry, w Wanted, now time.Time) (string, error) {
	image, tag := w.Build.Status.DigestedImagePushSpec, names.PoolTag(w.Config.Spec.MachineConfigPool.Name)
	repository, err := credentials.Repository(w.Config.Spec.RenderedImagePushSpec)
	if err != nil || !strings.HasPrefix(string(image), repository+"@") {
		return tag, nil //nolint:nilerr // without a repository of ours there is no tag
	}
	if since, has := taggedSince(w.Config.Status.PoolTag, w.Build, w.Builds); has {
		w.Config.Status.PoolTag = &mcfgv1.PoolTag{PullSpec: image, MovedTime: since}
		return tag, nil
	}
	if err := registry.Tag(ctx, string(image), tag); err != nil {
		return tag, err
	}
	w.Config.Status.PoolTag = &mcfgv1.PoolTag{PullSpec: image, MovedTime: afterAll(w.Builds, now)}
	ctrl.LoggerFrom(ctx).Info("Moved the pool's tag", "tag", tag, "image", image)
	return tag, nil
}

// IsFinal reports whether an error of Move stays until a person changes the registry's settings:
// the tag is another image's, and can't be moved.
func IsFinal(err error) bool { return failure.IsImmutable(err) }

// taggedSince reports whether the wanted image has the pool's tag, and since when: it was moved
// there after the build had ended, or the build has moved it itself; and no other build has moved
// it away after that. A rebuild may make the same image of one that someone had deleted, together
// with its tags.
func taggedSince(tag *mcfgv1.PoolTag, build *mcfgv1.MachineOSBuild, builds []*mcfgv1.MachineOSBuild) (since metav1.Time, has bool) {
	end := objects.EndOf(build)
	switch {
	case tag != nil && tag.PullSpec == build.Status.DigestedImagePushSpec && objects.Stamp(tag.MovedTime) >= end:
		since = tag.MovedTime
	case tagsItself(build) && (tag == nil || objects.Stamp(tag.MovedTime) <= end):
		since = *build.Status.BuildEnd
	default:
		return since, false
	}
	return since, !slices.ContainsFunc(builds, func(b *mcfgv1.MachineOSBuild) bool { return tagsItself(b) && objects.EndOf(b) > objects.Stamp(since) })
}

// tagsItself reports whether a build has moved the pool's tag.
func tagsItself(b *mcfgv1.MachineOSBuild) bool {
	return b.Status.PoolTag == "" && b.Status.BuildEnd != nil && status.BuildStageOf(b.Status.Conditions) == mcfgv1.BuildStageSucceeded
}

// afterAll is now, or just after the last build ended: the end of a build may be a second ahead, or
// from a clock that is.
func afterAll(builds []*mcfgv1.MachineOSBuild, now time.Time) metav1.Time {
	at := status.Second(now)
	for _, b := range builds {
		if end := b.Status.BuildEnd; end != nil && !at.After(end.Time) {
			at = status.Second(end.Add(time.Second))
		}
	}
	return at
}
