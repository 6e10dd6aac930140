package manifests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

var (
	consoles = regexp.MustCompile("(?s)```console\n(.*?)```")
	files    = regexp.MustCompile("(?s)```yaml\n# (\\S+\\.yaml)\n(.*?)```")
)

// TestInstallPageRuns runs the kubectl commands of docs/install.md, one after another, on an API
// server without Layerwright. Those that are about pods, and about OpenShift, need more than that.
func TestInstallPageRuns(t *testing.T) {
	clients := kubernetes.NewForConfigOrDie(clustertest.ControlPlane(t))
	_, err := clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	// The folder of a user who unpacked a release: its manifests, an authority, a checkout.
	dir := t.TempDir()
	require.NoError(t, Write(dir, released))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("certificate"), 0o600))
	require.NoError(t, os.Symlink(install.Path(t, "deploy"), filepath.Join(dir, "deploy")))
	page, err := os.ReadFile(install.Path(t, "docs/install.md"))
	require.NoError(t, err)
	for _, file := range files.FindAllSubmatch(page, -1) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(file[1])), file[2], 0o600))
	}

	ran := 0
	for _, console := range consoles.FindAllSubmatch(page, -1) {
		for line := range strings.Lines(string(console[1])) {
			command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ kubectl ")
			if !isCommand || strings.Contains(command, "rollout status") || strings.Contains(command, "olm") {
				continue
			}
			arguments := strings.Fields(command)
			for i := range arguments {
				arguments[i] = strings.Trim(arguments[i], "'") // a shell's; no argument of the page has a space
			}
			kubectl := exec.CommandContext(t.Context(), clustertest.Program(t, "kubectl"), append([]string{"--kubeconfig", clustertest.Kubeconfig(t)}, arguments...)...)
			kubectl.Dir = dir
			output, err := kubectl.CombinedOutput()
			require.NoError(t, err, "kubectl %s: %s", command, output)
			ran++
		}
	}
	require.GreaterOrEqual(t, ran, 10, "the page's commands are found")
}
