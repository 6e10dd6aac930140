package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/hack/release/attached"
	releases "github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/releasetest"
	"github.com/layerwright/layerwright/hack/release/sums"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// asProgram makes the test binary behave as the program itself, so that a test can kill it.
const asProgram = "LOAD_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// writeBundle writes an unpacked bundle with the images of agent and controller.
func writeBundle(t *testing.T, pair *signtest.Pair) string {
	t.Helper()
	dir := t.TempDir()
	released := filepath.Join(dir, released)
	programs := filepath.Join(dir, "programs")
	releasetest.WritePrograms(t, programs)
	amd64 := releases.Programs{Folder: filepath.Join(programs, "linux-amd64"), KMS: filepath.Join(programs, "linux-amd64")}
	arm64 := releases.Programs{Folder: filepath.Join(programs, "linux-arm64"), KMS: filepath.Join(programs, "linux-arm64")}
	release := releases.Release{Version: "v0.1.0", Revision: "abc", Created: time.Unix(1_700_000_000, 0)}
	manifest := ""
	agent, err := release.Index(amd64.Agent(), arm64.Agent())
	require.NoError(t, err)
	controller, err := release.Index(amd64.Controller(), arm64.Controller())
	require.NoError(t, err)
	for _, image := range []attached.Image{{Name: releases.Agent, Tag: "v0.1.0", Index: agent}, {Name: releases.Controller, Tag: "v0.1.0", Index: controller}} {
		digest, err := image.Index.Digest()
		require.NoError(t, err)
		manifest += "image: " + image.Name + "@" + digest.String() + "\n"
		if pair == nil {
			require.NoError(t, attached.Write(t.Context(), filepath.Join(released, images, filepath.Base(image.Name)), image, nil))
		} else {
			require.NoError(t, attached.Write(t.Context(), filepath.Join(released, images, filepath.Base(image.Name)), image, pair.Key))
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Join(released, manifests), 0o755))
	write(t, filepath.Join(released, manifests, "install.yaml"), []byte(manifest))
	list, err := sums.Of(released)
	require.NoError(t, err)
	write(t, filepath.Join(released, sums.File), list)
	if pair != nil {
		signature, err := pair.Key.SignBlob(t.Context(), list)
		require.NoError(t, err)
		write(t, filepath.Join(released, sums.Signature), signature)
		write(t, filepath.Join(released, sums.Key), pair.Public)
	}
	return dir
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

// load runs the program in this process.
func load(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// TestLoadGoesOnAfterAKill kills the program at many points, and has the last run end.
func TestLoadGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	bundle := writeBundle(t, nil)
	self, err := os.Executable()
	require.NoError(t, err)

	whole := releasetest.NewRegistry()
	server := httptest.NewServer(whole)
	t.Cleanup(server.Close)
	code, _, stderr := load(t, "--from", bundle, "--to", strings.TrimPrefix(server.URL, "http://"))
	require.Zero(t, code, stderr)
	uploads := whole.Uploads()

	there := releasetest.NewRegistry()
	var mu sync.Mutex // of what the registry's requests look at
	var process *os.Process
	killed := 0
	there.Before = func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if n == 5+3*killed { // each run gets a little further
			_ = process.Kill()
		}
	}
	server = httptest.NewServer(there)
	t.Cleanup(server.Close)
	to := strings.TrimPrefix(server.URL, "http://") + "/lw"
	total := 0
	for {
		program := exec.CommandContext(t.Context(), self, "--from", bundle, "--to", to)
		program.Env = append(os.Environ(), asProgram+"=1")
		var out bytes.Buffer
		program.Stdout, program.Stderr = &out, &out
		mu.Lock()
		require.NoError(t, program.Start())
		process = program.Process
		mu.Unlock()
		err := program.Wait()
		total += there.Uploads()
		if err == nil {
			break
		}
		require.Equal(t, "signal: killed", err.Error(), out.String())
		_, err = os.Stat(filepath.Join(bundle, manifests, "install.yaml"))
		if killed == 0 {
			require.NoError(t, os.RemoveAll(filepath.Join(bundle, manifests))) // of the whole run above
		} else {
			require.ErrorIs(t, err, os.ErrNotExist, "manifests come when all images are there")
		}
		mu.Lock()
		killed++
		mu.Unlock()
		there.Reset()
	}
	assert.Greater(t, killed, 3)
	assert.LessOrEqual(t, total, uploads+killed*4, "a run uploads again what was under way alone: four at once")

	manifest, err := os.ReadFile(filepath.Join(bundle, manifests, "install.yaml"))
	require.NoError(t, err)
	for line := range strings.Lines(string(manifest)) {
		pinned := strings.TrimSpace(strings.TrimPrefix(line, "image: "))
		require.True(t, strings.HasPrefix(pinned, to+"/"), pinned)
		ref, err := name.NewDigest(pinned)
		require.NoError(t, err)
		index, err := remote.Index(ref)
		require.NoError(t, err)
		require.NoError(t, validate.Index(index))
		_, err = remote.Head(ref.Context().Tag("v0.1.0"))
		require.NoError(t, err)
	}
}

