package verification

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/testjobs"
)

// controllerName is its name in logs and metrics.
const controllerName = "verifications"

// maxConcurrent is how many images are looked at at once. A reconcile takes some requests; tests
// run by themselves.
const maxConcurrent = 4

// SetupWithManager gives the reconciler the manager's clients, and makes it watch what tests depend
// on: images, the MachineOSConfigs and ConfigMaps that ask for tests, and the Jobs and pods of
// tests. The manager's cache has to hold Jobs and pods with the label
// app.kubernetes.io/component=verification.
func (v *Verifier) SetupWithManager(manager ctrl.Manager) error {
	if v.options.Namespace == "" {
		return errors.New("setting up verifications: the namespace of tests is not known")
	}
	v.client, v.reader = manager.GetClient(), manager.GetAPIReader()
	v.events = events.NewPublisher(manager.GetEventRecorder("layerwright-verification"))
	images := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent}).
		For(&mcfgv1alpha1.MachineOSImage{}, ctrlbuilder.WithPredicates(imageChanged())).
		Watches(&mcfgv1.MachineOSConfig{}, handler.EnqueueRequestsFromMapFunc(v.imagesOfConfig), ctrlbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(v.imagesOfConfigMap)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(imageOf)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(imageOf))
	if v.options.Pipelines != nil {
		images = images.WatchesRawSource(v.runsChanged())
	}
	if err := images.Complete(v); err != nil {
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	return nil
}

// imageChanged lets through what tests depend on: that the image is there, that it is signed, and
// whether it is verified.
func imageChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isImage := e.ObjectOld.(*mcfgv1alpha1.MachineOSImage)
		after, isImageToo := e.ObjectNew.(*mcfgv1alpha1.MachineOSImage)
		if !isImage || !isImageToo {
			return true
		}
		return status.IsTrue(before.Status.Conditions, mcfgv1alpha1.ImageSigned) != status.IsTrue(after.Status.Conditions, mcfgv1alpha1.ImageSigned) ||
			verified(before) != verified(after)
	}}
}

func verified(image *mcfgv1alpha1.MachineOSImage) string {
	if c := status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified); c != nil {
		return c.Reason
	}
	return ""
}

// imageOf asks for a look at the image that a Job or pod is about.
func imageOf(_ context.Context, object client.Object) []reconcile.Request {
	image := object.GetAnnotations()[mcfgv1.AnnotationMachineOSImage]
	if image == "" || object.GetLabels()[testjobs.ComponentLabel] != testjobs.Component {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: image}}}
}

func (v *Verifier) imagesOfConfig(ctx context.Context, config client.Object) []reconcile.Request {
	return v.imagesThat(ctx, map[types.UID]bool{config.GetUID(): true})
}

func (v *Verifier) imagesOfConfigMap(ctx context.Context, object client.Object) []reconcile.Request {
	if object.GetNamespace() != v.options.Namespace {
		return nil
	}
	return v.imagesTested(ctx, func(test *mcfgv1.ImageVerification) bool { return test.Job != nil && test.Job.Name == object.GetName() })
}

// imagesThat are requests for the images of some MachineOSConfigs.
func (v *Verifier) imagesThat(ctx context.Context, owners map[types.UID]bool) []reconcile.Request {
	if len(owners) == 0 {
		return nil
	}
	var list mcfgv1alpha1.MachineOSImageList
	if err := v.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachineOSImages")
	}
	var out []reconcile.Request
	for i := range list.Items {
		for _, owner := range list.Items[i].OwnerReferences {
			if owners[owner.UID] {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
			}
		}
	}
	return out
}
