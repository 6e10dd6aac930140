package drain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

const (
	// DefaultTimeout is how long a drain may be blocked, as in openshift/machine-config-operator.
	DefaultTimeout = time.Hour
	// DefaultTerminationTimeout is how long a pod may outlive its grace period.
	DefaultTerminationTimeout = 2 * time.Minute

	// leavingInterval and blockedInterval are at most the times between two reconciles of a node,
	// the latter also after an error: they replace a watch of pods, whose cache would hold those of
	// all nodes.
	leavingInterval = 2 * time.Second
	blockedInterval = 10 * time.Second

	// moveTime is longer than the controller's grace period.
	moveTime = time.Minute
)

// Options are the settings of the drain controller.
type Options struct {
	// GracePeriod is how long evicted pods may take to end, in whole seconds; nil for what each
	// says itself.
	GracePeriod *time.Duration
	// Timeout is after how long a blocked drain is reported as overdue. It goes on: nothing is ever
	// evicted against a budget.
	Timeout time.Duration
	// TerminationTimeout is how long after its grace period a pod that is still there is reported.
	TerminationTimeout time.Duration
	// OwnNode and OwnPod are where this process runs; empty where that is not known, such as
	// outside of a cluster. It takes itself away only where it can go on elsewhere.
	OwnNode string
	OwnPod  types.NamespacedName
	// Metrics count; nil counts nothing.
	Metrics *metrics.Drains
}

// Reconciler drains and uncordons the Nodes whose agents ask for it.
type Reconciler struct {
	options Options
	clock   clock.PassiveClock
	client  client.Client
	reader  client.Reader // past the cache
	events  events.Publisher
	rosters rosters
	// moving is held to write while the controller's own pod is evicted, which has left for certain
	// at movesUntil.
	moving     sync.RWMutex
	movesUntil time.Time
}

// New makes the reconciler; SetupWithManager gives it what it works with.
func New(options Options) *Reconciler {
	return &Reconciler{options: options, clock: clock.RealClock{}, rosters: rosters{all: map[string]*roster{}}}
}

// Reconcile reconciles one Node.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	n := &corev1.Node{}
	if err := r.client.Get(ctx, req.NamespacedName, n); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if next(n, false) == stepNone {
		r.forget(n.Name)
		return ctrl.Result{}, nil
	}
	isAlone, err := r.isAlone(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch next(n, isAlone) {
	case stepSkip:
		err = r.answer(ctx, n)
	case stepDrain:
		return status.Result(r.drain(ctx, n))
	case stepCordon:
		if err = r.cordon(ctx, n); err == nil {
			err = r.answer(ctx, n)
		}
	case stepUncordon:
		err = r.uncordon(ctx, n)
	case stepUnknown:
		const key = mcfgv1.AnnotationDesiredDrain
		err = fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("annotation %q of Node %q is %q: it must begin with %s, %s or %s",
			key, n.Name, n.Annotations[key], mcfgv1.DrainPrefix, mcfgv1.CordonPrefix, mcfgv1.UncordonPrefix))
	case stepNone:
	}
	return status.Result(ctrl.Result{}, err)
}

// isAlone reports whether the cluster has one Node only: its pods could go nowhere.
func (r *Reconciler) isAlone(ctx context.Context) (bool, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.Limit(2), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing nodes: %w", err)
	}
	return len(list.Items) == 1, nil
}

// forget forgets a node that is not being drained.
func (r *Reconciler) forget(node string) {
	r.rosters.forget(node)
	r.options.Metrics.Unblocked(node)
}

// drain cordons a node, and reconciles its pods.
func (r *Reconciler) drain(ctx context.Context, n *corev1.Node) (ctrl.Result, error) {
	report, err := r.readReport(ctx, n)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch why, err := r.stranded(ctx, n); {
	case err != nil:
		return ctrl.Result{}, err
	case why != "":
		return ctrl.Result{RequeueAfter: blockedInterval}, r.hold(ctx, n, report, why)
	}
	if err := r.cordon(ctx, n); err != nil {
		return ctrl.Result{}, err
	}
	p := pass{Reconciler: r, node: n, since: report.since, known: budgets{}}
	err = p.empty(ctx)
	if err == nil && p.left.isNothing() {
		return ctrl.Result{}, r.finishDrain(ctx, n, report)
	}
	r.options.Metrics.Blocked(n.Name, len(p.left.blockers))
	err = errors.Join(err, report.tell(ctx, &p.left))
	if len(p.left.blockers) > 0 {
		return ctrl.Result{RequeueAfter: blockedInterval}, err
	}
	return ctrl.Result{RequeueAfter: leavingAfter(r.clock.Since(r.rosters.of(n).began))}, err
}

