package osindex_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// TestApplyLikeAnOverlay unpacks random layers into a folder each, and looks at the folders from
// the top as an overlay does: a name is what the uppermost folder says; directories of several
// folders are merged until something else, a whiteout or an opaque marker ends the lookup (kernel
// documentation, "Overlay Filesystem", for whiteouts as files of that name).
func TestApplyLikeAnOverlay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // repeatable on purpose
		var folders []unpacked
		var layers []layer
		for number := range 1 + random.IntN(5) {
			folder := unpacked{number: number, root: t.TempDir(), explicit: map[string]bool{}}
			var entries layer
			for range random.IntN(25) {
				if hdr := randomEntry(random, number); folder.add(t, hdr) {
					entries = append(entries, hdr)
				}
			}
			folders, layers = append(folders, folder), append(layers, entries)
		}
		want := map[string]string{}
		slices.Reverse(folders)
		show(t, folders, "", want)
		require.Empty(t, cmp.Diff(want, list(indexOf(t, layers...))), "seed %d: %s", seed, text(layers))
	}
}

func text(layers []layer) string {
	var all strings.Builder
	for i, entries := range layers {
		for _, hdr := range entries {
			fmt.Fprintf(&all, "\n%d %c %s %04o %s", i, hdr.Typeflag, hdr.Name, hdr.Mode, hdr.Linkname)
		}
	}
	return all.String()
}

func randomEntry(random *rand.Rand, number int) tar.Header {
	parts := make([]string, 1+random.IntN(4))
	for i := range parts {
		parts[i] = alphabet[random.IntN(len(alphabet))]
	}
	name := strings.Join(parts, "/")
	switch random.IntN(9) {
	case 0, 1, 2:
		return dir(name+"/", []int64{0o755, 0o700, 0o1777, 0o711}[random.IntN(4)])
	case 3, 4:
		return file(name, strings.Repeat("x", 10*number+random.IntN(10)))
	case 5:
		return symlink(name, alphabet[random.IntN(len(alphabet))])
	case 6:
		return hardlink(name, strings.Join(parts[:random.IntN(len(parts))], "/")+"/"+alphabet[random.IntN(len(alphabet))])
	case 7:
		return opaque(name)
	default:
		return whiteout(name)
	}
}

// unpacked is a layer on disk, with its whiteouts as files.
type unpacked struct {
	number   int
	root     string
	explicit map[string]bool // directories that the layer names
}

// add unpacks an entry; false if that is not possible, or is another test's matter.
func (u *unpacked) add(t *testing.T, hdr tar.Header) bool {
	t.Helper()
	name := path.Clean(hdr.Name)
	at := filepath.Join(u.root, name)
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if info, err := os.Lstat(filepath.Join(u.root, parent)); err == nil && !info.IsDir() {
			return false // a file, or a link of the same layer
		}
		if _, err := os.Lstat(filepath.Join(u.root, path.Dir(parent), ".wh."+path.Base(parent))); err == nil && strings.Contains(name, ".wh.") {
			return false // a whiteout below a whiteout means nothing, but would make a directory here
		}
	}
	target := filepath.Join(u.root, hdr.Linkname)
	if hdr.Typeflag == tar.TypeLink {
		if info, err := os.Lstat(target); err != nil || info.IsDir() || target == at {
			return false
		}
	}
	info, err := os.Lstat(at)
	exists := err == nil
	if exists && (!info.IsDir() || hdr.Typeflag != tar.TypeDir) {
		if strings.HasPrefix(target, at+"/") {
			return false // it would remove what it links to
		}
		require.NoError(t, os.RemoveAll(at))
		for dir := range u.explicit {
			if dir == name || strings.HasPrefix(dir, name+"/") {
				delete(u.explicit, dir)
			}
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	switch hdr.Typeflag {
	case tar.TypeDir:
		require.NoError(t, os.MkdirAll(at, 0o755))
		require.NoError(t, os.Chmod(at, os.FileMode(hdr.Mode&0o777)|sticky(hdr.Mode)))
		u.explicit[name] = true
	case tar.TypeSymlink:
		require.NoError(t, os.Symlink(hdr.Linkname, at))
	case tar.TypeLink:
		require.NoError(t, os.Link(target, at))
	default:
		require.NoError(t, os.WriteFile(at, []byte(hdr.Linkname), 0o644))
	}
	return true
}

func sticky(mode int64) os.FileMode {
	if mode&0o1000 != 0 {
		return os.ModeSticky
	}
	return 0
}

// show describes what is in a directory of the merged folders, the uppermost first.
func show(t *testing.T, folders []unpacked, at string, all map[string]string) {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(folder.root, at))
		require.NoError(t, err)
		for _, entry := range entries {
			names[strings.TrimPrefix(entry.Name(), ".wh.")] = true
		}
		if lies(filepath.Join(folder.root, at, ".wh..wh..opq")) {
			break
		}
	}
	for name := range names {
		if !strings.HasPrefix(name, ".wh.") {
			showName(t, folders, path.Join(at, name), all)
		}
	}
}

