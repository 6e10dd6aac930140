package nodestate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for link, target := range map[string]string{
		"home": "var/home", "absolute": "/var/home", "loop": "loop2", "loop2": "loop", "up": "../../../var/home", "last": "/etc",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	h := tree{root: root}
	for written, want := range map[string]string{
		"/home/core":      "/var/home/core",
		"/absolute/core":  "/var/home/core",
		"/up/core":        "/var/home/core",
		"/not/there/yet":  "/not/there/yet",
		"/last":           "/last",
		"/var/../var/./x": "/var/x",
	} {
		got, err := h.resolve(written)
		require.NoError(t, err)
		assert.Equal(t, want, got, written)
	}
	for written, want := range map[string]string{"/loop/x": "too many links", "var/x": "is not absolute"} {
		_, err := h.resolve(written)
		require.ErrorContains(t, err, want)
	}
}

func TestResolveFollowsNoLinkOfAUser(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(root, "link")))
	written := "/link/x"
	if os.Getuid() == 0 {
		require.NoError(t, os.Lchown(filepath.Join(root, "link"), 1, 1))
	} else { // then this user's links are in the root of another
		root, written = "/", filepath.Join(root, written)
	}
	_, err := tree{root: root}.resolve(written)
	require.ErrorContains(t, err, "which is not root's")
}
