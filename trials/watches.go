package trials

import (
	"context"
	"fmt"
	"reflect"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/watches"
)

// controllerName is its name in logs and metrics.
const controllerName = "streamtrials"

// SetupWithManager makes trials follow what their reports speak of.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(watches.Options(maxConcurrent, 0)).
		For(&mcfgv1.MachineOSConfig{}, ctrlbuilder.WithPredicates(trialChanged())).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.trialsOfPool), ctrlbuilder.WithPredicates(watches.PoolChanged())).
		Watches(&mcfgv1.OSImageStream{}, handler.EnqueueRequestsFromMapFunc(r.allTrials)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	return nil
}

// trialChanged lets through what people change of a trial, and what is left of one.
func trialChanged() predicate.Predicate {
	isTrial := func(object client.Object) bool {
		config, is := object.(*mcfgv1.MachineOSConfig)
		return is && (config.Annotations[mcfgv1.AnnotationTryStream] != "" || config.Status.StreamTrial != nil)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isTrial(e.Object) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isConfig := e.ObjectOld.(*mcfgv1.MachineOSConfig)
			after, isConfigToo := e.ObjectNew.(*mcfgv1.MachineOSConfig)
			if !isConfig || !isConfigToo || !isTrial(after) {
				return false
			}
			return before.Generation != after.Generation || before.Annotations[mcfgv1.AnnotationTryStream] != after.Annotations[mcfgv1.AnnotationTryStream] ||
				!reflect.DeepEqual(before.Status.OSImageStream, after.Status.OSImageStream)
		},
	}
}

func (r *Reconciler) trialsOfPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return watches.ConfigsThat(ctx, r.options.Client, func(config *mcfgv1.MachineOSConfig) bool {
		return config.Spec.MachineConfigPool.Name == pool.GetName() && config.Annotations[mcfgv1.AnnotationTryStream] != ""
	})
}

func (r *Reconciler) allTrials(ctx context.Context, _ client.Object) []reconcile.Request {
	return watches.ConfigsThat(ctx, r.options.Client, func(config *mcfgv1.MachineOSConfig) bool { return config.Annotations[mcfgv1.AnnotationTryStream] != "" })
}
