//go:build !client

package images

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Names in logs and metrics.
const (
	imageController = "machineosimages"
	readyController = "machineosimagereadiness"
)

// Limits of the reconcilers.
const (
	// maxConcurrent is low: beside builds, images are signed when a key was rotated.
	maxConcurrent = 4
	// reconcileTimeout is how long a reconcile may take that reads images.
	reconcileTimeout = 20 * time.Minute
	// firstRetry and lastRetry are waits before something that failed is tried again.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// SetupWithManager says of images whether they are ready, and, where that takes a signature, keeps
// them signed and verified. The trust policy is read by name; that it has changed the metadata
// tells, which is watched for MachineOSConfigs anyway.
func (k *Keeper) SetupWithManager(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named(readyController).
		WithOptions(limits()).
		For(&mcfgv1alpha1.MachineOSImage{}).
		Complete(&ReadyReconciler{k})
	if err != nil {
		return fmt.Errorf("setting up %s: %w", readyController, err)
	}
	if !k.IsGated() {
		return nil
	}
	err = ctrl.NewControllerManagedBy(manager).
		Named(imageController).
		WithOptions(limits()).
		For(&mcfgv1alpha1.MachineOSImage{}, ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(k.ImagesOfPolicy)).
		Complete(&Reconciler{k})
	if err != nil {
		return fmt.Errorf("setting up %s: %w", imageController, err)
	}
	return nil
}

func limits() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: maxConcurrent,
		ReconciliationTimeout:   reconcileTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}
