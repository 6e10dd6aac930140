package bootimages

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// otherWriter names who put another image into the resource, as far as the API server knows.
func (u *updater) otherWriter(ctx context.Context, s *scope) (string, error) {
	o := u.kind.newObject()
	if err := u.reader.Get(ctx, s.resource.id.NamespacedName, o); err != nil {
		return "", fmt.Errorf("reading %s: %w", s.resource.id, err)
	}
	var paths [][]string
	if u.kind.isClusterAPI() {
		paths = [][]string{{"spec", "template", "spec", "infrastructureRef", "name"}, {"spec", "template", "spec", "infrastructureRef"}}
	} else {
		for _, field := range s.decision.Fields {
			paths = append(paths, append(slices.Clone(u.kind.providerSpec), field...))
		}
		paths = append(paths, u.kind.providerSpec)
	}
	for _, path := range paths { // the more exact first
		if writers := writersOf(o.GetManagedFields(), path); len(writers) > 0 {
			return "; the field is written by " + strings.Join(writers, " and "), nil
		}
	}
	return "; the API server does not know by what", nil
}

// writersOf are the field managers, other than this controller, that wrote a field or something in
// it, the last one first.
func writersOf(entries []metav1.ManagedFieldsEntry, path []string) []string {
	slices.SortStableFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		if a.Time == nil || b.Time == nil {
			return 0
		}
		return b.Time.Compare(a.Time.Time)
	})
	var out []string
	for _, e := range entries {
		if e.Manager == FieldManager || e.FieldsV1 == nil || slices.Contains(out, `"`+e.Manager+`"`) {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if owns(fields, path) {
			out = append(out, `"`+e.Manager+`"`)
		}
	}
	return out
}

// owns reports whether the fields of a manager have a path in them.
func owns(fields map[string]any, path []string) bool {
	for _, field := range path {
		below, has := fields["f:"+field].(map[string]any)
		if !has {
			return false
		}
		fields = below
	}
	return true
}

// hasJoined reports whether a machine of a resource that was made since then has joined the
// cluster.
func (u *updater) hasJoined(ctx context.Context, r *resource, since time.Time) (bool, error) {
	selector, _, _ := unstructured.NestedStringMap(r.object.Object, "spec", "selector", "matchLabels")
	if len(selector) == 0 {
		return false, nil
	}
	machines := &unstructured.UnstructuredList{}
	version := u.kind.version
	if !u.kind.isClusterAPI() {
		version = "v1beta1" // of Machines, also where ControlPlaneMachineSets have another
	}
	machines.SetGroupVersionKind(schema.GroupVersionKind{Group: u.kind.groupKind.Group, Version: version, Kind: "MachineList"})
	err := u.reader.List(ctx, machines, client.InNamespace(r.id.Namespace), client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(selector)})
	if err != nil {
		return false, fmt.Errorf("listing the machines of %s: %w", r.id, err)
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
		if node != "" && m.GetCreationTimestamp().After(since) {
			return true, nil
		}
	}
	return false, nil
}

// mirroredBy is the resource of the Machine API of the same name that a resource of Cluster API
// only mirrors, and which steers the machines; empty where there is none.
func (u *updater) mirroredBy(ctx context.Context, of types.NamespacedName) (string, error) {
	k := u.mirrored()
	if k == nil || of.Namespace != clusterAPINamespace {
		return "", nil
	}
	o := k.newObject()
	err := u.cache.Get(ctx, client.ObjectKey{Namespace: machineAPINamespace, Name: of.Name}, o)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading %s %q: %w", k.name, of.Name, err)
	}
	if err != nil || authority(o) == "ClusterAPI" {
		return "", nil //nolint:nilerr // what is not found mirrors nothing
	}
	return id{k, client.ObjectKeyFromObject(o)}.String(), nil
}

// mirrored is the kind of the Machine API that resources of this kind of Cluster API may mirror;
// nil where there is none.
func (u *updater) mirrored() *kind {
	for _, k := range u.kinds {
		if u.kind.isClusterAPI() && !k.isClusterAPI() && k.version != "" && k.groupKind.Kind == u.kind.groupKind.Kind {
			return k
		}
	}
	return nil
}

// Where OpenShift has the resources of both APIs that mirror each other.
const (
	machineAPINamespace = "openshift-machine-api"
	clusterAPINamespace = "openshift-cluster-api"
)

// owned remembers whose images are.
type owned struct {
	ask   ImageOwners
	mu    sync.Mutex
	known map[plan.Question]string
}

// of asks once for each image: images do not change hands. What the cloud does not say is asked
// again, since someone may let it.
func (b *owned) of(ctx context.Context, q plan.Question) (plan.Owner, error) {
	if b.ask == nil {
		return plan.Owner{Unknown: "no cloud can be asked"}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if owner, isKnown := b.known[q]; isKnown {
		return plan.Owner{Account: owner}, nil
	}
	owner, err := b.ask.OwnerOf(ctx, q.Region, q.Image)
	switch {
	case fault.IsTerminal(err):
		return plan.Owner{Unknown: fault.Message(err)}, nil
	case err != nil:
		return plan.Owner{}, fault.NewWaiting("ImageOwnerUnknown", recheck, fmt.Errorf("finding the owner of image %q in region %q: %w", q.Image, q.Region, err))
	case owner == "":
		return plan.Owner{Unknown: fmt.Sprintf("region %q has no such image", q.Region)}, nil
	}
	b.known[q] = owner
	return plan.Owner{Account: owner}, nil
}
