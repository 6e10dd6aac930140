package survey

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
)

// What builds images.
var (
	// Job builds where imageBuilderType is Job.
	Job = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	// PipelineRun builds where it is Pipeline.
	PipelineRun = schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"}
)

// ConfigMap is the data of a ConfigMap.
func ConfigMap(ctx context.Context, from client.Reader, namespace, name string) (map[string]string, error) {
	found := &corev1.ConfigMap{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found); err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return found.Data, nil
}

// What Read leaves out.
var (
	bootImages = kind{mcfgv1alpha1.GroupVersion.WithKind("BootImageHistory"), "bootimagehistories", empty[mcfgv1alpha1.BootImageHistoryList]}
	pods       = kind{corev1.SchemeGroupVersion.WithKind("Pod"), "pods", empty[corev1.PodList]}
	budgets    = kind{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets", empty[policyv1.PodDisruptionBudgetList]}
)

// EachPod reads the pods of all namespaces, of which it keeps none.
func EachPod(ctx context.Context, from client.Reader, see func(*corev1.Pod)) error {
	return pods.each(ctx, from, func(object runtime.Object) {
		if pod, is := object.(*corev1.Pod); is {
			see(pod)
		}
	})
}

// Budgets are the PodDisruptionBudgets of all namespaces.
func Budgets(ctx context.Context, from client.Reader) ([]policyv1.PodDisruptionBudget, error) {
	var all []policyv1.PodDisruptionBudget
	err := budgets.each(ctx, from, func(object runtime.Object) {
		if budget, is := object.(*policyv1.PodDisruptionBudget); is {
			all = append(all, *budget)
		}
	})
	return all, err
}

// BootImages are the BootImageHistories of all namespaces, and the MachineConfigurations.
func BootImages(ctx context.Context, from client.Reader) (histories []mcfgv1alpha1.BootImageHistory, machines []operatorv1.MachineConfiguration, err error) {
	see := func(object runtime.Object) {
		switch o := object.(type) {
		case *mcfgv1alpha1.BootImageHistory:
			histories = append(histories, *o)
		case *operatorv1.MachineConfiguration:
			machines = append(machines, *o)
		}
	}
	if err := bootImages.each(ctx, from, see); err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.gvk.Kind == "MachineConfiguration" })
	if err := kinds[at].each(ctx, from, see); err != nil {
		return nil, nil, err
	}
	return histories, machines, nil
}

func (k *kind) each(ctx context.Context, from client.Reader, see func(runtime.Object)) error {
	err := k.read(ctx, from, see)
	if apierrors.IsForbidden(err) {
		return &DeniedError{[]string{k.gvk.GroupVersion().Identifier() + " " + k.resource + " of all namespaces"}}
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return &NotInstalledError{k.gvk.Kind}
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", k.resource, err)
	}
	return nil
}
