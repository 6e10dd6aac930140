package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	releases "github.com/layerwright/layerwright/hack/release/images"
)

func TestOverlays(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, o *Overlay) map[string]string {
		t.Helper()
		dir := t.TempDir()
		o.values.Base, o.values.Components = "../base", "../components"
		require.NoError(t, o.write(dir))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		texts := map[string]string{}
		for _, entry := range entries {
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
			var object map[string]any
			require.NoError(t, yaml.Unmarshal(text, &object), entry.Name())
			texts[entry.Name()] = string(text)
		}
		return texts
	}
	controller, builder := Image{Tag: "layerwright.test/layerwright:dev-1"}, Image{Tag: "layerwright.test/layerwright-builder:dev-1"}
	t.Run("a pod may reach the registry and trusts it", func(t *testing.T) {
		t.Parallel()
		images := Images{Controller: controller, Builder: builder, Agent: Image{Tag: "layerwright.test/layerwright-agent:dev-2"}}
		texts := read(t, Pods(images, Playground{RegistryPort: 5001, Tekton: true}))
		require.Contains(t, texts["kustomization.yaml"], "- name: "+releases.Agent+"\n  newName: layerwright.test/layerwright-agent\n  newTag: dev-2\n")
		require.Contains(t, texts["kustomization.yaml"], "- ../base\n- registry-policy.yaml\n")
		require.Contains(t, texts["kustomization.yaml"], "components:\n- ../components/signing\n- ../components/tekton\n")
		require.Contains(t, texts["kustomization.yaml"], "- name: "+releases.Controller+"\n  newName: layerwright.test/layerwright\n  newTag: dev-1\n")
		require.Contains(t, texts["kustomization.yaml"], "SSL_CERT_FILE")
		require.Contains(t, texts["registry-policy.yaml"], "- {port: 5001, protocol: TCP}")
	})
	t.Run("nodes without roots of their own have no agent", func(t *testing.T) {
		t.Parallel()
		texts := read(t, Pods(Images{Controller: controller, Builder: builder}, Playground{RegistryPort: 5001}))
		require.NotContains(t, texts["kustomization.yaml"], releases.Agent)
		require.NotContains(t, texts["kustomization.yaml"], "tekton")
		require.Contains(t, texts["kustomization.yaml"], "$patch: delete\n    apiVersion: apps/v1\n    kind: DaemonSet\n")
	})
	t.Run("a process needs nothing that wants a pod", func(t *testing.T) {
		t.Parallel()
		texts := read(t, Process())
		require.Len(t, texts, 1)
		require.Contains(t, texts["kustomization.yaml"], "components:\n- ../components/signing\n")
		require.Equal(t, 4, strings.Count(texts["kustomization.yaml"], "$patch: delete"))
	})
}
