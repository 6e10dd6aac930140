package bootimages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// kind is one kind of machine resources.
type kind struct {
	// name in messages, as published: "MAPI MachineSets".
	name string
	// group and kind, and the resource as a MachineConfiguration names it.
	groupKind schema.GroupKind
	resource  operatorv1.MachineManagerMachineSetsResourceType
	// version that the cluster serves; empty where it has no such kind.
	version string
	// providerSpec is where the provider specification is; nil where a template has it.
	providerSpec []string
	// machineMeta is where the metadata of the machines are, nodeLabels where the labels of their
	// nodes are.
	machineMeta, nodeLabels []string
}

// template is where Machine API resources describe a machine.
const cpmsTemplate = "machines_v1beta1_machine_openshift_io"

// allKinds are the kinds, in the order of the published message.
func allKinds() []*kind {
	const mapi, capi = string(operatorv1.MachineAPI), string(operatorv1.ClusterAPI)
	return []*kind{
		{
			name: "MAPI MachineSets", groupKind: schema.GroupKind{Group: mapi, Kind: "MachineSet"}, resource: operatorv1.MachineSets,
			providerSpec: []string{"spec", "template", "spec", "providerSpec", "value"},
			machineMeta:  []string{"spec", "template", "metadata"}, nodeLabels: []string{"spec", "template", "spec", "metadata", "labels"},
		},
		{
			name: "ControlPlaneMachineSets", groupKind: schema.GroupKind{Group: mapi, Kind: "ControlPlaneMachineSet"}, resource: operatorv1.ControlPlaneMachineSets,
			providerSpec: []string{"spec", "template", cpmsTemplate, "spec", "providerSpec", "value"},
			machineMeta:  []string{"spec", "template", cpmsTemplate, "metadata"}, nodeLabels: []string{"spec", "template", cpmsTemplate, "spec", "metadata", "labels"},
		},
		{
			name: "CAPI MachineSets", groupKind: schema.GroupKind{Group: capi, Kind: "MachineSet"}, resource: operatorv1.MachineSets,
			machineMeta: []string{"spec", "template", "metadata"}, nodeLabels: []string{"spec", "template", "metadata", "labels"},
		},
		{
			name: "CAPI MachineDeployments", groupKind: schema.GroupKind{Group: capi, Kind: "MachineDeployment"}, resource: operatorv1.MachineDeployments,
			machineMeta: []string{"spec", "template", "metadata"}, nodeLabels: []string{"spec", "template", "metadata", "labels"},
		},
	}
}

// isClusterAPI reports whether templates have the provider specifications.
func (k *kind) isClusterAPI() bool { return k.providerSpec == nil }

// isSelected reports whether boot images of the kind are to be managed, of some resources at least.
func (k *kind) isSelected(m operatorv1.ManagedBootImages) bool {
	return slices.ContainsFunc(m.MachineManagers, func(of operatorv1.MachineManager) bool {
		return of.Resource == k.resource && string(of.APIGroup) == k.groupKind.Group && of.Selection.Mode != openshiftv1.None
	})
}

func (k *kind) gvk() schema.GroupVersionKind { return k.groupKind.WithVersion(k.version) }

// newObject is an empty object of the kind.
func (k *kind) newObject() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(k.gvk())
	return o
}

func (k *kind) newList() *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(k.groupKind.WithVersion(k.version).GroupVersion().WithKind(k.groupKind.Kind + "List"))
	return l
}

