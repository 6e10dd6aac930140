package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
)

const (
	typeRolloutDegraded = string(mcfgv1.PoolRolloutDegraded)
	// maxQuarantined is the limit of the API for the nodes of a quarantine.
	maxQuarantined = 100
)

// quarantine keeps the image of a halted rollout from all further nodes, until the rollout is
// resumed. Where the nodes that failed ran the image before, it is their configuration that is
// held: another one may be rolled out.
func (r *Reconciler) quarantine(ctx context.Context, s *scope) error {
	image := s.verdict.Found
	if s.plan.Halt == "" || image == nil || image.Quarantined() != nil {
		return nil
	}
	after := image.DeepCopy()
	failed := s.plan.FailedNodes
	after.Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{
		Reason: mcfgv1alpha1.ReasonRolloutHalted, Message: s.plan.Evidence(),
		Since: status.Second(r.clock.Now()), Nodes: failed[:min(len(failed), maxQuarantined)],
	}
	if s.ranBefore(failed) {
		after.Status.Quarantine.RenderedMachineConfig = s.verdict.Target.Config
	}
	if err := r.patchImage(ctx, image, after); err != nil {
		return err
	}
	r.events.Publish(after, events.RolloutHalted(s.plan.Halt))
	return nil
}

// ranBefore reports whether the nodes that failed had the image of the target already, and only
// changed their configuration.
func (s *scope) ranBefore(failed []string) bool {
	for i := range s.members {
		n := &s.members[i]
		if slices.Contains(failed, n.Name) && n.Previous.Image != s.verdict.Target.Image {
			return false
		}
	}
	return s.verdict.Target.Image != ""
}

func (r *Reconciler) patchImage(ctx context.Context, before, after *mcfgv1alpha1.MachineOSImage) error {
	patch := client.MergeFromWithOptions(before.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.client.Status().Patch(ctx, after, patch)); err != nil {
		return fmt.Errorf("writing the quarantine of MachineOSImage %q: %w", after.Name, err)
	}
	return nil
}

// resume forgets which nodes failed with the target, ends the quarantine of its image, and then
// removes the annotation that asked for it: one that ends before is completed by the next
// reconcile.
func (r *Reconciler) resume(ctx context.Context, s *scope) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		errs = append(errs, r.clearFailedTarget(ctx, s.nodes[name], s.verdict.Target))
	}
	if image := s.verdict.Found; image != nil && image.Status.Quarantine != nil {
		after := image.DeepCopy()
		after.Status.Quarantine = nil
		errs = append(errs, r.patchImage(ctx, image, after))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, err := status.Acknowledge(ctx, r.client, s.pool, mcfgv1.AnnotationResumeRollout); err != nil {
		return err
	}
	r.events.Publish(s.pool, events.RolloutResumed(s.pool.Name))
	return nil
}

// clearFailedTarget removes the record that a node failed with a target.
func (r *Reconciler) clearFailedTarget(ctx context.Context, n *corev1.Node, t nodes.Target) error {
	if t.Config == "" || plan.Observe(n, nil).FailedTarget != t {
		return nil
	}
	after := n.DeepCopy()
	setFailed(setter(after), nodes.Target{}, "")
	if err := r.patchNode(ctx, n, after); err != nil {
		return client.IgnoreNotFound(err)
	}
	r.written[n.Name] = after
	return nil
}

// rolloutDegraded returns the condition RolloutDegraded, True while a person has to act before
// nodes move on.
func rolloutDegraded(s *scope) metav1.Condition {
	c := metav1.Condition{Type: typeRolloutDegraded, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonAsExpected}
	switch {
	case s.plan.Halt != "" || s.verdict.Quarantined():
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, mcfgv1.ReasonRolloutHalted, s.halted()+events.AfterHalt
	case s.invalid != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, mcfgv1.ReasonInvalidRollout, "spec.rollout: "+s.invalid.Error()
	case s.plan.Failure != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, mcfgv1.ReasonNodesFailed, s.plan.Failure+events.AfterHalt
	case s.plan.Window.Problem != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, mcfgv1.ReasonInvalidRollout, "spec.rollout.windows: "+s.plan.Window.Problem
	}
	return c
}

// halted is why the rollout is halted, or was when its image came into quarantine.
func (s *scope) halted() string { return cmp.Or(s.plan.Halt, s.verdict.Hold) }

// isAbout reports whether a rollout status speaks of what the nodes should have.
func isAbout(r *mcfgv1.RolloutStatus, v *plan.Verdict) bool {
	return r.TargetConfiguration == v.Target.Config && string(r.TargetImagePullSpec) == v.Image
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
