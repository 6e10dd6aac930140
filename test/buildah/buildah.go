package buildah

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Options say which registry is used, and how.
type Options struct {
	// Host is the registry's name and port.
	Host string
	// Login is a docker configuration file that logs in there.
	Login []byte
	// CA is the file with the certificate of the registry's authority; without one the registry is
	// asked over plain HTTP.
	CA string
}

// Buildah is the program with a storage of its own.
type Buildah struct {
	tb      testing.TB
	program string
	dir     string
	env     []string
}

// footprints are folders that Buildah makes whatever it is told. They are removed with it where it
// made them.
var footprints = []string{"/run/containers", "/var/lib/containers"}

// New prepares a storage that is removed after the test. A test without root, or before `make
// tools`, fails.
func New(tb testing.TB, options Options) *Buildah {
	tb.Helper()
	b := &Buildah{tb: tb, program: find(tb), dir: tb.TempDir()}
	for _, dir := range footprints {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			tb.Cleanup(func() { _ = os.RemoveAll(dir) })
		}
	}
	if err := b.configure(options); err != nil {
		tb.Fatalf("preparing Buildah: %v", err)
	}
	tb.Cleanup(b.clean)
	return b
}

func find(tb testing.TB) string {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("Buildah's overlay storage needs root")
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	root, err := toolchain.RepositoryRoot(".")
	if err != nil {
		tb.Fatal(err)
	}
	bin, err := toolchain.New(root, cache).Find(tb.Context(), toolchain.Buildah)
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(bin, "buildah")
}

// configure writes the settings that Buildah would take from /etc, and points it at them.
func (b *Buildah) configure(options Options) error {
	limits, err := ulimits()
	if err != nil {
		return err
	}
	containers := fmt.Sprintf("[containers]\ndefault_ulimits = [%s]\n[engine]\nhelper_binaries_dir = [%q]\n", limits, b.path("helpers"))
	registries := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = %t\n", options.Host, options.CA == "")
	for file, content := range map[string]string{
		"containers.conf": containers,
		"registries.conf": registries,
		"storage.conf":    "",
		"auth.json":       string(options.Login),
		// Signatures are no matter here. The folder is $HOME's.
		".config/containers/policy.json": `{"default":[{"type":"insecureAcceptAnything"}]}`,
		// It is looked for before anything starts, and not run where containers have the host's
		// network.
		"helpers/netavark": "#!/bin/sh\nexit 1\n",
		"tmp/.keep":        "",
	} {
		if err := os.MkdirAll(filepath.Dir(b.path(file)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(b.path(file), []byte(content), 0o700); err != nil {
			return err
		}
	}
	b.env = append(os.Environ(),
		"HOME="+b.dir, "TMPDIR="+b.path("tmp"), "BUILDAH_ISOLATION=chroot", "REGISTRY_AUTH_FILE="+b.path("auth.json"),
		"CONTAINERS_CONF="+b.path("containers.conf"), "CONTAINERS_REGISTRIES_CONF="+b.path("registries.conf"),
		"CONTAINERS_STORAGE_CONF="+b.path("storage.conf"))
	if options.CA != "" {
		b.env = append(b.env, "SSL_CERT_FILE="+options.CA)
	}
	return nil
}

func (b *Buildah) path(name string) string { return filepath.Join(b.dir, name) }

// ulimits are the process's own: Buildah asks for more, which takes CAP_SYS_RESOURCE.
func ulimits() (string, error) {
	var text []string
	for name, resource := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var limit unix.Rlimit
		if err := unix.Getrlimit(resource, &limit); err != nil {
			return "", err
		}
		text = append(text, fmt.Sprintf("%q", fmt.Sprintf("%s=%d:%d", name, int64(limit.Cur), int64(limit.Max)))) // -1 is unlimited
	}
	return strings.Join(text, ", "), nil
}

// Run runs Buildah and returns what it prints, without the last line's end. A failure ends the
// test.
func (b *Buildah) Run(args ...string) string {
	b.tb.Helper()
	out, err := b.run(b.tb.Context(), args...)
	if err != nil {
		b.tb.Fatal(err)
	}
	return out
}

// sealing is what Buildah says where the kernel has a page of its program in use. It copies itself
// before it does anything, and gives up at once.
const sealing = "Close_Fd sealing memfd copy: Device or resource busy"

func (b *Buildah) run(ctx context.Context, args ...string) (out string, err error) {
	const most = 5
	for range most {
		if out, err = b.runOnce(ctx, args...); err == nil || !strings.Contains(err.Error(), sealing) {
			break
		}
	}
	return out, err
}

func (b *Buildah) runOnce(ctx context.Context, args ...string) (string, error) {
	argv := append([]string{"--root", b.path("root"), "--runroot", b.path("run"), "--storage-driver", "overlay"}, args...)
	cmd := exec.CommandContext(ctx, b.program, argv...)
	cmd.Dir, cmd.Env = b.dir, b.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("buildah %s: %w\n%s%s", strings.Join(args, " "), err, out, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// Try is Run for what may fail: the error has what Buildah says about it.
func (b *Buildah) Try(args ...string) (string, error) { return b.run(b.tb.Context(), args...) }

// Obey makes Buildah follow files that say which signatures images need, in place of taking every
// image: by their paths on a node, policy.json and those in registries.d below /etc/containers.
func (b *Buildah) Obey(files map[string][]byte) {
	b.tb.Helper()
	for path, content := range files {
		name, is := strings.CutPrefix(path, "/etc/containers/")
		if !is {
			b.tb.Fatalf("%s is not below /etc/containers", path)
		}
		target := b.path(filepath.Join(".config/containers", name)) // which counts before /etc/containers
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, content, 0o600)); err != nil {
			b.tb.Fatal(err)
		}
	}
}

// Container makes a container of an image, which is pulled unless the storage has it, and returns
// its name and where its file system is mounted until the test ends.
func (b *Buildah) Container(image string) (name, root string) {
	b.tb.Helper()
	name = b.Run("from", "--quiet", image)
	return name, b.Run("mount", name)
}

// clean unmounts everything, so that the folder can be removed.
func (b *Buildah) clean() {
	ctx := context.WithoutCancel(b.tb.Context())
	for _, args := range [][]string{{"umount", "--all"}, {"rm", "--all"}, {"rmi", "--all", "--force"}} {
		if _, err := b.run(ctx, args...); err != nil {
			b.tb.Errorf("removing Buildah's storage: %v", err)
		}
	}
	// The driver keeps this one for its next call.
	if err := unix.Unmount(b.path("root/overlay"), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		b.tb.Errorf("unmounting Buildah's storage: %v", err)
	}
}
