//go:build e2e

package engine

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestPushIsNotFooledByTheStore changes what the steps leave each other, as a RUN line that left
// its root can, or one that has taken over Export. Push says so and uploads nothing, and no
// password is in what it says.
func TestPushIsNotFooledByTheStore(t *testing.T) { //nolint:tparallel // uploads are counted
	t.Parallel()
	index := func(p *pod) string { return filepath.Join(p.dir, "layout/index.json") }
	secret := func(p *pod) string { return filepath.Join(p.dir, "credentials/.dockerconfigjson") }
	linked := func(p *pod) func(string) error {
		return func(file string) error { return os.Symlink(secret(p), file) }
	}
	tests := map[string]struct {
		tamper func(p *pod) error
		says   string
	}{
		"the index is a link":       {func(p *pod) error { return replace(index(p), linked(p)) }, "cannot be opened"},
		"a layer is a link":         {func(p *pod) error { return replace(largest(p), linked(p)) }, "cannot be opened"},
		"the folder is a link":      {func(p *pod) error { return replace(filepath.Join(p.dir, "layout/blobs"), linked(p)) }, "cannot be opened"},
		"a layer is a FIFO":         {func(p *pod) error { return replace(largest(p), fifo) }, "it is no regular file"},
		"the index is a FIFO":       {func(p *pod) error { return replace(index(p), fifo) }, "it is no regular file"},
		"the index is large":        {func(p *pod) error { return replace(index(p), sized(5<<20)) }, "more than 4194304 bytes"},
		"a layer is a sparse giant": {func(p *pod) error { return replace(largest(p), sized(1<<42)) }, "and its disk"},
		"a layer has other bytes":   {func(p *pod) error { return replace(largest(p), sized(5)) }, "has 5 bytes and not"},
		"the index is the credentials": {func(p *pod) error {
			return replace(index(p), func(file string) error { return os.Link(secret(p), file) })
		}, "does not name one manifest"},
	}
	h := newHub(t)
	built := newPod(t, h, "FROM os-base-image\nRUN head -c 300000 /dev/urandom > /etc/random\n", nil)
	built.succeed(t, backend.Fetch)
	built.buildAndExport(t)
	built.login(t, pusher)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := built.copy(t)
			require.NoError(t, tt.tamper(p))
			h.uploads()
			e := p.run(t, backend.Push)
			require.NotNil(t, e.report.Failure, e.output)
			assert.Equal(t, fault.Terminal, e.report.Failure.Class)
			assert.Contains(t, e.report.Failure.Message, "the exported image was changed")
			assert.Contains(t, e.report.Failure.Message, tt.says)
			assert.Less(t, h.uploads(), int64(300000), "the layer is not uploaded")
			requireNoLogin(t, e)
		})
	}
}

// largest is the blob of the exported layout that is a layer.
func largest(p *pod) (found string) {
	blobs, _ := filepath.Glob(filepath.Join(p.dir, "layout/blobs/sha256/*")) // the pattern is fine
	size := int64(-1)
	for _, blob := range blobs {
		if info, err := os.Lstat(blob); err == nil && info.Size() > size {
			found, size = blob, info.Size()
		}
	}
	return found
}

func fifo(file string) error { return unix.Mkfifo(file, 0o600) }

// sized makes a file of so many zeros, with a hole in their place.
func sized(size int64) func(file string) error {
	return func(file string) error {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(size), f.Close())
	}
}

func replace(file string, with func(file string) error) error {
	return errors.Join(os.RemoveAll(file), with(file))
}

// requireNoLogin makes sure that a step says nothing of the secrets that it has.
func requireNoLogin(t *testing.T, e ended) {
	t.Helper()
	for _, secret := range append(secretsOf(puller), secretsOf(pusher)...) {
		assert.NotContains(t, e.output, secret)
		assert.NotContains(t, e.report.Failure.Message, secret)
	}
}

