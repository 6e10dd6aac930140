package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
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

// writers is how many writes are on their way at once: the API server works on them side by side,
// and serves others meanwhile. As few as that are made one after the other: nodes stage in the
// order in which they go, as far as that is in the controller's hands.
const writers = 8

// apply makes the moves of a plan. One that fails does not keep the others back: the next reconcile
// plans with what the cluster has then.
func (r *Reconciler) apply(ctx context.Context, s *scope) error {
	moves := s.plan.Moves
	moved := make([]*corev1.Node, len(moves))
	err := each(len(moves), func(i int) (err error) {
		moved[i], err = r.move(ctx, s.nodes[moves[i].Node], moves[i], rolloutTimes{s.started(), s.superseded(r.clock.Now())})
		return err
	})
	for i, n := range moved {
		if n != nil {
			r.moved(ctx, s, moves[i], n)
		}
	}
	names := slices.Sorted(maps.Keys(s.nodes))
	told := make([]*mcfgv1.MachineConfigNode, len(names))
	err = errors.Join(err, each(len(names), func(i int) (err error) {
		told[i], err = r.syncMachineConfigNode(ctx, s.reports[names[i]], s.pool, s.nodes[names[i]])
		return err
	}))
	for _, report := range told {
		if report != nil {
			r.writtenReports[report.Name] = report
		}
	}
	r.observeDurations(s)
	return err
}

// each does something for each of so many, some at once, and joins what went wrong.
func each(count int, do func(i int) error) error {
	errs := make([]error, count)
	var group errgroup.Group
	group.SetLimit(writers)
	if count <= writers {
		group.SetLimit(1)
	}
	for i := range count {
		group.Go(func() error {
			errs[i] = do(i)
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

// move writes a move on a Node, if it is still as the plan was made with. It gives the Node as it
// is then; nil where it is gone.
func (r *Reconciler) move(ctx context.Context, before *corev1.Node, m plan.Move, times rolloutTimes) (*corev1.Node, error) {
	after := before.DeepCopy()
	change(after, m, times)
	if err := r.patchNode(ctx, before, after); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return after, nil
}

// patchNode writes a changed Node, if it is still as it was before.
func (r *Reconciler) patchNode(ctx context.Context, before, after *corev1.Node) error {
	patch := client.MergeFromWithOptions(before.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("patching Node %q: %w", after.Name, err)
	}
	after.Status.Images = nil // as the cache has it
	return nil
}

// moved remembers and tells that a Node was moved.
func (r *Reconciler) moved(ctx context.Context, s *scope, m plan.Move, n *corev1.Node) {
	s.nodes[m.Node], r.written[m.Node] = n, n
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

// rolloutTimes are when a rollout began, and when the one before did where nothing of that was
// proven; zero where that is not so.
type rolloutTimes struct{ started, superseded time.Time }

// change writes a move into the annotations of a Node. What a node has that no node has proven is
// nothing to go back to: then what it had before stays that.
func change(n *corev1.Node, m plan.Move, times rolloutTimes) {
	set := setter(n)
	switch m.Action {
	case plan.Stage, plan.Unstage:
		set(mcfgv1.AnnotationStageImage, m.Image)
	case plan.Update:
		told, err := time.Parse(time.RFC3339, n.Annotations[mcfgv1.AnnotationRolloutStarted])
		isUnproven := err == nil && !times.superseded.IsZero() && told.Equal(times.superseded) && n.Annotations[mcfgv1.AnnotationPreviousConfig] != ""
		set(mcfgv1.AnnotationRolloutStarted, times.started.UTC().Format(time.RFC3339))
		if n.Annotations[mcfgv1.AnnotationDesiredConfig] == m.Target.Config && n.Annotations[mcfgv1.AnnotationDesiredImage] == m.Target.Image {
			set(mcfgv1.AnnotationLiveOnly, liveOnly(m)) // it turned out that it has to go away
			return
		}
		if !isUnproven {
			set(mcfgv1.AnnotationPreviousConfig, n.Annotations[mcfgv1.AnnotationCurrentConfig])
			set(mcfgv1.AnnotationPreviousImage, n.Annotations[mcfgv1.AnnotationCurrentImage])
		}
		set(mcfgv1.AnnotationDesiredConfig, m.Target.Config)
		set(mcfgv1.AnnotationDesiredImage, m.Target.Image)
		set(mcfgv1.AnnotationLiveOnly, liveOnly(m))
		setFailed(set, nodes.Target{}, "")
	case plan.Rollback:
		set(mcfgv1.AnnotationStageImage, "")
		set(mcfgv1.AnnotationLiveOnly, "")
		set(mcfgv1.AnnotationDesiredConfig, m.Target.Config)
		set(mcfgv1.AnnotationDesiredImage, m.Target.Image)
		setFailed(set, m.Failed, m.ShortReason())
	case plan.Repeat:
		set(mcfgv1.AnnotationDesiredConfig, m.Target.Config)
		set(mcfgv1.AnnotationDesiredImage, m.Target.Image)
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
	set(mcfgv1.AnnotationFailedReason, reason)
}

// syncMachineConfigNode updates the MachineConfigNode of a node, nil where there is none, to what
// the node should have. It returns the changed one, nil if nothing changed. What it says of a
// machine that had the name before is not true of this one.
func (r *Reconciler) syncMachineConfigNode(ctx context.Context, report *mcfgv1.MachineConfigNode, pool *mcfgv1.MachineConfigPool, n *corev1.Node) (*mcfgv1.MachineConfigNode, error) {
	want := specOf(pool, n)
	if report != nil && isOfAnother(report, n) {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, report, client.Preconditions{UID: &report.UID})); err != nil {
			return nil, fmt.Errorf("deleting MachineConfigNode %q, which is of a node that is gone: %w", n.Name, err)
		}
		report = nil
	}
	if report == nil {
		report = &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{
			Name:            n.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: nodeKind, Name: n.Name, UID: n.UID}},
		}, Spec: want}
		if err := client.IgnoreAlreadyExists(r.client.Create(ctx, report)); err != nil {
			return nil, fmt.Errorf("creating MachineConfigNode %q: %w", n.Name, err)
		}
		return nil, nil
	}
	if apiequality.Semantic.DeepEqual(report.Spec, want) {
		return nil, nil
	}
	after := report.DeepCopy()
	after.Spec = want
	if err := r.client.Patch(ctx, after, client.MergeFrom(report.DeepCopy())); err != nil {
		return nil, client.IgnoreNotFound(fmt.Errorf("patching MachineConfigNode %q: %w", n.Name, err))
	}
	return after, nil
}

const nodeKind = "Node"

// isOfAnother reports whether a MachineConfigNode was made for a Node of the same name before.
func isOfAnother(report *mcfgv1.MachineConfigNode, n *corev1.Node) bool {
	owner := slices.IndexFunc(report.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == nodeKind })
	return owner >= 0 && report.OwnerReferences[owner].UID != n.UID
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
