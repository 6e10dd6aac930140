//go:build e2e

package conformance

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// world is a registry, and the /etc of a host that may pull from it.
type world struct {
	t      *testing.T
	dir    string
	host   string
	server *httptest.Server
	client *registry.Client
	keys   signtest.Pair
	// trouble is what happens to requests before the registry sees them.
	trouble *atomic.Pointer[trouble]
}

// trouble is what happens to a request instead of what the registry does.
type trouble func(w http.ResponseWriter, r *http.Request) (handled bool)

// in is the world for another test, as for a part of one.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	of := *w
	of.t = t
	return &of
}

var account = distribution.Account{Name: "push", Password: "hunter2-push", Push: true}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "layerwright-conformance-*") //nolint:usetesting // a disk, and no memory: ostree wants extended attributes
	require.NoError(t, err)
	w := &world{t: t, dir: dir, keys: signtest.NewPair(), trouble: &atomic.Pointer[trouble]{}}
	content := distribution.New(t.Context(), distribution.Options{Dir: filepath.Join(dir, "registry"), Accounts: []distribution.Account{account}})
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if trouble := w.trouble.Load(); trouble == nil || !(*trouble)(out, r) {
			content.ServeHTTP(out, r)
		}
	}))
	w.host = strings.TrimPrefix(w.server.URL, "https://")
	w.client = registry.New(registry.Options{Keychain: account, Transport: w.server.Client().Transport})
	t.Cleanup(func() {
		w.server.Close()
		require.NoError(t, os.RemoveAll(dir))
	})
	w.writeEtc()
	return w
}

// writeEtc writes what the agent and the image of a host have below /etc. All but the login can be
// read by all: skopeo runs as a user without rights.
func (w *world) writeEtc() {
	w.t.Helper()
	login, err := account.DockerConfig(w.host)
	require.NoError(w.t, err)
	w.write("/etc/ostree/auth.json", string(login), 0o600)
	w.write(w.path("auth.json"), string(login), 0o600)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	w.write("/etc/containers/certs.d/"+w.host+"/ca.crt", string(certificate), 0o644)
	w.write(w.path("ca.crt"), string(certificate), 0o644)
	policy, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{
		{Name: w.host + "/os/worker", Keys: [][]byte{w.keys.Public}}, {Name: w.host + "/os/other", Keys: [][]byte{w.keys.Public}},
	})
	require.NoError(w.t, err)
	for file, content := range policy {
		w.write("/"+strings.TrimPrefix(file, "/"), string(content), 0o644)
	}
	w.write(w.path("cosign.key"), string(w.keys.Private), 0o600)
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *world) write(file, content string, mode os.FileMode) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(w.t, os.WriteFile(file, []byte(content), mode))
	require.NoError(w.t, os.Chmod(file, mode))
}

// run runs a program, and returns what it prints.
func (w *world) run(program string, args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "PATH="+skopeo+":"+os.Getenv("PATH"), "REGISTRY_AUTH_FILE="+w.path("auth.json"), "COSIGN_PASSWORD="+signtest.Password)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(w.t, err, "%s %s: %s", program, strings.Join(args, " "), said.String())
	return strings.TrimSpace(string(out))
}

// push pushes an image, and returns its pinned reference.
func (w *world) push(repository string, image v1.Image) string {
	w.t.Helper()
	ref, err := name.ParseReference(w.host + "/os/" + repository + ":latest")
	require.NoError(w.t, err)
	require.NoError(w.t, remote.Write(ref, image, remote.WithAuth(account.Login()), remote.WithTransport(w.server.Client().Transport)))
	digest, err := image.Digest()
	require.NoError(w.t, err)
	return ref.Context().Digest(digest.String()).String()
}

// pull reads an image of the registry.
func (w *world) pull(image string) v1.Image {
	w.t.Helper()
	ref, err := name.ParseReference(image)
	require.NoError(w.t, err)
	got, err := remote.Image(ref, remote.WithAuth(account.Login()), remote.WithTransport(w.server.Client().Transport))
	require.NoError(w.t, err)
	return got
}