// tampering is what a RUN line that has left its root does to the store: where the libraries read
// names and lists, and to the files of its own layer.
func tampering(p *pod, diff string) map[string]func() error {
	store, hello := filepath.Join(p.dir, "work/storage"), filepath.Join(diff, "etc/hello")
	secret := func(file string) error {
		return os.Symlink(filepath.Join(p.dir, "credentials/.dockerconfigjson"), file)
	}
	all := map[string]func() error{
		"a link for the files of a layer": func() error { return replace(diff, func(file string) error { return os.Symlink(p.dir, file) }) },
		"a link for the store":            func() error { return replace(store, func(file string) error { return os.Symlink(p.dir, file) }) },
		"a FIFO for a file of a layer":    func() error { return replace(hello, fifo) },
		"a giant for a file of a layer":   func() error { return os.Truncate(hello, 1<<42) },
		"a hard link for a file of a layer": func() error {
			return replace(hello, func(file string) error { return os.Link(filepath.Join(store, "overlay-layers/layers.json"), file) })
		},
		"folders in folders": func() error {
			return os.MkdirAll(filepath.Join(store, "overlay-images", strings.Repeat("d/", 1000)), 0o700)
		},
		"a short name that leads out": func() error {
			return os.Symlink("/etc", filepath.Join(store, "overlay/l/AAAAAAAAAAAAAAAAAAAAAAAAAA"))
		},
	}
	for what, file := range map[string]string{
		"the list of layers": "overlay-layers/layers.json", "the list of images": "overlay-images/images.json", "the lock of the store": "storage.lock",
		"a short name": filepath.Join("overlay", filepath.Base(filepath.Dir(diff)), "link"), "names below": filepath.Join("overlay", filepath.Base(filepath.Dir(diff)), "lower"),
		"layers below": filepath.Join("overlay", filepath.Base(filepath.Dir(diff)), "lower-layers"),
	} {
		all["a link for "+what] = func() error { return replace(filepath.Join(store, file), secret) }
		all["a FIFO for "+what] = func() error { return replace(filepath.Join(store, file), fifo) }
		all["a giant for "+what] = func() error { return replace(filepath.Join(store, file), sized(1<<42)) }
	}
	return all
}

// TestAStoreThatALineChangedIsRefused has Export say so soon, whatever is in the place of what it
// reads. It has no secret that it could read.
func TestAStoreThatALineChangedIsRefused(t *testing.T) {
	t.Parallel()
	built := newPod(t, newHub(t), "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	built.succeed(t, backend.Fetch)
	built.succeed(t, backend.Build)
	for name := range tampering(built, "") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := built.copy(t)
			layers, err := filepath.Glob(filepath.Join(p.dir, "work/storage/overlay/*/diff/etc/hello"))
			require.NoError(t, err)
			require.Len(t, layers, 1)
			require.NoError(t, tampering(p, filepath.Dir(filepath.Dir(layers[0])))[name]())
			e := p.run(t, backend.Export, "--patience=10s")
			require.NotNil(t, e.report.Failure, e.output)
			assert.Contains(t, e.report.Failure.Message, "a RUN line changed the store of the build")
			assert.Equal(t, backend.ExitAdmin, e.code, "another attempt would run the same line")
			requireNoLogin(t, e)
		})
	}
}

// TestFetchOpensNoStoreThatLinesHaveSeen runs Fetch again after Build, as when a node restarts: it
// begins with an empty store.
func TestFetchOpensNoStoreThatLinesHaveSeen(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	p.succeed(t, backend.Fetch)
	p.succeed(t, backend.Build)
	layers := filepath.Join(p.dir, "work/storage/overlay-layers/layers.json")
	require.FileExists(t, layers)
	credentials := filepath.Join(p.dir, "credentials/.dockerconfigjson")
	require.NoError(t, replace(layers, func(file string) error { return os.Symlink(credentials, file) }))
	h.pulls()
	e := p.succeed(t, backend.Fetch)
	assert.NotEmpty(t, h.pulls(), "all is pulled again")
	assert.NotContains(t, e.output, puller.Password)
	p.buildAndExport(t)
	p.login(t, pusher)
	assert.Equal(t, "hello\n", files(t, mutate.Extract(h.get(t, p.succeed(t, backend.Push).report.Image)))["etc/hello"])
}

// TestAPasswordInAnAnswerIsRemoved has a registry repeat the login that it got.
func TestAPasswordInAnAnswerIsRemoved(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN true\n", nil)
	p.login(t, pusher)
	h.fail(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, password, _ := r.BasicAuth()
		_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"no ` + password + " " + r.Header.Get("Authorization") + `"}]}`)) //nolint:gosec // no browser reads it
		return true
	})
	e := p.run(t, backend.Fetch)
	require.NotNil(t, e.report.Failure, e.output)
	assert.Contains(t, e.report.Failure.Message, "[removed]")
	requireNoLogin(t, e)
}
