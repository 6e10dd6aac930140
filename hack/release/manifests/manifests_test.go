package manifests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var released = Options{Version: "v0.1.0", Images: map[string]string{
	ControllerImage: "registry.example.com/lw/controller@sha256:1111111111111111111111111111111111111111111111111111111111111111",
	AgentImage:      "registry.example.com/lw/agent@sha256:2222222222222222222222222222222222222222222222222222222222222222",
	BuilderImage:    "registry.example.com/lw/builder@sha256:3333333333333333333333333333333333333333333333333333333333333333",
}}

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, Write(dir, released))
	content, err := os.ReadFile(filepath.Join(dir, "install.yaml"))
	require.NoError(t, err)
	for _, image := range released.Images {
		require.Contains(t, string(content), image)
	}
	require.NotContains(t, string(content), "ghcr.io/layerwright")
}
