//go:build e2e

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Budgets of a step of a build, on the full image.
const (
	budgetBuilderMemory = 250.0 // MiB resident at most, apart from what RUN lines use
	budgetUpload        = 1.01  // of the bytes of the new layers
)

// BenchmarkBuilderFull fetches the full image, runs a small Containerfile on it, and pushes the
// result to the registry that has the base: the steps of a build pod, without the pod.
func BenchmarkBuilderFull(b *testing.B) {
	host, base, sent := builderRegistry(b)
	program := builderProgram(b)
	took, memory := map[backend.Step]time.Duration{}, map[backend.Step]float64{}
	var up, layers float64
	runs := 0
	for b.Loop() {
		dir := b.TempDir()
		instructions(b, dir, backend.Instructions{
			Build: "bench", Architecture: mcfgv1.ArchitectureAMD64, Stage: "os", Created: 1700000000,
			Containerfile: "FROM " + base + " AS os\nRUN head -c 20000000 /dev/urandom > /usr/share/content\nRUN echo hello > /etc/hello\n",
			Images:        []backend.PinnedImage{{Name: base, Image: base}},
			Target:        fmt.Sprintf("%s/os/worker-%d:bench", host, runs),
		})
		for _, step := range backend.Steps() {
			before := sent.Load()
			report, resident, duration := runStep(b, program, dir, step)
			took[step] += duration
			memory[step] = max(memory[step], resident)
			if step == backend.Push {
				up += float64(sent.Load() - before)
				layers += float64(report.Bytes)
			}
		}
		runs++
	}
	n := float64(runs)
	b.ReportMetric(0, "ns/op")
	for _, step := range backend.Steps() {
		b.ReportMetric(took[step].Seconds()/n, "s-"+string(step))
		b.ReportMetric(memory[step], "MiB-"+string(step))
	}
	b.ReportMetric(slices.Max(slices.Collect(maps.Values(memory)))/budgetBuilderMemory, "MiB-of-budget")
	b.ReportMetric(up/n/1e6, "MB-up")
	b.ReportMetric(up/layers/budgetUpload, "bytes-of-budget")
}

// builderRegistry serves the full image, and counts the bytes that are sent to it.
func builderRegistry(b *testing.B) (host, base string, sent *atomic.Int64) {
	b.Helper()
	cache, err := toolchain.CacheDir()
	require.NoError(b, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(b, err)
	content := registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}})
	moved := &traffic{}
	server := httptest.NewServer(moved.of(content))
	b.Cleanup(server.Close)
	host = strings.TrimPrefix(server.URL, "http://")
	login := remote.WithAuth(appendAccount.Login())
	refs, err := maker.Push(b.Context(), fixtures.Full, host+"/streams", login)
	require.NoError(b, err)
	return host, refs.OS[fixtures.RHEL9].String(), &moved.up
}

func builderProgram(b *testing.B) string {
	b.Helper()
	repository, err := toolchain.RepositoryRoot(".")
	require.NoError(b, err)
	return filepath.Join(repository, "bin", "layerwright-builder")
}

// instructions writes what the steps are told, and the secret of both of them.
func instructions(b *testing.B, dir string, in backend.Instructions) {
	b.Helper()
	text, err := json.Marshal(in)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(dir, "instructions.json"), text, 0o600))
	host, _, _ := strings.Cut(in.Target, "/")
	config, err := appendAccount.DockerConfig(host)
	require.NoError(b, err)
	require.NoError(b, os.MkdirAll(filepath.Join(dir, "credentials"), 0o700))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "credentials", ".dockerconfigjson"), config, 0o600))
}

// runStep runs one step and returns its report, the most that its processes had resident at once in
// MiB, without those of RUN lines, and how long it took.
func runStep(b *testing.B, program, dir string, step backend.Step) (report *backend.Report, resident float64, took time.Duration) {
	b.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	cmd := exec.CommandContext(b.Context(), program, string(step), "--instructions", at("instructions.json"), "--work", at("work"), "--fetched", at("fetched"), "--layout", at("layout"),
		"--report", at("report.json"), "--credentials", at("credentials"), "--context", at("context"), "--inputs", at("inputs"), "--trust", at("trust"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	begin := time.Now()
	require.NoError(b, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-time.After(200 * time.Millisecond): // looking more often would be a good part of the time
			resident = max(resident, residentOf(cmd.Process.Pid, program))
		}
	}
	took = time.Since(begin)
	require.NoError(b, err, output.String())
	text, err := os.ReadFile(at("report.json"))
	require.NoError(b, err)
	report, err = backend.ReadReport(string(text))
	require.NoError(b, err)
	return report, resident, took
}

// residentOf is what a process and those below it have resident together, in MiB, without those of
// RUN lines. Shared pages count once. The kernel's own maximum of a child begins with what its
// parent has, which is more here; and the builder runs itself from memory or from a mount of that
// one file, so that its processes are told from those of RUN lines by a file that is in no folder.
func residentOf(pid int, program string) (sum float64) {
	dir := fmt.Sprintf("/proc/%d", pid)
	if target, err := os.Readlink(dir + "/exe"); err == nil && (target == program || target == "/" || strings.HasPrefix(target, "/memfd:")) {
		text, _ := os.ReadFile(dir + "/smaps_rollup")
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
				kib, _ := strconv.ParseFloat(fields[1], 64)
				sum += kib / 1024
			}
		}
	}
	lists, _ := filepath.Glob(dir + "/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(child); err == nil {
				sum += residentOf(pid, program)
			}
		}
	}
	return sum
}
