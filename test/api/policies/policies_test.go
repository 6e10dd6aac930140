package policies

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

var (
	pools           = schema.GroupVersionResource{Group: "machineconfiguration.openshift.io", Version: "v1", Resource: "machineconfigpools"}
	streams         = schema.GroupVersionResource{Group: "machineconfiguration.openshift.io", Version: "v1", Resource: "osimagestreams"}
	configurations  = schema.GroupVersionResource{Group: "operator.openshift.io", Version: "v1", Resource: "machineconfigurations"}
	infrastructures = schema.GroupVersionResource{Group: "config.openshift.io", Version: "v1", Resource: "infrastructures"}
)

const (
	// enforced is how long the API server may take to enforce a policy, or to see a change of what
	// it goes by.
	enforced = 2 * time.Minute
	tick     = 50 * time.Millisecond
	budget   = 2 * time.Second

	streamMessage   = "The specified osImageStream name must reference a valid stream from the cluster OSImageStream resource"
	selectorMessage = "All custom MachineConfigPools must inherit from the worker pool and must have a machineConfigSelector that matches for a 'machineconfiguration.openshift.io/role: worker' label"
	nameMessage     = "Only a single object of MachineConfiguration is allowed and it must be named cluster."
	deletionMessage = "Deletion of OSImageStream resources is not allowed"
)

// The policies are tested in turn: they share the one OSImageStream, and installing is part of the
// story.
func TestPolicies(t *testing.T) {
	config := clustertest.ControlPlane(t)
	client := dynamic.NewForConfigOrDie(config)

	start := time.Now()
	installAll(t, config)
	eventuallyRefused(t, nameMessage, func(ctx context.Context) error { return dryRun(ctx, client, configurations, configuration("other")) })
	t.Logf("kinds and policies enforced after %v (budget %v)", time.Since(start).Round(time.Millisecond), budget)

	t.Run("MachineConfiguration is named cluster", func(t *testing.T) {
		require.NoError(t, dryRun(t.Context(), client, configurations, configuration("cluster")))
	})
	t.Run("custom pool selects worker", func(t *testing.T) { testSelector(t, client) })
	t.Run("boot image platforms", func(t *testing.T) { testPlatforms(t, client) })
	t.Run("boot image platforms without the kind Infrastructure", func(t *testing.T) { testMissingKind(t, client) })
	t.Run("pool's stream exists", func(t *testing.T) { testStream(t, client) })
	t.Run("pool's stream is no downgrade", func(t *testing.T) { testDowngrade(t, client) })
	t.Run("examples", func(t *testing.T) { testExamples(t, config, client) })
	t.Run("OSImageStream stays", func(t *testing.T) {
		eventuallyRefused(t, deletionMessage, func(ctx context.Context) error {
			return client.Resource(streams).Delete(ctx, "cluster", metav1.DeleteOptions{})
		})
		// Other changes of it are no one's business here.
		stream, err := client.Resource(streams).Get(t.Context(), "cluster", metav1.GetOptions{})
		require.NoError(t, err)
		stream.SetLabels(map[string]string{"a": "b"})
		_, err = client.Resource(streams).Update(t.Context(), stream, metav1.UpdateOptions{})
		require.NoError(t, err)
	})
}

// installAll installs kinds and policies, whichever test comes first. OpenShift has the kind
// Infrastructure long before Layerwright comes. An API server takes up to half a minute to see that
// a policy's kind of parameters has appeared, so it comes first here too; testMissingKind is about
// clusters without it.
func installAll(t *testing.T, config *rest.Config) {
	t.Helper()
	install.Definition(t, config, infrastructureKind(t))
	install.Kinds(t, config)
	install.Policies(t, config)
}

func testSelector(t *testing.T, client dynamic.Interface) {
	t.Helper()
	eventuallyRefused(t, selectorMessage, func(ctx context.Context) error { return dryRun(ctx, client, pools, pool("infra", "{}")) })
	const in = `{matchExpressions: [{key: machineconfiguration.openshift.io/role, operator: In, values: [%s]}]}`
	for selector, ok := range map[string]bool{
		"{matchLabels: {machineconfiguration.openshift.io/role: worker}}":                                        true,
		"{matchLabels: {machineconfiguration.openshift.io/role: master}}":                                        true,
		"{matchLabels: {machineconfiguration.openshift.io/role: arbiter}}":                                       true,
		"{matchLabels: {machineconfiguration.openshift.io/role: infra}}":                                         false,
		"{matchLabels: {role: worker}}":                                                                          false,
		strings.Replace(in, "%s", "worker, infra", 1):                                                            true,
		strings.Replace(in, "%s", "infra", 1):                                                                    false,
		"{matchExpressions: [{key: machineconfiguration.openshift.io/role, operator: NotIn, values: [master]}]}": true,
		"{matchExpressions: [{key: machineconfiguration.openshift.io/role, operator: Exists}]}":                  false,
	} {
		err := dryRun(t.Context(), client, pools, pool("infra", selector))
		if ok {
			require.NoError(t, err, selector)
		} else {
			require.ErrorContains(t, err, selectorMessage, selector)
		}
	}
	require.ErrorContains(t, dryRun(t.Context(), client, pools, object(t, `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: infra}
spec: {}`)), selectorMessage, "no selector")
}

