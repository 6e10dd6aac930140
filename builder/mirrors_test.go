package builder_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/test/worldtest"
)

// gone is a registry that no one reaches.
const gone = "127.0.0.1:1"

// disconnected is a world whose OS image is of a registry that no one reaches. The world's own has
// it.
func disconnected(t *testing.T) *worldtest.World {
	t.Helper()
	w := worldtest.New(t)
	w.Base = strings.Replace(w.Base, w.Registry.Host+"/stream", gone+"/release", 1)
	return w
}

func requireBuilt(w *worldtest.World) {
	w.T.Helper()
	require.Equal(w.T, "True Succeeded", w.Says("worker", "Ready"))
	image := string(w.Builds()[0].Status.DigestedImagePushSpec)
	assert.Equal(w.T, "one", w.Unpacked(image, "amd64", "etc/motd"))
	assert.Equal(w.T, w.Base, string(w.Images()[0].Spec.BaseOSImagePullSpec), "it keeps its name")
}

// TestRegistriesConfOfThePool appends to an image that only a mirror of registries.conf has.
func TestRegistriesConfOfThePool(t *testing.T) {
	t.Parallel()
	w := disconnected(t)
	conf := "[[registry]]\nlocation = \"" + gone + "/release\"\nblocked = true\n[[registry.mirror]]\nlocation = \"" + w.Registry.Host + "/stream\"\n"
	rendered := w.Rendered("worker", "1", "/etc/motd", "one")
	rendered.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/etc/motd","contents":{"source":"data:,one"}},
		{"path":"/etc/containers/registries.conf.d/10-mirrors.conf","contents":{"source":"data:,` + url.PathEscape(conf) + `"}}]}}`)
	w.Add(rendered, worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	w.Settle(w.Builder(w.Mirroring))
	requireBuilt(w)
}

// TestMirrorsThatComeLater has a MachineOSConfig wait for an ImageContentSourcePolicy.
func TestMirrorsThatComeLater(t *testing.T) {
	t.Parallel()
	w := disconnected(t)
	w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	b := w.Builder(w.Mirroring)
	_, err := w.ReconcileConfig(b, "worker")
	require.ErrorContains(t, err, gone)
	require.Empty(t, w.Builds())

	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"repositoryDigestMirrors": []any{
		map[string]any{"source": gone + "/release", "mirrors": []any{w.Registry.Host + "/stream"}},
	}}}}
	policy.SetGroupVersionKind(worldtest.ContentPolicies)
	policy.SetName("release")
	w.Add(policy)
	w.Settle(b)
	requireBuilt(w)
}

func TestRegistriesConfThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	w.Add(w.Rendered("worker", "1", "/etc/containers/registries.conf", "[[registry]"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	w.Settle(w.Builder(w.Mirroring))
	assert.Contains(t, w.Says("worker", "Ready"), "False InvalidMachineConfig")
	assert.Empty(t, w.Builds())
}

// TestBuildsReadDropIns gives the build what nodes read of registries, as one file.
func TestBuildsReadDropIns(t *testing.T) {
	t.Parallel()
	w, s, backed := worldtest.WithContent(t, worldtest.CheapFile)
	file := func(name, registry string) string {
		return fmt.Sprintf(`,{"path":"/etc/containers/%s","contents":{"source":"data:,%s"}}`, name, url.PathEscape("[[registry]]\nlocation = \""+registry+"\"\n"))
	}
	w.Change(w.With("2", file("registries.conf", "one.example.com")+file("registries.conf.d/10.conf", "two.example.com"), ""))
	var conf string
	s.Says = func(spec backend.Spec) backend.State {
		conf = string(spec.Registries)
		return backend.State{Phase: backend.Succeeded}
	}
	w.Settle(w.Builder(backed, w.Mirroring))
	assert.Contains(t, conf, "one.example.com")
	assert.Contains(t, conf, "two.example.com")
}
