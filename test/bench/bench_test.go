//go:build e2e

package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// Budgets.
const (
	budgetReady        = 30.0  // seconds from up, warm cache, to a Ready node
	budgetControlPlane = 10.0  // seconds from up to a usable control plane
	budgetDown         = 10.0  // seconds
	budgetBinary       = 120.0 // MB of the light binary
	budgetMemory       = 64.0  // MiB resident, idle controller
)

// name is the cluster that is brought up and down.
const name = "bench"

func repository(b *testing.B) string {
	b.Helper()
	root, err := toolchain.RepositoryRoot(".")
	require.NoError(b, err)
	return root
}

// cluster runs bin/cluster on the benchmark's own cluster and returns what it
// printed.
func cluster(b *testing.B, args ...string) string {
	b.Helper()
	root := repository(b)
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), filepath.Join(root, "bin", "cluster"), append([]string{"--name", name}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	return string(out)
}

func report(b *testing.B, value float64, unit string, budget float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // would repeat it, in a unit no one thinks in
	b.ReportMetric(value, unit)
	b.ReportMetric(value/budget, "of-budget")
}

// at finds when, in seconds since up began, a step had ended.
func at(b *testing.B, out, step string) float64 {
	b.Helper()
	match := regexp.MustCompile(regexp.QuoteMeta(step) + `.*at +([0-9.]+)s`).FindStringSubmatch(out)
	require.Len(b, match, 2, out)
	seconds, err := strconv.ParseFloat(match[1], 64)
	require.NoError(b, err)
	return seconds
}

func BenchmarkUpToReadyNode(b *testing.B) {
	var total float64
	for range b.N {
		total += at(b, cluster(b, "up", "--skip-controller"), "nodes Ready")
		cluster(b, "down")
	}
	report(b, total/float64(b.N), "s", budgetReady)
}

func BenchmarkUpControlPlaneOnly(b *testing.B) {
	var total float64
	for range b.N {
		total += at(b, cluster(b, "up", "--control-plane-only"), "control plane")
		cluster(b, "down")
	}
	report(b, total/float64(b.N), "s", budgetControlPlane)
}

func BenchmarkDown(b *testing.B) {
	var total time.Duration
	for range b.N {
		cluster(b, "up", "--skip-controller")
		begin := time.Now()
		cluster(b, "down")
		total += time.Since(begin)
	}
	report(b, total.Seconds()/float64(b.N), "s", budgetDown)
}

func BenchmarkBinarySize(b *testing.B) {
	info, err := os.Stat(filepath.Join(repository(b), "bin", "layerwright"))
	require.NoError(b, err)
	report(b, float64(info.Size())/1e6, "MB", budgetBinary)
}

// BenchmarkIdleControllerMemory runs the controller against a real control
// plane until it has renewed its lease a few times.
func BenchmarkIdleControllerMemory(b *testing.B) {
	clients := kubernetes.NewForConfigOrDie(clustertest.ControlPlane(b))
	namespace := clustertest.Namespace(b)
	cmd := exec.CommandContext(b.Context(), filepath.Join(repository(b), "bin", "layerwright"), "controller",
		"--kubeconfig", clustertest.Kubeconfig(b), "--leader-election-namespace", namespace,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	const renewals = 4
	seen := map[time.Time]bool{}
	target := await.Target{Client: clients.CoordinationV1().RESTClient(), Resource: "leases", Namespace: namespace, Name: "layerwright-controller"}
	require.NoError(b, await.Object(ctx, target, &coordinationv1.Lease{}, func(lease *coordinationv1.Lease) (bool, string) {
		if lease.Spec.RenewTime != nil {
			seen[lease.Spec.RenewTime.Time] = true
		}
		return len(seen) >= renewals, strconv.Itoa(len(seen)) + " renewals"
	}))
	report(b, residentMiB(b, cmd.Process.Pid), "MiB", budgetMemory)
}

func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	return memoryMiB(b, pid, "VmRSS")
}

// peakMiB is what a process had resident at most.
func peakMiB(b *testing.B, pid int) float64 {
	b.Helper()
	return memoryMiB(b, pid, "VmHWM")
}

// memoryMiB is a figure of a process from the kernel.
func memoryMiB(b *testing.B, pid int, field string) float64 {
	b.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(b, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			require.NoError(b, err)
			return kib / 1024
		}
	}
	require.Fail(b, "no "+field)
	return 0
}
