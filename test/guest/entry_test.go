package guest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const entryText = `title Debian GNU/Linux 12 (bookworm) (ostree:0)
version 2
options root=/dev/vda rw ostree=/ostree/boot.1/default/abc/0
linux /ostree/default-abc/vmlinuz-6.1
initrd /ostree/default-abc/initramfs-6.1.img
`

func TestParseEntry(t *testing.T) {
	t.Parallel()
	t.Run("reads what ostree writes", func(t *testing.T) {
		t.Parallel()
		e, err := parseEntry([]byte(entryText))
		require.NoError(t, err)
		require.Equal(t, Entry{
			Version: 2, Title: "Debian GNU/Linux 12 (bookworm) (ostree:0)", Kernel: "/ostree/default-abc/vmlinuz-6.1",
			Initrd: "/ostree/default-abc/initramfs-6.1.img", Options: "root=/dev/vda rw ostree=/ostree/boot.1/default/abc/0",
		}, e)
	})
	for name, text := range map[string]string{
		"refuses an entry without a kernel":   "version 1\ninitrd /i\n",
		"refuses an entry without initrd":     "version 1\nlinux /l\n",
		"refuses a version that is no number": "version one\nlinux /l\ninitrd /i\n",
		"refuses an empty file":               "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseEntry([]byte(text))
			require.Error(t, err)
		})
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	t.Run("takes the highest version, whatever the order", func(t *testing.T) {
		t.Parallel()
		e, err := newest([]Entry{{Version: 9}, {Version: 10}, {Version: 2}})
		require.NoError(t, err)
		require.Equal(t, 10, e.Version)
	})
	t.Run("refuses a disk without entries", func(t *testing.T) {
		t.Parallel()
		_, err := newest(nil)
		require.ErrorContains(t, err, "no boot loader entry")
	})
}

func TestListed(t *testing.T) {
	t.Parallel()
	list := "/12/040755/0/0/.//\n/2/040755/0/0/..//\n/13/100644/0/0/ostree-1-default.conf/345/\n"
	require.Equal(t, []string{".", "..", "ostree-1-default.conf"}, listed([]byte(list)))
}

// makeDisk makes a disk with two boot loader entries and one deployment.
func makeDisk(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"boot/loader/entries/ostree-1-default.conf":    "version 1\nlinux /old\ninitrd /old\n",
		"boot/loader/entries/ostree-2-default.conf":    "title two\nversion 2\nlinux /new\ninitrd /new.img\noptions a=b c\n",
		"boot/loader/entries/README":                   "not an entry",
		"boot/new":                                     "kernel",
		"boot/new.img":                                 "initramfs",
		"ostree/deploy/default/deploy/abc.0/etc/hosts": "as the image has it",
		"ostree/deploy/default/deploy/abc.0.origin":    "[origin]\n",
		"ostree/deploy/default/var/lib/here":           "was here",
	} {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, format(t.Context(), disk, root))
	return disk
}

func TestBootFilesAreThoseOfTheNewestEntry(t *testing.T) {
	t.Parallel()
	disk, dir := makeDisk(t), t.TempDir()
	entry, err := bootFiles(t.Context(), disk, dir)
	require.NoError(t, err)
	require.Equal(t, Entry{Version: 2, Title: "two", Kernel: "/new", Initrd: "/new.img", Options: "a=b c"}, entry)
	for name, want := range map[string]string{"kernel": "kernel", "initrd": "initramfs"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}

func TestPut(t *testing.T) {
	t.Parallel()
	disk := makeDisk(t)
	from := filepath.Join(t.TempDir(), "archive")
	require.NoError(t, os.WriteFile(from, []byte("an archive"), 0o600))
	require.NoError(t, Put(t.Context(), disk, "registry.test:5000/os@sha256:1", map[string]File{
		"/etc/containers/certs.d/registry.test:5000/ca.crt": {Content: []byte("a certificate"), Mode: 0o644},
		"/etc/hosts":                {Content: []byte("edited"), Mode: 0o644},
		"/var/lib/images/image.tar": {From: from},
	}))
	for name, want := range map[string]string{
		"deploy/abc.0/etc/containers/certs.d/registry.test:5000/ca.crt": "a certificate",
		"deploy/abc.0/etc/hosts":   "edited",
		"var/lib/images/image.tar": "an archive",
		"var/lib/here":             "was here",
		"deploy/abc.0.origin":      "[origin]\ncontainer-image-reference=ostree-unverified-registry:registry.test:5000/os@sha256:1\n",
	} {
		got, err := debugfs(t.Context(), disk, "cat "+stateroot+"/"+name)
		require.NoError(t, err)
		require.Equal(t, want, string(got), name)
	}
	err := Put(t.Context(), disk, "", map[string]File{"/usr/bin/x": {Content: []byte("x"), Mode: 0o755}})
	require.ErrorContains(t, err, "only /etc and /var")
}