func testStream(t *testing.T, client dynamic.Interface) {
	t.Helper()
	follows := func(stream string) *unstructured.Unstructured {
		p := pool("worker", worker)
		require.NoError(t, unstructured.SetNestedField(p.Object, stream, "spec", "osImageStream", "name"))
		return p
	}
	require.NoError(t, dryRun(t.Context(), client, pools, follows("anything")), "while there is no OSImageStream")

	created, err := client.Resource(streams).Create(t.Context(), object(t, `
apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata: {name: cluster}
spec: {defaultStream: rhel-9}`), metav1.CreateOptions{})
	require.NoError(t, err)
	eventuallyRefused(t, streamMessage+": spec.osImageStream.name is 'rhel-9', available are none yet",
		func(ctx context.Context) error { return dryRun(ctx, client, pools, follows("rhel-9")) })

	created.Object["status"] = object(t, streamStatus).Object["status"]
	_, err = client.Resource(streams).UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, dryRun(t.Context(), client, pools, follows("rhel-9")))
	}, enforced, tick)
	require.ErrorContains(t, dryRun(t.Context(), client, pools, follows("rhel-11")),
		streamMessage+": spec.osImageStream.name is 'rhel-11', available are: rhel-9, rhel-10, rhel9-coreos, fedora-coreos")
	require.NoError(t, dryRun(t.Context(), client, pools, pool("worker", worker)), "no stream, the default")

	// A pool whose stream went away is not locked.
	made, err := client.Resource(pools).Create(t.Context(), follows("fedora-coreos"), metav1.CreateOptions{})
	require.NoError(t, err)
	stream, err := client.Resource(streams).Get(t.Context(), "cluster", metav1.GetOptions{})
	require.NoError(t, err)
	list, _, err := unstructured.NestedSlice(stream.Object, "status", "availableStreams")
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedSlice(stream.Object, list[:3], "status", "availableStreams"))
	_, err = client.Resource(streams).UpdateStatus(t.Context(), stream, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventuallyRefused(t, streamMessage, func(ctx context.Context) error {
		other := follows("fedora-coreos")
		other.SetName("other")
		return dryRun(ctx, client, pools, other)
	})
	require.NoError(t, unstructured.SetNestedField(made.Object, true, "spec", "paused"))
	made, err = client.Resource(pools).Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err, "paused")
	require.NoError(t, unstructured.SetNestedField(made.Object, "rhel-9", "spec", "osImageStream", "name"))
	_, err = client.Resource(pools).Update(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err, "moved to a stream that exists")
	require.NoError(t, client.Resource(pools).Delete(t.Context(), "worker", metav1.DeleteOptions{}))
}

const worker = "{matchLabels: {machineconfiguration.openshift.io/role: worker}}"

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const streamStatus = `
status:
  defaultStream: rhel-9
  availableStreams:
  - {name: rhel-9, osImage: "registry.example.com/os/nine` + digest + `"}
  - {name: rhel-10, osImage: "registry.example.com/os/ten` + digest + `"}
  - {name: rhel9-coreos, osImage: "registry.example.com/os/nine` + digest + `"}
  - {name: fedora-coreos, osImage: "registry.example.com/os/fedora` + digest + `"}
`

