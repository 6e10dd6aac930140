//go:build e2e

package bench

import (
	"encoding/base64"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/buildah"
)

// Budgets of the controller as a process, on the full image: 51 layers, about 600 MB packed.
const (
	budgetFaster    = 50.0  // times: making the image, against a cold Buildah that does the same
	budgetChange    = 3.0   // seconds from a changed MachineConfig to the digest in status
	budgetBytes     = 1.0   // percent of Buildah's, to and from the registry
	budgetReaction  = 1.0   // seconds from a new MachineOSConfig to a build that has begun
	budgetReactions = 2.0   // seconds, to the last of 30 that have begun
	budgetTold      = 1.0   // seconds from the image in the registry to its digest in the status of the MachineOSConfig
	budgetCalls     = 40.0  // of the API server for each image
	budgetMany      = 200.0 // MiB resident at most, while 20 images are made at once
	reactionsAtOnce = 30
	imagesAtOnce    = 20
)

// BenchmarkController runs bin/layerwright on a control plane of its own. All parts share one
// process and one registry, as in a cluster.
func BenchmarkController(b *testing.B) {
	a := newArena(b)
	require.NoError(b, a.Create(b.Context(), a.machineConfig(mcfgv1.PoolWorker, 0)))
	require.NoError(b, a.Create(b.Context(), a.pool(mcfgv1.PoolWorker)))
	a.rendered(b, mcfgv1.PoolWorker)
	// The first image has the base image read, which is a budget of its own.
	require.NoError(b, a.Create(b.Context(), a.osConfig(mcfgv1.PoolWorker)))
	a.await(b, mcfgv1.PoolWorker, "")
	b.Run("Change", func(b *testing.B) { benchmarkChange(b, a) })
	a.remove(b, mcfgv1.PoolWorker)
	b.Run("ReactionOne", func(b *testing.B) { benchmarkReactions(b, a, 1) })
	b.Run("ReactionMany", func(b *testing.B) { benchmarkReactions(b, a, reactionsAtOnce) })
	b.Run("Memory", func(b *testing.B) { benchmarkMemory(b, a) })
}