func (w *world) sign(image string, keys signtest.Pair) string {
	w.t.Helper()
	_, err := keys.Signer().Sign(w.t.Context(), w.client, image)
	require.NoError(w.t, err)
	return image
}

// order is what an administrator wants of an image.
type order struct {
	base, config, containerfile string
}

// flags are those of render and build.
func (w *world) flags(o order) []string {
	w.t.Helper()
	file := w.path("machineconfig.yaml")
	w.write(file, o.config, 0o644)
	flags := []string{"-f", file, "--base", o.base, "--registry-ca", w.path("ca.crt"), "--cache-dir", w.path("cache"), "-o", "json"}
	if o.containerfile != "" {
		w.write(w.path("Containerfile"), o.containerfile, 0o644)
		flags = append(flags, "--containerfile", w.path("Containerfile"))
	}
	return flags
}

// build makes and signs an image with the product's program, and returns its pinned reference.
func (w *world) build(o order) string {
	w.t.Helper()
	args := append([]string{"build", "--push", w.host + "/os/worker", "--sign-key", w.path("cosign.key")}, w.flags(o)...)
	report := struct{ Image string }{}
	text := w.run(filepath.Join(product, "layerwright"), args...)
	require.NoError(w.t, json.Unmarshal([]byte(text), &report), text)
	require.Contains(w.t, report.Image, "@sha256:")
	return report.Image
}

// described is the configuration layer that `layerwright render` describes.
func (w *world) described(o order) tree {
	w.t.Helper()
	folder := filepath.Join(w.t.TempDir(), "image")
	w.run(filepath.Join(product, "layerwright"), append([]string{"render", "--output", folder}, w.flags(o)...)...)
	found, err := filepath.Glob(filepath.Join(folder, "*", "config.tar"))
	require.NoError(w.t, err)
	require.Len(w.t, found, 1)
	layer, err := os.Open(found[0])
	require.NoError(w.t, err)
	defer func() { _ = layer.Close() }()
	out := tree{}
	require.NoError(w.t, out.apply(layer))
	return out
}

// entry is a file of a layer that a test makes.
type entry struct {
	tar.Header

	text string
}

// with is an image with one more layer.
func (w *world) with(image v1.Image, entries ...entry) v1.Image {
	w.t.Helper()
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	for _, e := range entries {
		e.Size, e.Format = int64(len(e.text)), tar.FormatPAX
		require.NoError(w.t, out.WriteHeader(&e.Header))
		_, err := io.WriteString(out, e.text)
		require.NoError(w.t, err)
	}
	require.NoError(w.t, out.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	require.NoError(w.t, err)
	image, err = mutate.AppendLayers(image, layer)
	require.NoError(w.t, err)
	return image
}

func file(name, text string, mode int64) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, text: text}
}

func folder(name string, mode int64) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}}
}

// capability is cap_net_bind_service=ep, as the kernel keeps it.
const capability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// plain is an image as any other, with what layers over it change: each kind of node.
func (w *world) plain(stream string) v1.Image {
	w.t.Helper()
	capable := file("usr/bin/capable", "#!/bin/sh\n", 0o755)
	capable.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": capability}
	owned := file("usr/share/base/owned", "owned\n", 0o640)
	owned.Uid, owned.Gid = 990, 991
	return w.with(tiny,
		folder("usr/share/base", 0o755), capable, owned, file("usr/bin/setuid", "#!/bin/sh\n", 0o4755), file("usr/share/base/stream", stream, 0o644),
		folder("usr/share/base/opaque", 0o755), file("usr/share/base/opaque/a", "a\n", 0o644), file("usr/share/base/opaque/b", "b\n", 0o644),
		folder("usr/share/base/folder", 0o755), file("usr/share/base/folder/x", "x\n", 0o644), file("usr/share/base/file", "file\n", 0o644),
		file("usr/share/base/removed", "removed\n", 0o644), file("usr/share/base/kept", "kept\n", 0o644), file("usr/share/base/empty", "", 0o644),
		folder("usr/share/base/sticky", 0o1777), entry{Header: tar.Header{Name: "usr/share/base/hard", Typeflag: tar.TypeLink, Linkname: "usr/share/base/kept", Mode: 0o644}},
		entry{Header: tar.Header{Name: "usr/share/base/link", Typeflag: tar.TypeSymlink, Linkname: "../base//kept", Mode: 0o777}},
		folder("etc/base.d", 0o750), file("etc/base.d/a", "a\n", 0o644), file("etc/base.d/b", "b\n", 0o600),
		file("etc/edited", "of the base\n", 0o644), file("etc/removed", "removed\n", 0o644),
	)
}

