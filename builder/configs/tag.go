package configs

import (
	"context"
	"fmt"

	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/pooltag"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

// retag gives the pool's tag to the wanted image, where its build did not: images may be held back
// here, or it was made before another one and is wanted again. The tag is for people: that it can't
// be set is no reason to keep the image from anybody. So the reconcile goes on, and is made again.
func (r *Reconciler) retag(ctx context.Context, s *scope) error {
	if s.decision.Action != plan.Nothing || s.build == nil || s.found == nil || r.isHeldBack(s) {
		return nil
	}
	tag, err := pooltag.Move(ctx, s.found, pooltag.Wanted{Config: s.config, Build: s.build, Builds: s.builds}, r.options.Clock.Now())
	if err != nil {
		image := string(s.build.Status.DigestedImagePushSpec)
		if !pooltag.IsFinal(err) { // which is not tried again by itself
			s.untagged = fmt.Errorf("moving the tag %q to image %q: %w", tag, image, err)
		}
		r.options.Events.Publish(s.config, events.PoolTagNotMoved(tag, image, fault.Message(err)))
	}
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
