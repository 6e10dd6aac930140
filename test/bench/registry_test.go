//go:build e2e

package bench

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	imageregistry "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Budgets of a change of nothing but configuration, on the full image: 51 layers, about 600 MB
// packed. The second one is for the whole way from a MachineConfig to the digest in a status, of
// which this is a part.
const (
	budgetAppend       = 3.0   // seconds
	budgetAppendBytes  = 1.0   // percent of the image's bytes
	budgetAppendMemory = 200.0 // MiB resident at most while 20 of them go on at once
	appendAtOnce       = 20
)

// The layer of configuration that is appended.
const (
	appendFiles    = 200
	appendFileSize = 10 << 10
)

// appendTask, in the environment, makes a benchmark of this file one that appends in a process of
// its own and does nothing else.
const appendTask = "LAYERWRIGHT_BENCH_APPEND"

// appendJob is what such a process does.
type appendJob struct {
	// Content is the image, Repository the begin of the names of those that are written to, and Out
	// where the report goes.
	Content, Repository, Out string
	// AtOnce is how many go on at once, and Again whether it is done once more for other
	// configuration in the same repositories.
	AtOnce int
	Again  bool
}

// appendReport is what it measured.
type appendReport struct {
	First, Second     time.Duration
	FirstWas, ThenWas wire.Traffic // of one of them
	BeforeKiB         float64      // resident, of a program that has done nothing yet
	PeakKiB           float64
}

var appendAccount = registry.Account{Name: "bench", Password: "bench", Push: true}

// BenchmarkAppendFull appends to the full image, in a new repository and then once more, as when a
// file has changed.
func BenchmarkAppendFull(b *testing.B) {
	if runAppendTask(b) {
		return
	}
	content, size := appendFixture(b)
	var sum appendReport
	runs := 0
	for b.Loop() {
		r := appendInChild(b, appendJob{Content: content, Repository: fmt.Sprintf("single-%d", runs), AtOnce: 1, Again: true})
		sum.First += r.First
		sum.Second += r.Second
		sum.FirstWas, sum.ThenWas = r.FirstWas, r.ThenWas
		sum.PeakKiB = max(sum.PeakKiB, r.PeakKiB)
		sum.BeforeKiB = max(sum.BeforeKiB, r.BeforeKiB)
		runs++
	}
	n := float64(runs)
	percent := 100 * float64(sum.FirstWas.BytesUp+sum.FirstWas.BytesDown) / float64(size)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum.First.Seconds()/n, "s")
	b.ReportMetric(sum.First.Seconds()/n/budgetAppend, "s-of-budget")
	b.ReportMetric(sum.Second.Seconds()/n, "s-again")
	b.ReportMetric(float64(sum.FirstWas.Requests), "requests")
	b.ReportMetric(float64(sum.ThenWas.Requests), "requests-again")
	b.ReportMetric(float64(sum.FirstWas.BytesUp)/1e6, "MB-up")
	b.ReportMetric(float64(sum.FirstWas.BytesDown)/1e3, "KB-down")
	b.ReportMetric(percent/budgetAppendBytes, "bytes-of-budget")
	b.ReportMetric(sum.PeakKiB/1024, "MiB")
	b.ReportMetric(sum.BeforeKiB/1024, "MiB-before")
}

// BenchmarkAppendFullParallel appends to the full image for 20 pools at once.
func BenchmarkAppendFullParallel(b *testing.B) {
	if runAppendTask(b) {
		return
	}
	content, _ := appendFixture(b)
	var total time.Duration
	var peak, before float64
	runs := 0
	for b.Loop() {
		r := appendInChild(b, appendJob{Content: content, Repository: fmt.Sprintf("many-%d", runs), AtOnce: appendAtOnce})
		total += r.First
		peak, before = max(peak, r.PeakKiB), max(before, r.BeforeKiB)
		runs++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(total.Seconds()/float64(runs), "s")
	b.ReportMetric(peak/1024, "MiB")
	b.ReportMetric(before/1024, "MiB-before")
	b.ReportMetric(peak/1024/budgetAppendMemory, "MiB-of-budget")
}

// appendFixture serves the full image from a registry on disk, and returns its name by digest and
// its size in bytes.
func appendFixture(b *testing.B) (content string, size int64) {
	b.Helper()
	cache, err := toolchain.CacheDir()
	require.NoError(b, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(b, err)
	server := httptest.NewServer(registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}}))
	b.Cleanup(server.Close)
	login := remote.WithAuth(appendAccount.Login())
	refs, err := maker.Push(b.Context(), fixtures.Full, strings.TrimPrefix(server.URL, "http://")+"/streams", login)
	require.NoError(b, err)
	img, err := remote.Image(refs.OS[fixtures.RHEL9], login, remote.WithContext(b.Context()))
	require.NoError(b, err)
	manifest, err := img.Manifest()
	require.NoError(b, err)
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return refs.OS[fixtures.RHEL9].String(), size
}

