package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	if told := out.told(); told != nil && isBlocked(told.Reason) {
		out.since = told.LastTransitionTime.Time
	}
	return out, nil
}

// told is the condition that says what the drain waits for, nil if none does.
func (o *report) told() *metav1.Condition {
	if o.mcn == nil {
		return nil
	}
	c := status.Find(o.mcn.Status.Conditions, mcfgv1.NodeDrained)
	if c == nil || c.Reason != mcfgv1.ReasonDraining && !isBlocked(c.Reason) {
		return nil
	}
	return c
}

func isBlocked(reason string) bool {
	return reason == mcfgv1.ReasonDrainBlocked || reason == mcfgv1.ReasonDrainOverdue
}

// tell says what the drain waits for: the pods that it can't evict, and since when, and those that
// have yet to end.
func (o *report) tell(ctx context.Context, rest *left) error {
	reason, message := mcfgv1.ReasonDraining, o.describe(rest)
	if len(rest.blockers) > 0 {
		reason = blockedReason(o.clock.Since(o.since), o.options.Timeout)
	}
	if message == "" {
		return nil
	}
	if o.mcn == nil {
		ctrl.LoggerFrom(ctx).Info("A drain waits", "reason", reason, "for", message)
		return nil
	}
	before := o.told()
	if before != nil && before.Reason == reason && before.Message == message {
		return nil
	}
	isNews := isBlocked(reason) && (before == nil || before.Reason != reason)
	err := o.write(ctx, metav1.Condition{Type: mcfgv1.NodeDrained, Status: metav1.ConditionFalse, Reason: reason, Message: message})
	if err == nil && isNews {
		o.events.Publish(o.node, events.DrainBlocked(reason, message))
	}
	return err
}

// describe is empty while all pods that are left have only just been told to leave.
func (o *report) describe(rest *left) string {
	var parts []string
	if isWaiting := len(rest.ending) > 0 || len(rest.blockers) > 0; isWaiting {
		parts = append(parts, describeKubelet(o.node))
	}
	parts = append(parts, Describe(rest.blockers), describeEnding(rest.ending))
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
}

// end takes back what the drain waits for, if that was told.
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

// write replaces the condition, bound to the version that was read: the agent writes others. Since
// when the drain is blocked gets a time of its own: the condition may have been False for long.
func (o *report) write(ctx context.Context, c metav1.Condition) error {
	before := o.mcn.DeepCopy()
	c.ObservedGeneration = o.mcn.Generation
	if told := o.told(); told == nil || isBlocked(told.Reason) != isBlocked(c.Reason) {
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
