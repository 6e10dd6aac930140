package bootimages

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
)

const (
	// labelCloned is on templates that this controller made; its value is labelClonedValue. Only
	// those are ever deleted.
	labelCloned      = "layerwright.io/boot-image-template"
	labelClonedValue = "true"
	// annotationOriginal is the template that the first of a line of copies was made of.
	annotationOriginal = "layerwright.io/boot-image-template-of"
	// templateHash is how many digits of the hash are in a name.
	templateHash = 8
	// templatesFor is how long templates are known. They are immutable; only one that was deleted
	// and made anew is another.
	templatesFor = recheck
)

// Reasons of errors about templates.
const (
	reasonTemplateMissing   = "TemplateNotFound"
	reasonTemplateForbidden = "TemplateForbidden"
)

// templates knows the machine templates of Cluster API, of which it lists each kind once.
type templates struct {
	reader client.Reader
	mapper meta.RESTMapper
	clock  clock.PassiveClock

	mu     sync.Mutex
	listed map[schema.GroupKind]time.Time
	known  map[reference]*unstructured.Unstructured
}

func newTemplates(reader client.Reader, mapper meta.RESTMapper, c clock.PassiveClock) *templates {
	return &templates{reader: reader, mapper: mapper, clock: c, listed: map[schema.GroupKind]time.Time{}, known: map[reference]*unstructured.Unstructured{}}
}

// spec is the provider specification in a template; nil for a resource that names no template.
func (t *templates) spec(ctx context.Context, ref reference) (map[string]any, error) {
	if ref.kind == "" || ref.name == "" {
		return nil, nil
	}
	o, err := t.get(ctx, ref)
	if err != nil {
		return nil, err
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	return spec, nil
}

// get is a template, from the last list or, where it is newer than that, by itself.
func (t *templates) get(ctx context.Context, ref reference) (*unstructured.Unstructured, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gk := schema.GroupKind{Group: ref.group, Kind: ref.kind}
	version, err := serves(t.mapper, gk)
	if err != nil {
		return nil, err
	}
	if version == "" {
		return nil, fault.NewTerminal(reasonTemplateMissing, fmt.Errorf("the cluster has no kind %s", gk))
	}
	if t.clock.Since(t.listed[gk]) > templatesFor {
		if err := t.list(ctx, gk.WithVersion(version)); err != nil {
			return nil, err
		}
	}
	if o := t.known[ref]; o != nil {
		return o, nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gk.WithVersion(version))
	if err := t.reader.Get(ctx, client.ObjectKey{Namespace: ref.namespace, Name: ref.name}, o); err != nil {
		return nil, explain(err, "reading", ref)
	}
	t.known[ref] = o
	return o, nil
}

// list reads all templates of a kind.
func (t *templates) list(ctx context.Context, gvk schema.GroupVersionKind) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := t.reader.List(ctx, list); err != nil {
		return explain(err, "listing", reference{group: gvk.Group, kind: gvk.Kind})
	}
	maps.DeleteFunc(t.known, func(r reference, _ *unstructured.Unstructured) bool {
		return r.group == gvk.Group && r.kind == gvk.Kind
	})
	for i := range list.Items {
		o := &list.Items[i]
		o.SetManagedFields(nil)
		t.known[reference{gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName()}] = o
	}
	t.listed[gvk.GroupKind()] = t.clock.Now()
	return nil
}

// forget drops one template.
func (t *templates) forget(ref reference) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, ref)
}

// copiesIn are the templates in a namespace that this controller made.
func (t *templates) copiesIn(namespace string) map[reference]*unstructured.Unstructured {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := maps.Clone(t.known)
	maps.DeleteFunc(out, func(ref reference, o *unstructured.Unstructured) bool {
		return ref.namespace != namespace || o.GetLabels()[labelCloned] != labelClonedValue
	})
	return out
}

// explain says what to do about an error of the API server.
func explain(err error, doing string, ref reference) error {
	switch {
	case apierrors.IsForbidden(err):
		return fault.NewTerminal(reasonTemplateForbidden, fmt.Errorf(
			"%s %s %q is forbidden; give the controller the rights of ClusterRole layerwright-boot-images for the kind", doing, ref.kind, ref.name))
	case apierrors.IsNotFound(err):
		return fault.NewTerminal(reasonTemplateMissing, fmt.Errorf("%s %s %q: there is none", doing, ref.kind, ref.name))
	}
	return fmt.Errorf("%s %s %q: %w", doing, ref.kind, ref.name, err)
}

