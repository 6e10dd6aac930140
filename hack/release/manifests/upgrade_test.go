package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestUpgradesInPlace compares what a release installs with what earlier ones did, in testdata:
// what kubectl apply can't change, or does not remove. Where that can't be helped, docs/upgrade.md
// says what to do, and the line of the earlier release goes.
func TestUpgradesInPlace(t *testing.T) {
	t.Parallel()
	var now []string
	for name, object := range built(t, onKubernetes()) {
		now = append(now, lasting(t, name, object)...)
	}
	earlier, err := filepath.Glob(filepath.Join("testdata", "v*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, earlier)
	for _, file := range earlier {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(content)) {
			assert.True(t, slices.Contains(now, strings.TrimSpace(line)), "%s: not in this release: %s", file, line)
		}
	}
}

// lasting is what of an object stays as it was installed first.
func lasting(t *testing.T, name string, object map[string]any) (lines []string) {
	t.Helper()
	add := func(path ...string) {
		value, found, err := unstructured.NestedFieldNoCopy(object, path...)
		require.NoError(t, err)
		require.True(t, found, "%s: %v", name, path)
		text, err := json.Marshal(value)
		require.NoError(t, err)
		lines = append(lines, fmt.Sprintf("%s: %s %s", name, strings.Join(path, "."), text))
	}
	switch kind, _, _ := strings.Cut(name, " "); kind {
	case "Deployment", "DaemonSet":
		add("spec", "selector")
	case "RoleBinding", "ClusterRoleBinding":
		add("roleRef")
	case "CustomResourceDefinition":
		add("spec", "scope")
		add("spec", "names", "kind")
		versions, _, err := unstructured.NestedSlice(object, "spec", "versions")
		require.NoError(t, err)
		for _, v := range versions {
			version, _, _ := unstructured.NestedString(v.(map[string]any), "name")
			lines = append(lines, name+": version "+version)
		}
	default:
		lines = []string{name + ": is there"}
	}
	return lines
}