// lsLine is a file of what `ostree ls -RC` prints.
var lsLine = regexp.MustCompile(`^[-l]\S+\s+\d+ \d+ +\d+ ([0-9a-f]{64}) (/\S.*?)(?: -> .*)?$`)

// native is an image as those of CoreOS are: a commit of ostree's in several layers, whose files
// are links into its repository.
func (w *world) native(plain v1.Image, dir string) v1.Image {
	w.t.Helper()
	root, repo, meta, out := w.path(dir, "root"), w.path(dir, "repo"), w.path(dir, "meta.json"), w.path(dir, "oci")
	require.NoError(w.t, os.MkdirAll(root, 0o755))
	content := mutate.Extract(plain)
	cmd := exec.CommandContext(w.t.Context(), "tar", "-C", root, "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xf", "-")
	cmd.Stdin = content
	said, err := cmd.CombinedOutput()
	require.NoError(w.t, err, string(said))
	require.NoError(w.t, content.Close())
	require.NoError(w.t, os.RemoveAll(filepath.Join(root, "usr", "etc")))
	require.NoError(w.t, os.Rename(filepath.Join(root, "etc"), filepath.Join(root, "usr", "etc")))
	for _, empty := range []string{"var", "sysroot"} { // as those who make such images have them
		require.NoError(w.t, os.RemoveAll(filepath.Join(root, empty)))
		require.NoError(w.t, os.Mkdir(filepath.Join(root, empty), 0o755))
	}

	w.run("ostree", "init", "--repo="+repo, "--mode=bare")
	w.run("ostree", "commit", "--repo="+repo, "--branch=base", "--bootable", "--tree=dir="+root, "--timestamp=2026-01-01T00:00:00Z")
	w.write(meta, w.contentMeta(w.run("ostree", "ls", "--repo="+repo, "-R", "-C", "base")), 0o644)
	args := []string{"container", "encapsulate", "--repo", repo, "--contentmeta", meta}
	config, err := plain.ConfigFile()
	require.NoError(w.t, err)
	for label, value := range config.Config.Labels {
		args = append(args, "--label", label+"="+value)
	}
	w.run(importer, append(args, "base", "oci:"+out)...)
	index, err := layout.ImageIndexFromPath(out)
	require.NoError(w.t, err)
	manifest, err := index.IndexManifest()
	require.NoError(w.t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(w.t, err)
	return image
}

// contentMeta says which file goes into which layer, as rpm-ostree does by packages.
func (w *world) contentMeta(listing string) string {
	w.t.Helper()
	mapping := map[string]string{}
	for line := range strings.Lines(listing) {
		found := lsLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if found == nil {
			continue
		}
		part := "unpackaged"
		for _, known := range []string{"bin", "lib", "share"} {
			if strings.HasPrefix(found[2], "/usr/"+known+"/") {
				part = known
			}
		}
		mapping[found[1]] = part
	}
	require.NotEmpty(w.t, mapping, listing)
	text, err := json.Marshal(map[string]any{
		"version": 1, "mapping": mapping,
		"layers": map[string]string{"bin": "programs", "lib": "libraries", "share": "what programs share", "unpackaged": "unpackaged"},
	})
	require.NoError(w.t, err)
	return string(text)
}

// base pushes a base, and says what it is.
func (w *world) base(kind string, image v1.Image) string {
	w.t.Helper()
	return w.push("base-"+kind, image)
}