// benchmarkChange changes files in a MachineConfig, and then has Buildah, whose storage is empty,
// build and push the same.
func benchmarkChange(b *testing.B, a *arena) {
	b.Helper()
	var whole, making, slow time.Duration
	var bytes, slowBytes, calls int64
	runs := 0
	for b.Loop() {
		runs++
		seed := time.Now().UnixNano()
		a.mu.Lock()
		before := a.momentsOf(mcfgv1.PoolWorker).image
		a.mu.Unlock()
		mc := &mcfgv1.MachineConfig{}
		require.NoError(b, a.Get(b.Context(), client.ObjectKey{Name: "50-" + mcfgv1.PoolWorker}, mc))
		mc.Spec.Config.Raw = a.machineConfig(mcfgv1.PoolWorker, seed).Spec.Config.Raw
		asked, moved := a.quiet(b), a.traffic.total()
		begin := time.Now()
		require.NoError(b, a.Update(b.Context(), mc))
		m := a.await(b, mcfgv1.PoolWorker, before)
		whole += m.done.Sub(begin)
		making += m.imaged.Sub(m.begun)
		calls += a.quiet(b) - asked
		bytes += a.traffic.total() - moved

		moved = a.traffic.total()
		slow += slowly(b, a, seed)
		slowBytes += a.traffic.total() - moved
	}
	n := float64(runs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(whole.Seconds()/n, "s-to-status")
	b.ReportMetric(whole.Seconds()/n/budgetChange, "s-of-budget")
	b.ReportMetric(making.Seconds()/n, "s-making")
	b.ReportMetric(slow.Seconds()/n, "s-buildah")
	b.ReportMetric(slow.Seconds()/making.Seconds(), "x-faster")
	b.ReportMetric(slow.Seconds()/whole.Seconds(), "x-faster-to-status")
	b.ReportMetric(budgetFaster*making.Seconds()/slow.Seconds(), "x-of-budget")
	b.ReportMetric(float64(bytes)/n/1e6, "MB")
	b.ReportMetric(float64(slowBytes)/n/1e6, "MB-buildah")
	b.ReportMetric(100*float64(bytes)/float64(slowBytes)/budgetBytes, "bytes-of-budget")
	b.ReportMetric(float64(calls)/n, "calls")
	b.ReportMetric(float64(calls)/n/budgetCalls, "calls-of-budget")
}

// slowly builds and pushes the image with a Buildah that has nothing yet, and returns how long that
// takes.
func slowly(b *testing.B, a *arena, seed int64) time.Duration {
	b.Helper()
	tool := buildah.New(b, buildah.Options{Host: a.host, Login: a.login})
	dir := b.TempDir()
	for name, content := range configFiles(seed) {
		require.NoError(b, os.MkdirAll(filepath.Join(dir, "tree", filepath.Dir(name)), 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(dir, "tree", name), content, 0o644))
	}
	file := filepath.Join(dir, "Containerfile")
	require.NoError(b, os.WriteFile(file, fmt.Appendf(nil, "FROM %s\nCOPY tree /\nLABEL seed=%d\n", a.base, seed), 0o644))
	begin := time.Now()
	tool.Run("build", "--quiet", "--file", file, "--tag", a.host+"/os/slow:1", dir)
	tool.Run("push", "--quiet", a.host+"/os/slow:1")
	return time.Since(begin)
}

// configFiles are 50 files of 4 KB, half of it random.
func configFiles(seed int64) map[string][]byte {
	const count, size = 50, 4 << 10
	random := rand.New(rand.NewSource(seed)) //nolint:gosec // it is to be the same in both images
	files := map[string][]byte{}
	for i := range count {
		body := make([]byte, size)
		_, _ = random.Read(body[:size/2])
		files[fmt.Sprintf("etc/bench/%03d.conf", i)] = body
	}
	return files
}

func base64Of(content []byte) string { return base64.StdEncoding.EncodeToString(content) }

// benchmarkReactions creates MachineOSConfigs at once, for pools that are there, and measures from
// the first create to when someone who watches learns that the last build has begun, and from each
// image to its digest in status.
func benchmarkReactions(b *testing.B, a *arena, many int) {
	b.Helper()
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("pool-%02d", i)
		require.NoError(b, client.IgnoreAlreadyExists(a.Create(b.Context(), a.pool(names[i]))))
	}
	a.rendered(b, names...)
	var created, begun, told, all time.Duration
	var calls int64
	runs := 0
	for b.Loop() {
		runs++
		asked := a.quiet(b)
		begin := time.Now()
		creates := a.createAll(b, names)
		created += creates.Sub(begin)
		var lastBegun, lastDone time.Time
		var slowest time.Duration
		for _, name := range names {
			m := a.await(b, name, "")
			lastBegun, lastDone = later(lastBegun, m.begun), later(lastDone, m.done)
			slowest = max(slowest, m.done.Sub(m.imaged))
		}
		begun, all, told = begun+lastBegun.Sub(begin), all+lastDone.Sub(begin), max(told, slowest)
		calls += a.quiet(b) - asked
		a.remove(b, names...)
	}
	n, budget := float64(runs), budgetReactions
	if many == 1 {
		budget = budgetReaction
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(created.Seconds()/n, "s-to-create")
	b.ReportMetric(begun.Seconds()/n, "s-to-last-begun")
	b.ReportMetric(begun.Seconds()/n/budget, "begun-of-budget")
	b.ReportMetric(all.Seconds()/n, "s-to-last-digest")
	b.ReportMetric(told.Seconds(), "s-told-at-most")
	b.ReportMetric(told.Seconds()/budgetTold, "told-of-budget")
	b.ReportMetric(float64(calls)/n/float64(many), "calls")
	b.ReportMetric(float64(calls)/n/float64(many)/budgetCalls, "calls-of-budget")
}

// createAll creates MachineOSConfigs at once, and returns when the last one was there.
func (a *arena) createAll(b *testing.B, names []string) time.Time {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	var mu sync.Mutex
	var last time.Time
	for _, name := range names {
		group.Go(func() error {
			err := a.Create(ctx, a.osConfig(name))
			mu.Lock()
			defer mu.Unlock()
			last = later(last, time.Now())
			return err
		})
	}
	require.NoError(b, group.Wait())
	return last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// benchmarkMemory has the controller make many images at once, and reads from the kernel what it
// had resident at most.
func benchmarkMemory(b *testing.B, a *arena) {
	b.Helper()
	names := make([]string, imagesAtOnce)
	for i := range names {
		names[i] = fmt.Sprintf("pool-%02d", i)
	}
	var peak float64
	for b.Loop() {
		a.quiet(b)
		// The kernel begins anew to remember the most (proc_pid_clear_refs(5)).
		require.NoError(b, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", a.process.Process.Pid), []byte("5"), 0))
		a.createAll(b, names)
		for _, name := range names {
			a.await(b, name, "")
		}
		peak = max(peak, peakMiB(b, a.process.Process.Pid))
		a.remove(b, names...)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(peak, "MiB")
	b.ReportMetric(peak/budgetMany, "MiB-of-budget")
}
