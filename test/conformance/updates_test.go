//go:build e2e

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// numbered is a configuration with a file that no other has.
func numbered(n int) string {
	return nothing + fmt.Sprintf("    storage:\n      files:\n        - path: /usr/share/numbered\n          contents:\n            source: data:,number%%20%d%%0A\n", n)
}

// TestUpdates has a host updated three times, return, and go on: it keeps what runs and what ran
// before, and nothing else.
func TestUpdates(t *testing.T) {
	w := newWorld(t)
	plain := w.plain("one")
	first := w.base("one", w.native(plain, "one"))
	second := w.base("two", w.native(w.plain("two"), "two"))
	var images []string
	for n, base := range []string{first, first, second, second} {
		images = append(images, w.build(order{base, numbered(n), "FROM os-base-image\nRUN echo from the Containerfile >/usr/share/built\n"}))
	}
	ours, theirs := standIn{newDisk(t, w.path("standin"))}, upstream{newDisk(t, w.path("real"))}
	for name, h := range map[string]host{"the stand-in": ours, "the importer": theirs} {
		t.Run(name, func(t *testing.T) {
			var last string
			for n, image := range images[:3] {
				got := deployed(t, h, image)
				require.Equal(t, sum(fmt.Appendf(nil, "number %d\n", n)), got["usr/share/numbered"].content)
				want := []string{digestOf(image)}
				if last != "" {
					want = append(want, digestOf(last))
				}
				require.Equal(t, want, digests(t, h), "what runs, and what ran before")
				requireNumbers(t, h, max(n-1, 0), n)
				last = image
			}
			require.NoError(t, h.disk().SwapFirst())
			require.Equal(t, []string{digestOf(images[1]), digestOf(images[2])}, digests(t, h), "it returns")
			deployed(t, h, images[3])
			require.Equal(t, []string{digestOf(images[3]), digestOf(images[1])}, digests(t, h), "what failed is gone")
			requireNumbers(t, h, 1, 3)
		})
	}
	requireEqual(t, objects(t, theirs), objects(t, ours), "both have the same files on disk")
	listed, err := theirs.call(t.Context(), "container", "image", "list", "--repo", filepath.Join(theirs.Path, "ostree", "repo"))
	require.NoError(t, err)
	require.Len(t, strings.Fields(listed), 2)
}

// requireNumbers has the files of these images on disk, and of no others.
func requireNumbers(t *testing.T, h host, want ...int) {
	t.Helper()
	var got []int
	for object := range objects(t, h) {
		path := filepath.Join(h.disk().Path, "ostree", "repo", "objects", object[:2], object[2:])
		info, err := os.Lstat(path)
		require.NoError(t, err)
		if !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		number := 0
		if n, _ := fmt.Sscanf(string(text), "number %d\n", &number); n == 1 {
			got = append(got, number)
		}
	}
	wanted := map[int]bool{}
	for _, n := range want {
		wanted[n] = true
	}
	require.Len(t, got, len(wanted), got)
	for _, n := range got {
		require.True(t, wanted[n], got)
	}
}

// TestEtcOfAdministrators has an update keep what an administrator has edited and deleted, and
// bring what only the image has changed.
func TestEtcOfAdministrators(t *testing.T) {
	w := newWorld(t)
	base := w.base("native", w.native(w.plain("one"), "native"))
	before := w.build(order{base, nothing, "FROM os-base-image\nRUN echo 1 >/etc/image && echo 1 >/etc/both\n"})
	after := w.build(order{base, nothing, "FROM os-base-image\nRUN echo 2 >/etc/image && echo 2 >/etc/both && rm /etc/edited && echo 2 >/etc/removed\n"})
	ours, theirs := standIn{newDisk(t, w.path("standin"))}, upstream{newDisk(t, w.path("real"))}
	var results []tree
	for _, h := range []host{ours, theirs} {
		require.NoError(t, h.deploy(t.Context(), before))
		etc := filepath.Join(root(t, h), "etc")
		for file, text := range map[string]string{"both": "administrator's\n", "edited": "administrator's\n", "added": "administrator's\n"} {
			require.NoError(t, os.WriteFile(filepath.Join(etc, file), []byte(text), 0o600))
		}
		require.NoError(t, os.Remove(filepath.Join(etc, "removed")))
		require.NoError(t, os.RemoveAll(filepath.Join(etc, "base.d")))
		results = append(results, deployed(t, h, after))
	}
	got := results[0]
	for _, file := range []string{"etc/both", "etc/edited", "etc/added"} {
		require.Equal(t, sum([]byte("administrator's\n")), got[file].content, file)
	}
	require.Equal(t, sum([]byte("2\n")), got["etc/image"].content)
	require.NotContains(t, got, "etc/removed")
	require.NotContains(t, got, "etc/base.d")
	requireEqual(t, results[1], got, "the stand-in deploys what the importer does")
}
