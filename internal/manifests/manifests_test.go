package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/manifests"
)

const machineConfig = `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-motd
spec:
  kernelArguments: [nosmt]
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
      - path: /etc/motd
        mode: 0644
        contents: {source: "data:,hello"}
`

const configMap = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}, "data": {"Containerfile": "FROM configs"}}`

func newReader(t *testing.T) *manifests.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, mcfgv1.AddToScheme(scheme))
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{})
	return &manifests.Reader{Scheme: scheme}
}

// write puts files into a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

func names(set *manifests.Set) (names []string) {
	for _, object := range set.Objects {
		names = append(names, object.GetName())
	}
	return names
}

func TestReadTakesFoldersListsAndStandardInput(t *testing.T) {
	t.Parallel()
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(machineConfig, "50-motd", "60-motd")), "\n", "\n  ") +
		"\n- " + strings.ReplaceAll(configMap, "extra", "more")
	dir := write(t, map[string]string{
		"b.yaml":             "---\n# nothing\n---\n" + machineConfig + "\n---\n" + configMap + "\n---\n",
		"a.json":             strings.ReplaceAll(configMap, "extra", "first"),
		"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [b.yaml]\n",
		"notes.txt":          "not YAML: [",
		"c.yml":              "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: layerwright\n",
		"below/d.yaml":       "not YAML: [",
	})
	reader := newReader(t)
	reader.Stdin = strings.NewReader(list)
	set, err := reader.Read([]string{dir, manifests.Stdin})
	require.NoError(t, err)
	assert.Equal(t, []string{"first", "50-motd", "extra", "60-motd", "more"}, names(set))
	require.Len(t, set.Others, 1)
	assert.Contains(t, set.Others[0], `Namespace "layerwright" of "`+filepath.Join(dir, "c.yml")+`", document 1`)

	mc, ok := set.Objects[1].(*mcfgv1.MachineConfig)
	require.True(t, ok)
	assert.Equal(t, []string{"nosmt"}, mc.Spec.KernelArguments)
	assert.JSONEq(t, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","mode":420,"contents":{"source":"data:,hello"}}]}}`,
		string(mc.Spec.Config.Raw))
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		content string
		want    []string
	}{
		"no YAML":                 {content: "a: [", want: []string{`x.yaml", document 1`}},
		"no object":               {content: "ignition:\n  version: 3.5.0\n", want: []string{"document 1", "no apiVersion and kind"}},
		"a kind without version":  {content: "kind: MachineConfig\n", want: []string{"no apiVersion and kind"}},
		"not even a map":          {content: "- a\n- b\n", want: []string{"document 1"}},
		"a field no one knows":    {content: machineConfig + "  kernelArgument: [quiet]\n", want: []string{`MachineConfig "50-motd"`, "spec.kernelArgument"}},
		"a field of another type": {content: strings.Replace(machineConfig, "[nosmt]", "nosmt", 1), want: []string{`MachineConfig "50-motd"`}},
		"a key twice":             {content: machineConfig + "kind: MachineConfig\n", want: []string{"kind"}},
		"an object twice":         {content: machineConfig + "---\n" + machineConfig, want: []string{"document 2", `MachineConfig "50-motd" is in`, "document 1 too"}},
		"a list of what is none":  {content: "apiVersion: v1\nkind: List\nitems: [1]\n", want: []string{"document 1"}},
		"a list as an object":     {content: "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigList\nmetadata: {}\n", want: []string{"document 1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := write(t, map[string]string{"x.yaml": tt.content})
			_, err := newReader(t).Read([]string{filepath.Join(dir, "x.yaml")})
			require.Error(t, err)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestReadNamesMissingFiles(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	tests := map[string]struct{ name, want string }{
		"a file":              {name: filepath.Join(empty, "x.yaml"), want: "no such file"},
		"files in a folder":   {name: empty, want: "no .yaml, .yml or .json file"},
		"standard input":      {name: manifests.Stdin, want: "there is none"},
		"a name without text": {name: "", want: "no such file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newReader(t).Read([]string{tt.name})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(machineConfig + "---\n" + configMap)
	f.Add("apiVersion: v1\nkind: List\nitems: [{}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		reader := newReader(t)
		reader.Stdin = strings.NewReader(text)
		set, err := reader.Read([]string{manifests.Stdin})
		if err == nil {
			for _, object := range set.Objects {
				require.NotNil(t, object)
			}
		}
	})
}
