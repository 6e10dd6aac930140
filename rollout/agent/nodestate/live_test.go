package nodestate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// image is where a test has the files of a deployment.
func image(checkout string) string { return "/sysroot/ostree/deploy/os/deploy/" + checkout }

// TestDeploymentsThatARunningHostCantFollow has images that differ in more than the content of
// files: the host boots them, and looking at them is no error.
func TestDeploymentsThatARunningHostCantFollow(t *testing.T) {
	t.Parallel()
	create := func(t *testing.T, root, checkout, at string, how func(string) error) {
		t.Helper()
		at = root + image(checkout) + at
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, how(at))
	}
	folder := func(at string) error { return os.MkdirAll(filepath.Join(at, "sub"), 0o755) }
	text := func(at string) error { return os.WriteFile(at, []byte("1"), 0o644) }
	link := func(target string) func(string) error {
		return func(at string) error { return os.Symlink(target, at) }
	}
	// large is a file whose beginning is the same in both images.
	large := func(end string) func(string) error {
		return func(at string) error {
			f, err := os.Create(at)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte(end), maxFile+1)
			require.NoError(t, err)
			return f.Close()
		}
	}
	tests := map[string]struct {
		at       string
		was, is  func(string) error
		expected string
	}{
		"a folder becomes a file":            {"/usr/etc/x", folder, text, "/etc/x is a directory in one image and a file in the other"},
		"a file becomes a folder":            {"/usr/etc/x", text, folder, "/etc/x is a file in one image and a directory in the other"},
		"a folder becomes a link":            {"/usr/etc/x", folder, link("/etc"), "/etc/x is a directory in one image and a link in the other"},
		"a link out of the image":            {"/usr/etc/x", folder, link("../../../../../../../.."), "/etc/x is a directory in one image and a link in the other"},
		"a file becomes a pipe":              {"/usr/etc/x", text, func(at string) error { return unix.Mkfifo(at, 0o600) }, "/etc/x is a file in one image and a special in the other"},
		"a large file differs in its end":    {"/usr/lib/initramfs.img", large("1"), large("2"), "/usr/lib/initramfs.img differs, and is too large to be looked at"},
		"a large file of /etc differs there": {"/usr/etc/db", large("1"), large("2"), "/usr/etc/db differs, and is too large to be looked at"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, h := newHost(t)
			create(t, root, "a.0", tt.at, tt.was)
			create(t, root, "b.0", tt.at, tt.is)
			d, err := h.Compare("a.0", "b.0")
			require.NoError(t, err)
			assert.Equal(t, tt.expected, d.Reboot)
		})
	}
}

// TestFolderReplacedByALink has an administrator put a link where the images have a
// folder: what is in that is edited, and looking at it is no error.
func TestFolderReplacedByALink(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	put(t, root, image("a.0")+"/usr/etc/x/f", "1")
	put(t, root, image("b.0")+"/usr/etc/x/f", "2")
	require.NoError(t, os.Symlink("/var/there", root+"/etc/x"))
	d, err := h.Compare("a.0", "b.0")
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/x/f"}, d.Edited)
	require.Error(t, h.ApplyLive("a.0", "b.0", "image"), "and nothing is written through it")
}
