//go:build e2e

package conformance

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// TestFaults has what must not be deployed, and what fails on the way: both importers refuse it,
// what could boot before still can, and the same image is deployed once the fault is gone.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	base := w.base("native", w.native(w.plain("one"), "native"))
	good := w.build(order{base, numbered(1), ""})
	next := w.build(order{base, numbered(2), containerfile})
	content := w.pull(next)
	for kind, h := range map[string]host{"standin": standIn{newDisk(t, w.path("standin"))}, "real": upstream{newDisk(t, w.path("real"))}} {
		t.Run(kind, func(t *testing.T) {
			w := w.in(t)
			deployed(t, h, good)
			refuse := func(t *testing.T, image string, words ...string) {
				t.Helper()
				err := h.deploy(t.Context(), image)
				require.Error(t, err)
				require.Regexp(t, strings.Join(words, "|"), err.Error())
				require.Equal(t, []string{digestOf(good)}, digests(t, h))
			}
			t.Run("a disk that is full", func(t *testing.T) {
				restore, err := h.disk().Fill(t.Context())
				require.NoError(t, err)
				refuse(t, next, "would be exceeded")
				require.NoError(t, restore())
			})
			t.Run("an image without a signature", func(t *testing.T) {
				refuse(t, w.push("worker", w.with(content, file("usr/share/unsigned", kind, 0o644))), "A signature was required, but no signature exists")
			})
			t.Run("an image that another has signed", func(t *testing.T) {
				forged := w.push("worker", w.with(content, file("usr/share/forged", kind, 0o644)))
				refuse(t, w.sign(forged, signtest.NewPair()), "cryptographic signature verification failed")
			})
			t.Run("an image with the signature of another image", func(t *testing.T) {
				stolen := w.push("worker", w.with(content, file("usr/share/stolen", kind, 0o644)))
				w.copySignature(next, stolen)
				refuse(t, stolen, "does not match")
			})
			t.Run("an image with the signature of another repository", func(t *testing.T) {
				moved := w.push("other", content)
				w.copySignature(next, moved)
				refuse(t, moved, "is not accepted")
			})
			t.Run("an image that is no operating system", func(t *testing.T) {
				refuse(t, w.sign(w.push("worker", w.withoutLabels(content)), w.keys), "Target image does not have ostree.bootable label")
			})
			t.Run("a connection that breaks", func(t *testing.T) {
				w.onLayer(t, content, func(out http.ResponseWriter, blob []byte) {
					_, _ = out.Write(blob[:len(blob)/2])
					panic(http.ErrAbortHandler)
				})
				refuse(t, next, "EOF", "reset by peer", "expected .* bytes in blob")
			})
			t.Run("a full /boot", func(t *testing.T) {
				boot := filepath.Join(h.disk().Path, "boot")
				fill(t, boot)
				err := h.deploy(t.Context(), next)
				require.ErrorContains(t, err, "No space left on device")
				require.NoError(t, unix.Unmount(boot, 0))
				require.Equal(t, []string{digestOf(good)}, digests(t, h))
			})
			got := deployed(t, h, next)
			require.Equal(t, []string{digestOf(next), digestOf(good)}, digests(t, h))
			requireContent(t, w, content, got)
		})
	}
}

// TestLayerWithAnotherDigest has a registry answer with another layer than what is signed. All
// importers refuse it, but the real one has it in its repository by then, and takes it from there
// the next time: whoever calls it has to remove the layers that belong to no image first.
func TestLayerWithAnotherDigest(t *testing.T) {
	w := newWorld(t)
	base := w.base("native", w.native(w.plain("one"), "native"))
	image := w.build(order{base, numbered(1), ""})
	content := w.pull(image)
	evil := w.lastLayer(w.with(content, file("usr/share/evil", "evil\n", 0o644)))
	refuse := func(t *testing.T, h host) {
		t.Helper()
		w.onLayer(t, content, func(out http.ResponseWriter, _ []byte) { _, _ = out.Write(evil) })
		err := h.deploy(t.Context(), image)
		require.Error(t, err)
		require.Regexp(t, "corrupted blob|another digest", err.Error())
		w.trouble.Store(nil)
	}
	t.Run("the stand-in forgets it", func(t *testing.T) {
		h := standIn{newDisk(t, w.path("standin"))}
		refuse(t, h)
		requireContent(t, w, content, deployed(t, h, image))
	})
	t.Run("the importer keeps it", func(t *testing.T) {
		h := upstream{newDisk(t, w.path("real"))}
		refuse(t, h)
		require.Contains(t, deployed(t, h, image), "usr/share/evil", "the importer has learned better: nothing has to be removed any more")
	})
	t.Run("the importer forgets it when it is told to", func(t *testing.T) {
		h := upstream{newDisk(t, w.path("pruned"))}
		refuse(t, h)
		_, err := h.call(t.Context(), "container", "image", "prune-layers", "--repo", filepath.Join(h.Path, "ostree", "repo"))
		require.NoError(t, err)
		requireContent(t, w, content, deployed(t, h, image))
	})
}

// TestKilled has the importer killed while it reads each of the layers, and go on.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	image := w.build(order{w.base("native", w.native(w.plain("one"), "native")), configuration, containerfile})
	content := w.pull(image)
	layers, err := content.Layers()
	require.NoError(t, err)
	h := upstream{newDisk(t, w.path("real"))}
	// The commit is in the first layer of the base, which is read after the files that it is about.
	order := []int{0}
	for n := range layers[1:] {
		order = append(order, n+1)
	}
	base := baseOf(t, content)
	order = slices.Concat(order[1:base.Layers], order[:1], order[base.Layers:])
	for _, n := range order {
		ctx, kill := context.WithCancel(t.Context())
		w.onLayerAt(t, content, n, func(out http.ResponseWriter, blob []byte) {
			_, _ = out.Write(blob[:len(blob)/2])
			kill()
			panic(http.ErrAbortHandler)
		})
		cmd := h.command(ctx, h.deployment(image)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		require.Error(t, cmd.Run(), "layer %d of %d", n, len(layers))
		kill()
	}
	w.trouble.Store(nil)
	requireContent(t, w, content, deployed(t, h, image))
}

