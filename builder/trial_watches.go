package builder

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
)

// trialController is its name in logs and metrics.
const trialController = "streamtrials"

// setupTrials makes trials follow what their reports speak of.
func (b *Builder) setupTrials(manager ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(manager).
		Named(trialController).
		WithOptions(options(maxConcurrentTrials, 0)).
		For(&mcfgv1.MachineOSConfig{}, ctrlbuilder.WithPredicates(trialChanged())).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(b.trialsOfPool), ctrlbuilder.WithPredicates(poolChanged())).
		Watches(&mcfgv1.OSImageStream{}, handler.EnqueueRequestsFromMapFunc(b.allTrials)).
		Complete(&trialReconciler{b})
	if err != nil {
		return fmt.Errorf("setting up %s: %w", trialController, err)
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

func (b *Builder) trialsOfPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return b.configsThat(ctx, func(config *mcfgv1.MachineOSConfig) bool {
		return config.Spec.MachineConfigPool.Name == pool.GetName() && config.Annotations[mcfgv1.AnnotationTryStream] != ""
	})
}

func (b *Builder) allTrials(ctx context.Context, _ client.Object) []reconcile.Request {
	return b.configsThat(ctx, func(config *mcfgv1.MachineOSConfig) bool { return config.Annotations[mcfgv1.AnnotationTryStream] != "" })
}