// appendInChild does a job in a process of its own: this program, which runs the benchmark that
// calls it once.
func appendInChild(b *testing.B, job appendJob) (report appendReport) {
	b.Helper()
	job.Out = filepath.Join(b.TempDir(), "report.json")
	host, _, _ := strings.Cut(job.Content, "/")
	job.Repository = host + "/os/" + job.Repository
	task, err := json.Marshal(job)
	require.NoError(b, err)
	program, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.CommandContext(b.Context(), program, "-test.run=^$", "-test.bench=^"+b.Name()+"$", "-test.benchtime=1x")
	cmd.Env = append(os.Environ(), appendTask+"="+string(task))
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
	text, err := os.ReadFile(job.Out)
	require.NoError(b, err, string(out))
	require.NoError(b, json.Unmarshal(text, &report))
	return report
}

// runAppendTask does what the environment asks for, if anything.
func runAppendTask(b *testing.B) bool {
	b.Helper()
	task := os.Getenv(appendTask)
	if task == "" {
		return false
	}
	var job appendJob
	require.NoError(b, json.Unmarshal([]byte(task), &job))
	report := appendReport{BeforeKiB: residentKiB(b, "VmRSS")}
	first, took := appendMany(b, job, 1, nil)
	report.First, report.FirstWas = took, first[0].Traffic
	if job.Again {
		second, took := appendMany(b, job, 2, first)
		report.Second, report.ThenWas = took, second[0].Traffic
	}
	report.PeakKiB = residentKiB(b, "VmHWM")
	text, err := json.Marshal(report)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(job.Out, text, 0o600))
	return true
}

// appendMany appends in as many repositories as the job says, at once, in the place of the images
// before, and returns how long all of them took.
func appendMany(b *testing.B, job appendJob, seed int64, before []*imageregistry.Result) ([]*imageregistry.Result, time.Duration) {
	b.Helper()
	client := imageregistry.New(imageregistry.Options{Keychain: appendAccount})
	results := make([]*imageregistry.Result, job.AtOnce)
	group, ctx := errgroup.WithContext(b.Context())
	begin := time.Now()
	for i := range results {
		group.Go(func() (err error) {
			image := ""
			if before != nil {
				image = before[i].Image
			}
			results[i], err = client.Append(ctx, imageregistry.AppendRequest{
				Before: image, Content: job.Content, Repository: fmt.Sprintf("%s-%d", job.Repository, i), Tags: []string{"worker-0a1b", "worker"},
				Labels: map[string]string{"pool": strconv.Itoa(i)},
				Layer: func(context.Context, v1.Platform, v1.Image) (imageregistry.Opener, error) {
					return appendConfiguration(seed + int64(100*i)), nil
				},
			})
			return err
		})
	}
	require.NoError(b, group.Wait())
	return results, time.Since(begin)
}

// appendConfiguration is an archive of 200 files of 2 MB together, half of it random, that is made
// while it is read.
func appendConfiguration(seed int64) imageregistry.Opener {
	return func() (io.ReadCloser, error) {
		out, in := io.Pipe()
		go func() { in.CloseWithError(writeConfiguration(in, seed)) }()
		return out, nil
	}
}

func writeConfiguration(w io.Writer, seed int64) error {
	random := rand.New(rand.NewSource(seed)) //nolint:gosec // it is to be the same each time
	archive := tar.NewWriter(w)
	body := bytes.Repeat([]byte("setting = value\n"), appendFileSize/16)
	for i := range appendFiles {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("etc/bench/%03d.conf", i), Mode: 0o644, Size: int64(len(body)), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, _ = random.Read(body[:len(body)/2])
		if _, err := archive.Write(body); err != nil {
			return err
		}
	}
	return archive.Close()
}
