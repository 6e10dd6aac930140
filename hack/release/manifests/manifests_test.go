package manifests

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/hack/release/images"
)

var released = Options{Version: "v0.1.0", Images: map[string]string{
	images.Controller: "registry.example.com/lw/controller@sha256:1111111111111111111111111111111111111111111111111111111111111111",
	images.Agent:      "registry.example.com/lw/agent@sha256:2222222222222222222222222222222222222222222222222222222222222222",
	images.Builder:    "registry.example.com/lw/builder@sha256:3333333333333333333333333333333333333333333333333333333333333333",
}}

// byName are objects by kind, namespace and name, as they are in JSON.
type byName map[string]map[string]any

func (b byName) add(t *testing.T, text string) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object), document)
		if len(object.Object) == 0 {
			continue
		}
		name := strings.Join([]string{object.GetKind(), object.GetNamespace(), object.GetName()}, " ")
		require.NotContains(t, b, name, "every object is there once")
		b[name] = object.Object
	}
}

// installed are the objects of a file that Write wrote.
func installed(t *testing.T, path string) byName {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	all := byName{}
	all.add(t, string(content))
	return all
}

// built are the objects of a kustomization.
func built(t *testing.T, k kustomization) byName {
	t.Helper()
	objects, err := build(k)
	require.NoError(t, err)
	text, err := encode(released.setImages(objects))
	require.NoError(t, err)
	all := byName{}
	all.add(t, string(text))
	return all
}

