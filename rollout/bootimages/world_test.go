package bootimages

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

var t0 = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	namespace = "layerwright"
	machines  = "openshift-machine-api"
	capiSpace = "clusters"
)

// providerSpec is where a MachineSet of the Machine API has its provider specification.
var providerSpec = []string{"spec", "template", "spec", "providerSpec", "value"}

// stub3 is user data that needs no translation.
const stub3 = `{"ignition":{"version":"3.2.0"}}`

// streamJSON is the metadata of a stream with images of all platforms that have any.
func streamJSON(name, release string) string {
	return fmt.Sprintf(`{"stream":%q,"architectures":{"x86_64":{"artifacts":{"gcp":{"release":%[2]q,"formats":{}},
		"vmware":{"release":%[2]q,"formats":{"ova":{"disk":{"location":"https://mirror.example.com/rhcos.ova","sha256":"ab"}}}},
		"openstack":{"release":%[2]q,"formats":{"qcow2.gz":{"disk":{"location":"https://mirror.example.com/rhcos-%[2]s-openstack.x86_64.qcow2.gz","sha256":"cd"}}}},
		"azure":{"release":%[2]q,"formats":{}}},"images":{
		"gcp":{"release":%[2]q,"project":"rhcos-cloud","name":"image-%[1]s"},
		"aws":{"regions":{"us-east-1":{"release":%[2]q,"image":"ami-0000000%[3]d"}}}},
		"rhel-coreos-extensions":{"marketplace":{"azure":{"no-purchase-plan":{"hyperVGen2":{
		"publisher":"azureopenshift","offer":"aro4","sku":"aro4","version":"%[3]d.0.1"}}}}}}}}`, name, release, len(name))
}

// bootImages is the ConfigMap of two streams.
func bootImages(release9, release10 string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ConfigMapName},
		Data:       map[string]string{plan.KeyStreams: fmt.Sprintf(`{"rhel-9":%s,"rhel-10":%s}`, streamJSON("rhel-9", release9), streamJSON("rhel-10", release10))},
	}
}

// world9 are a cluster's objects: two pools, on RHEL 9 and 10, and a MachineConfiguration that
// selects everything.
func world9() []client.Object {
	pool := func(name, stream string) *mcfgv1.MachineConfigPool {
		return &mcfgv1.MachineConfigPool{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{mcfgv1.AnnotationRememberedStream: stream}},
			Spec:       mcfgv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}}},
		}
	}
	config := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Generation: 1}}
	for _, k := range allKinds() {
		m := operatorv1.MachineManager{Resource: k.resource, APIGroup: operatorv1.MachineManagerMachineSetsAPIGroupType(k.groupKind.Group)}
		m.Selection.Mode = "All"
		config.Spec.ManagedBootImages.MachineManagers = append(config.Spec.ManagedBootImages.MachineManagers, m)
	}
	infrastructure := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "cluster"}, "status": map[string]any{"platformStatus": map[string]any{"type": "GCP"}},
	}}
	infrastructure.SetGroupVersionKind(infrastructureKind)
	version := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "version"}, "status": map[string]any{
		"desired": map[string]any{"version": "4.21.0"},
		"history": []any{map[string]any{"state": "Completed", "version": "4.21.0"}, map[string]any{"state": "Completed", "version": "4.14.0"}},
	}}}
	version.SetGroupVersionKind(clusterVersionKind)
	return []client.Object{
		config, infrastructure, version, pool("worker", "rhel-9"), pool("ten", "rhel-10"), bootImages("9.6.20250826-1", "10.1.20250901-0"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelTopologyRegion: "us-east-1"}}},
		userData(machines, "worker-user-data", "userData", stub3), userData(capiSpace, "worker-user-data", "value", stub3),
	}
}

func userData(namespace, name, key, content string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(content)}}
}

