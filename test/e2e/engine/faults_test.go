//go:build e2e

package engine

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// isContent reports whether a request is about a layer or a manifest, and not about the protocol.
func isContent(r *http.Request) bool { return strings.Contains(r.URL.Path, "/os/") }

// once fails the first request that fits, and lets all others through.
func once(fits func(r *http.Request) bool, fail http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	var done atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !fits(r) || !done.CompareAndSwap(false, true) {
			return false
		}
		fail(w, r)
		return true
	}
}

// always fails all requests that fit.
func always(fits func(r *http.Request) bool, fail http.HandlerFunc) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !fits(r) {
			return false
		}
		fail(w, r)
		return true
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hang takes everything and answers nothing until the client gives up. The end of a connection is
// seen only after its body was read.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// cut ends the connection.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestPassingTroubleInFetch(t *testing.T) {
	t.Parallel()
	tests := map[string]http.HandlerFunc{
		"500": status(http.StatusInternalServerError), "503": status(http.StatusServiceUnavailable), "429": status(http.StatusTooManyRequests),
		"a cut": cut, "nothing at all": hang,
	}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			p := newPod(t, h, "FROM os-base-image\nRUN true\n", nil)
			h.fail(once(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }, fail))
			p.succeed(t, backend.Fetch, "--patience=2s")
			p.succeed(t, backend.Build)
		})
	}
}

func TestLastingTroubleInFetch(t *testing.T) {
	t.Parallel()
	tests := map[string]http.HandlerFunc{"500": status(http.StatusInternalServerError), "a cut": cut, "nothing at all": hang}
	for name, fail := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			p := newPod(t, h, "FROM os-base-image\nRUN true\n", nil)
			h.fail(always(isContent, fail))
			e := p.run(t, backend.Fetch, "--patience=1s")
			require.NotNil(t, e.report.Failure, e.output)
			assert.Equal(t, fault.Transient, e.report.Failure.Class)
			assert.Equal(t, mcfgv1.ReasonRetryingBuild, e.report.Failure.Reason)
			assert.Equal(t, backend.ExitInfrastructure, e.code)
			assert.Contains(t, e.report.Failure.Message, "pulling "+h.host+"/os/base@sha256:")
		})
	}
}

func TestTroubleInPush(t *testing.T) { //nolint:tparallel // one registry fails for one push at a time
	t.Parallel()
	isUpload := func(r *http.Request) bool { return r.Method == http.MethodPatch || r.Method == http.MethodPost }
	isManifest := func(r *http.Request) bool {
		return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/")
	}
	tests := map[string]struct {
		trouble func(http.ResponseWriter, *http.Request) bool
		fails   bool
	}{
		"500 once":                      {trouble: once(isUpload, status(http.StatusInternalServerError))},
		"429 once":                      {trouble: once(isUpload, status(http.StatusTooManyRequests))},
		"a cut once":                    {trouble: once(isUpload, cut)},
		"nothing at all once":           {trouble: once(isUpload, hang)},
		"500 for the manifest":          {trouble: once(isManifest, status(http.StatusInternalServerError))},
		"a manifest that no one takes":  {trouble: once(isManifest, hang)},
		"500 always":                    {trouble: always(isUpload, status(http.StatusInternalServerError)), fails: true},
		"nothing at all for all layers": {trouble: always(isUpload, hang), fails: true},
	}
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	p.succeed(t, backend.Fetch)
	p.buildAndExport(t)
	p.login(t, pusher)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p.instructions.Target = h.host + "/os/" + strings.ReplaceAll(name, " ", "-") + ":build" // where nothing is yet
			h.uploads()
			h.fail(tt.trouble)
			e := p.run(t, backend.Push, "--patience=2s")
			h.fail(nil)
			if !tt.fails {
				require.Nil(t, e.report.Failure, e.output)
				assert.Positive(t, h.uploads(), "the registry had nothing of it, so that the trouble was met")
				assert.Equal(t, p.succeed(t, backend.Push).report.Image, e.report.Image, "the digest is the same, whatever happened on the way")
				return
			}
			require.NotNil(t, e.report.Failure, e.output)
			assert.Equal(t, fault.Transient, e.report.Failure.Class)
			assert.Equal(t, backend.ExitInfrastructure, e.code)
		})
	}
}

