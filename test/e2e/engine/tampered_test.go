//go:build e2e

package engine

import (
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
)

// TestPushIsNotFooledByTheStore changes what the steps leave each other, as a RUN line that left its root can, or one that has
// taken over Export. Push says so and uploads nothing, and no password is in what it says.
func TestPushIsNotFooledByTheStore(t *testing.T) {
	t.Parallel()
	blob := func(t *testing.T, p *pod) string {
		t.Helper()
		blobs, err := filepath.Glob(filepath.Join(p.dir, "layout/blobs/sha256/*"))
		require.NoError(t, err)
		require.NotEmpty(t, blobs)
		largest := ""
		for _, b := range blobs {
			if largest == "" || size(t, b) > size(t, largest) {
				largest = b
			}
		}
		return largest
	}
	link := func(t *testing.T, p *pod, file string) {
		t.Helper()
		require.NoError(t, os.RemoveAll(file))
		require.NoError(t, os.Symlink(filepath.Join(p.dir, "credentials/.dockerconfigjson"), file))
	}
	tests := map[string]struct {
		tamper func(t *testing.T, p *pod)
		says   string
	}{
		"the index is a link":  {func(t *testing.T, p *pod) { link(t, p, filepath.Join(p.dir, "layout/index.json")) }, "cannot be opened"},
		"a layer is a link":    {func(t *testing.T, p *pod) { link(t, p, blob(t, p)) }, "cannot be opened"},
		"the folder is a link": {func(t *testing.T, p *pod) { link(t, p, filepath.Join(p.dir, "layout/blobs")) }, "cannot be opened"},
		"a layer is a FIFO":    {func(t *testing.T, p *pod) { replace(t, blob(t, p), fifo) }, "it is no regular file"},
		"the index is a FIFO":  {func(t *testing.T, p *pod) { replace(t, filepath.Join(p.dir, "layout/index.json"), fifo) }, "it is no regular file"},
		"the index is large": {func(t *testing.T, p *pod) {
			replace(t, filepath.Join(p.dir, "layout/index.json"), func(file string) error { return os.WriteFile(file, make([]byte, 5<<20), 0o600) })
		}, "more than 4194304 bytes"},
		"a layer is a sparse giant": {func(t *testing.T, p *pod) { replace(t, blob(t, p), sparse) }, "and its disk"},
		"a layer has other bytes": {func(t *testing.T, p *pod) {
			replace(t, blob(t, p), func(file string) error { return os.WriteFile(file, []byte("other"), 0o600) })
		}, "has 5 bytes and not"},
		"the index is the credentials": {func(t *testing.T, p *pod) {
			replace(t, filepath.Join(p.dir, "layout/index.json"), func(file string) error {
				return os.Link(filepath.Join(p.dir, "credentials/.dockerconfigjson"), file)
			})
		}, "does not name one manifest"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			p := newPod(t, h, "FROM os-base-image\nRUN head -c 300000 /dev/urandom > /etc/random\n", nil)
			p.succeed(t, backend.Fetch)
			p.buildAndExport(t)
			p.login(t, pusher)
			tt.tamper(t, p)
			h.uploads()
			e := p.run(t, backend.Push)
			require.NotNil(t, e.report.Failure, e.output)
			assert.Equal(t, backend.Admin, e.report.Failure.Class)
			assert.Contains(t, e.report.Failure.Message, "the exported image was changed")
			assert.Contains(t, e.report.Failure.Message, tt.says)
			assert.Less(t, h.uploads(), int64(300000), "the layer is not uploaded")
			requireNoLogin(t, e)
		})
	}
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Lstat(file)
	require.NoError(t, err)
	return info.Size()
}

func fifo(file string) error { return unix.Mkfifo(file, 0o600) }

func sparse(file string) error {
	f, err := os.Create(file)
	if err == nil {
		err = f.Truncate(1 << 42)
		_ = f.Close()
	}
	return err
}

func replace(t *testing.T, file string, with func(file string) error) {
	t.Helper()
	require.NoError(t, os.RemoveAll(file))
	require.NoError(t, with(file))
}

// requireNoLogin makes sure that a step says nothing of the secrets that it has.
func requireNoLogin(t *testing.T, e ended) {
	t.Helper()
	for _, secret := range append(secretsOf(puller), secretsOf(pusher)...) {
		assert.NotContains(t, e.output, secret)
		assert.NotContains(t, e.report.Failure.Message, secret)
	}
}

// TestAChangedStoreFailsWithoutSecrets has a link in the place of a layer's files. Export has no secret that it could read by it.
func TestAChangedStoreFailsWithoutSecrets(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	p.succeed(t, backend.Fetch)
	p.succeed(t, backend.Build)
	layers, err := filepath.Glob(filepath.Join(p.dir, "work/storage/overlay/*/diff/etc/hello"))
	require.NoError(t, err)
	require.Len(t, layers, 1)
	diff := filepath.Dir(filepath.Dir(layers[0]))
	require.NoError(t, os.RemoveAll(diff))
	require.NoError(t, os.Symlink(p.dir, diff))
	e := p.run(t, backend.Export)
	require.NotNil(t, e.report.Failure, e.output)
	assert.Contains(t, e.report.Failure.Message, "exporting layer")
}

// TestFetchOpensNoStoreThatLinesHaveSeen runs Fetch again after Build, as when a node restarts: it begins with an empty store.
func TestFetchOpensNoStoreThatLinesHaveSeen(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	p.succeed(t, backend.Fetch)
	p.succeed(t, backend.Build)
	layers := filepath.Join(p.dir, "work/storage/overlay-layers/layers.json")
	require.FileExists(t, layers)
	replace(t, layers, func(file string) error {
		return os.Symlink(filepath.Join(p.dir, "credentials/.dockerconfigjson"), file)
	})
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
		_, _ = w.Write([]byte(`{"errors":[{"code":"DENIED","message":"no ` + password + " " + r.Header.Get("Authorization") + `"}]}`))
		return true
	})
	e := p.run(t, backend.Fetch)
	require.NotNil(t, e.report.Failure, e.output)
	assert.Contains(t, e.report.Failure.Message, "[removed]")
	requireNoLogin(t, e)
}