// leavingAfter is when to look again at pods that leave, after a drain that has lasted so long: at
// first soon, since many end at once, and a node that is empty need not wait.
func leavingAfter(drained time.Duration) time.Duration {
	const soonest, share = 250 * time.Millisecond, 4
	return min(max(drained/share, soonest), leavingInterval)
}

// cordon makes a node unschedulable that is not. Which pods are to leave it is found anew then.
func (r *Reconciler) cordon(ctx context.Context, n *corev1.Node) error {
	if n.Spec.Unschedulable {
		return nil
	}
	r.moving.RLock()
	defer r.moving.RUnlock()
	if r.clock.Now().Before(r.movesUntil) {
		return fault.NewWaiting("ControllerMoves", leavingInterval, nil)
	}
	r.rosters.forget(n.Name)
	return r.patch(ctx, n, func(n *corev1.Node) { Cordon(n, r.clock.Now()) })
}

// hold says that the node can't be drained because the controller has nowhere to go. It ends the
// cordon: the controller's next pod, should it need one, could not start otherwise.
func (r *Reconciler) hold(ctx context.Context, n *corev1.Node, report *report, why string) error {
	r.rosters.forget(n.Name)
	r.options.Metrics.Blocked(n.Name, 1)
	err := report.tell(ctx, &left{blockers: []Blocker{{r.options.OwnPod, byStranding(why), report.since}}})
	if _, isOurs := n.Annotations[mcfgv1.AnnotationCordonedAt]; isOurs {
		err = errors.Join(err, r.patch(ctx, n, uncordon))
	}
	return err
}

// finishDrain answers the agent last: with its answer it goes on, and the report should be right.
func (r *Reconciler) finishDrain(ctx context.Context, n *corev1.Node, report *report) error {
	if err := report.end(ctx, mcfgv1.ReasonDrained); err != nil {
		return err
	}
	if err := r.answer(ctx, n); err != nil {
		return err
	}
	r.forget(n.Name)
	if at, isOurs := cordonedAt(n); isOurs {
		r.options.Metrics.Drained(r.clock.Since(at))
	}
	ctrl.LoggerFrom(ctx).Info("Drained a node", "drain", n.Annotations[mcfgv1.AnnotationLastAppliedDrain])
	return nil
}

// uncordon lets pods return. A drain may have been blocked until now.
func (r *Reconciler) uncordon(ctx context.Context, n *corev1.Node) error {
	report, err := r.readReport(ctx, n)
	if err != nil {
		return err
	}
	if err := report.end(ctx, mcfgv1.ReasonDrainCancelled); err != nil {
		return err
	}
	r.forget(n.Name)
	return r.patch(ctx, n, func(n *corev1.Node) {
		uncordon(n)
		finish(n)
	})
}

// answer says that what the Node asked for has been done, whatever else was written to it
// meanwhile: Kubernetes taints a Node that was just cordoned, and a second reconcile for that takes
// a second.
func (r *Reconciler) answer(ctx context.Context, n *corev1.Node) error {
	return r.write(ctx, n, finish)
}

// patch changes a Node as it was read: who cordons it at the same time is not overlooked.
func (r *Reconciler) patch(ctx context.Context, n *corev1.Node, change func(*corev1.Node)) error {
	return r.write(ctx, n, change, client.MergeFromWithOptimisticLock{})
}

// write changes a Node; one that is gone needs nothing.
func (r *Reconciler) write(ctx context.Context, n *corev1.Node, change func(*corev1.Node), options ...client.MergeFromOption) error {
	before := n.DeepCopy()
	change(n)
	patch := client.MergeFromWithOptions(before, options...)
	if err := client.IgnoreNotFound(r.client.Patch(ctx, n, patch)); err != nil {
		return fmt.Errorf("patching Node %q: %w", n.Name, err)
	}
	return nil
}

// check refuses options that can't work.
func (o *Options) check() error {
	switch {
	case o.Timeout <= 0 || o.TerminationTimeout <= 0:
		return errors.New("the timeouts must be positive")
	case o.GracePeriod != nil && *o.GracePeriod < 0:
		return errors.New("the grace period must not be negative")
	default:
		return nil
	}
}
