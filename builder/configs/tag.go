package configs

import (
	"context"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/pooltag"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
)

// retag gives the pool's tag to the wanted image, where its build did not: images may be held back
// here, or it was made before another one and is wanted again. The tag is for people: that it can't
// be set is no reason to keep the image from anybody. So the pass goes on, and is made again.
func (r *Reconciler) retag(ctx context.Context, s *scope) error {
	if s.decision.Action != plan.Nothing || s.build == nil || s.found == nil || r.isHeldBack(s) {
		return nil
	}
	image := s.build.Status.DigestedImagePushSpec
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil || !strings.HasPrefix(string(image), repository+"@") {
		return nil //nolint:nilerr // without a repository of ours there is no tag
	}
	if since, has := pooltag.Since(s.config.Status.PoolTag, s.build, s.builds); has {
		s.config.Status.PoolTag = &mcfgv1.PoolTag{PullSpec: image, MovedTime: since}
		return nil
	}
	tag := names.PoolTag(s.pool.Name)
	if err := s.found.Tag(ctx, string(image), tag); err != nil {
		s.untagged = fmt.Errorf("moving the tag %q to image %q: %w", tag, image, err)
		r.options.Events.Publish(s.config, events.PoolTagNotMoved(tag, string(image), fault.Message(err)))
		return nil
	}
	s.config.Status.PoolTag = &mcfgv1.PoolTag{PullSpec: image, MovedTime: pooltag.After(s.builds, r.options.Clock.Now())}
	ctrl.LoggerFrom(ctx).Info("Moved the pool's tag", "tag", tag, "image", image)
	return nil
}

// isHeldBack reports whether no node may get the wanted image, or not yet. The conditions are read
// that Ready is made of: Ready itself may be of before someone asked for a verification.
func (r *Reconciler) isHeldBack(s *scope) bool {
	image := wantedImage(s)
	if image == nil {
		return pooltag.MayHoldBack(s.config, r.options.IsGated())
	}
	asked := s.config.Spec.Verification != nil && !owner.IsPreBuilt(image)
	return images.Readiness(image, r.options.IsGated(), asked).State != status.StateReady
}
