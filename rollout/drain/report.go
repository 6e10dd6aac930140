package drain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
)

// report is what people are told of one node's drain, in the condition Drained of its
// MachineConfigNode. That is also where it is remembered since when the drain is blocked.
type report struct {
	*Reconciler
	node *corev1.Node
	mcn  *mcfgv1.MachineConfigNode // nil where no agent has one yet
	// since is when the drain was first seen blocked; now if it was not.
	since time.Time
}

// readReport reads what was told last.
func (r *Reconciler) readReport(ctx context.Context, n *corev1.Node) (*report, error) {
	out := &report{Reconciler: r, node: n, since: status.Second(r.clock.Now()).Time}
	mcn := &mcfgv1.MachineConfigNode{}
	switch err := r.client.Get(ctx, client.ObjectKey{Name: n.Name}, mcn); {
	case apierrors.IsNotFound(err):
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("reading MachineConfigNode %q: %w", n.Name, err)
	}
	out.mcn = mcn
	if told := out.told(); told != nil {
		out.since = told.LastTransitionTime.Time
	}
	return out, nil
}

// told is the condition that says that the drain is blocked, nil if none does.
func (o *report) told() *metav1.Condition {
	if o.mcn == nil {
		return nil
	}
	c := status.Find(o.mcn.Status.Conditions, mcfgv1.NodeDrained)
	if c == nil || c.Reason != mcfgv1.ReasonDrainBlocked && c.Reason != mcfgv1.ReasonDrainOverdue {
		return nil
	}
	return c
}

// block says that the drain is blocked, and for how long it has been.
func (o *report) block(ctx context.Context, blockers []Blocker) error {
	reason, message := blockedReason(o.clock.Since(o.since), o.options.Timeout), Describe(blockers)
	if o.mcn == nil {
		ctrl.LoggerFrom(ctx).Info("A drain is blocked", "blockers", message)
		return nil
	}
	before := o.told()
	if before != nil && before.Reason == reason && before.Message == message {
		return nil
	}
	isNews := before == nil || before.Reason != reason
	err := o.write(ctx, metav1.Condition{Type: mcfgv1.NodeDrained, Status: metav1.ConditionFalse, Reason: reason, Message: message})
	if err == nil && isNews {
		o.events.Publish(o.node, events.DrainBlocked(reason, message))
	}
	return err
}

// end takes back that the drain is blocked, if that was told.
func (o *report) end(ctx context.Context, reason string) error {
	if o.told() == nil {
		return nil
	}
	is := metav1.ConditionFalse
	if reason == mcfgv1.ReasonDrained {
		is = metav1.ConditionTrue
	}
	return o.write(ctx, metav1.Condition{Type: mcfgv1.NodeDrained, Status: is, Reason: reason})
}

// write replaces the condition, bound to the version that was read: the agent writes others. The
// node may have been False for long before the drain, so that the first report has a time of its
// own.
func (o *report) write(ctx context.Context, c metav1.Condition) error {
	before := o.mcn.DeepCopy()
	c.ObservedGeneration = o.mcn.Generation
	if o.told() == nil {
		status.Remove(&o.mcn.Status.Conditions, c.Type)
	}
	status.Set(&o.mcn.Status.Conditions, o.clock.Now(), c)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(o.client.Status().Patch(ctx, o.mcn, patch)); err != nil {
		return fmt.Errorf("writing status of MachineConfigNode %q: %w", o.mcn.Name, err)
	}
	return nil
}

// blockedReason is the reason of a drain that has been blocked for so long.
func blockedReason(blocked, timeout time.Duration) string {
	if blocked >= timeout {
		return mcfgv1.ReasonDrainOverdue
	}
	return mcfgv1.ReasonDrainBlocked
}
