package toolchain

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTektonManifests(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "100-namespace"), 0o700))
	for path, text := range map[string]string{
		"100-namespace/namespace.yaml": "kind: Namespace\n", "events.yaml": "image: ko://github.com/tektoncd/pipeline/cmd/events\n",
		"controller.yaml": "args: [-nop-image, ko://github.com/tektoncd/pipeline/cmd/nop]\n", "flags.yaml": "running-in-environment-with-injected-sidecars: \"true\"\nset-security-context: \"false\"\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, path), []byte(text), 0o600))
	}
	text, err := tektonManifests(folder, map[string]string{"nop": "layerwright.test/nop:1"})
	require.NoError(t, err)
	require.Equal(t, "---\nkind: Namespace\n\n---\nargs: [-nop-image, layerwright.test/nop:1]\n\n---\nrunning-in-environment-with-injected-sidecars: \"false\"\nset-security-context: \"true\"\n\n", string(text))
	_, err = tektonManifests(folder, nil)
	require.ErrorContains(t, err, "images without a program: [nop]")
}
