package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

func testFacts() facts {
	f := newFacts("registry.a.test:5000/os/base:full", "registry.a.test:5000/os/worker")
	f.Motd = dataURL("Welcome to a worker, changed at 10:00:00.\n")
	return f
}

func TestObjectsAreWrittenForThisCluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "demo")
	texts, err := writeAll(dir, testFacts())
	require.NoError(t, err)
	require.Len(t, texts, 4)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for i, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		require.NoError(t, err)
		require.Equal(t, texts[i], string(content), "what is applied is what is in the file")
	}

	var config mcfgv1.MachineOSConfig
	require.NoError(t, yaml.UnmarshalStrict([]byte(texts[3]), &config))
	assert.Equal(t, configName, config.Name)
	assert.Equal(t, poolName, config.Spec.MachineConfigPool.Name)
	assert.Equal(t, "registry.a.test:5000/os/worker:latest", string(config.Spec.RenderedImagePushSpec))
	assert.Equal(t, "registry.a.test:5000/os/base:full", string(config.Spec.BaseOSImagePullSpec))
	assert.Equal(t, "registry-push", config.Spec.RenderedImagePushSecret.Name)

	assert.Empty(t, config.Spec.PostBuildStrategy)
	buildOnly := testFacts()
	buildOnly.BuildOnly = true
	text, err := write(t.TempDir(), configFile, buildOnly)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &config))
	assert.Equal(t, mcfgv1.ImagePushOnly, config.Spec.PostBuildStrategy)

	var pool mcfgv1.MachineConfigPool
	require.NoError(t, yaml.UnmarshalStrict([]byte(texts[2]), &pool))
	for _, text := range texts[:2] {
		var mc mcfgv1.MachineConfig
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &mc))
		assert.Equal(t, pool.Spec.MachineConfigSelector.MatchLabels, mc.Labels, "the pool selects it")
		_, err := machineconfigs.Parse(&mc)
		require.NoError(t, err)
	}
	assert.Contains(t, texts[0], `source: "data:,Welcome%20to%20a%20worker%2C%20changed%20at%2010:00:00.%0A"`)
}

func TestRewritingKeepsForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before, err := writeAll(dir, testFacts())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte("x"), 0o600))
	f := testFacts()
	f.Motd = dataURL("other")
	text, err := write(dir, motdFile, f)
	require.NoError(t, err)
	require.NotEqual(t, before[0], text)
	after, err := writeAll(dir, f)
	require.NoError(t, err)
	require.Equal(t, text, after[0])
	require.Equal(t, before[1:], after[1:])
	require.FileExists(t, filepath.Join(dir, "mine.yaml"))
}
