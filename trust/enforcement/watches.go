package enforcement

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// controllerName is its name in logs and metrics.
const controllerName = "signaturepolicies"

// Limits of the reconciler.
const (
	// maxConcurrent is how many pools are worked on at once: a slow registry of one pool's OS image
	// keeps the policy of others from none of their nodes.
	maxConcurrent = 8
	// reconcileTimeout is how long a reconcile may take that reads images.
	reconcileTimeout = 20 * time.Minute
	// firstRetry and lastRetry are waits before something that failed is tried again.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// SetupWithManager makes nodes insist on signatures.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: maxConcurrent,
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		For(&mcfgv1.MachineOSConfig{}, ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.configsOfPool), ctrlbuilder.WithPredicates(poolChanged())).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.ConfigsOfPolicy)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	return nil
}

// poolChanged lets changes through that mean another rendered MachineConfig.
func poolChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPool := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		after, isPoolToo := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return !isPool || !isPoolToo || before.Spec.Configuration.Name != after.Spec.Configuration.Name ||
			status.IsTrue(before.GetConditions(), string(mcfgv1.PoolRenderDegraded)) != status.IsTrue(after.GetConditions(), string(mcfgv1.PoolRenderDegraded))
	}}
}

func (r *Reconciler) configsOfPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return r.configsThat(ctx, func(config *mcfgv1.MachineOSConfig) bool { return config.Spec.MachineConfigPool.Name == pool.GetName() })
}

// ConfigsOfPolicy are requests for all MachineOSConfigs, when the ConfigMap is the trust policy: it
// is for all pools.
func (r *Reconciler) ConfigsOfPolicy(ctx context.Context, object client.Object) []reconcile.Request {
	if r.options.TrustPolicy == nil || !r.options.TrustPolicy.IsIn(client.ObjectKeyFromObject(object)) {
		return nil
	}
	return r.configsThat(ctx, func(*mcfgv1.MachineOSConfig) bool { return true })
}

func (r *Reconciler) configsThat(ctx context.Context, isMeant func(*mcfgv1.MachineOSConfig) bool) []reconcile.Request {
	var list mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
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