// TestPolicyIsNotAskedForEachImage has what agents rely on no host for: an image without a
// signature is deployed where the policy accepts what it names no keys for. Importers look at the
// default alone.
func TestPolicyIsNotAskedForEachImage(t *testing.T) {
	w := newWorld(t)
	image := w.push("elsewhere", w.native(w.plain("one"), "native"))
	policy, err := os.ReadFile(signaturepolicy.PolicyPath)
	require.NoError(t, err)
	for kind, h := range map[string]host{"standin": standIn{newDisk(t, w.path("standin"))}, "real": upstream{newDisk(t, w.path("real"))}} {
		t.Run(kind, func(t *testing.T) {
			w.write(signaturepolicy.PolicyPath, `{"default":[{"type":"insecureAcceptAnything"}]}`, 0o644)
			err := h.deploy(t.Context(), image)
			require.ErrorContains(t, err, "containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage")
			w.write(signaturepolicy.PolicyPath, `{"default":[{"type":"reject"}]}`, 0o644)
			err = h.deploy(t.Context(), image)
			require.ErrorContains(t, err, "rejected by policy")
			w.write(signaturepolicy.PolicyPath, string(policy), 0o644)
			require.NoError(t, h.deploy(t.Context(), image))
		})
	}
}

// TestUnreadable has a host whose certificates only root can read: what pulls is not root.
func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	image := w.build(order{w.base("native", w.native(w.plain("one"), "native")), numbered(1), ""})
	h := upstream{newDisk(t, w.path("real"))}
	for _, path := range []string{"/etc/containers/certs.d/" + w.host + "/ca.crt", "/etc/containers/policy.json", "/etc/containers/registries.d"} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o700))
		err = h.deploy(t.Context(), image)
		require.ErrorContains(t, err, "permission denied", path)
		require.NoError(t, os.Chmod(path, info.Mode().Perm()))
	}
	require.NoError(t, h.deploy(t.Context(), image))
}

// TestSecondImporter has two importers at once, as where an administrator calls bootc while the
// agent stages.
func TestSecondImporter(t *testing.T) {
	w := newWorld(t)
	base := w.base("native", w.native(w.plain("one"), "native"))
	images := []string{w.build(order{base, numbered(1), ""}), w.build(order{base, numbered(2), ""})}
	h := upstream{newDisk(t, w.path("real"))}
	var running []*exec.Cmd
	for _, image := range images {
		cmd := h.command(t.Context(), h.deployment(image)...)
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		_ = cmd.Wait() // one may find that the other was quicker
	}
	require.NoError(t, h.deploy(t.Context(), images[1]))
	require.Equal(t, digestOf(images[1]), digests(t, h)[0])
}

// copySignature makes the signature of an image that of another.
func (w *world) copySignature(from, to string) {
	w.t.Helper()
	at := func(image string) name.Tag {
		repository, digest, _ := strings.Cut(image, "@")
		tag, err := name.NewTag(repository + ":" + strings.Replace(digest, ":", "-", 1) + ".sig")
		require.NoError(w.t, err)
		return tag
	}
	require.NoError(w.t, remote.Write(at(to), w.pull(at(from).String()), remote.WithAuth(account.Login()), remote.WithTransport(w.server.Client().Transport)))
}

// withoutLabels is an image that says nothing of itself.
func (w *world) withoutLabels(image v1.Image) v1.Image {
	w.t.Helper()
	config, err := image.ConfigFile()
	require.NoError(w.t, err)
	config = config.DeepCopy()
	config.Config.Labels = nil
	image, err = mutate.ConfigFile(image, config)
	require.NoError(w.t, err)
	return image
}

// onLayer has something happen to the last layer of an image, until the end of a test.
func (w *world) onLayer(t *testing.T, image v1.Image, answer func(out http.ResponseWriter, blob []byte)) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	w.onLayerAt(t, image, len(layers)-1, answer)
	t.Cleanup(func() { w.trouble.Store(nil) })
}

func (w *world) onLayerAt(t *testing.T, image v1.Image, n int, answer func(out http.ResponseWriter, blob []byte)) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	digest, err := layers[n].Digest()
	require.NoError(t, err)
	content, err := layers[n].Compressed()
	require.NoError(t, err)
	defer func() { _ = content.Close() }()
	blob, err := io.ReadAll(content)
	require.NoError(t, err)
	cut := trouble(func(out http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/blobs/"+digest.String()) {
			return false
		}
		answer(out, append([]byte{}, blob...))
		return true
	})
	w.trouble.Store(&cut)
}

// lastLayer is the last layer of an image, as it is in a registry.
func (w *world) lastLayer(image v1.Image) []byte {
	w.t.Helper()
	layers, err := image.Layers()
	require.NoError(w.t, err)
	content, err := layers[len(layers)-1].Compressed()
	require.NoError(w.t, err)
	defer func() { _ = content.Close() }()
	blob, err := io.ReadAll(content)
	require.NoError(w.t, err)
	return blob
}

// fill makes a folder a file system without space.
func fill(t *testing.T, dir string) {
	t.Helper()
	was := t.TempDir()
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-a", dir+"/.", was).Run())
	require.NoError(t, unix.Mount("full", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-a", was+"/.", dir).Run())
	_ = os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o600)
}
