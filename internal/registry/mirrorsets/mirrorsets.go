package mirrorsets

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

// Key is the only key of the ConfigMap names.RegistryMirrors.
const Key = "mirrors.yaml"

// kind is one of OpenShift's kinds.
type kind struct {
	schema.GroupVersionKind

	// field of spec has the mirrors, which are for a use.
	field string
	use   mirrors.Use
}

// known are the kinds that there may be.
func known() []kind {
	config := schema.GroupVersion{Group: "config.openshift.io", Version: "v1"}
	operator := schema.GroupVersion{Group: "operator.openshift.io", Version: "v1alpha1"}
	return []kind{
		{config.WithKind("ImageDigestMirrorSet"), "imageDigestMirrors", mirrors.DigestsOnly},
		{config.WithKind("ImageTagMirrorSet"), "imageTagMirrors", mirrors.TagsOnly},
		{operator.WithKind("ImageContentSourcePolicy"), "repositoryDigestMirrors", mirrors.DigestsOnly}, // deprecated, and in use
	}
}

// Reader reads them.
type Reader struct {
	cache, live client.Reader
	namespace   string
	kinds       []kind
}

// New finds out which kinds the cluster has. The cache has to watch them, and the metadata of
// ConfigMaps: that in the namespace is read live where there is one.
func New(mapper meta.RESTMapper, cache, live client.Reader, namespace string) (*Reader, error) {
	r := &Reader{cache: cache, live: live, namespace: namespace}
	for _, kind := range known() {
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case err == nil:
			r.kinds = append(r.kinds, kind)
		case !meta.IsNoMatchError(err):
			return nil, fmt.Errorf("asking whether the cluster has the kind %s: %w", kind.Kind, err)
		}
	}
	return r, nil
}

// Watched are objects of the kinds that the cluster has. The ConfigMap is one more thing to watch.
func (r *Reader) Watched() []client.Object {
	var out []client.Object
	for _, kind := range r.kinds {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind.GroupVersionKind)
		out = append(out, object)
	}
	return out
}

// Rules are those of the cluster. Where the ConfigMap can't be used, they come without its own
// beside an error that is Terminal.
func (r *Reader) Rules(ctx context.Context) (mirrors.Rules, error) {
	var rules mirrors.Rules
	for _, kind := range r.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := r.cache.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			rules = rules.Add(kind.use, entriesOf(&list.Items[i], kind.field)...)
		}
	}
	key := client.ObjectKey{Namespace: r.namespace, Name: names.RegistryMirrors}
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	var configMap corev1.ConfigMap
	err := r.cache.Get(ctx, key, known)
	if err == nil {
		err = r.live.Get(ctx, key, &configMap)
	}
	if apierrors.IsNotFound(err) {
		return rules, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %q: %w", names.RegistryMirrors, err)
	}
	entries, err := mirrors.ParseEntries([]byte(configMap.Data[Key]))
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return rules, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("ConfigMap %q: key %q: %s", names.RegistryMirrors, Key, line))
	}
	return rules.Add(mirrors.DigestsOnly, entries...), nil
}

// entriesOf reads one object.
func entriesOf(object *unstructured.Unstructured, field string) []mirrors.Entry {
	all, _, _ := unstructured.NestedSlice(object.Object, "spec", field)
	var out []mirrors.Entry
	for _, one := range all {
		fields, isObject := one.(map[string]any)
		if !isObject {
			continue
		}
		entry := mirrors.Entry{}
		entry.Source, _ = fields["source"].(string)
		entry.MirrorSourcePolicy, _ = fields["mirrorSourcePolicy"].(string)
		entry.Mirrors, _, _ = unstructured.NestedStringSlice(fields, "mirrors")
		if entry.Source != "" {
			out = append(out, entry)
		}
	}
	return out
}