// rendered are the objects of a release of the chart, as Helm renders them.
func rendered(t *testing.T, chart *helmchart.Chart, namespace string, values map[string]any) (byName, error) {
	t.Helper()
	filled, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "lw", Namespace: namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, filled)
	require.NoError(t, err)
	all := byName{}
	for name, text := range files {
		if filepath.Ext(name) == ".yaml" {
			all.add(t, text)
		}
	}
	return all, nil
}

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, Write(dir, released))
	chart, err := loader.Load(filepath.Join(dir, "layerwright-0.1.0.tgz"))
	require.NoError(t, err)
	require.NoError(t, chart.Validate())

	t.Run("names images by digest alone", func(t *testing.T) {
		t.Parallel()
		for _, file := range []string{"install.yaml", "install-openshift.yaml"} {
			content, err := os.ReadFile(filepath.Join(dir, file))
			require.NoError(t, err)
			assert.NotContains(t, string(content), "ghcr.io/layerwright", file)
			assert.Contains(t, string(content), released.Images[images.Controller], file)
			assert.Contains(t, string(content), released.Images[images.Builder], file)
			assert.Equal(t, file == "install.yaml", strings.Contains(string(content), released.Images[images.Agent]), file)
		}
	})
	t.Run("gives objects without a namespace none", func(t *testing.T) {
		t.Parallel()
		for name := range installed(t, filepath.Join(dir, "install-openshift.yaml")) {
			fields := strings.Split(name, " ")
			isClusters := strings.HasPrefix(fields[0], "Cluster") || strings.HasPrefix(fields[0], "ValidatingAdmission") ||
				fields[0] == "CustomResourceDefinition" || fields[0] == "SecurityContextConstraints"
			assert.Equal(t, isClusters, fields[1] == "", name)
		}
	})
	t.Run("the bundle gives the objects of install-openshift.yaml", func(t *testing.T) {
		t.Parallel()
		requireBundle(t, dir)
	})
	t.Run("the chart gives the objects of install.yaml", func(t *testing.T) {
		t.Parallel()
		got, err := rendered(t, chart, "layerwright", nil)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(withHelm(installed(t, filepath.Join(dir, "install.yaml"))), got))
	})
	t.Run("the chart with all components gives the objects of all", func(t *testing.T) {
		t.Parallel()
		k, values := onKubernetes(), map[string]any{}
		for _, component := range components {
			values[component.value] = map[string]any{"enabled": true}
			if component.value != "agent" && component.value != "signing" { // it has them
				k.Components = append(k.Components, component.folder)
			}
		}
		got, err := rendered(t, chart, "layerwright", values)
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(withHelm(built(t, k)), got))
	})
	t.Run("the chart lives in the namespace of its release", func(t *testing.T) {
		t.Parallel()
		got, err := rendered(t, chart, "os", map[string]any{"tekton": map[string]any{"enabled": true}})
		require.NoError(t, err)
		for name, object := range got {
			content, err := yaml.Marshal(object)
			require.NoError(t, err)
			if strings.HasPrefix(name, "ClusterRole ") { // it names the ClusterOperator
				continue
			}
			assert.NotRegexp(t, `(?m)(namespace:|metadata.name:|^ *-) layerwright$`, string(content), name)
		}
		assert.Contains(t, got, "Deployment os layerwright-controller")
	})
	t.Run("the chart takes what administrators change", func(t *testing.T) {
		t.Parallel()
		got, err := rendered(t, chart, "layerwright", map[string]any{
			"crds":             map[string]any{"install": false},
			"imagePullSecrets": []any{map[string]any{"name": "mirror"}},
			"controller":       map[string]any{"extraArgs": []any{"--zap={{ . }}"}, "resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}},
			"agent":            map[string]any{"enabled": false},
		})
		require.NoError(t, err)
		for name := range got {
			assert.NotContains(t, name, "CustomResourceDefinition")
			assert.NotContains(t, name, "layerwright layerwright-agent", "the policy of agents' writes may remain")
		}
		controller := &unstructured.Unstructured{Object: got["Deployment layerwright layerwright-controller"]}
		args, _ := container(controller)["args"].([]any)
		assert.Equal(t, "--zap={{ . }}", args[len(args)-1])
		assert.NotContains(t, args, "--agent-pull-secrets=layerwright-agent-pull-secrets")
		assert.Equal(t, map[string]any{"limits": map[string]any{"memory": "1Gi"}, "requests": map[string]any{"cpu": "10m", "memory": "48Mi"}}, container(controller)["resources"])
		assert.Equal(t, []any{map[string]any{"name": "mirror"}}, got["ServiceAccount layerwright layerwright-build"]["imagePullSecrets"])
	})
	t.Run("the chart refuses values that it does not know", func(t *testing.T) {
		t.Parallel()
		for message, values := range map[string]map[string]any{
			"'replicas' not allowed":   {"replicas": 2},
			"'tag' not allowed":        {"images": map[string]any{"tag": "v2"}},
			"got string, want boolean": {"signing": map[string]any{"enabled": "yes"}},
		} {
			_, err := rendered(t, chart, "layerwright", values)
			assert.ErrorContains(t, err, message)
		}
	})
}