// serves finds the version of a kind that the cluster serves; empty where it has no such kind.
func serves(mapper meta.RESTMapper, gk schema.GroupKind) (string, error) {
	mapping, err := mapper.RESTMapping(gk)
	switch {
	case meta.IsNoMatchError(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("asking whether the cluster has the kind %s: %w", gk, err)
	}
	return mapping.GroupVersionKind.Version, nil
}

// id names a machine resource.
type id struct {
	kind *kind
	types.NamespacedName
}

// String is as in messages: MachineSet openshift-machine-api/worker-a.
func (i id) String() string { return i.kind.groupKind.Kind + " " + i.NamespacedName.String() }

// reference is how a resource of Cluster API names its template.
type reference struct{ group, kind, namespace, name string }

// resource is a machine resource as it was read.
type resource struct {
	id     id
	object *unstructured.Unstructured
	plan   plan.Resource
	// nodeLabels are those that the machines' nodes will have.
	nodeLabels map[string]string
	// template of Cluster API; zero elsewhere.
	template reference
	// userData is the secret with the stub; empty where the resource names none.
	userData string
	// userDataField is where the resource, or its provider specification, names it.
	userDataField []string
}

// read takes what matters from a resource. Provider specifications in templates are read by the
// caller.
func read(k *kind, o *unstructured.Unstructured) *resource {
	r := &resource{id: id{k, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}, object: o}
	r.plan = plan.Resource{Labels: o.GetLabels(), Annotations: o.GetAnnotations(), IsOwned: isOwned(k, o)}
	r.plan.MachineLabels, _, _ = unstructured.NestedStringMap(o.Object, append(append([]string{}, k.machineMeta...), "labels")...)
	r.nodeLabels, _, _ = unstructured.NestedStringMap(o.Object, k.nodeLabels...)
	if k.isClusterAPI() {
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "MachineDeployment" && isOfClusterAPI(owner) {
			r.plan.Main = owner.Kind + " " + o.GetNamespace() + "/" + owner.Name
		}
		ref, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec", "infrastructureRef")
		r.template = referenceOf(ref, o.GetNamespace())
		if r.plan.ProviderKind = r.template.kind; r.template.group != infrastructureGroup {
			r.plan.ProviderKind = schema.GroupKind{Group: r.template.group, Kind: r.template.kind}.String()
		}
		r.userDataField = []string{"spec", "template", "spec", "bootstrap", "dataSecretName"}
		r.userData, _, _ = unstructured.NestedString(o.Object, r.userDataField...)
		return r
	}
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, k.providerSpec...)
	r.plan.ProviderSpec, _ = value.(map[string]any)
	r.plan.ProviderKind, _ = r.plan.ProviderSpec["kind"].(string)
	r.plan.IsElsewhere = authority(o) != string(machineAPI)
	r.userDataField = append(append([]string{}, k.providerSpec...), "userDataSecret", "name")
	r.userData, _, _ = unstructured.NestedString(o.Object, r.userDataField...)
	return r
}

// infrastructureGroup is the group of the templates of all platforms.
const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

// machineAPI is the authority of a resource that the Machine API steers.
const machineAPI = "MachineAPI"

// authority is which API steers the machines of a resource of the Machine API. A handover under way
// is neither.
func authority(o *unstructured.Unstructured) string {
	said, _, _ := unstructured.NestedString(o.Object, "status", "authoritativeAPI")
	asked, _, _ := unstructured.NestedString(o.Object, "spec", "authoritativeAPI")
	return cmp.Or(said, asked, machineAPI)
}

// labelTopology is on what Cluster API makes from a ClusterClass.
const labelTopology = "topology.cluster.x-k8s.io/owned"

// isOwned reports whether something else made the resource, and may put back what is changed. In
// Cluster API, the Cluster owns everything, and puts back only what it makes from a ClusterClass.
func isOwned(k *kind, o *unstructured.Unstructured) bool {
	if _, isOfTopology := o.GetLabels()[labelTopology]; isOfTopology && k.isClusterAPI() {
		return true
	}
	return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return !k.isClusterAPI() || !isCluster(owner) })
}

// isCluster reports whether an owner is the Cluster of Cluster API.
func isCluster(owner metav1.OwnerReference) bool {
	return owner.Kind == "Cluster" && isOfClusterAPI(&owner)
}

func isOfClusterAPI(owner *metav1.OwnerReference) bool {
	return strings.HasPrefix(owner.APIVersion, string(operatorv1.ClusterAPI)+"/")
}

// referenceOf reads a reference to a template, which older versions of Cluster API write with an
// apiVersion and newer ones with an apiGroup. It is one in the namespace of the resource, as in
// Cluster API, whatever it says: who may write there may not have things made elsewhere.
func referenceOf(ref map[string]any, namespace string) reference {
	text := func(field string) string {
		value, _ := ref[field].(string)
		return value
	}
	group := text("apiGroup")
	if group == "" {
		group, _, _ = strings.Cut(text("apiVersion"), "/")
	}
	return reference{group, text("kind"), namespace, text("name")}
}

// strip keeps what is read of a machine resource in the cache, and nothing else.
func strip(object any) (any, error) {
	o, isObject := object.(*unstructured.Unstructured)
	if !isObject {
		return object, nil
	}
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	o.SetAnnotations(annotations)
	if status, isMap := o.Object["status"].(map[string]any); isMap {
		maps.DeleteFunc(status, func(field string, _ any) bool { return field != "authoritativeAPI" && field != "readyReplicas" })
	}
	return o, nil
}

// sameJSON reports whether two values are the same JSON.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