func TestAFetchThatWasKilledIsContinued(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN true\n", nil)
	manifest, err := tiny.Manifest()
	require.NoError(t, err)
	last := manifest.Layers[len(manifest.Layers)-1].Digest.String()

	arrived := make(chan struct{})
	h.fail(once(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, last) }, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	cmd := p.command(t, backend.Fetch)
	var output lockedBuffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	<-arrived
	waitForLayers(t, p, len(manifest.Layers)-1)
	worker := childOf(t, cmd.Process.Pid)
	require.NoError(t, syscall.Kill(worker, syscall.SIGKILL))
	require.Error(t, cmd.Wait())
	e := p.ended(t, backend.Fetch, cmd.ProcessState.ExitCode(), output.String())
	require.NotNil(t, e.report.Failure, "the process that watches it leaves a report")
	assert.Equal(t, backend.ExitInfrastructure, e.code)
	assert.Contains(t, e.report.Failure.Message, "killed")

	h.pulls()
	p.succeed(t, backend.Fetch)
	for blob := range h.pulls() {
		assert.True(t, strings.HasSuffix(blob, last) || strings.HasSuffix(blob, manifest.Config.Digest.String()), "%s was pulled before", blob)
	}
	p.succeed(t, backend.Build)
}

// lockedBuffer may be written to by several goroutines.
type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

// waitForLayers waits until so many layers are complete in the store.
func waitForLayers(t *testing.T, p *pod, n int) {
	t.Helper()
	index := filepath.Join(p.dir, "work/storage/overlay-layers/layers.json")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(index)
		return err == nil && bytes.Count(text, []byte(`"diff-digest"`)) >= n && !bytes.Contains(text, []byte(`"incomplete":true`))
	}, patience, pollInterval)
}

// childOf is the first child of a process.
func childOf(t *testing.T, pid int) (child int) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pgrep", "-P", itoa(pid)).Output()
	require.NoError(t, err)
	child = atoi(t, strings.Fields(string(out))[0])
	return child
}

func TestTerminatedStepReportsIt(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"a RUN line that ends":               "exec sleep 1000",
		"a RUN line that does not want to":   "trap '' TERM; echo ready; while true; do sleep 1; done",
		"a RUN line that starts other lines": "sleep 1000 & sleep 1000",
	}
	for name, script := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, newHub(t), "FROM os-base-image\nRUN echo begun; "+script+"\n", nil)
			p.succeed(t, backend.Fetch)
			cmd := p.command(t, backend.Build, "--grace=2s")
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(stdout)
			var output strings.Builder
			for lines.Scan() {
				output.WriteString(lines.Text() + "\n")
				if lines.Text() == "begun" {
					require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				}
			}
			require.Error(t, cmd.Wait())
			e := p.ended(t, backend.Build, cmd.ProcessState.ExitCode(), output.String())
			require.NotNil(t, e.report.Failure, e.output)
			assert.Equal(t, mcfgv1.ReasonInterrupted, e.report.Failure.Reason)
			assert.Equal(t, fault.Transient, e.report.Failure.Class)
			assert.Equal(t, backend.ExitInfrastructure, e.code)
			assert.Contains(t, e.report.Failure.Message, "terminated")
			assert.True(t, e.report.Failure.At == "" || strings.HasPrefix(e.report.Failure.At, "Containerfile line 2: RUN echo begun; "), e.report.Failure.At)
		})
	}
}

func TestAFullDisk(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		size string
		step backend.Step
	}{
		"while pulling":  {size: "1m", step: backend.Fetch},
		"in a RUN line":  {size: "24m", step: backend.Build},
		"while it opens": {size: "16k", step: backend.Fetch},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, newHub(t), "FROM os-base-image\nRUN head -c 64000000 /dev/zero > /etc/zeroes\n", nil)
			work := filepath.Join(p.dir, "work")
			require.NoError(t, os.MkdirAll(work, 0o755))
			require.NoError(t, syscall.Mount("tmpfs", work, "tmpfs", 0, "size="+tt.size))
			t.Cleanup(func() { assert.NoError(t, syscall.Unmount(work, syscall.MNT_DETACH)) })
			if tt.step == backend.Build {
				p.succeed(t, backend.Fetch)
			}
			e := p.run(t, tt.step)
			require.NotNil(t, e.report.Failure, e.output)
			assert.Equal(t, fault.Transient, e.report.Failure.Class)
			assert.Equal(t, backend.ExitInfrastructure, e.code)
			assert.Contains(t, e.report.Failure.Message, "raise ephemeral-storage in spec.buildResources.limits of the MachineOSConfig", e.output)
		})
	}
}

func TestNothingIsLeftMounted(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN false\n", nil)
	p.succeed(t, backend.Fetch)
	require.NotNil(t, p.run(t, backend.Build).report.Failure)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), p.dir)
}