func TestLoadTrustsTheAuthorityThatIsNamed(t *testing.T) {
	t.Parallel()
	pair := signtest.NewPair()
	bundle := writeBundle(t, &pair)
	server := httptest.NewTLSServer(releasetest.NewRegistry())
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write(t, ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	to := strings.TrimPrefix(server.URL, "https://")

	code, stdout, stderr := load(t, "--from", bundle, "--to", to, "--ca", ca)
	require.Zero(t, code, stderr)
	assert.Contains(t, stderr, "signed with the key in it: sha256:"+pair.ID())
	assert.Contains(t, stdout, "kubectl apply --server-side -f "+filepath.Join(bundle, "manifests", "install.yaml"))

	key := filepath.Join(t.TempDir(), "cosign.pub")
	write(t, key, pair.Public)
	code, _, stderr = load(t, "--from", bundle, "--to", to, "--ca", ca, "--key", key)
	require.Zero(t, code, stderr)
	assert.Contains(t, stderr, "signed with the key of --key")
}

// TestLoadWritesManifestsOfWhatIsThereAlone has registries that take no image.
func TestLoadWritesManifestsOfWhatIsThereAlone(t *testing.T) {
	t.Parallel()
	bundle := writeBundle(t, nil)
	ours := httptest.NewTLSServer(releasetest.NewRegistry())
	ours.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(ours.Close)
	another, err := pki.New(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, another.EnsureAuthority("ca"))
	there := releasetest.NewRegistry()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		there.ServeHTTP(w, r)
	}))
	t.Cleanup(refusing.Close)
	for wantErr, args := range map[string][]string{
		"the account has no right to push":                {"--to", strings.TrimPrefix(refusing.URL, "http://")},
		"name the certificate of its authority with --ca": {"--to", strings.TrimPrefix(ours.URL, "https://"), "--ca", another.Cert("ca")},
	} {
		code, stdout, stderr := load(t, append([]string{"--from", bundle}, args...)...)
		assert.Equal(t, 1, code)
		assert.Contains(t, stderr, wantErr)
		assert.Empty(t, stdout)
		assert.NoDirExists(t, filepath.Join(bundle, manifests))
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	pair, other := signtest.NewPair(), signtest.NewPair()
	there := releasetest.NewRegistry()
	server := httptest.NewServer(there)
	t.Cleanup(server.Close)
	to := strings.TrimPrefix(server.URL, "http://")
	file := func(t *testing.T, content []byte) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "file")
		write(t, path, content)
		return path
	}
	tests := map[string]struct {
		args     func(t *testing.T, bundle string) []string
		wantCode int
		wantErr  string
	}{
		"no registry": {func(*testing.T, string) []string { return nil }, 2, "name the registry with --to"},
		"a bundle that is half there": {func(t *testing.T, bundle string) []string {
			t.Helper()
			require.NoError(t, os.RemoveAll(filepath.Join(bundle, released, images, "layerwright")))
			return []string{"--to", to}
		}, 1, "is missing: copy or unpack it again"},
		"a damaged layer": {func(t *testing.T, bundle string) []string {
			t.Helper()
			blobs, err := filepath.Glob(filepath.Join(bundle, released, images, "layerwright-agent", "blobs", "sha256", "*"))
			require.NoError(t, err)
			require.NoError(t, os.Truncate(blobs[0], 1))
			return []string{"--to", to}
		}, 1, "is damaged: its checksum is not the one in SHA256SUMS"},
		"another key": {func(t *testing.T, _ string) []string {
			t.Helper()
			return []string{"--to", to, "--key", file(t, other.Public)}
		}, 1, "is not signed with this key"},
		"no such key":    {func(*testing.T, string) []string { return []string{"--to", to, "--key", "/no/such/key"} }, 1, "reading the public key"},
		"no certificate": {func(t *testing.T, _ string) []string { t.Helper(); return []string{"--to", to, "--ca", file(t, nil)} }, 1, "has no certificate in PEM"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bundle := writeBundle(t, &pair)
			code, _, stderr := load(t, append([]string{"--from", bundle}, tt.args(t, bundle)...)...)
			assert.Equal(t, tt.wantCode, code)
			assert.Contains(t, stderr, tt.wantErr)
			_, err := os.Stat(filepath.Join(bundle, manifests))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
	t.Cleanup(func() { assert.Zero(t, there.Asked(), "what is refused reaches no registry") })
}
