package watches

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
)

// Waits before something that failed is tried again.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// Options are those of a controller: how many objects it looks at at once, and how long a reconcile
// of one may take; 0 where the reconcile sees to that itself. Registries may accept a connection
// and never answer.
func Options(workers int, longest time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   longest,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// BuildChanged lets changes of a build's conditions through, and its end.
func BuildChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBuild := e.ObjectOld.(*mcfgv1.MachineOSBuild)
		after, isBuildToo := e.ObjectNew.(*mcfgv1.MachineOSBuild)
		return !isBuild || !isBuildToo || !reflect.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	}}
}

// PoolChanged lets changes through that mean another image, and of conditions those that builds
// wait for or that are ours.
func PoolChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPool := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		after, isPoolToo := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return !isPool || !isPoolToo || objects.PoolFacts(before) != objects.PoolFacts(after)
	}}
}

// ConfigsThat are requests for the MachineOSConfigs that are meant. That they can't be listed is
// told by the manager, which ends for it.
func ConfigsThat(ctx context.Context, from client.Reader, isMeant func(*mcfgv1.MachineOSConfig) bool) []reconcile.Request {
	var list mcfgv1.MachineOSConfigList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachineOSConfigs")
	}
	var out []reconcile.Request
	for i := range list.Items {
		if isMeant(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return out
}
