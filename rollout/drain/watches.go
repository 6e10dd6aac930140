package drain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
)

// controllerName is the name in logs, metrics and events.
const controllerName = "drain"

// maxConcurrent is how many nodes are worked on at once. A reconcile takes some requests for every
// pod.
const maxConcurrent = 8

// firstRetry is the time after a first error; after more of them it is blockedInterval.
const firstRetry = 500 * time.Millisecond

// SetupWithManager gives the reconciler the manager's clients, and makes it watch Nodes. Pods are
// listed while their node is drained, and not watched.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	if err := r.options.check(); err != nil {
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	r.client, r.reader = manager.GetClient(), manager.GetAPIReader()
	r.events = events.NewPublisher(manager.GetEventRecorder("layerwright-" + controllerName))
	return ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: maxConcurrent,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, blockedInterval),
		}).
		For(&corev1.Node{}, builder.WithPredicates(drainChanged())).
		Complete(r)
}

// drainChanged lets changes of Nodes through that a drain depends on. A Node's heartbeat is none,
// and neither is a cordon: the reconcile that wants one goes on by itself.
func drainChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isNode := e.ObjectOld.(*corev1.Node)
		after, isNodeToo := e.ObjectNew.(*corev1.Node)
		if !isNode || !isNodeToo || before.Spec.Unschedulable && !after.Spec.Unschedulable {
			return true
		}
		for _, key := range []string{mcfgv1.AnnotationDesiredDrain, mcfgv1.AnnotationLastAppliedDrain} {
			if before.Annotations[key] != after.Annotations[key] {
				return true
			}
		}
		return false
	}}
}
