package api

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

// apply applies an object as `kubectl apply --server-side` does, refusing fields that the API
// server does not know.
func (s *server) apply(t *testing.T, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	body, err := object.MarshalJSON()
	require.NoError(t, err)
	resource := s.resource(t, object)
	applied, err := resource.Patch(t.Context(), object.GetName(), "application/apply-patch+yaml", body,
		metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict})
	if err == nil {
		t.Cleanup(func() { s.remove(t, applied) })
	}
	return applied, err
}

func TestExamplesApply(t *testing.T) {
	server := newServer(t)
	server.ensureNamespace(t, "layerwright")
	applyFolder(t, server, install.Path(t, "deploy/examples"))
}

func TestOpenShiftYAMLApplies(t *testing.T) {
	applyFolder(t, newServer(t), "testdata/openshift")
}

// applyFolder applies every file of a folder, one after the other, and checks that nothing of it is
// lost.
func applyFolder(t *testing.T, server *server, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			objects := install.Objects(t, file)
			owned := map[string]bool{}
			for _, object := range objects {
				if kind := object.GetKind(); !owned[kind] {
					server.own(t, kind)
					owned[kind] = true
				}
			}
			for _, object := range objects {
				applied, err := server.apply(t, object)
				require.NoError(t, err)
				assert.Subset(t, flatten("", jsonOf(t, applied.Object["spec"])), flatten("", jsonOf(t, object.Object["spec"])))
			}
		})
	}
}

// flatten lists every value of an object with its path.
func flatten(path string, value any) map[string]any {
	values := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			for p, v := range flatten(path+"."+key, item) {
				values[p] = v
			}
		}
	case []any:
		for i, item := range value {
			for p, v := range flatten(path+"."+string(rune('0'+i)), item) {
				values[p] = v
			}
		}
	default:
		values[path] = value
	}
	return values
}

// TestKustomizationApplies sends what an administrator applies with kubectl, as far as it is about
// kinds and policies, and has the API server say whether it could be: policies in force would
// disturb other tests.
func TestKustomizationApplies(t *testing.T) {
	newServer(t)
	// On Kubernetes one policy takes the place of a pod security level; OpenShift has other means.
	for overlay, policies := range map[string]int{"kubernetes": 14, "openshift": 13} {
		t.Run(overlay, func(t *testing.T) {
			built, err := exec.CommandContext(t.Context(), clustertest.Program(t, "kubectl"), "kustomize", install.Path(t, "deploy/overlays/"+overlay)).Output()
			require.NoError(t, err)
			objects, err := install.Decode(built)
			require.NoError(t, err)
			kinds := map[string]int{}
			var manifest bytes.Buffer
			for _, object := range objects {
				switch kind := object.GetKind(); kind {
				case "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
					kinds[kind]++
					body, err := object.MarshalJSON()
					require.NoError(t, err)
					fmt.Fprintf(&manifest, "%s\n---\n", body)
				}
			}
			assert.Equal(t, map[string]int{
				"CustomResourceDefinition": 9, "ValidatingAdmissionPolicy": policies, "ValidatingAdmissionPolicyBinding": policies,
			}, kinds)
			file := filepath.Join(t.TempDir(), "manifest.yaml")
			require.NoError(t, os.WriteFile(file, manifest.Bytes(), 0o600))
			runKubectl(t, "apply", "--dry-run=server", "-f", file)
			runKubectl(t, "apply", "--dry-run=server", "--server-side", "--force-conflicts", "-f", file)
		})
	}
}

// runKubectl runs kubectl against the test's API server.
func runKubectl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), clustertest.Program(t, "kubectl"), append([]string{"--kubeconfig", clustertest.Kubeconfig(t)}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