// object reads JSON as an object of a kind.
func object(t testing.TB, gvk schema.GroupVersionKind, text string) *unstructured.Unstructured { //nolint:thelper // benchmarks use it as well
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, o.UnmarshalJSON([]byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,%s`, gvk.GroupVersion(), gvk.Kind, text[1:]))))
	return o
}

const installed = "projects/rhcos-cloud/global/images/rhcos-414-92-202310170514-0-gcp-x86-64"

// machineSet is a MachineSet of the Machine API, whose machines join a pool.
func machineSet(t testing.TB, name, pool string) *unstructured.Unstructured { //nolint:thelper // benchmarks use it as well
	t.Helper()
	return object(t, schema.GroupVersionKind{Group: "machine.openshift.io", Version: "v1beta1", Kind: "MachineSet"}, fmt.Sprintf(`{
		"metadata":{"namespace":%q,"name":%[2]q,"uid":"uid-%[2]s"},"spec":{"replicas":2,"selector":{"matchLabels":{"set":%[2]q}},"template":{
		"metadata":{"labels":{"set":%[2]q}},"spec":{"metadata":{"labels":{"node-role.kubernetes.io/%[3]s":""}},"providerSpec":{"value":{
		"kind":"GCPMachineProviderSpec","disks":[{"boot":true,"image":%[4]q,"sizeGb":128}],"machineType":"n2","userDataSecret":{"name":"worker-user-data"}}}}}}}`,
		machines, name, pool, installed))
}

// deployment is a MachineDeployment of Cluster API, and its template.
func deployment(t testing.TB, name string) (o, template *unstructured.Unstructured) { //nolint:thelper // benchmarks use it as well
	t.Helper()
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	o = object(t, schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "MachineDeployment"}, fmt.Sprintf(`{
		"metadata":{"namespace":%q,"name":%[2]q,"uid":"uid-%[2]s"},"spec":{"selector":{"matchLabels":{"set":%[2]q}},"template":{"spec":{
		"bootstrap":{"dataSecretName":"worker-user-data"},"infrastructureRef":{"apiGroup":%[3]q,"kind":"GCPMachineTemplate","name":"%[2]s-template"}}}}}`,
		capiSpace, name, infrastructure))
	template = object(t, schema.GroupVersionKind{Group: infrastructure, Version: "v1beta1", Kind: "GCPMachineTemplate"}, fmt.Sprintf(`{
		"metadata":{"namespace":%q,"name":"%s-template","annotations":{"argocd.argoproj.io/tracking-id":"x"},"creationTimestamp":"2026-01-01T00:00:00Z"},
		"spec":{"template":{"metadata":{"labels":{"kept":"yes"}},"spec":{"image":%q,"instanceType":"n1","rootDeviceSize":128}}}}`, capiSpace, name, installed))
	return o, template
}

// cluster is an API server with the reconcilers at work on it.
type cluster struct {
	client.WithWatch
	t      testing.TB
	clock  *clocktesting.FakePassiveClock
	events *clientevents.FakeRecorder
	update map[string]*updater // by kind
	view   *overview
	world  *world
	lists  map[string]int // by kind, of clients
	fail   func(verb string, o client.Object) error
}

func newCluster(t testing.TB, objects ...client.Object) *cluster { //nolint:thelper // benchmarks use it as well
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme, operatorv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	kinds := allKinds()
	known := []schema.GroupVersionKind{
		clusterVersionKind, infrastructureKind,
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "GCPMachineTemplate"},
		{Group: "machine.openshift.io", Version: "v1beta1", Kind: "Machine"},
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"},
	}
	for _, k := range kinds {
		k.version = map[string]string{"machine.openshift.io": "v1beta1", "cluster.x-k8s.io": "v1beta2"}[k.groupKind.Group]
		if k.groupKind.Kind == "ControlPlaneMachineSet" {
			k.version = "v1"
		}
		known = append(known, k.gvk())
	}
	var versions []schema.GroupVersion
	for _, gvk := range known {
		versions = append(versions, gvk.GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, gvk := range known {
		mapper.Add(gvk, meta.RESTScopeNamespace)
		scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
	}
	c := &cluster{
		t: t, clock: clocktesting.NewFakePassiveClock(t0), events: clientevents.NewFakeRecorder(1000), update: map[string]*updater{},
		lists: map[string]int{}, fail: func(string, client.Object) error { return nil },
	}
	base := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&operatorv1.MachineConfiguration{}, &mcfgv1alpha1.BootImageHistory{}).
		WithObjects(world9()...).WithObjects(objects...).Build()
	c.WithWatch = interceptor.NewClient(base, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.fail("patch", o); err != nil {
				return err
			}
			return w.Patch(ctx, o, p, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.fail("create", o); err != nil {
				return err
			}
			return w.Create(ctx, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			c.lists[fmt.Sprintf("%T %s", l, l.GetObjectKind().GroupVersionKind().Kind)]++
			return w.List(ctx, l, opts...)
		},
	})
	c.world = &world{cache: c, reader: c, namespace: namespace, clock: c.clock, degradeAfter: 10 * time.Minute}
	c.world.has.clusterVersion, c.world.has.infrastructure = true, true
	l := newLedger()
	options := Options{Namespace: namespace, Soak: time.Hour, DegradeAfter: 10 * time.Minute, Metrics: metrics.NewBootImages()}
	options.Metrics.From(l.Scrape)
	templates := newTemplates(c, mapper, c.clock)
	wake := map[*kind]chan event.GenericEvent{}
	watchedSecrets := &secrets{watcher: c, clock: c.clock, waiting: map[types.NamespacedName]map[id]bool{}}
	for _, k := range kinds {
		wake[k] = make(chan event.GenericEvent, 1000)
		c.update[k.name] = &updater{
			kind: k, kinds: kinds, options: options, clock: c.clock, client: c, cache: c, reader: c, events: events.NewPublisher(c.events),
			world: c.world, ledger: l, templates: templates, stubs: &stubs{good: map[types.NamespacedName]time.Time{}},
			owners: &owned{known: map[plan.Question]string{}}, imports: newImports(nil, c.clock), wake: wake,
			secrets: watchedSecrets,
		}
	}
	c.view = &overview{kinds: kinds, options: options, clock: c.clock, client: c, cache: c, world: c.world, ledger: l}
	return c
}

// reconcile reconciles a resource.
func (c *cluster) reconcile(kind string, o client.Object) (ctrl.Result, error) {
	c.t.Helper()
	return c.update[kind].Reconcile(c.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// mustReconcile is a reconcile without error.
func (c *cluster) mustReconcile(kind string, o client.Object) ctrl.Result {
	c.t.Helper()
	res, err := c.reconcile(kind, o)
	require.NoError(c.t, err)
	return res
}

// overview makes a reconcile of the MachineConfiguration, and gives it.
func (c *cluster) overview() *operatorv1.MachineConfiguration {
	c.t.Helper()
	_, err := c.view.Reconcile(c.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "cluster"}})
	require.NoError(c.t, err)
	config := &operatorv1.MachineConfiguration{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: "cluster"}, config))
	return config
}

// get reads an object again.
func (c *cluster) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	c.t.Helper()
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(o.GroupVersionKind())
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(o), is))
	return is
}

// image is the image of a MachineSet.
func (c *cluster) image(o *unstructured.Unstructured) string {
	c.t.Helper()
	r := read(c.update["MAPI MachineSets"].kind, c.get(o))
	disks, _ := r.plan.ProviderSpec["disks"].([]any)
	image, _ := disks[0].(map[string]any)["image"].(string)
	return image
}

// edit changes an object as someone else does.
func (c *cluster) edit(o client.Object, change func()) {
	c.t.Helper()
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(o), o))
	change()
	require.NoError(c.t, c.Update(c.t.Context(), o))
	c.world.invalidate()
}

// history is that of a resource.
func (c *cluster) history(namespace, name string) *mcfgv1alpha1.BootImageHistory {
	c.t.Helper()
	h := &mcfgv1alpha1.BootImageHistory{}
	require.NoError(c.t, c.Get(c.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, h))
	return h
}

// setImage puts another image into a MachineSet.
func setImage(o *unstructured.Unstructured, image string) {
	text, _ := json.Marshal([]any{map[string]any{"boot": true, "image": image, "sizeGb": 128}}) //nolint:errchkjson // it holds a map of strings, numbers and truths
	var disks []any
	_ = json.Unmarshal(text, &disks)
	_ = unstructured.SetNestedSlice(o.Object, disks, "spec", "template", "spec", "providerSpec", "value", "disks")
}
