package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/webhook"
)

// apply makes the moves of a plan. One that fails does not keep the others back: the next pass
// plans with what the cluster has then.
func (r *Reconciler) apply(ctx context.Context, s *scope) error {
	var errs []error
	for _, m := range s.plan.Moves {
		errs = append(errs, r.move(ctx, s, m))
	}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		errs = append(errs, r.tell(ctx, s, s.nodes[name]))
	}
	r.observeDurations(s)
	return errors.Join(errs...)
}

// move makes one move. It is bound to the version of the Node that the plan was made with.
func (r *Reconciler) move(ctx context.Context, s *scope, m plan.Move) error {
	n := s.nodes[m.Node].DeepCopy()
	change(n, m, s.started())
	if err := r.patchNode(ctx, s.nodes[m.Node], n); err != nil {
		return client.IgnoreNotFound(err)
	}
	s.nodes[m.Node] = n
	ctrl.LoggerFrom(ctx).Info("Moved a node", "node", m.Node, "action", m.Action, "image", m.Image,
		"config", m.Target.Config, "because", m.Reason)
	r.options.Metrics.Moved(s.pool.Name, string(m.Action))
	switch m.Action {
	case plan.Update:
		r.started[m.Node] = r.clock.Now()
		r.events.Publish(s.pool, events.NodeTargeted(m.Node, m.Target.Config, m.Target.Image))
		if !s.plan.Window.Open {
			r.events.Publish(s.pool, events.WindowIgnored(m.Node, s.pool.Annotations[mcfgv1.AnnotationIgnoreWindows]))
		}
	case plan.Rollback:
		delete(r.started, m.Node)
		r.events.Publish(s.pool, events.NodeRolledBack(m.Node, m.Target.Config, m.Target.Image, m.Reason))
		r.tellWebhook(s, webhook.RolledBack, m.Node, m.Reason)
	default:
	}
	return nil
}

// patchNode writes a changed Node, if it is still as it was before, and remembers what was written.
func (r *Reconciler) patchNode(ctx context.Context, before, after *corev1.Node) error {
	patch := client.MergeFromWithOptions(before.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("patching Node %q: %w", after.Name, err)
	}
	after.Status.Images = nil // as the cache has it
	r.written[after.Name] = after
	return nil
}

// setter sets annotations of a Node. An empty value removes one.
func setter(n *corev1.Node) func(key, value string) {
	return func(key, value string) {
		if value == "" {
			delete(n.Annotations, key)
			return
		}
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
	}
}

// change writes a move, of the rollout that began at a time, into the annotations of a Node.
func change(n *corev1.Node, m plan.Move, started time.Time) {
	set := setter(n)
	switch m.Action {
	case plan.Stage, plan.Unstage:
		set(mcfgv1.AnnotationStageImage, m.Image)
	case plan.Update:
		set(mcfgv1.AnnotationRolloutStarted, started.UTC().Format(time.RFC3339))
		if n.Annotations[mcfgv1.AnnotationDesiredConfig] == m.Target.Config && n.Annotations[mcfgv1.AnnotationDesiredImage] == m.Target.Image {
			set(mcfgv1.AnnotationLiveOnly, liveOnly(m)) // it turned out that it has to go away
			return
		}
		set(mcfgv1.AnnotationPreviousConfig, n.Annotations[mcfgv1.AnnotationCurrentConfig])
		set(mcfgv1.AnnotationPreviousImage, n.Annotations[mcfgv1.AnnotationCurrentImage])
		set(mcfgv1.AnnotationDesiredConfig, m.Target.Config)
		set(mcfgv1.AnnotationDesiredImage, m.Target.Image)
		set(mcfgv1.AnnotationLiveOnly, liveOnly(m))
		setFailed(set, nodes.Target{}, "")
	case plan.Rollback:
		set(mcfgv1.AnnotationStageImage, "")
		set(mcfgv1.AnnotationLiveOnly, "")
		set(mcfgv1.AnnotationDesiredConfig, m.Target.Config)
		set(mcfgv1.AnnotationDesiredImage, m.Target.Image)
		setFailed(set, m.Failed, m.Reason)
	}
}

func liveOnly(m plan.Move) string {
	if m.Live {
		return "true"
	}
	return ""
}

// setFailed writes what a node failed with.
func setFailed(set func(key, value string), t nodes.Target, reason string) {
	set(mcfgv1.AnnotationFailedConfig, t.Config)
	set(mcfgv1.AnnotationFailedImage, t.Image)
	set(mcfgv1.AnnotationFailedReason, plan.Shorten(reason, maxReason))
}

// tell keeps the MachineConfigNode of a node in step with what the node should have.
func (r *Reconciler) tell(ctx context.Context, s *scope, n *corev1.Node) error {
	want := specOf(s.pool, n)
	report := s.reports[n.Name]
	if report == nil {
		report = &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{
			Name:            n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
		}, Spec: want}
		if err := client.IgnoreAlreadyExists(r.client.Create(ctx, report)); err != nil {
			return fmt.Errorf("creating MachineConfigNode %q: %w", n.Name, err)
		}
		return nil
	}
	if apiequality.Semantic.DeepEqual(report.Spec, want) {
		return nil
	}
	after := report.DeepCopy()
	after.Spec = want
	if err := client.IgnoreNotFound(r.client.Patch(ctx, after, client.MergeFrom(report.DeepCopy()))); err != nil {
		return fmt.Errorf("patching MachineConfigNode %q: %w", n.Name, err)
	}
	return nil
}

// specOf is what the MachineConfigNode of a Node should say.
func specOf(pool *mcfgv1.MachineConfigPool, n *corev1.Node) mcfgv1.MachineConfigNodeSpec {
	spec := mcfgv1.MachineConfigNodeSpec{
		Node: mcfgv1.MCOObjectReference{Name: n.Name}, Pool: mcfgv1.MCOObjectReference{Name: pool.Name},
	}
	spec.ConfigVersion.Desired = n.Annotations[mcfgv1.AnnotationDesiredConfig]
	if spec.ConfigVersion.Desired == "" {
		spec.ConfigVersion.Desired = mcfgv1.ConfigNotYetSet
	}
	spec.ConfigImage.DesiredImage = mcfgv1.ImageDigestFormat(n.Annotations[mcfgv1.AnnotationDesiredImage])
	return spec
}

// observeDurations measures the updates of nodes that have arrived since they were told to change.
// Of those that were drained it keeps the duration for the next nodes.
func (r *Reconciler) observeDurations(s *scope) {
	for i := range s.members {
		n := &s.members[i]
		since, isStarted := r.started[n.Name]
		if isStarted && n.IsAt(s.verdict.Target) {
			took := r.clock.Since(since)
			r.options.Metrics.Took(s.pool.Name, took)
			if !n.LiveOnly {
				s.took = append(s.took, took)
			}
			delete(r.started, n.Name)
		}
	}
}
