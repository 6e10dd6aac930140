package configs

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/builder/watches"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/status"
)

// controllerName is its name in logs and metrics.
const controllerName = "machineosconfigs"

// maxConcurrent is how many are looked at at once: mostly that is waiting for registries and
// the API server.
const maxConcurrent = 32

// reconcileTimeout is how long a reconcile may take that reads images: to list what is in one for
// the first time takes minutes.
const reconcileTimeout = 20 * time.Minute

// SetupWithManager makes MachineOSConfigs follow what images depend on: their builds, their pools
// with the nodes in them, and the ConfigMaps that they name, of which only the metadata is kept.
// Secrets are not watched, that would take the right to list them: what misses one looks again.
// Mirrors are what says where images are besides.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager, mirrors ...client.Object) error {
	b := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(watches.Options(maxConcurrent, reconcileTimeout)).
		For(&mcfgv1.MachineOSConfig{}, ctrlbuilder.WithPredicates(configChanged())).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(configOfBuild), ctrlbuilder.WithPredicates(watches.BuildChanged())).
		Watches(&mcfgv1alpha1.MachineOSImage{}, handler.EnqueueRequestsFromMapFunc(configOfImage), ctrlbuilder.WithPredicates(imageJudged())).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.configsOfPool), ctrlbuilder.WithPredicates(watches.PoolChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.configsOfNode), ctrlbuilder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configsOfConfigMap))
	for _, object := range mirrors {
		b = b.Watches(object, handler.EnqueueRequestsFromMapFunc(r.allConfigs), ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	return nil
}

// configChanged lets changes through that people make, and what others say of the signature policy,
// but none of our own: status, and the annotation with the newest build where it names the build
// that status has.
func configChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isConfig := e.ObjectOld.(*mcfgv1.MachineOSConfig)
		after, isConfigToo := e.ObjectNew.(*mcfgv1.MachineOSConfig)
		return !isConfig || !isConfigToo || before.Generation != after.Generation || objects.WantsRecheck(before) != objects.WantsRecheck(after) ||
			before.Annotations[mcfgv1.AnnotationPreBuiltImage] != after.Annotations[mcfgv1.AnnotationPreBuiltImage] ||
			before.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild] != after.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild] && misnamesBuild(after) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || policyOf(before) != policyOf(after)
	}}
}

// misnamesBuild reports whether the annotation with the newest build is not what was written last.
func misnamesBuild(config *mcfgv1.MachineOSConfig) bool {
	build := config.Status.MachineOSBuild
	return build != nil && config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild] != build.Name
}

// policyOf is the condition of the signature policy, without its times.
func policyOf(config *mcfgv1.MachineOSConfig) metav1.Condition {
	is := ptr.Deref(status.Find(config.Status.Conditions, mcfgv1.ConfigSignaturesEnforced), metav1.Condition{})
	is.LastTransitionTime, is.ObservedGeneration = metav1.Time{}, 0
	return is
}

func configOfBuild(_ context.Context, object client.Object) []reconcile.Request {
	build, isBuild := object.(*mcfgv1.MachineOSBuild)
	if !isBuild {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: build.Spec.MachineOSConfig.Name}}}
}

func configOfImage(_ context.Context, object client.Object) []reconcile.Request {
	config := owner.Of(object)
	if config == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: config.Name}}}
}

func (r *Reconciler) configsOfPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return watches.ConfigsThat(ctx, r.options.Client, func(config *mcfgv1.MachineOSConfig) bool { return config.Spec.MachineConfigPool.Name == pool.GetName() })
}

func (r *Reconciler) configsOfConfigMap(ctx context.Context, object client.Object) []reconcile.Request {
	return watches.ConfigsThat(ctx, r.options.Client, func(config *mcfgv1.MachineOSConfig) bool {
		return object.GetNamespace() == r.options.Namespace && slices.Contains(wanted.ConfigMaps(config), object.GetName())
	})
}

func (r *Reconciler) allConfigs(ctx context.Context, _ client.Object) []reconcile.Request {
	return watches.ConfigsThat(ctx, r.options.Client, func(*mcfgv1.MachineOSConfig) bool { return true })
}
