package builder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
)

// mayHoldBack reports whether anything is configured that can keep an image from nodes after it was
// built.
func (b *Builder) mayHoldBack(config *mcfgv1.MachineOSConfig) bool {
	return b.images.IsGated() || config.Spec.Verification != nil
}

// tagsOf are the tags that a build gives to its image. The pool's own is among them where nothing
// can hold the image back.
func (r *buildReconciler) tagsOf(b *building) (tags []string, pool mcfgv1.PoolTagPolicy) {
	if r.mayHoldBack(b.config) {
		return []string{b.Target.Tag}, mcfgv1.PoolTagWhenReady
	}
	return []string{b.Target.Tag, names.PoolTag(b.Pool)}, ""
}

// retag gives the pool's tag to the wanted image, where its build did not: images may be held back
// here, or it was made before another one and is wanted again. The tag is for people: that it can't
// be set is no reason to keep the image from anybody. So the pass goes on, and is made again.
func (r *configReconciler) retag(ctx context.Context, s *configScope) error {
	if s.decision.Action != plan.Nothing || s.build == nil || s.found == nil || r.isHeldBack(s) {
		return nil
	}
	image := s.build.Status.DigestedImagePushSpec
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil || !strings.HasPrefix(string(image), repository+"@") {
		return nil //nolint:nilerr // without a repository of ours there is no tag
	}
	if since, has := taggedSince(s); has {
		s.config.Status.PoolTag = &mcfgv1.PoolTag{PullSpec: image, MovedTime: since}
		return nil
	}
	tag := names.PoolTag(s.pool.Name)
	if err := s.found.credentials.Push.Tag(ctx, string(image), tag); err != nil {
		s.untagged = fmt.Errorf("moving the tag %q to image %q: %w", tag, image, err)
		r.events.Publish(s.config, events.PoolTagNotMoved(tag, string(image), fault.Message(err)))
		return nil
	}
	s.config.Status.PoolTag = &mcfgv1.PoolTag{PullSpec: image, MovedTime: afterAll(s.builds, r.clock.Now())}
	ctrl.LoggerFrom(ctx).Info("Moved the pool's tag", "tag", tag, "image", image)
	return nil
}

// isHeldBack reports whether no node may get the wanted image, or not yet. The conditions are read
// that Ready is made of: Ready itself may be of before someone asked for a verification.
func (r *configReconciler) isHeldBack(s *configScope) bool {
	image := wantedImage(s)
	if image == nil {
		return r.mayHoldBack(s.config)
	}
	asked := s.config.Spec.Verification != nil && !owner.IsPreBuilt(image)
	return images.Readiness(image, r.images.IsGated(), asked).State != status.StateReady
}

// taggedSince reports whether the wanted image has the pool's tag, and since when: it was moved
// there after the build had ended, or the build has moved it itself; and no other build has moved
// it away after that. A rebuild may make the same image of one that someone had deleted, together
// with its tags.
func taggedSince(s *configScope) (since metav1.Time, has bool) {
	tag, end := s.config.Status.PoolTag, endOf(s.build)
	switch {
	case tag != nil && tag.PullSpec == s.build.Status.DigestedImagePushSpec && stamp(tag.MovedTime) >= end:
		since = tag.MovedTime
	case tagsItself(s.build) && (tag == nil || stamp(tag.MovedTime) <= end):
		since = *s.build.Status.BuildEnd
	default:
		return since, false
	}
	return since, !slices.ContainsFunc(s.builds, func(b *mcfgv1.MachineOSBuild) bool { return tagsItself(b) && endOf(b) > stamp(since) })
}

// tagsItself reports whether a build has moved the pool's tag.
func tagsItself(b *mcfgv1.MachineOSBuild) bool {
	return b.Status.PoolTag == "" && b.Status.BuildEnd != nil && status.BuildStageOf(b.Status.Conditions) == status.StageSucceeded
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
