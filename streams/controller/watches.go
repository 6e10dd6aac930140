package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/mirrorsets"
	"github.com/layerwright/layerwright/streams"
)

// controllerName is the name in logs, metrics and events.
const controllerName = "streams"

// clusterVersionName is the name of the only ClusterVersion.
const clusterVersionName = "version"

// clusterVersion is a kind of OpenShift that other clusters don't have.
var clusterVersion = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}

// discover finds out whether the cluster has a kind.
func discover(mapper meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("asking whether the cluster has the kind %s: %w", kind.Kind, err)
	}
	return err == nil, nil
}

// SetupWithManager gives the reconciler the manager's client, and makes it watch what streams
// depend on: the OSImageStream, the ConfigMaps, and OpenShift's ClusterVersion and mirrors where
// there are these kinds. The pull secret is read in each reconcile. The first reconcile needs no
// object.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	if r.options.Connect == nil || r.options.Reader == nil || r.options.Namespace == "" {
		return errors.New("setting up " + controllerName + ": a namespace, a registry and a reader are needed")
	}
	r.client, r.reader, r.cache = manager.GetClient(), manager.GetAPIReader(), manager.GetCache()
	r.events = events.NewPublisher(manager.GetEventRecorder("layerwright-" + controllerName))
	var err error
	if r.hasClusterVersion, err = discover(manager.GetRESTMapper(), clusterVersion); err != nil {
		return err
	}
	sets, err := mirrorsets.New(manager.GetRESTMapper(), r.cache, r.reader, r.options.Namespace)
	if err != nil {
		return err
	}
	r.mirrors = sets
	only := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{request()} })
	b := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		For(&mcfgv1.OSImageStream{}).
		WatchesMetadata(&corev1.ConfigMap{}, only, builder.WithPredicates(predicate.NewPredicateFuncs(r.isRead))).
		WatchesRawSource(ctrlsource.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(request())
			return nil
		}))
	for _, object := range sets.Watched() {
		b = b.Watches(object, only, builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if r.hasClusterVersion {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(clusterVersion)
		b = b.Watches(object, only)
	}
	return b.Complete(r)
}

// isRead reports whether a ConfigMap is one of those that are read.
func (r *Reconciler) isRead(object client.Object) bool {
	return object.GetNamespace() == r.options.Namespace &&
		slices.Contains([]string{streams.ConfigMapName, streams.LifecycleConfigMap, streams.MetadataConfigMap, names.RegistryMirrors}, object.GetName())
}

func request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: mcfgv1.OSImageStreamName}}
}