func lies(at string) bool {
	_, err := os.Lstat(at)
	return err == nil
}

// showName describes what one name is, and what is below it.
func showName(t *testing.T, folders []unpacked, at string, all map[string]string) {
	t.Helper()
	var merged []unpacked
	for _, folder := range folders {
		found := filepath.Join(folder.root, at)
		info, err := os.Lstat(found)
		require.True(t, err == nil || errors.Is(err, fs.ErrNotExist))
		if err == nil && !info.IsDir() {
			if len(merged) == 0 {
				all["/"+at] = describeReal(t, folder, found, info)
				return
			}
			break
		}
		if err == nil {
			merged = append(merged, folder)
		}
		// What ends the lookup in this folder: a whiteout of the name, or a marker in it or above
		// that only it obeys.
		if lies(filepath.Join(folder.root, path.Dir(at), ".wh."+path.Base(at))) || lies(filepath.Join(folder.root, path.Dir(at), ".wh..wh..opq")) {
			break
		}
	}
	if len(merged) == 0 {
		return
	}
	all["/"+at] = describeDirectory(t, merged, at)
	for i, folder := range merged {
		if lies(filepath.Join(folder.root, at, ".wh..wh..opq")) {
			merged = merged[:i+1]
			break
		}
	}
	show(t, merged, at, all)
}

// describeDirectory has the attributes of the uppermost layer that names the directory.
func describeDirectory(t *testing.T, merged []unpacked, at string) string {
	t.Helper()
	// Where a marker empties it, what lower layers say of the directory's contents is gone, but not
	// what they say of itself.
	for _, folder := range merged {
		if folder.explicit[at] {
			info, err := os.Lstat(filepath.Join(folder.root, at))
			require.NoError(t, err)
			return describeReal(t, folder, filepath.Join(folder.root, at), info)
		}
	}
	return fmt.Sprintf("dir 0755 @%d", merged[len(merged)-1].number)
}

func describeReal(t *testing.T, folder unpacked, found string, info fs.FileInfo) string {
	t.Helper()
	mode := info.Mode().Perm()
	switch {
	case info.IsDir():
		if info.Mode()&os.ModeSticky != 0 {
			mode |= 0o1000
		}
		return fmt.Sprintf("dir %04o @%d", mode, folder.number)
	case info.Mode()&os.ModeSymlink != 0:
		target, err := os.Readlink(found)
		require.NoError(t, err)
		return fmt.Sprintf("link 0777 -> %s @%d", target, folder.number)
	case info.Mode().IsRegular():
		return fmt.Sprintf("file %04o %d bytes @%d", mode, info.Size(), folder.number)
	}
	require.NoError(t, errors.New("an unknown type"))
	return ""
}