// requireBundle compares what a bundle and install-olm-first.yaml give with install-openshift.yaml.
func requireBundle(t *testing.T, dir string) {
	t.Helper()
	want, got := installed(t, filepath.Join(dir, "install-openshift.yaml")), installed(t, filepath.Join(dir, "install-olm-first.yaml"))
	files, err := filepath.Glob(filepath.Join(dir, "bundle", "manifests", "*.yaml"))
	require.NoError(t, err)
	var csv struct {
		Spec struct {
			CustomResourceDefinitions struct{ Owned, Required []struct{ Name string } }
			Install                   struct {
				Spec struct {
					Deployments []struct {
						Name  string
						Label map[string]any
						Spec  any
					}
					ClusterPermissions, Permissions []struct {
						ServiceAccountName string
						Rules              []any
					}
				}
			}
		}
	}
	const namespace, account = "openshift-machine-config-operator", "layerwright-controller"
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(file, "clusterserviceversion") {
			require.NoError(t, yaml.Unmarshal(content, &csv))
			continue
		}
		var object unstructured.Unstructured
		require.NoError(t, yaml.Unmarshal(content, &object.Object))
		if kind := object.GetKind(); kind == "Service" || kind == "ServiceAccount" {
			object.SetNamespace(namespace) // as OLM does
		}
		text, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		got.add(t, string(text))
	}
	install := csv.Spec.Install.Spec
	require.Len(t, install.Deployments, 1)
	got["Deployment "+namespace+" "+install.Deployments[0].Name] = map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": install.Deployments[0].Spec,
		"metadata": map[string]any{"name": install.Deployments[0].Name, "namespace": namespace, "labels": install.Deployments[0].Label},
	}

	assert.Len(t, csv.Spec.CustomResourceDefinitions.Owned, 2)
	for _, required := range csv.Spec.CustomResourceDefinitions.Required { // OpenShift's own
		require.Contains(t, want, "CustomResourceDefinition  "+required.Name)
		delete(want, "CustomResourceDefinition  "+required.Name)
	}
	require.Contains(t, want, "ServiceAccount "+namespace+" "+account)
	delete(want, "ServiceAccount "+namespace+" "+account) // OLM makes it
	// Rights are rules of the account here, and roles with bindings there.
	for kind, permissions := range map[string][]any{"Role": install.Permissions[0].Rules, "ClusterRole": install.ClusterPermissions[0].Rules} {
		var rules []any
		for name, object := range want {
			if !strings.HasPrefix(name, kind+"Binding ") {
				continue
			}
			binding := unstructured.Unstructured{Object: object}
			role, _, _ := unstructured.NestedString(object, "roleRef", "name")
			of := strings.Join([]string{kind, binding.GetNamespace(), role}, " ")
			require.Contains(t, want, of)
			rules = append(rules, want[of]["rules"].([]any)...)
			delete(want, of)
			delete(want, name)
		}
		assert.ElementsMatch(t, rules, permissions, kind)
	}
	assert.Equal(t, account, install.Permissions[0].ServiceAccountName)
	assert.Equal(t, account, install.ClusterPermissions[0].ServiceAccountName)
	assert.Empty(t, cmp.Diff(want, got))
}

// withHelm makes of objects for kubectl what the chart is to give: all that may differ.
func withHelm(objects byName) byName {
	want := maps.Clone(objects)
	delete(want, "Namespace  layerwright") // Helm's user chooses and creates it
	for _, content := range want {
		object := &unstructured.Unstructured{Object: content}
		switch object.GetKind() {
		case "CustomResourceDefinition", "Secret": // uninstalling leaves them
			annotations := object.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["helm.sh/resource-policy"] = "keep"
			object.SetAnnotations(annotations)
		case "ServiceAccount":
			content["imagePullSecrets"] = []any{}
		}
	}
	// A namespace has no labels when Helm creates it.
	_ = unstructured.SetNestedMap(want["ValidatingAdmissionPolicyBinding  layerwright-pods"],
		map[string]any{"kubernetes.io/metadata.name": "layerwright"}, "spec", "matchResources", "namespaceSelector", "matchLabels")
	return want
}

func TestWriteIsReproducible(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, Write(first, released))
	require.NoError(t, Write(second, released))
	before, after := os.DirFS(first), os.DirFS(second)
	require.NoError(t, fs.WalkDir(before, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(before, name)
		require.NoError(t, err)
		got, err := fs.ReadFile(after, name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
		return nil
	}))
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	without := func(change func(map[string]string)) map[string]string {
		changed := maps.Clone(released.Images)
		change(changed)
		return changed
	}
	for message, options := range map[string]Options{
		`version "0.1.0" has to begin with v`:   {Version: "0.1.0", Images: released.Images},
		"no image is given for " + images.Agent: {Version: "v0.1.0", Images: without(func(m map[string]string) { delete(m, images.Agent) })},
		"deploy/ has no image docker.io/x":      {Version: "v0.1.0", Images: without(func(m map[string]string) { m["docker.io/x"] = "y" })},
	} {
		assert.ErrorContains(t, Write(t.TempDir(), options), message)
	}
}
