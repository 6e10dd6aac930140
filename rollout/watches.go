package rollout

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/healthchecks"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/webhook"
)

// controllerName is the name in logs, metrics and events.
const controllerName = "rollout"

// SetupWithManager gives the reconciler the manager's clients, and makes it watch what a rollout
// follows from: pools, their MachineOSConfigs and images, of Nodes and MachineConfigNodes what
// matters to plans, and the Jobs of health checks with their pods. The manager's cache has to hold
// Jobs and pods of the namespace with the label app.kubernetes.io/component=verification.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	r.client, r.reader = manager.GetClient(), manager.GetAPIReader()
	r.events = events.NewPublisher(manager.GetEventRecorder("layerwright-" + controllerName))
	var err error
	if r.versions, err = discovery.NewDiscoveryClientForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient()); err != nil {
		return fmt.Errorf("making a client for the version of the API server: %w", err)
	}
	if err := manager.GetFieldIndexer().IndexField(context.Background(), &mcfgv1.MachineConfigPool{}, fieldAfter, namedBefore); err != nil { //nolint:forbidigo // before anything runs
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	read, err := r.watch(manager)
	if err != nil {
		return err
	}
	sender := webhook.New(r.reader, r.options.Namespace)
	r.hooks = sender
	if err := manager.Add(sender); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		For(&mcfgv1.MachineConfigPool{}).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.poolsAfter)).
		Watches(&mcfgv1.MachineOSConfig{}, &handler.EnqueueRequestForObject{}). // it has the pool's name
		Watches(&mcfgv1alpha1.MachineOSImage{}, handler.EnqueueRequestsFromMapFunc(poolOfImage)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfNode), builder.WithPredicates(nodeChanged())).
		Watches(&mcfgv1.MachineConfigNode{}, handler.EnqueueRequestsFromMapFunc(poolOfReport), builder.WithPredicates(reportChanged())).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(poolOfJob)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(poolOfJob)).
		WatchesRawSource(read).
		Complete(r)
}

// settle is how long reconciles wait for more of what health checks read to change.
const settle = time.Second

// watch makes what judges nodes, and requests a reconcile of a pool when something of what health
// checks read changes.
func (r *Reconciler) watch(manager ctrl.Manager) (source.Source, error) {
	changes := make(chan event.GenericEvent)
	var err error
	r.checks, err = healthchecks.ForManager(manager, healthchecks.Options{
		Namespace: r.options.Namespace, SigningSecret: r.options.SigningSecret, UsersAssigned: r.options.UsersAssigned,
		Begin: r.options.Begin,
	}, func(ctx context.Context, pool string) {
		select {
		case changes <- event.GenericEvent{Object: &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}}:
		case <-ctx.Done():
		}
	})
	later := handler.Funcs{GenericFunc: func(_ context.Context, e event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.AddAfter(request(e.Object.GetName())[0], settle)
	}}
	return source.Channel(changes, later), err
}

// poolOfJob is the pool whose health check a Job or pod is of.
func poolOfJob(_ context.Context, o client.Object) []reconcile.Request {
	return request(healthchecks.PoolOfJob(o))
}

func poolOfImage(_ context.Context, o client.Object) []reconcile.Request {
	if image, isImage := o.(*mcfgv1alpha1.MachineOSImage); isImage {
		return request(image.Spec.MachineConfigPool)
	}
	return nil
}

func poolOfReport(_ context.Context, o client.Object) []reconcile.Request {
	if report, isReport := o.(*mcfgv1.MachineConfigNode); isReport {
		return request(report.Spec.Pool.Name)
	}
	return nil
}

// fieldAfter is the index of pools by those of their spec.rollout.afterPools: a list of all pools
// at each change of one would be most of what a large cluster's controller does.
const fieldAfter = "spec.rollout.afterPools"

// namedBefore are the pools that a pool waits for.
func namedBefore(pool client.Object) []string {
	if p, isPool := pool.(*mcfgv1.MachineConfigPool); isPool && p.Spec.Rollout != nil {
		return p.Spec.Rollout.AfterPools
	}
	return nil
}

// poolsAfter are the pools that wait for a pool.
func (r *Reconciler) poolsAfter(ctx context.Context, before client.Object) []reconcile.Request {
	var after mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &after, client.MatchingFields{fieldAfter: before.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing pools")
	}
	var out []reconcile.Request
	for i := range after.Items {
		out = append(out, request(after.Items[i].Name)...)
	}
	return out
}

// pools are all pools of the cache.
func (r *Reconciler) pools(ctx context.Context) []*mcfgv1.MachineConfigPool {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing pools")
	}
	var each []*mcfgv1.MachineConfigPool
	for i := range pools.Items {
		each = append(each, &pools.Items[i])
	}
	return each
}

// poolsOfNode are the pools that select a Node, also those that it does not belong to.
func (r *Reconciler) poolsOfNode(ctx context.Context, n client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, name := range nodes.NewSelectors(r.pools(ctx)).Selecting(n.GetLabels()) {
		out = append(out, request(name)...)
	}
	return out
}

func request(pool string) []reconcile.Request {
	if pool == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool}}}
}

// nodeChanged lets changes of Nodes through that a plan follows from. A Node's heartbeat is none.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, isNodeToo := e.ObjectNew.(*corev1.Node)
		return !isNode || !isNodeToo || differs(plan.Observe(before, nil), plan.Observe(after, nil)) ||
			!reflect.DeepEqual(withoutHeartbeats(before), withoutHeartbeats(after))
	}}
}

// reportChanged lets changes of MachineConfigNodes through that a plan follows from.
func reportChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isReport := e.ObjectOld.(*mcfgv1.MachineConfigNode)
		after, isReportToo := e.ObjectNew.(*mcfgv1.MachineConfigNode)
		if !isReport || !isReportToo || !reflect.DeepEqual(before.Spec, after.Spec) {
			return true
		}
		var was, is plan.Node
		plan.ObserveReport(&was, before)
		plan.ObserveReport(&is, after)
		return differs(was, is)
	}}
}

func differs(before, after plan.Node) bool { return !reflect.DeepEqual(before, after) }

// withoutHeartbeats is a Node without what changes while nothing happens to it, for checks that
// read any field. It shares the rest with the Node.
func withoutHeartbeats(n *corev1.Node) corev1.Node {
	out := *n
	out.ResourceVersion, out.ManagedFields, out.Status.Images = "", nil, nil
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	for i := range out.Status.Conditions {
		out.Status.Conditions[i].LastHeartbeatTime.Reset()
	}
	return out
}
