//go:build e2e

package conformance

import (
	"context"
	"io"
	"net/http"
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
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// TestFaults has what must not be deployed, and what fails on the way: both importers refuse it,
// what could boot before still can, and the same image is deployed once the fault is gone.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	base := w.base("native", w.native(w.plain("one"), "native"))
	good := w.build(order{base, numbered(1), ""})
	next := w.build(order{base, numbered(2), containerfile})
	content := w.pull(next)
	for kind, h := range map[string]host{"standin": standIn{newDisk(t, w.path("standin"))}, "real": real{newDisk(t, w.path("real"))}} {
		t.Run(kind, func(t *testing.T) {
			w := w.in(t)
			deployed(t, h, good)
			refuse := func(t *testing.T, image string, words ...string) {
				t.Helper()
				_, err := h.deploy(t.Context(), image)
				require.Error(t, err)
				require.Regexp(t, strings.Join(words, "|"), err.Error())
				require.Equal(t, []string{digestOf(good)}, digests(t, h))
			}
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
			t.Run("an image that no policy is about", func(t *testing.T) {
				refuse(t, w.sign(w.push("elsewhere", content), w.keys), "rejected by policy")
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
			t.Run("a layer with another digest", func(t *testing.T) {
				w.onLayer(t, content, func(out http.ResponseWriter, blob []byte) {
					blob[len(blob)-5] ^= 1 // of the checksum
					_, _ = out.Write(blob)
				})
				refuse(t, next, "corrupted blob", "another digest", "checksum", "corrupt")
			})
			t.Run("a disk that is full", func(t *testing.T) {
				restore, err := h.disk().Fill(t.Context())
				require.NoError(t, err)
				refuse(t, next, "would be exceeded")
				require.NoError(t, restore())
			})
			t.Run("a full /boot", func(t *testing.T) {
				boot := filepath.Join(h.disk().Path, "boot")
				fill(t, boot)
				_, err := h.deploy(t.Context(), next)
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

// TestKilled has the importer killed while it reads each of the layers, and go on.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	image := w.build(order{w.base("native", w.native(w.plain("one"), "native")), configuration, containerfile})
	content := w.pull(image)
	layers, err := content.Layers()
	require.NoError(t, err)
	h := real{newDisk(t, w.path("real"))}
	for n := range layers {
		ctx, kill := context.WithCancel(t.Context())
		w.onLayerAt(t, content, n, func(out http.ResponseWriter, blob []byte) {
			_, _ = out.Write(blob[:len(blob)/2])
			kill()
			panic(http.ErrAbortHandler)
		})
		args, _ := h.deployArgs(image)
		cmd := h.command(ctx, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		require.Error(t, cmd.Run())
		kill()
	}
	w.trouble.Store(nil)
	requireContent(t, w, content, deployed(t, h, image))
}

// TestUnreadable has a host whose certificates only root can read: what pulls is not root.
func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	image := w.build(order{w.base("native", w.native(w.plain("one"), "native")), numbered(1), ""})
	h := real{newDisk(t, w.path("real"))}
	for _, path := range []string{"/etc/containers/certs.d/" + w.host + "/ca.crt", "/etc/containers/policy.json", "/etc/containers/registries.d"} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o700))
		_, err = h.deploy(t.Context(), image)
		require.ErrorContains(t, err, "permission denied", path)
		require.NoError(t, os.Chmod(path, info.Mode().Perm()))
	}
	_, err := h.deploy(t.Context(), image)
	require.NoError(t, err)
}

// TestSecondImporter has two importers at once, as where an administrator calls bootc while the
// agent stages.
func TestSecondImporter(t *testing.T) {
	w := newWorld(t)
	base := w.base("native", w.native(w.plain("one"), "native"))
	images := []string{w.build(order{base, numbered(1), ""}), w.build(order{base, numbered(2), ""})}
	h := real{newDisk(t, w.path("real"))}
	var running []*exec.Cmd
	for _, image := range images {
		args, _ := h.deployArgs(image)
		cmd := h.command(t.Context(), args...)
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		_ = cmd.Wait() // one may find that the other was quicker
	}
	_, err := h.deploy(t.Context(), images[1])
	require.NoError(t, err)
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