func testDowngrade(t *testing.T, client dynamic.Interface) {
	t.Helper()
	// Streams of every family, so that only the order of versions is at stake.
	stream, err := client.Resource(streams).Get(t.Context(), "cluster", metav1.GetOptions{})
	require.NoError(t, err)
	stream.Object["status"] = object(t, streamStatus).Object["status"]
	_, err = client.Resource(streams).UpdateStatus(t.Context(), stream, metav1.UpdateOptions{})
	require.NoError(t, err)

	tests := map[string]struct {
		spec, status, to string // streams before, and after
		remembered       string // what the pool was rendered with
		refused          bool
	}{
		"forward":                         {spec: "rhel-9", status: "rhel-9", to: "rhel-10"},
		"back":                            {spec: "rhel-10", status: "rhel-10", to: "rhel-9", refused: true},
		"back, before any node has moved": {spec: "rhel-10", status: "rhel-9", to: "rhel-9", refused: true},
		"back, from the default that it stayed on":            {status: "rhel-10", to: "rhel-9", refused: true},
		"forward, from the default":                           {status: "rhel-9", to: "rhel-10"},
		"back, from the default, before any node has arrived": {remembered: "rhel-10", to: "rhel-9", refused: true},
		"back, from a stream that the pool names no more":     {remembered: "rhel-10", status: "rhel-9", to: "rhel-9", refused: true},
		"forward, from what is remembered":                    {remembered: "rhel-9", status: "rhel-9", to: "rhel-10"},
		"back, in the other spelling":                         {spec: "rhel-10", to: "rhel9-coreos", refused: true},
		"the same version in the other spelling":              {spec: "rhel-9", to: "rhel9-coreos"},
		"to a stream without a version":                       {spec: "rhel-10", to: "fedora-coreos"},
		"from a stream without a version":                     {spec: "fedora-coreos", to: "rhel-9"},
		"no stream any more":                                  {spec: "rhel-10", status: "rhel-10"},
		"from nothing":                                        {to: "rhel-9"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := pool("worker", worker)
			if test.spec != "" {
				require.NoError(t, unstructured.SetNestedField(before.Object, test.spec, "spec", "osImageStream", "name"))
			}
			if test.remembered != "" {
				before.SetAnnotations(map[string]string{"machineconfiguration.openshift.io/remembered-os-image-stream": test.remembered})
			}
			var made *unstructured.Unstructured
			require.EventuallyWithT(t, func(c *assert.CollectT) { // the restored status has to arrive
				var err error
				made, err = client.Resource(pools).Create(t.Context(), before, metav1.CreateOptions{})
				assert.NoError(c, err)
			}, enforced, tick)
			t.Cleanup(func() {
				assert.NoError(t, client.Resource(pools).Delete(context.WithoutCancel(t.Context()), "worker", metav1.DeleteOptions{}))
			})
			if test.status != "" {
				require.NoError(t, unstructured.SetNestedField(made.Object, test.status, "status", "osImageStream", "name"))
				var err error
				made, err = client.Resource(pools).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			if test.to == "" {
				unstructured.RemoveNestedField(made.Object, "spec", "osImageStream")
			} else {
				require.NoError(t, unstructured.SetNestedField(made.Object, test.to, "spec", "osImageStream", "name"))
			}
			_, err := client.Resource(pools).Update(t.Context(), made, metav1.UpdateOptions{})
			if !test.refused {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "spec.osImageStream.name must not name a stream of an older major version than the pool's: '"+
				test.to+"' is older than 'rhel-10', and nodes cannot go back; move them to a new pool and install them again")
		})
	}
}

func testPlatforms(t *testing.T, client dynamic.Interface) {
	t.Helper()
	manages := func(resource, group, mode string) *unstructured.Unstructured {
		return object(t, `
apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  managedBootImages:
    machineManagers: [{resource: `+resource+`, apiGroup: `+group+`, selection: {mode: `+mode+`}}]`)
	}
	machineSets := manages("machinesets", "machine.openshift.io", "All")
	require.NoError(t, dryRun(t.Context(), client, configurations, machineSets), "no Infrastructure yet")
	infrastructure, err := client.Resource(infrastructures).Create(t.Context(), object(t, `
apiVersion: config.openshift.io/v1
kind: Infrastructure
metadata: {name: cluster}
spec: {platformSpec: {type: None}}`), metav1.CreateOptions{})
	require.NoError(t, err)
	const machineSetsOnly, controlPlane = "AWS, Azure, GCP, VSphere", "AWS, Azure, GCP"
	for _, test := range []struct{ platform, machineSets, controlPlane string }{
		{platform: "None", machineSets: machineSetsOnly, controlPlane: controlPlane},
		{platform: "VSphere", controlPlane: controlPlane},
		{platform: "AWS"},
		{platform: "BareMetal", machineSets: machineSetsOnly, controlPlane: controlPlane},
		{platform: "GCP"},
		{platform: "OpenStack", machineSets: machineSetsOnly, controlPlane: controlPlane},
		{platform: "Azure"},
	} {
		require.NoError(t, unstructured.SetNestedField(infrastructure.Object, test.platform, "status", "platformStatus", "type"))
		infrastructure, err = client.Resource(infrastructures).UpdateStatus(t.Context(), infrastructure, metav1.UpdateOptions{})
		require.NoError(t, err)
		for manager, supported := range map[*unstructured.Unstructured]string{
			machineSets: test.machineSets,
			manages("controlplanemachinesets", "machine.openshift.io", "All"): test.controlPlane,
			manages("machinesets", "machine.openshift.io", "None"):            "",
			manages("machinesets", "cluster.x-k8s.io", "All"):                 "",
			configuration("cluster"):                                          "",
		} {
			if supported != "" {
				eventuallyRefused(t, "This feature is only supported on these platforms: "+supported+"; spec.managedBootImages asks for",
					func(ctx context.Context) error { return dryRun(ctx, client, configurations, manager) })
				continue
			}
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				assert.NoError(c, dryRun(t.Context(), client, configurations, manager), test.platform)
			}, enforced, tick)
		}
	}
}

