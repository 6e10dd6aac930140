package jobs

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/pods"
)

// CacheOptions are what a manager's cache holds for a Backend: the Jobs and pods of builds in one
// namespace, whole, and of none but those components, by the label app.kubernetes.io/component,
// that the caller names besides.
func CacheOptions(namespace string, besides ...string) map[client.Object]cache.ByObject {
	of := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {LabelSelector: ofComponents(append(besides, pods.Component))}}}
	return map[client.Object]cache.ByObject{&batchv1.Job{}: of, &corev1.Pod{}: of}
}

func ofComponents(components []string) labels.Selector {
	chosen, err := labels.NewRequirement(pods.ComponentLabel, selection.In, components)
	if err != nil { // a component that is no value of a label has no objects
		return labels.Nothing()
	}
	return labels.NewSelector().Add(*chosen)
}

// Watches are the kinds whose changes mean that the build they are of is to be observed.
func (*Backend) Watches() []client.Object { return []client.Object{&batchv1.Job{}, &corev1.Pod{}} }

// BuildOf is the MachineOSBuild that a watched object is of; empty for those of others.
func (*Backend) BuildOf(o client.Object) string {
	return o.GetAnnotations()[mcfgv1.AnnotationMachineOSBuild]
}
