package osindex_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// ostreeLike has the links of an ostree system, and some that lead nowhere or in circles.
func ostreeLike(t *testing.T) *osindex.Index {
	t.Helper()
	return indexOf(t, layer{
		dir("usr/bin/", 0o755), file("usr/bin/bash", "x"), symlink("bin", "usr/bin"), symlink("home", "var/home"),
		dir("var/", 0o755), symlink("usr/local", "../var/usrlocal"), symlink("root", "/var/roothome"), symlink("sh", "bin/../bin/bash"),
		symlink("up", "../../../../usr"), symlink("loop", "loop"), symlink("ping", "pong"), symlink("pong", "/ping"), file("etc/os-release", ""),
		symlink("etc/up", ".."), symlink("self", "."), symlink("top", "/"), symlink("usr/bin/sh", "bash"),
	})
}

func TestResolve(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		path, resolve, follow string // empty for an error
		exists                bool   // what follow leads to
	}{
		"a path without links":                  {"/usr/bin/bash", "/usr/bin/bash", "/usr/bin/bash", true},
		"the root":                              {"/", "/", "/", true},
		"an empty path":                         {"", "/", "/", true},
		"a parent that is a link":               {"/bin/bash", "/usr/bin/bash", "/usr/bin/bash", true},
		"a last part that is a link":            {"/bin", "/bin", "/usr/bin", true},
		"a last part that is a link, slashed":   {"/bin//", "/bin", "/usr/bin", true},
		"a relative link with a way up":         {"/usr/local/bin/tool", "/var/usrlocal/bin/tool", "/var/usrlocal/bin/tool", false},
		"an absolute link to nothing yet":       {"/root", "/root", "/var/roothome", false},
		"below an absolute link":                {"/root/.ssh/id", "/var/roothome/.ssh/id", "/var/roothome/.ssh/id", false},
		"below what is missing in the link":     {"/home/core/.ssh", "/var/home/core/.ssh", "/var/home/core/.ssh", false},
		"a link through another one":            {"/sh", "/sh", "/usr/bin/bash", true},
		"a link to a link":                      {"/bin/sh", "/usr/bin/sh", "/usr/bin/bash", true},
		"a link above the root":                 {"/up/bin", "/usr/bin", "/usr/bin", true},
		"a path above the root":                 {"/../../bin/bash", "/usr/bin/bash", "/usr/bin/bash", true},
		"a way up behind a link":                {"/bin/../local", "/usr/local", "/var/usrlocal", false},
		"a way up out of what is missing":       {"/missing/x/../../bin/bash", "/usr/bin/bash", "/usr/bin/bash", true},
		"a link to the parent":                  {"/etc/up/bin/bash", "/usr/bin/bash", "/usr/bin/bash", true},
		"a link to its own directory":           {"/self/self/bin", "/bin", "/usr/bin", true},
		"a link to the root":                    {"/top/top", "/top", "/", true},
		"a link to itself, not followed":        {"/loop", "/loop", "", false},
		"a link to itself, followed":            {"/loop/x", "", "", false},
		"two links to each other":               {"/ping/x", "", "", false},
		"below a file":                          {"/bin/bash/x", "", "", false},
		"a way up from a file":                  {"/bin/bash/..", "", "", false},
		"below a link to a file":                {"/sh/x/y", "", "", false},
		"as many links as Linux takes":          {strings.Repeat("/self", 40) + "/bin/", "/bin", "", false},
		"one link more than that":               {strings.Repeat("/self", 41) + "/usr", "", "", false},
		"a name that the image does not have":   {"/etc/new.conf", "/etc/new.conf", "/etc/new.conf", false},
		"dots and double slashes":               {"//./etc/.//os-release", "/etc/os-release", "/etc/os-release", true},
		"a path without the slash in the front": {"bin/bash", "/usr/bin/bash", "/usr/bin/bash", true},
	}
	x := ostreeLike(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := x.Resolve(test.path)
			require.Equal(t, test.resolve == "", err != nil, "%v", err)
			require.Equal(t, test.resolve, r.Path)
			r, err = x.Follow(test.path)
			require.Equal(t, test.follow == "", err != nil, "%v", err)
			require.Equal(t, test.follow, r.Path)
			require.Equal(t, test.exists, r.Exists())
			if r.Exists() {
				entry, ok := x.Lookup(r.Path)
				require.True(t, ok)
				require.Equal(t, entry, r.Entry)
			}
		})
	}
}

