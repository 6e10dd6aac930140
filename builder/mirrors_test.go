package builder

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/poolmirrors"
	"github.com/layerwright/layerwright/internal/registry/mirrorsets"
)

// gone is a registry that no one reaches.
const gone = "127.0.0.1:1"

var contentPolicies = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}

// mirroring reads through mirrors.
func (w *world) mirroring(o *settings) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(contentPolicies, meta.RESTScopeRoot)
	sets, err := mirrorsets.New(mapper, w, w, namespace)
	require.NoError(w.t, err)
	o.Mirrors = poolmirrors.New(sets, w, w)
}

// disconnected is a world whose OS image is of a registry that no one reaches. The world's own has
// it.
func disconnected(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.base = strings.Replace(w.base, w.registry.host+"/stream", gone+"/release", 1)
	return w
}

func (w *world) requireBuilt() {
	w.t.Helper()
	require.Equal(w.t, "True Succeeded", w.says("worker", "Ready"))
	image := string(w.builds()[0].Status.DigestedImagePushSpec)
	assert.Equal(w.t, "one", w.unpacked(image, "amd64", "etc/motd"))
	assert.Equal(w.t, w.base, string(w.images()[0].Spec.BaseOSImagePullSpec), "it keeps its name")
}

// TestRegistriesConfOfThePool appends to an image that only a mirror of registries.conf has.
func TestRegistriesConfOfThePool(t *testing.T) {
	t.Parallel()
	w := disconnected(t)
	conf := "[[registry]]\nlocation = \"" + gone + "/release\"\nblocked = true\n[[registry.mirror]]\nlocation = \"" + w.registry.host + "/stream\"\n"
	rendered := w.rendered("worker", "1", "/etc/motd", "one")
	rendered.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/etc/motd","contents":{"source":"data:,one"}},
		{"path":"/etc/containers/registries.conf.d/10-mirrors.conf","contents":{"source":"data:,` + url.PathEscape(conf) + `"}}]}}`)
	w.add(rendered, newPool("worker", "rendered-worker-1"), w.config("worker"))
	w.settle(w.builder(w.mirroring))
	w.requireBuilt()
}

// TestMirrorsThatComeLater has a MachineOSConfig wait for an ImageContentSourcePolicy.
func TestMirrorsThatComeLater(t *testing.T) {
	t.Parallel()
	w := disconnected(t)
	w.add(w.rendered("worker", "1", "/etc/motd", "one"), newPool("worker", "rendered-worker-1"), w.config("worker"))
	b := w.builder(w.mirroring)
	_, err := w.reconcileConfig(b, "worker")
	require.ErrorContains(t, err, gone)
	require.Empty(t, w.builds())

	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"repositoryDigestMirrors": []any{
		map[string]any{"source": gone + "/release", "mirrors": []any{w.registry.host + "/stream"}},
	}}}}
	policy.SetGroupVersionKind(contentPolicies)
	policy.SetName("release")
	w.add(policy)
	w.settle(b)
	w.requireBuilt()
}

func TestRegistriesConfThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(w.rendered("worker", "1", "/etc/containers/registries.conf", "[[registry]"), newPool("worker", "rendered-worker-1"), w.config("worker"))
	w.settle(w.builder(w.mirroring))
	assert.Contains(t, w.says("worker", "Ready"), "False InvalidMachineConfig")
	assert.Empty(t, w.builds())
}

// TestBuildsReadDropIns gives the build what nodes read of registries, as one file.
func TestBuildsReadDropIns(t *testing.T) {
	t.Parallel()
	w, s, backed := withContent(t, cheapFile)
	file := func(name, registry string) string {
		return fmt.Sprintf(`,{"path":"/etc/containers/%s","contents":{"source":"data:,%s"}}`, name, url.PathEscape("[[registry]]\nlocation = \""+registry+"\"\n"))
	}
	w.change(w.with("2", file("registries.conf", "one.example.com")+file("registries.conf.d/10.conf", "two.example.com"), ""))
	var conf string
	s.says = func(spec backend.Spec) backend.State {
		conf = string(spec.Registries)
		return backend.State{Phase: backend.Succeeded}
	}
	w.settle(w.builder(backed, w.mirroring))
	assert.Contains(t, conf, "one.example.com")
	assert.Contains(t, conf, "two.example.com")
}
