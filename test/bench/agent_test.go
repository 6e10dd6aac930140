//go:build e2e

package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

// Budgets of the node agent.
const (
	budgetAgentBinary = 40.0 // MB
	budgetAgentMemory = 25.0 // MiB of its own, idle
	budgetAgentCPU    = 0.1  // percent of a core, idle
)

func BenchmarkAgentBinarySize(b *testing.B) {
	info, err := os.Stat(filepath.Join(repository(b), "bin", "layerwright-agent"))
	require.NoError(b, err)
	report(b, float64(info.Size())/1e6, "MB", budgetAgentBinary)
}

// BenchmarkIdleAgent runs the agent as its DaemonSet does, on a host where there is nothing to do.
func BenchmarkIdleAgent(b *testing.B) {
	config := clustertest.ControlPlane(b)
	install.Kinds(b, config)
	clients := kubernetes.NewForConfigOrDie(config)
	_, err := clients.CoreV1().Nodes().Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "idle"}}, metav1.CreateOptions{})
	require.NoError(b, err)
	scheme := runtime.NewScheme()
	require.NoError(b, mcfgv1.AddToScheme(scheme))
	reports, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	mcn := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "idle"}}
	mcn.Spec.Node.Name, mcn.Spec.Pool.Name, mcn.Spec.ConfigVersion.Desired = "idle", "worker", mcfgv1.ConfigNotYetSet
	require.NoError(b, reports.Create(b.Context(), mcn))
	cmd := exec.CommandContext(b.Context(), filepath.Join(repository(b), "bin", "layerwright-agent"),
		"--kubeconfig", clustertest.Kubeconfig(b), "--node-name=idle", "--host-root="+b.TempDir(),
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOGC=50")
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.EventuallyWithT(b, func(collect *assert.CollectT) {
		if assert.NoError(collect, reports.Get(b.Context(), client.ObjectKeyFromObject(mcn), mcn)) {
			assert.NotEmpty(collect, mcn.Status.Conditions, "the agent has looked at the host, which is empty")
		}
	}, time.Minute, 100*time.Millisecond)
	begin, busy := time.Now(), cpuSeconds(b, cmd.Process.Pid)
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select { // idleness is what is measured: there is nothing to wait for
	case <-timer.C:
	case <-b.Context().Done():
	}
	busy = cpuSeconds(b, cmd.Process.Pid) - busy
	percent := 100 * busy / time.Since(begin).Seconds()
	b.ReportMetric(0, "ns/op")
	own := memoryMiB(b, cmd.Process.Pid, "RssAnon")
	b.ReportMetric(own, "MiB")
	b.ReportMetric(own/budgetAgentMemory, "MiB-of-budget")
	b.ReportMetric(residentMiB(b, cmd.Process.Pid), "MiB-with-program")
	b.ReportMetric(percent, "cpu-percent")
	b.ReportMetric(percent/budgetAgentCPU, "cpu-of-budget")
}

// cpuSeconds is how long a process has worked.
func cpuSeconds(b *testing.B, pid int) float64 {
	b.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	const user, system, hertz = 11, 12, 100
	var ticks float64
	for _, i := range []int{user, system} {
		value, err := strconv.ParseFloat(fields[i], 64)
		require.NoError(b, err)
		ticks += value
	}
	return ticks / hertz
}