// originalOf is the template that the first of a line of copies was made of.
func originalOf(o *unstructured.Unstructured) string {
	if original := o.GetAnnotations()[annotationOriginal]; original != "" && o.GetLabels()[labelCloned] == labelClonedValue {
		return original
	}
	return o.GetName()
}

// clone makes the template with the wanted image: templates are immutable. Its name follows from
// its content, so that a second try finds it.
func (u *updater) clone(ctx context.Context, s *scope) (string, error) {
	ref := s.resource.template
	u.templates.forget(ref) // what is copied is what there is now
	from, err := u.templates.get(ctx, ref)
	if err != nil {
		return "", err
	}
	if now, _, _ := unstructured.NestedMap(from.Object, "spec", "template", "spec"); !sameJSON(now, s.resource.plan.ProviderSpec) {
		return "", fmt.Errorf("copying %s %q: it is another one than before", ref.kind, ref.name)
	}
	to, err := cloneOf(from, s.decision.Spec)
	if err != nil {
		return "", err
	}
	err = u.client.Create(ctx, to, client.FieldOwner(FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", explain(err, "creating", reference{kind: ref.kind, name: to.GetName()})
	}
	return to.GetName(), nil
}

// cloneOf is a copy of a template with another provider specification. Of its metadata only what is
// Cluster API's goes along: any other label may tell a tool that the copy is its own, to be pruned.
func cloneOf(from *unstructured.Unstructured, spec map[string]any) (*unstructured.Unstructured, error) {
	to := &unstructured.Unstructured{Object: map[string]any{}}
	to.SetGroupVersionKind(from.GroupVersionKind())
	whole, _, _ := unstructured.NestedMap(from.Object, "spec")
	to.Object["spec"] = whole
	if err := unstructured.SetNestedMap(to.Object, spec, "spec", "template", "spec"); err != nil {
		return nil, fmt.Errorf("copying %s %q: %w", from.GetKind(), from.GetName(), err)
	}
	content, err := json.Marshal(to.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("copying %s %q: %w", from.GetKind(), from.GetName(), err)
	}
	sum := sha256.Sum256(content)
	original := originalOf(from)
	to.SetNamespace(from.GetNamespace())
	to.SetName(names.BootImageTemplate(original, hex.EncodeToString(sum[:])[:templateHash]))
	labels := map[string]string{}
	for key, value := range from.GetLabels() {
		if strings.HasPrefix(key, string(operatorv1.ClusterAPI)+"/") {
			labels[key] = value
		}
	}
	labels[labelCloned] = labelClonedValue
	to.SetLabels(labels)
	to.SetAnnotations(map[string]string{annotationOriginal: original})
	to.SetOwnerReferences(slices.DeleteFunc(from.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return !isCluster(owner) }))
	return to, nil
}

// collect deletes templates in a namespace that this controller made and that nothing uses any
// more. It gives the time until one of them is old enough, 0 where none is to come.
func (u *updater) collect(ctx context.Context, namespace string) (after time.Duration, err error) {
	if !u.kind.isClusterAPI() {
		return 0, nil
	}
	copies := u.templates.copiesIn(namespace)
	for _, reader := range []client.Reader{u.cache, u.reader} { // the cache is cheap, and the API server has the last word
		if len(copies) == 0 {
			return 0, nil
		}
		used, err := u.templatesInUse(ctx, reader, namespace)
		if err != nil {
			return 0, err
		}
		maps.DeleteFunc(copies, func(ref reference, _ *unstructured.Unstructured) bool { return used[ref] })
	}
	for ref, o := range copies {
		if age := u.clock.Since(o.GetCreationTimestamp().Time); age < collectAfter {
			after = max(after, collectAfter-age)
			continue
		}
		uid := o.GetUID()
		err := u.client.Delete(ctx, o, client.Preconditions{UID: &uid})
		if client.IgnoreNotFound(err) != nil {
			return 0, explain(err, "deleting", ref)
		}
		u.templates.forget(ref)
	}
	return after, nil
}

// collectAfter is how old a copy has to be: a younger one may be about to be named by a resource.
const collectAfter = time.Minute

// templatesInUse are the templates that a resource of Cluster API names, also MachineSets that a
// MachineDeployment keeps to go back to.
func (u *updater) templatesInUse(ctx context.Context, reader client.Reader, namespace string) (map[reference]bool, error) {
	used := map[reference]bool{}
	for _, k := range u.kinds {
		if !k.isClusterAPI() || k.version == "" {
			continue
		}
		list := k.newList()
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing %s: %w", k.name, err)
		}
		for i := range list.Items {
			used[read(k, &list.Items[i]).template] = true
		}
	}
	return used, nil
}
