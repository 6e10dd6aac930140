package pools

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/selected"
	"github.com/layerwright/layerwright/nodes"
)

// controllerName is the name in logs, metrics and events.
const controllerName = "pools"

// maxConcurrent is how many pools are worked on at once: most of the time a reconcile waits for
// answers of the API server.
const maxConcurrent = 8

// poolSettle is how long a changed pool is left alone: what happens to it is written by several
// reconcilers, in one write each. Who reads each of these writes at once loses races, and writes
// what is old a moment later.
const poolSettle = 100 * time.Millisecond

// pinnedImageSetKind is OpenShift's kind of images that nodes pull in advance.
var pinnedImageSetKind = schema.GroupKind{Group: mcfgv1.GroupName, Kind: "PinnedImageSet"}

// SetupWithManager gives the reconciler the manager's client, and makes it watch what pools depend
// on: themselves, each other's spec (which nodes another pool selects, which stream the worker pool
// names), MachineConfigs, the OSImageStream, and of Nodes what matters to pools. What holds a
// rendered MachineConfig in the cluster is not watched: one that could have gone earlier goes with
// the next change.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	if r.options.RenderedConfigLimit < 0 {
		return fmt.Errorf("setting up %s: the limit of rendered MachineConfigs is %d, and must not be negative", controllerName, r.options.RenderedConfigLimit)
	}
	r.client, r.reader = manager.GetClient(), manager.GetAPIReader()
	r.events = events.NewPublisher(manager.GetEventRecorder("layerwright-" + controllerName))
	indexer := manager.GetFieldIndexer()
	for field, values := range indexes {
		if err := indexer.IndexField(context.Background(), &mcfgv1.MachineConfig{}, field, values); err != nil { //nolint:forbidigo // before anything runs
			return fmt.Errorf("setting up %s: %w", controllerName, err)
		}
	}
	_, err := manager.GetRESTMapper().RESTMapping(pinnedImageSetKind)
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("setting up %s: looking for PinnedImageSets: %w", controllerName, err)
	}
	r.lacksPins = err != nil
	everyPool := handler.EnqueueRequestsFromMapFunc(r.everyPool)
	return ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent}).
		For(&mcfgv1.MachineConfigPool{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})).
		Watches(&mcfgv1.MachineConfigPool{}, updatesSettle()).
		Watches(&mcfgv1.MachineConfigPool{}, everyPool, builder.WithPredicates(concernsOthers())).
		Watches(&mcfgv1.MachineConfig{}, r.settling(r.poolsOfConfig)).
		Watches(&mcfgv1.OSImageStream{}, everyPool).
		Watches(&mcfgv1.MachineOSConfig{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(observationChanged())). // it has the pool's name
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.poolsOfNode), builder.WithPredicates(nodeChanged())).
		Complete(r)
}

// everyPool are all pools.
func (r *Reconciler) everyPool(ctx context.Context, _ client.Object) []reconcile.Request {
	return requests(r.listPools(ctx), func(*mcfgv1.MachineConfigPool) bool { return true })
}

// poolsOfConfig are the pools that a MachineConfig concerns: those that select it, and the one that
// a rendered one belongs to.
func (r *Reconciler) poolsOfConfig(ctx context.Context, mc client.Object) []reconcile.Request {
	if owners := poolOf(mc); len(owners) > 0 {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: owners[0]}}}
	}
	return requests(r.listPools(ctx), func(pool *mcfgv1.MachineConfigPool) bool {
		selector, err := nodes.Selector(pool.Spec.MachineConfigSelector)
		return err == nil && selector.Matches(labels.Set(mc.GetLabels())) // the pool's own reconcile says what is wrong
	})
}

const poolKind = "MachineConfigPool"

// fieldPool is the index of rendered MachineConfigs by the pool that owns them.
const fieldPool = "pool"

// indexes are those of MachineConfigs that reconciles list by.
var indexes = map[string]client.IndexerFunc{fieldPool: poolOf, selected.FieldRole: selected.RoleOf}

// poolOf is the pool that owns a MachineConfig.
func poolOf(mc client.Object) []string {
	if owner := metav1.GetControllerOf(mc); owner != nil && owner.Kind == poolKind {
		return []string{owner.Name}
	}
	return nil
}

// poolsOfNode are the pools that select a Node, also those that it does not belong to: they may
// come to.
func (r *Reconciler) poolsOfNode(ctx context.Context, n client.Object) []reconcile.Request {
	pools := r.listPools(ctx)
	selecting := nodes.NewSelectors(pools).Selecting(n.GetLabels())
	return requests(pools, func(pool *mcfgv1.MachineConfigPool) bool { return slices.Contains(selecting, pool.Name) })
}

// requests are those for the pools that are meant.
func requests(pools []*mcfgv1.MachineConfigPool, isMeant func(*mcfgv1.MachineConfigPool) bool) []reconcile.Request {
	var out []reconcile.Request
	for _, pool := range pools {
		if isMeant(pool) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: pool.Name}})
		}
	}
	return out
}

// listPools lists the pools in the cache. That it cannot is told by the manager, which ends for it.
func (r *Reconciler) listPools(ctx context.Context) []*mcfgv1.MachineConfigPool {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing pools")
	}
	return pointers(pools.Items)
}

// concernsOthers lets the changes of a pool through that matter to other pools: which nodes it
// selects, which stream it names, and, in a compact cluster, which one the pool master remembers.
// Each pool's new configuration would otherwise concern all pools.
func concernsOthers() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPool := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		after, isPoolToo := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		if !isPool || !isPoolToo {
			return true
		}
		const key = mcfgv1.AnnotationRememberedStream
		return !reflect.DeepEqual(before.Spec.NodeSelector, after.Spec.NodeSelector) ||
			before.Spec.OSImageStream != after.Spec.OSImageStream ||
			after.Name == mcfgv1.PoolMaster && before.Annotations[key] != after.Annotations[key]
	}}
}

// observationChanged lets through that a MachineOSConfig has a spec that the builder has not looked
// at, or that it has looked at it now.
func observationChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isLayer := e.ObjectOld.(*mcfgv1.MachineOSConfig)
		after, isLayerToo := e.ObjectNew.(*mcfgv1.MachineOSConfig)
		return !isLayer || !isLayerToo || isObserved(before) != isObserved(after)
	}}
}

// nodeChanged lets changes of Nodes through that matter to pools. A Node's heartbeat is none.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, isNodeToo := e.ObjectNew.(*corev1.Node)
		return !isNode || !isNodeToo || !reflect.DeepEqual(nodes.Observe(before), nodes.Observe(after))
	}}
}

// updatesSettle requests one reconcile of a pool for all of its changes within poolSettle.
func updatesSettle() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, poolSettle)
	}}
}

// settling requests a reconcile some time after a change, and so for one reconcile for all changes
// in that time.
func (r *Reconciler) settling(pools handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, q queue, object client.Object) {
		for _, request := range pools(ctx, object) {
			r.options.Backlog.add(request.Name)
			q.AddAfter(request, r.options.Settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			add(ctx, q, e.ObjectOld) // a label that was removed took it out of a pool
			add(ctx, q, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
	}
}
