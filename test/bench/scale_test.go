//go:build e2e

package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

// Budgets of a large cluster.
const (
	scalePools     = 500
	scaleConfigs   = 5000
	scaleImages    = 300   // pools that have images
	scaleAtOnce    = 100   // images that are asked for at once
	scaleSharing   = 80    // pools that select one MachineConfig
	budgetScaleMiB = 200.0 // resident at most, around a restart
	budgetShared   = 10.0  // seconds from the shared MachineConfig to the last of its pools
)

// BenchmarkScale has the controller work with many pools, MachineConfigs and images, restarts it,
// which is when it reads all of them at once, and changes a MachineConfig that many pools share.
func BenchmarkScale(b *testing.B) {
	b.Setenv("GOMEMLIMIT", "256000000") // as deployed
	b.Setenv("GOGC", "40")
	a := newArena(b)
	pools := make([]string, scalePools)
	for i := range pools {
		pools[i] = fmt.Sprintf("scale-%03d", i)
		pool := a.pool(pools[i])
		if roles := &pool.Spec.MachineConfigSelector.MatchExpressions[0].Values; i < scaleSharing {
			*roles = append(*roles, "shared")
		}
		require.NoError(b, a.Create(b.Context(), pool))
	}
	for i := range scaleConfigs {
		require.NoError(b, a.Create(b.Context(), a.scaleConfig(fmt.Sprintf("50-scale-%04d", i), pools[i%scalePools], int64(i))))
	}
	require.NoError(b, a.Create(b.Context(), a.scaleConfig("60-shared", "shared", 0)))
	a.joined(b, pools[:scaleSharing], "60-shared", nil)
	a.rendered(b, pools...)
	for some := range slices.Chunk(pools[:scaleImages], scaleAtOnce) {
		a.createAll(b, some)
		a.imaged(b, some)
	}
	a.quiet(b)
	before := peakMiB(b, a.process.Process.Pid)

	killed := a.leader(b)
	require.NoError(b, a.process.Process.Kill())
	_ = a.process.Wait() // it was killed
	a.startController(b, clustertest.ControlPlane(b))
	require.Eventually(b, func() bool { return a.leader(b) != killed }, patience, 100*time.Millisecond, "the Lease runs out")
	a.idle(b)
	var took []float64
	for b.Loop() {
		mc := &mcfgv1.MachineConfig{}
		require.NoError(b, a.Get(b.Context(), client.ObjectKey{Name: "60-shared"}, mc))
		was := a.configurations(b)
		mc.Spec.Config.Raw = a.scaleConfig("60-shared", "shared", time.Now().UnixNano()).Spec.Config.Raw
		begin := time.Now()
		require.NoError(b, a.Update(b.Context(), mc))
		a.joined(b, pools[:scaleSharing], "60-shared", was)
		took = append(took, time.Since(begin).Seconds())
		a.idle(b)
	}
	after := peakMiB(b, a.process.Process.Pid)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(before, "MiB-first")
	b.ReportMetric(after, "MiB-restarted")
	b.ReportMetric(max(before, after)/budgetScaleMiB, "MiB-of-budget")
	b.ReportMetric(median(took), "s-shared")
	b.ReportMetric(median(took)/budgetShared, "s-of-budget")
}

// scaleConfig has a file of 4 KB, half of it random.
func (a *arena) scaleConfig(name, role string, seed int64) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: role}}}
	mc.Spec.OSImageURL = a.base
	content := configFiles(seed)["etc/bench/000.conf"]
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/%s","contents":{"source":"data:;base64,%s"}}]}}`,
		name, base64Of(content))
	return mc
}

// leader is who has the controller's Lease.
func (a *arena) leader(b *testing.B) string {
	b.Helper()
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	require.NoError(b, a.Get(b.Context(), client.ObjectKey{Namespace: a.namespace, Name: names.ControllerLease}, lease))
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return holder
}

// idle waits until the controller has nothing to do: neither calls, nor what it finds as it should
// be, which takes none.
func (a *arena) idle(b *testing.B) {
	b.Helper()
	const rest, busy = 3 * time.Second, 30 // hundredths of a second, which is what Linux counts in
	last, asked := processorTime(b, a.process.Process.Pid), a.calls.total.Load()
	require.Eventually(b, func() bool {
		now, calls := processorTime(b, a.process.Process.Pid), a.calls.total.Load()
		was, before := last, asked
		last, asked = now, calls
		return now-was < busy && calls == before // of a busy machine it gets little
	}, patience, rest)
}

// processorTime is what a process has used, in hundredths of a second (proc_pid_stat(5), utime and
// stime).
func processorTime(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var sum int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		require.NoError(b, err)
		sum += n
	}
	return sum
}

// configurations are the rendered MachineConfigs of all pools.
func (a *arena) configurations(b *testing.B) map[string]string {
	b.Helper()
	var list mcfgv1.MachineConfigPoolList
	require.NoError(b, a.List(b.Context(), &list))
	names := map[string]string{}
	for i := range list.Items {
		names[list.Items[i].Name] = list.Items[i].Spec.Configuration.Name
	}
	return names
}

// imaged waits until MachineOSConfigs have an image.
func (a *arena) imaged(b *testing.B, names []string) {
	b.Helper()
	require.Eventually(b, func() bool {
		var list mcfgv1.MachineOSConfigList
		require.NoError(b, a.List(b.Context(), &list))
		has := 0
		for i := range list.Items {
			if list.Items[i].Status.CurrentImagePullSpec != "" && slices.Contains(names, list.Items[i].Name) {
				has++
			}
		}
		return has == len(names)
	}, patience, time.Second)
}

// joined waits until pools have another configuration than they had, with a MachineConfig in it.
func (a *arena) joined(b *testing.B, names []string, config string, was map[string]string) {
	b.Helper()
	require.Eventually(b, func() bool {
		var list mcfgv1.MachineConfigPoolList
		require.NoError(b, a.List(b.Context(), &list))
		has := 0
		for i := range list.Items {
			pool := &list.Items[i]
			isNew := pool.Spec.Configuration.Name != was[pool.Name]
			if isNew && slices.Contains(names, pool.Name) && slices.ContainsFunc(pool.Spec.Configuration.Source,
				func(r corev1.ObjectReference) bool { return r.Name == config }) {
				has++
			}
		}
		return has == len(names)
	}, patience, 100*time.Millisecond)
}
