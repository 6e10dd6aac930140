//go:build e2e

package bench

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	imagename "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Budgets of the index of a base image of about 1.2 GB in 50 layers.
const (
	budgetIndex       = 15.0 // seconds to read it from a registry
	budgetIndexMemory = 64.0 // MiB resident at most while doing so
	budgetIndexCached = 1.0  // MB on disk for each image
)

// childImage names the image to a benchmark that runs itself in a process of its own, and
// childCache the cache folder.
const (
	childImage = "LAYERWRIGHT_BENCH_IMAGE"
	childCache = "LAYERWRIGHT_BENCH_CACHE"
)

// indexed is what the child measured.
type indexed struct {
	Cold, Warm time.Duration
	// Before and Peak are KiB resident: of a test program that has done nothing yet, and at most.
	Before, Peak float64
	Paths        int
}

// BenchmarkIndexFull indexes the full fixture from a registry on this machine, in a process that
// does nothing else, then once more from the cache.
func BenchmarkIndexFull(b *testing.B) {
	if ref := os.Getenv(childImage); ref != "" {
		indexInChild(b, ref, os.Getenv(childCache))
		return
	}
	ref := fullFixture(b)
	var sum indexed
	var size int64
	for range b.N {
		cache := b.TempDir()
		m := runChild[indexed](b, "BenchmarkIndexFull", cache, childImage+"="+ref)
		sum.Cold += m.Cold
		sum.Warm += m.Warm
		sum.Before = max(sum.Before, m.Before)
		sum.Peak = max(sum.Peak, m.Peak)
		sum.Paths = m.Paths
		size = cachedBytes(b, cache)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum.Cold.Seconds()/n, "s")
	b.ReportMetric(sum.Cold.Seconds()/n/budgetIndex, "s-of-budget")
	b.ReportMetric(sum.Peak/1024, "MiB")
	b.ReportMetric(sum.Before/1024, "MiB-before")
	b.ReportMetric(sum.Peak/1024/budgetIndexMemory, "MiB-of-budget")
	b.ReportMetric(float64(size)/1e6, "MB-cached")
	b.ReportMetric(float64(size)/1e6/budgetIndexCached, "MB-of-budget")
	b.ReportMetric(float64(sum.Warm.Microseconds())/1000/n, "ms-warm")
	b.ReportMetric(float64(sum.Paths), "paths")
}

// fullFixture serves the full image and returns its reference.
func fullFixture(b *testing.B) string {
	b.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(b, err)
	maker, err := fixtures.New(fixtures.Options{
		CacheDir: filepath.Join(cache, "layerwright"), Streams: []fixtures.Stream{fixtures.RHEL9},
	})
	require.NoError(b, err)
	set, err := maker.Build(b.Context(), fixtures.Full)
	require.NoError(b, err)
	server := httptest.NewServer(registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(b.TempDir())), registry.Logger(log.New(io.Discard, "", 0))))
	b.Cleanup(server.Close)
	ref, err := imagename.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/os:full")
	require.NoError(b, err)
	require.NoError(b, remote.Write(ref, set.OS[fixtures.RHEL9]["amd64"], remote.WithContext(b.Context())))
	return ref.String()
}

// runChild runs a benchmark once, in a process of its own with a cache and variables, and gives
// what that left with leaveMeasured.
func runChild[T any](b *testing.B, benchmark, cache string, env ...string) T {
	b.Helper()
	program, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.CommandContext(b.Context(), program, "-test.run=^$", "-test.bench=^"+benchmark+"$", "-test.benchtime=1x")
	cmd.Env = append(append(os.Environ(), childCache+"="+cache), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	data, err := os.ReadFile(filepath.Join(cache, measured))
	require.NoError(b, err, string(out))
	var m T
	require.NoError(b, json.Unmarshal(data, &m))
	return m
}

// measured is the file with what a child has measured.
const measured = "measured.json"

// hasMeasured reports whether the child has: go test calls a benchmark once more to find out how
// often to run it.
func hasMeasured(cache string) bool {
	_, err := os.Stat(filepath.Join(cache, measured))
	return err == nil
}

func leaveMeasured(b *testing.B, cache string, m any) {
	b.Helper()
	data, err := json.Marshal(m)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(cache, measured), data, 0o600))
}

func indexInChild(b *testing.B, reference, cache string) {
	b.Helper()
	if hasMeasured(cache) {
		return
	}
	m := indexed{Before: residentKiB(b, "VmRSS")}
	ref, err := imagename.ParseReference(reference)
	require.NoError(b, err)
	loader := baseimage.New(baseimage.Options{CacheDir: cache})
	m.Cold, m.Paths = indexOnce(b, loader, ref)
	m.Peak = residentKiB(b, "VmHWM")
	m.Warm, _ = indexOnce(b, loader, ref)
	leaveMeasured(b, cache, m)
}

// indexOnce is how long it takes from a reference to its index.
func indexOnce(b *testing.B, loader *baseimage.Loader, ref imagename.Reference) (time.Duration, int) {
	b.Helper()
	begin := time.Now()
	image, err := remote.Image(ref, remote.WithContext(b.Context()))
	require.NoError(b, err)
	index, err := loader.Index(b.Context(), image)
	require.NoError(b, err)
	return time.Since(begin), index.Paths()
}

// residentKiB is a figure of this process from the kernel.
func residentKiB(b *testing.B, field string) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			require.NoError(b, err)
			return kib
		}
	}
	require.Fail(b, "no "+field)
	return 0
}

// cachedBytes is the size of the one cached index.
func cachedBytes(b *testing.B, cache string) int64 {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(cache, "*.index"))
	require.NoError(b, err)
	require.Len(b, files, 1)
	info, err := os.Stat(files[0])
	require.NoError(b, err)
	return info.Size()
}
