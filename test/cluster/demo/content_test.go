package demo

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/test/fixtures"
)

func TestContentConfigMap(t *testing.T) {
	t.Parallel()
	f := testFacts()
	f.Package = base64.StdEncoding.EncodeToString([]byte("a package"))
	dir := t.TempDir()
	text, err := write(dir, imageFile, f)
	require.NoError(t, err)
	var configMap corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &configMap))
	assert.Equal(t, "layerwright", configMap.Namespace)
	assert.Equal(t, map[string][]byte{"hello.deb": []byte("a package")}, configMap.BinaryData)
	assert.Equal(t, configMap.Data["Containerfile"], containerfileIn(text)+"\n")
	_, findings := lint.Check("Containerfile", []byte(configMap.Data["Containerfile"]),
		lint.Options{Architecture: mcfgv1.Amd64, Context: configMap.BinaryData})
	assert.Empty(t, findings, "what is shown to people is as it should be")

	text, err = write(dir, configFile, f)
	require.NoError(t, err)
	var config mcfgv1.MachineOSConfig
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &config))
	require.Len(t, config.Spec.Containerfile, 1)
	assert.Equal(t, configMap.Name, config.Spec.Containerfile[0].ConfigMapRef.Name)
}

func TestWhereContentIsLeftOut(t *testing.T) {
	t.Parallel()
	assert.Empty(t, whyNoContent(true, fixtures.Full))
	assert.Contains(t, whyNoContent(false, fixtures.Full), "has no node to run one")
	assert.Contains(t, whyNoContent(true, fixtures.Tiny), "the tiny OS image has no dpkg")
}

func TestStepsOfABuild(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) time.Time {
		return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	var s steps
	assert.Equal(t, "none: the registry has what the Containerfile makes", s.took(at(9)))
	for i, said := range []string{
		"Pending: what builds the image has been created", "Building: step fetch", "Building: step fetch, 12 of 590 MB: pulling a",
		"Building: step build, instruction 2 of 3: Containerfile line 2: RUN push things", "Building: step export", "Building: step push, 0 of 1 MB",
	} {
		s.see(said, at(float64(i)))
	}
	assert.Equal(t, "fetch 2.0 s, build 1.0 s, export 1.0 s, push 500 ms", s.took(at(5.5)))
}