// testMissingKind takes a copy of the policy whose kind of parameters does not exist. With
// failurePolicy Fail it refuses everything, so that one knows it to be in force; as it is shipped,
// it lets everything pass.
func testMissingKind(t *testing.T, client dynamic.Interface) {
	t.Helper()
	policies := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"})
	bindings := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"})
	objects := install.Objects(t, install.Path(t, "deploy/policies/boot-image-platforms.yaml"))
	require.Len(t, objects, 2)
	policy, binding := objects[0], objects[1]
	shipped, _, err := unstructured.NestedString(policy.Object, "spec", "failurePolicy")
	require.NoError(t, err)
	policy.SetName("missing-kind")
	binding.SetName("missing-kind")
	require.NoError(t, unstructured.SetNestedField(policy.Object, "Missing", "spec", "paramKind", "kind"))
	require.NoError(t, unstructured.SetNestedField(policy.Object, "Fail", "spec", "failurePolicy"))
	require.NoError(t, unstructured.SetNestedField(binding.Object, "missing-kind", "spec", "policyName"))
	policy, err = policies.Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = bindings.Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	eventuallyRefused(t, "missing-kind", func(ctx context.Context) error {
		return dryRun(ctx, client, configurations, configuration("cluster"))
	})
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		policy, err = policies.Get(t.Context(), "missing-kind", metav1.GetOptions{})
		if assert.NoError(c, err) && assert.NoError(c, unstructured.SetNestedField(policy.Object, shipped, "spec", "failurePolicy")) {
			_, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{})
			assert.NoError(c, err)
		}
	}, enforced, tick)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, dryRun(t.Context(), client, configurations, configuration("cluster")))
	}, enforced, tick)
}

// testExamples asks whether every example, and YAML written for OpenShift, passes the policies.
func testExamples(t *testing.T, config *rest.Config, client dynamic.Interface) {
	t.Helper()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config)))
	for _, folder := range []string{"deploy/examples", "test/api/testdata/openshift"} {
		for _, object := range install.Objects(t, install.Path(t, folder)) {
			kind := object.GroupVersionKind()
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			require.NoError(t, err)
			body, err := object.MarshalJSON()
			require.NoError(t, err)
			resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
			if namespace := object.GetNamespace(); namespace != "" {
				ensureNamespace(t, client, namespace)
				resource = client.Resource(mapping.Resource).Namespace(namespace)
			}
			_, err = resource.Patch(t.Context(), object.GetName(), "application/apply-patch+yaml", body, metav1.PatchOptions{
				FieldManager: "test", Force: new(true), FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
			})
			require.NoError(t, err, "%s %s", object.GetKind(), object.GetName())
		}
	}
}

// ensureNamespace makes a namespace, unless there is one.
func ensureNamespace(t *testing.T, client dynamic.Interface, name string) {
	t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), namespace, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

// infrastructureKind is OpenShift's, as it is published.
func infrastructureKind(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)),
		"config/v1/zz_generated.crd-manifests/*_infrastructures*Default.crd.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var definition apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(content, &definition))
	definition.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	return &definition
}

// eventuallyRefused tries until the API server enforces what it was told.
func eventuallyRefused(t *testing.T, message string, try func(context.Context) error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.ErrorContains(c, try(t.Context()), message) }, enforced, tick)
}

// dryRun asks whether an object could be created.
func dryRun(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource, object *unstructured.Unstructured) error {
	_, err := client.Resource(resource).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := install.Decode([]byte(text))
	require.NoError(t, err)
	require.Len(t, objects, 1)
	return objects[0]
}

func configuration(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
}

func pool(name, selector string) *unstructured.Unstructured {
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(selector), &parsed); err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"machineConfigSelector": parsed},
	}}
}
