package pools

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/streams"
)

// upgradesName is the name of the Upgrades reconciler in logs, metrics and events.
const upgradesName = "upgrades"

// Upgrades reports whether a pool keeps the cluster from being upgraded, because its stream has
// come to its end: in condition Upgradeable of the OSImageStream and, on OpenShift, in the
// ClusterOperator "layerwright", from which the cluster-version-operator takes it into the
// ClusterVersion.
type Upgrades struct {
	client  client.Client
	clock   clock.PassiveClock
	events  events.Publisher
	version string
	// hasClusterOperators and hasMachineConfigurations are whether the cluster has these kinds.
	hasClusterOperators, hasMachineConfigurations bool
}

// NewUpgrades makes the reconciler; version is that of this program. SetupWithManager gives it what
// it works with.
func NewUpgrades(version string) *Upgrades {
	return &Upgrades{version: version, clock: clock.RealClock{}}
}

// SetupWithManager gives the reconciler the manager's client, and finds out whether the cluster is
// an OpenShift one.
func (u *Upgrades) SetupWithManager(manager ctrl.Manager) error {
	u.client = manager.GetClient()
	u.events = events.NewPublisher(manager.GetEventRecorder("layerwright-" + upgradesName))
	_, err := manager.GetRESTMapper().RESTMapping(clusterOperatorKind.GroupKind(), clusterOperatorKind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("setting up %s: looking for ClusterOperators: %w", upgradesName, err)
	}
	u.hasClusterOperators = err == nil
	b := ctrl.NewControllerManagedBy(manager).
		Named(upgradesName).
		For(&mcfgv1.OSImageStream{}).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(theStreams), builder.WithPredicates(streamsInUseChanged()))
	_, err = manager.GetRESTMapper().RESTMapping(machineConfigurationKind.GroupKind(), machineConfigurationKind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("setting up %s: looking for MachineConfigurations: %w", upgradesName, err)
	}
	// Only the ClusterOperator repeats what boot images say.
	if u.hasMachineConfigurations = err == nil && u.hasClusterOperators; u.hasMachineConfigurations {
		b = b.Watches(newMachineConfiguration(), handler.EnqueueRequestsFromMapFunc(theStreams), builder.WithPredicates(bootImagesChanged()))
	}
	return b.Complete(u)
}

// theStreams requests a reconcile of the one OSImageStream.
func theStreams(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: mcfgv1.OSImageStreamName}}}
}

// streamsInUseChanged lets the changes of pools through that change which streams they use.
func streamsInUseChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPool := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		after, isPoolToo := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return !isPool || !isPoolToo || strings.Join(streams.InUse(before), " ") != strings.Join(streams.InUse(after), " ")
	}}
}

// Reconcile reconciles the OSImageStream.
func (u *Upgrades) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &mcfgv1.OSImageStream{}
	if err := u.client.Get(ctx, req.NamespacedName, set); apierrors.IsNotFound(err) {
		set = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading OSImageStream %q: %w", req.Name, err)
	}
	var list mcfgv1.MachineConfigPoolList
	if err := u.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing pools: %w", err)
	}
	now := u.clock.Now()
	is := upgradeable(pointers(list.Items), set, now)
	if u.hasClusterOperators {
		old, err := u.oldBootImages(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		if err := u.writeClusterOperator(ctx, joined(is, old), now); err != nil {
			return status.Result(ctrl.Result{}, err)
		}
	}
	res := ctrl.Result{RequeueAfter: recheckAll(pointers(list.Items), set, now)}
	if set == nil {
		return res, nil
	}
	return u.writeStreamsUpgradeable(ctx, set, is, res)
}

// writeStreamsUpgradeable writes the condition into the OSImageStream. Its other conditions are
// those of its own controller.
func (u *Upgrades) writeStreamsUpgradeable(ctx context.Context, set *mcfgv1.OSImageStream, is metav1.Condition, res ctrl.Result) (ctrl.Result, error) {
	patch := status.NewPatcher(u.client, set, status.Owning(mcfgv1.StreamsUpgradeable), status.KeepGeneration())
	was := status.Find(set.GetConditions(), mcfgv1.StreamsUpgradeable)
	isNews := was == nil && is.Status == metav1.ConditionFalse || was != nil && (was.Status != is.Status || was.Message != is.Message)
	conditions := set.GetConditions()
	is.ObservedGeneration = set.Generation
	status.Set(&conditions, u.clock.Now(), is)
	set.SetConditions(conditions)
	version := set.ResourceVersion
	res, err := patch.Finish(ctx, set, res, nil)
	if isNews && set.ResourceVersion != version {
		ctrl.LoggerFrom(ctx).Info("Whether the cluster can be upgraded changed", "upgradeable", is.Status, "reason", is.Reason, "message", is.Message)
		if is.Status == metav1.ConditionFalse {
			u.events.Publish(set, events.StreamNotice(is.Reason, is.Message))
		}
	}
	return res, err
}

// upgradeable is the condition Upgradeable: False while a pool uses a stream whose life has ended,
// or that was removed. Its words are the published ones.
func upgradeable(pools []*mcfgv1.MachineConfigPool, set *mcfgv1.OSImageStream, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: mcfgv1.StreamsUpgradeable, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonSucceeded}
	var blocking []string
	for _, pool := range pools {
		for _, s := range standings(set, pool, now) {
			if s.Lifecycle != mcfgv1.StreamEndOfLife {
				continue
			}
			text := fmt.Sprintf("MachineConfigPool '%s' is using deprecated stream '%s' which is not supported in this release.", pool.Name, s.Stream)
			if s.Successor != "" {
				text += fmt.Sprintf(" Migrate pool to '%s' before upgrading.", s.Successor)
			} else {
				text += " Migrate pool to another stream before upgrading."
			}
			blocking = append(blocking, text)
		}
	}
	if len(blocking) == 0 {
		return c
	}
	if more := len(blocking) - maxNamed; more > 0 {
		blocking = append(blocking[:maxNamed:maxNamed], fmt.Sprintf("And %d more %s.", more, plural(more, "pool")))
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, mcfgv1.ReasonDeprecatedOSStreamInUse, "Cannot upgrade: "+strings.Join(blocking, " ")
	return c
}

// recheckAll is after how long a date of a stream in use comes; zero if none will.
func recheckAll(pools []*mcfgv1.MachineConfigPool, set *mcfgv1.OSImageStream, now time.Time) time.Duration {
	var names []string
	for _, pool := range pools {
		names = append(names, streams.InUse(pool)...)
	}
	at, changes := streams.NextChangeOf(set, names, now)
	if !changes {
		return 0
	}
	return min(at.Sub(now), maxRecheck)
}
