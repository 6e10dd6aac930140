package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	t.Setenv(nodeNameEnv, "")
	tests := map[string]struct {
		args []string
		says string
	}{
		"without a node":              {nil, "layerwright-agent: --node-name is needed, or $NODE_NAME\n"},
		"a root that is no path":      {[]string{"--node-name=a", "--host-root=host"}, "layerwright-agent: --host-root \"host\": must be an absolute path\n"},
		"an address without a port":   {[]string{"--node-name=a", "--metrics-bind-address=localhost"}, "layerwright-agent: --metrics-bind-address \"localhost\": must be host:port, :port, or 0 to turn it off\n"},
		"an argument that is no flag": {[]string{"run"}, "layerwright-agent: unknown command \"run\" for \"layerwright-agent\"\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, tt.args...)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, stdout)
			assert.Equal(t, tt.says, stderr)
		})
	}
}

func TestHelpTeaches(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "--help")
	assert.Equal(t, exitOK, code)
	for _, word := range []string{"--node-name", "$NODE_NAME", "/var/lib/layerwright/agent", "loopback", "Examples:"} {
		assert.Contains(t, stdout, word)
	}
}

func TestAClusterThatCantBeReached(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"kind":"Config","apiVersion":"v1","current-context":"a",
		"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}]}`), 0o600))
	code, _, stderr := run(t, "--node-name=a", "--kubeconfig="+kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-level=error")
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "layerwright-agent: reaching the API server at https://127.0.0.1:1: ")
	assert.Len(t, bytes.Split([]byte(stderr), []byte("\n")), 2, "one line")
}

func TestBootIDIsTheHosts(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	own, err := bootID(root)
	require.NoError(t, err)
	assert.NotEmpty(t, own, "a root without /proc has that of this process")
	at := filepath.Join(root, bootIDPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.WriteFile(at, []byte("boot-7\n"), 0o600))
	id, err := bootID(root)
	require.NoError(t, err)
	assert.Equal(t, "boot-7", id)
}

func TestTheCacheHasOneNode(t *testing.T) {
	t.Parallel()
	options := cacheOptions("a")
	for of, by := range options.ByObject {
		assert.IsType(t, &corev1.Node{}, of)
		assert.Equal(t, "metadata.name=a", by.Field.String())
	}
	assert.Len(t, options.ByObject, 1)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	n.Status.Images = []corev1.ContainerImage{{}}
	kept, err := options.DefaultTransform(n)
	require.NoError(t, err)
	assert.Empty(t, kept.(client.Object).GetManagedFields())
	assert.Empty(t, kept.(*corev1.Node).Status.Images)
}

// maxSize is what the program may weigh: it runs on every node.
const maxSize = 40_000_000

func TestTheProgramIsSmall(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "layerwright-agent")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".") // as make binary does
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	info, err := os.Stat(out)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(maxSize))
}
