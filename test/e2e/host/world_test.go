//go:build e2e

package host

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	rollouthost "github.com/layerwright/layerwright/rollout/host"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/host/machine"
	"github.com/layerwright/layerwright/test/host/power"
	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// world is a registry with a base image, and a machine that was installed with it.
type world struct {
	t       testing.TB
	machine *machine.Machine
	host    string
	server  *httptest.Server
	client  *registry.Client
	keys    signtest.Pair
	base    v1.Image
	boots   int
}

var account = distribution.Account{Name: "push", Password: "hunter2-push", Push: true}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	logrus.SetOutput(io.Discard)
	cache, err := toolchain.CacheDir()
	require.NoError(tb, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(tb, err)
	set, err := maker.Build(tb.Context(), fixtures.Tiny)
	require.NoError(tb, err)

	dir, err := os.MkdirTemp("/var/tmp", "layerwright-host-*") //nolint:usetesting // a disk, and no memory: ostree wants extended attributes
	require.NoError(tb, err)
	server := httptest.NewTLSServer(distribution.New(tb.Context(), distribution.Options{Dir: filepath.Join(dir, "registry"), Accounts: []distribution.Account{account}}))
	w := &world{
		t: tb, server: server, host: strings.TrimPrefix(server.URL, "https://"), keys: signtest.NewPair(), base: set.OS[fixtures.RHEL9]["amd64"],
		machine: &machine.Machine{
			Disk: filepath.Join(dir, "disk"), Dir: filepath.Join(dir, "machine"), Tools: filepath.Join(dir, "tools"),
			Line: power.Line{Dir: filepath.Join(dir, "line")},
		},
	}
	w.client = registry.New(registry.Options{Keychain: account, Transport: server.Client().Transport})
	tb.Cleanup(func() {
		server.Close()
		require.NoError(tb, w.machine.Shutdown(context.WithoutCancel(tb.Context())))
		require.NoError(tb, machine.Erase(w.machine.Disk))
		require.NoError(tb, os.RemoveAll(dir))
	})
	require.NoError(tb, machine.Install(tb.Context(), w.machine.Tools, standIn))
	return w
}

// install installs the machine with the base image, and with what lets it pull.
func (w *world) install() {
	w.t.Helper()
	w.installAs(w.push("base", w.base))
}

// installAs installs the machine with the base image, which a registry has by this name.
func (w *world) installAs(image string) {
	w.t.Helper()
	login, err := account.DockerConfig(w.host)
	require.NoError(w.t, err)
	files := map[string][]byte{
		"/etc/containers/certs.d/" + w.host + "/ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw}),
		"/etc/ostree/auth.json":                         login,
	}
	policy, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{{Name: w.host + "/os/worker", Keys: [][]byte{w.keys.Public}}})
	require.NoError(w.t, err)
	for path, content := range policy {
		files["/"+strings.TrimPrefix(path, "/")] = content
	}
	require.NoError(w.t, w.machine.Install(w.t.Context(), &machine.Installation{Image: w.base, Name: image, Files: files}))
}

func (w *world) boot() {
	w.t.Helper()
	w.boots++
	require.NoError(w.t, w.machine.Boot(w.t.Context(), "boot-"+string(rune('0'+w.boots))))
}

func (w *world) reboot() {
	w.t.Helper()
	require.NoError(w.t, w.machine.Shutdown(w.t.Context()))
	w.boot()
}

// with is an image with one more layer: files by their paths, and paths that are removed.
func (w *world) with(image v1.Image, files map[string]string, removed ...string) v1.Image {
	w.t.Helper()
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	for _, path := range removed {
		files[filepath.Join(filepath.Dir(path), ".wh."+filepath.Base(path))] = ""
	}
	for path, text := range files {
		require.NoError(w.t, out.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}))
		_, err := out.Write([]byte(text))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, out.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	require.NoError(w.t, err)
	image, err = mutate.AppendLayers(image, layer)
	require.NoError(w.t, err)
	return image
}

// push pushes an image and returns its pinned reference.
func (w *world) push(repository string, image v1.Image) string {
	w.t.Helper()
	ref, err := name.ParseReference(w.host + "/os/" + repository + ":latest")
	require.NoError(w.t, err)
	require.NoError(w.t, remote.Write(ref, image, remote.WithAuth(account.Login()), remote.WithTransport(w.transport())))
	digest, err := image.Digest()
	require.NoError(w.t, err)
	return ref.Context().Digest(digest.String()).String()
}

func (w *world) transport() http.RoundTripper { return w.server.Client().Transport }

func (w *world) sign(image string) string {
	w.t.Helper()
	_, err := w.keys.Signer().Sign(w.t.Context(), w.client, image)
	require.NoError(w.t, err)
	return image
}

// agent is how the agent sees the host.
func (w *world) agent(mode rollouthost.Mode) rollouthost.Host {
	w.t.Helper()
	h, err := rollouthost.NewDetector(w.machine.Root()).Detect(w.t.Context(), mode)
	require.NoError(w.t, err)
	return h
}

// sh runs a command in the host.
func (w *world) sh(command string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "/usr/bin/busybox", "sh", "-ec", command)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: w.machine.Root()}
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin"}
	out, err := cmd.CombinedOutput()
	require.NoError(w.t, err, "%s: %s", command, out)
	return strings.TrimSpace(string(out))
}
