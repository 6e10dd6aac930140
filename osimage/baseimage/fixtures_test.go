package baseimage_test

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/fixtures/debian"
)

// packages gives the one package that tiny images are made of, without any network.
type packages struct{}

// Run does what the named tool would.
func (packages) Run(_ context.Context, cmd debian.Command) error {
	if cmd.Name == "dpkg-deb" {
		w := tar.NewWriter(cmd.Stdout)
		if err := w.WriteHeader(&tar.Header{Name: "./bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: 4}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "busy"); err != nil {
			return err
		}
		return w.Close()
	}
	for _, arg := range cmd.Args {
		if arg == "download" {
			return os.WriteFile(filepath.Join(cmd.Dir, "busybox-static_1_amd64.deb"), nil, 0o600)
		}
	}
	return nil
}

func TestIndexOfAnOperatingSystem(t *testing.T) {
	t.Parallel()
	keyring := filepath.Join(t.TempDir(), "keyring.gpg")
	require.NoError(t, os.WriteFile(keyring, nil, 0o600))
	maker, err := fixtures.New(fixtures.Options{
		CacheDir: t.TempDir(), Streams: []fixtures.Stream{fixtures.RHEL9}, Debian: debian.Source{Keyring: keyring}, Runner: packages{},
	})
	require.NoError(t, err)
	set, err := maker.Build(t.Context(), fixtures.Tiny)
	require.NoError(t, err)
	image := serve(t).remoteOf(t, set.OS[fixtures.RHEL9]["amd64"])
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir()})
	x, err := loader.Index(t.Context(), image)
	require.NoError(t, err)

	for asked, want := range map[string]string{
		"/bin/sh": "/usr/bin/busybox", "/home/core/.ssh": "/var/home/core/.ssh", "/root": "/var/roothome", "/opt/x": "/var/opt/x",
		"/usr/local/bin": "/var/usrlocal/bin", "/etc/os-release": "/usr/lib/os-release", "/ostree": "/sysroot/ostree",
	} {
		r, err := x.Follow(asked)
		require.NoError(t, err)
		require.Equal(t, want, r.Path, asked)
	}
	for _, kept := range []string{"/etc/passwd", "/etc/group", "/usr/lib/systemd/system-preset/90-default.preset", "/usr/lib/systemd/system/kubelet.service", "/etc/motd"} {
		content, ok := x.Content(kept)
		require.True(t, ok, kept)
		require.NotEmpty(t, content)
	}
	_, ok := x.Lookup("/etc/coreos-build-note")
	require.False(t, ok, "the last layer removes it")
	entry, ok := x.Lookup("/etc/shadow")
	require.True(t, ok)
	require.Equal(t, osindex.File, entry.Kind)
	_, ok = x.Content("/etc/shadow")
	require.False(t, ok)

	found, err := loader.ReadFiles(t.Context(), image, x, []string{"/usr/bin/busybox", "/usr/share/fixture/second-name", "/etc/passwd"})
	require.NoError(t, err)
	require.Equal(t, "busy", string(found["/usr/bin/busybox"]))
	require.Contains(t, string(found["/usr/share/fixture/second-name"]), "two names")
	require.Contains(t, string(found["/etc/passwd"]), "core:x:1000:")
}
