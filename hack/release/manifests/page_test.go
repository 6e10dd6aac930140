package manifests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/layerwright/layerwright/test/install"
	"github.com/layerwright/layerwright/test/installpage"
)

// TestKustomizationOfInstallPage builds what docs/install.md has people put beside a release's
// manifests. test/e2e/install does all that the page says, on a cluster.
func TestKustomizationOfInstallPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(install.Path(t, "docs/install.md"))
	require.NoError(t, err)
	page := installpage.Read(string(text))
	dir := t.TempDir()
	require.NoError(t, Write(dir, released))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(page.Files["kustomization.yaml"]), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	content, err := built.AsYaml()
	require.NoError(t, err)
	got := byName{}
	got.add(t, string(content))
	assert.Len(t, got, len(installed(t, filepath.Join(dir, "install.yaml"))))
	for _, account := range []string{"agent", "build", "controller"} {
		assert.Equal(t, []any{map[string]any{"name": "mirror"}}, got["ServiceAccount layerwright layerwright-"+account]["imagePullSecrets"])
	}
	assert.Contains(t, string(content), "name: SSL_CERT_FILE")
}