func TestResolveErrors(t *testing.T) {
	t.Parallel()
	x := ostreeLike(t)
	_, err := x.Follow("/etc/up/ping/x")
	wrapped := fmt.Errorf("placing a file: %w", err)
	var loop *osindex.LoopError
	require.ErrorAs(t, wrapped, &loop)
	require.Equal(t, "/etc/up/ping/x", loop.Path)
	require.Contains(t, []string{"/ping", "/pong"}, loop.Link)
	require.EqualError(t, err, `resolving "/etc/up/ping/x": too many symbolic links, the last is "`+loop.Link+`"`)

	_, err = x.Resolve("/bin/bash/conf.d/x")
	var notDir *osindex.NotDirectoryError
	require.ErrorAs(t, fmt.Errorf("placing a file: %w", err), &notDir)
	require.Equal(t, &osindex.NotDirectoryError{Path: "/bin/bash/conf.d/x", Parent: "/usr/bin/bash"}, notDir)
	require.EqualError(t, err, `resolving "/bin/bash/conf.d/x": "/usr/bin/bash" is not a directory`)
}

// TestResolveLikeTheKernel compares with what Linux does in a real directory tree that openat2(2)
// takes for the root.
func TestResolveLikeTheKernel(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable on purpose
	for range 25 {
		root := t.TempDir()
		x := indexOf(t, randomTree(t, random, root))
		at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		for range 100 {
			asked := "/" + randomPath(random, 5)
			for _, follow := range []bool{false, true} {
				requireLikeKernel(t, x, kernel{root: root, at: at}, asked, follow)
			}
		}
		require.NoError(t, unix.Close(at))
	}
}

var alphabet = []string{"a", "b", "c", "d"}

func randomPath(random *rand.Rand, depth int) string {
	parts := make([]string, 1+random.IntN(depth))
	for i := range parts {
		if parts[i] = alphabet[random.IntN(len(alphabet))]; random.IntN(6) == 0 {
			parts[i] = ".."
		}
	}
	return strings.Join(parts, "/")
}

// randomTree makes a tree on disk and returns its entries.
func randomTree(t *testing.T, random *rand.Rand, root string) layer {
	t.Helper()
	var entries layer
	var grow func(dir string, depth int)
	grow = func(at string, depth int) {
		for _, name := range alphabet {
			at := path.Join(at, name)
			switch kind := random.IntN(6); {
			case kind <= 1 && depth < 4:
				require.NoError(t, os.Mkdir(filepath.Join(root, at), 0o755))
				entries = append(entries, dir(at+"/", 0o755))
				grow(at, depth+1)
			case kind <= 3:
				target := randomPath(random, 4)
				if random.IntN(2) == 0 {
					target = "/" + target
				}
				require.NoError(t, os.Symlink(target, filepath.Join(root, at)))
				entries = append(entries, symlink(at, target))
			case kind == 4:
				require.NoError(t, os.WriteFile(filepath.Join(root, at), nil, 0o644))
				entries = append(entries, tar.Header{Name: at, Typeflag: tar.TypeReg, Mode: 0o644})
			}
		}
	}
	grow("", 0)
	return entries
}

// kernel asks Linux.
type kernel struct {
	root string
	at   int
}

// resolve is the path inside the root, and whether something is there.
func (k kernel) resolve(asked string, follow bool) (string, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	if !follow {
		how.Flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat2(k.at, asked, &how)
	for errors.Is(err, unix.EAGAIN) { // a rename anywhere on the machine while it followed ".." (openat2(2))
		fd, err = unix.Openat2(k.at, asked, &how)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	found, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(found, k.root), "/"), nil
}

func requireLikeKernel(t *testing.T, x *osindex.Index, k kernel, asked string, follow bool) {
	t.Helper()
	want, wantErr := k.resolve(asked, follow)
	got, gotErr := x.Resolve(asked)
	if follow {
		got, gotErr = x.Follow(asked)
	}
	var loop *osindex.LoopError
	var notDir *osindex.NotDirectoryError
	switch {
	case wantErr == nil:
		require.NoError(t, gotErr, asked)
		require.True(t, got.Exists(), asked)
		require.Equal(t, want, got.Path, asked)
	case errors.Is(wantErr, unix.ELOOP):
		require.ErrorAs(t, gotErr, &loop, asked)
	case errors.Is(wantErr, unix.ENOTDIR):
		require.ErrorAs(t, gotErr, &notDir, asked)
	default:
		// Linux stops where something is missing; the index goes on with the text.
		require.ErrorIs(t, wantErr, unix.ENOENT, asked)
		if gotErr == nil && !strings.Contains(asked, "..") {
			_, ok := x.Lookup(got.Path)
			require.Equal(t, ok, got.Exists(), asked)
		}
	}
}
