package osindex_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

type layer = []tar.Header

func TestApply(t *testing.T) {
	t.Parallel()
	base := layer{
		dir("d/", 0o750), owned(file("d/a", "aa"), 1, 2), dir("d/sub/", 0o700), file("d/sub/b", "b"), symlink("l", "d"), file("f", "fff"),
	}
	tests := map[string]struct {
		layers []layer
		want   map[string]string
	}{
		"takes in every type of entry": {
			layers: []layer{{
				dir("./", 0o555), dir("./d/", 0o1777), file("/d/f", "12345"), symlink("d/s", "../x//y"), hardlink("d/h", "/d/f"),
				{Name: "c", Typeflag: tar.TypeChar, Mode: 0o620, Devmajor: 4},
				{Name: "b", Typeflag: tar.TypeBlock, Mode: 0o660},
				{Name: "p", Typeflag: tar.TypeFifo, Mode: 0o600, Uid: 7, Gid: 8},
				{Name: "cont", Typeflag: tar.TypeCont, Mode: 0o4755},
				{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "none"}},
			}},
			want: map[string]string{
				"/d": "dir 1777 @0", "/d/f": "file 0644 5 bytes @0", "/d/s": "link 0777 -> ../x//y @0", "/d/h": "file 0644 5 bytes @0",
				"/c": "special 0620 @0", "/b": "special 0660 @0", "/p": "special 0600 7:8 @0", "/cont": "file 4755 0 bytes @0",
			},
		},
		"reads long names in both dialects": {
			layers: []layer{{
				file(strings.Repeat("dir/", 60)+long(200), ""), withFormat(symlink("gnu/"+long(120), "/"+long(130)), tar.FormatGNU),
			}},
			want: withParents(map[string]string{
				"/" + strings.Repeat("dir/", 60) + long(200): "file 0644 0 bytes @0",
				"/gnu/" + long(120):                          "link 0777 -> /" + long(130) + " @0",
			}),
		},
		"keeps extended attributes but signatures of content": {
			layers: []layer{{
				withRecords(file("bin", ""), "SCHILY.xattr.security.capability", "\x01\x02", "SCHILY.xattr.user.note", "", "SCHILY.xattr.security.ima", "x"),
				withRecords(dir("d/", 0o755), "SCHILY.xattr.user.a", "1", "LIBARCHIVE.creationtime", "5"),
			}},
			want: map[string]string{
				"/bin": "file 0644 0 bytes security.capability=\x01\x02 user.note= @0", "/d": "dir 0755 user.a=1 @0",
			},
		},
		"leaves what a later layer does not name": {
			layers: []layer{base, {file("d/new", "")}},
			want: map[string]string{
				"/d": "dir 0750 @0", "/d/a": "file 0644 1:2 2 bytes @0", "/d/sub": "dir 0700 @0", "/d/sub/b": "file 0644 1 bytes @0",
				"/d/new": "file 0644 0 bytes @1", "/l": "link 0777 -> d @0", "/f": "file 0644 3 bytes @0",
			},
		},
		"changes a directory and keeps what is in it": {
			layers: []layer{base, {owned(dir("d", 0o711), 3, 4)}},
			want: map[string]string{
				"/d": "dir 0711 3:4 @1", "/d/a": "file 0644 1:2 2 bytes @0", "/d/sub": "dir 0700 @0", "/d/sub/b": "file 0644 1 bytes @0",
				"/l": "link 0777 -> d @0", "/f": "file 0644 3 bytes @0",
			},
		},
		"replaces directories by files, and files by directories": {
			layers: []layer{base, {file("d", "now"), dir("l/", 0o755), dir("f/", 0o700), file("f/x", "")}},
			want: map[string]string{
				"/d": "file 0644 3 bytes @1", "/l": "dir 0755 @1", "/f": "dir 0700 @1", "/f/x": "file 0644 0 bytes @1",
			},
		},
		"removes what a whiteout names": {
			layers: []layer{base, {whiteout("d/sub"), whiteout("l"), whiteout("not/there"), whiteout("f")}},
			want:   map[string]string{"/d": "dir 0750 @0", "/d/a": "file 0644 1:2 2 bytes @0", "/not": "dir 0755 @1"},
		},
		"ignores a whiteout below a whiteout": {
			layers: []layer{base, {whiteout("d"), whiteout("d/a"), opaque("d/sub"), whiteout("l"), whiteout("f")}},
			want:   map[string]string{},
		},
		"keeps what the layer itself adds before and after a whiteout": {
			layers: []layer{base, {
				dir("d/", 0o711), file("d/new", ""), whiteout("d"), file("d/newer", ""), whiteout("f"), file("f", "1"), file("l", "1"), whiteout("l"),
			}},
			want: map[string]string{
				"/d": "dir 0711 @1", "/d/new": "file 0644 0 bytes @1", "/d/newer": "file 0644 0 bytes @1",
				"/f": "file 0644 1 bytes @1", "/l": "file 0644 1 bytes @1",
			},
		},
		"makes a removed directory again for what is added": {
			layers: []layer{base, {whiteout("d"), file("d/new", ""), whiteout("f"), whiteout("l")}},
			want:   map[string]string{"/d": "dir 0755 @1", "/d/new": "file 0644 0 bytes @1"},
		},
		"empties a directory with an opaque marker at the end": {
			layers: []layer{base, {file("d/new", ""), file("d/sub/c", ""), opaque("d"), whiteout("f"), whiteout("l")}},
			want: map[string]string{
				"/d": "dir 0750 @0", "/d/new": "file 0644 0 bytes @1", "/d/sub": "dir 0755 @1", "/d/sub/c": "file 0644 0 bytes @1",
			},
		},
		"empties a directory with an opaque marker at the beginning": {
			layers: []layer{base, {opaque("d/sub"), dir("d/sub", 0o711), file("d/sub/c", ""), whiteout("f"), whiteout("l")}},
			want: map[string]string{
				"/d": "dir 0750 @0", "/d/a": "file 0644 1:2 2 bytes @0", "/d/sub": "dir 0711 @1", "/d/sub/c": "file 0644 0 bytes @1",
			},
		},
		"empties the root": {
			layers: []layer{base, {file("new", ""), opaque(".")}},
			want:   map[string]string{"/new": "file 0644 0 bytes @1"},
		},
		"hides nothing of the layer that replaces a file": {
			layers: []layer{base, {file("d", ""), dir("d/", 0o700), whiteout("l"), whiteout("f")}},
			want: map[string]string{
				"/d": "dir 0700 @1", "/d/a": "file 0644 1:2 2 bytes @0", "/d/sub": "dir 0700 @0", "/d/sub/b": "file 0644 1 bytes @0",
			},
		},
		"turns a lower layer's link into a directory with content": {
			layers: []layer{base, {file("l/x", ""), whiteout("f/x")}},
			want: map[string]string{
				"/d": "dir 0750 @0", "/d/a": "file 0644 1:2 2 bytes @0", "/d/sub": "dir 0700 @0", "/d/sub/b": "file 0644 1 bytes @0",
				"/l": "dir 0755 @1", "/l/x": "file 0644 0 bytes @1", "/f": "dir 0755 @1",
			},
		},
		"follows a symbolic link of the same layer, inside the image": {
			layers: []layer{{symlink("l", "/../d/e"), file("l/x", "1"), symlink("d/m", "../n"), file("d/m/y", ""), symlink("o", "n/../k"), file("o/z", "")}},
			want: withParents(map[string]string{
				"/l": "link 0777 -> /../d/e @0", "/d/e/x": "file 0644 1 bytes @0", "/d/m": "link 0777 -> ../n @0", "/n/y": "file 0644 0 bytes @0",
				"/o": "link 0777 -> n/../k @0", "/k/z": "file 0644 0 bytes @0",
			}),
		},
		"takes the last of several entries of one name": {
			layers: []layer{{file("a", "1"), file("a", "22"), dir("b/", 0o700), file("b/c", ""), symlink("b", "a")}},
			want:   map[string]string{"/a": "file 0644 2 bytes @0", "/b": "link 0777 -> a @0"},
		},
		"links to a file of a lower layer and to links": {
			layers: []layer{base, {hardlink("h", "d/a"), hardlink("i", "l"), hardlink("j", "l/sub/b")}, {hardlink("k", "h"), whiteout("d"), whiteout("f"), whiteout("l")}},
			want: map[string]string{
				"/h": "file 0644 1:2 2 bytes @0", "/i": "link 0777 -> d @0", "/j": "file 0644 1 bytes @0", "/k": "file 0644 1:2 2 bytes @0",
			},
		},
		"leaves out what only an old storage driver wrote": {
			layers: []layer{{file(".wh..wh.aufs", ""), dir(".wh..wh.plnk/", 0o700), file(".wh..wh.plnk/12.3", ""), file("d/.wh..wh.orph", ""), file("x", "")}},
			want:   map[string]string{"/x": "file 0644 0 bytes @0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := indexOf(t, test.layers...)
			require.Empty(t, cmp.Diff(test.want, list(x)))
			require.Equal(t, len(test.layers), x.Layers())
			require.Equal(t, len(test.want)+1, x.Paths())
			require.Empty(t, cmp.Diff(test.want, list(decoded(t, encoded(t, x)))), "after a round trip")
		})
	}
}

func withFormat(hdr tar.Header, format tar.Format) tar.Header {
	hdr.Format = format
	return hdr
}

func withRecords(hdr tar.Header, pairs ...string) tar.Header {
	hdr.PAXRecords = map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		hdr.PAXRecords[pair[0]] = pair[1]
	}
	return hdr
}

// withParents adds the directories that no one named.
func withParents(all map[string]string) map[string]string {
	for at := range all {
		for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = "dir 0755 @0"
			}
		}
	}
	return all
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		layer []byte
		want  string
	}{
		"a way out of the image":              {archive(t, file("a/../../etc/passwd", "")), `entry "a/../../etc/passwd": "a/../../etc/passwd" leads out of the image`},
		"a name that goes up inside":          {archive(t, file("a/../b", "")), `leads out of the image`},
		"a whiteout that goes up":             {archive(t, file("../.wh.a", "")), `leads out of the image`},
		"a whiteout of nothing":               {archive(t, file("d/.wh.", "")), `a whiteout of nothing`},
		"a whiteout of the parent":            {archive(t, file("d/.wh...", "")), `a whiteout of nothing`},
		"a hard link out of the image":        {archive(t, hardlink("h", "../x")), `leads out of the image`},
		"a hard link to nothing":              {archive(t, hardlink("h", "x")), `a hard link to "x", which is no file`},
		"a hard link to a directory":          {archive(t, dir("d/", 0o755), hardlink("h", "d")), `a hard link to "d", which is no file`},
		"a hard link to what the layer hides": {archive(t, whiteout("old"), hardlink("h", "old")), `a hard link to "old", which is no file`},
		"a hard link to itself":               {archive(t, hardlink("h", "h")), `a hard link to "h", which is no file`},
		"a symbolic link to nowhere":          {archive(t, symlink("s", "")), `a symbolic link with a target of 0 bytes`},
		"a symbolic link with a huge target":  {archive(t, symlink("s", strings.Repeat("x", 5000))), `a symbolic link with a target of 5000 bytes`},
		"a path below a file of the layer":    {archive(t, file("a", ""), file("a/b", "")), `"/a" is not a directory`},
		"a path below links in a circle":      {archive(t, symlink("a", "b"), symlink("b", "a"), file("a/x", "")), `too many symbolic links`},
		"a root that is a file":               {archive(t, file(".", "")), `the root is not a directory`},
		"an unknown type":                     {archive(t, tar.Header{Name: "v", Typeflag: 'V'}), `unknown type 'V'`},
		"a name that no file system has":      {archive(t, file(long(256), "")), `a name of more than 255 bytes`},
		"a path that no kernel takes":         {archive(t, file(strings.Repeat("d/", 2050)+"f", "")), `a path of more than 4096 bytes`},
		"links that make a path too long": {
			archive(t, symlink("l", strings.Repeat("d/", 2000)), file("l/"+strings.Repeat("e/", 200)+"f", "")), `a path of more than 4096 bytes`,
		},
		"an attribute that no file has": {
			archive(t, withRecords(file("x", ""), "SCHILY.xattr.user.a", strings.Repeat("v", 65537))), `an extended attribute of 65537 bytes`,
		},
		"something that is no archive":   {bytes.Repeat([]byte("no archive "), 100), `applying a layer: archive/tar: invalid tar header`},
		"an archive that ends too early": {archive(t, file("etc/passwd", strings.Repeat("x", 2000)))[:1024], `entry "etc/passwd": unexpected EOF`},
		"a header that ends too early":   {archive(t, file("x", ""))[:300], `unexpected EOF`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := indexOf(t, layer{file("old", "x")})
			before := encoded(t, x)
			err := x.Apply(bytes.NewReader(test.layer))
			require.ErrorContains(t, err, test.want)
			require.Equal(t, before, encoded(t, x), "the index is as before")
			require.Equal(t, 1, x.Layers())
		})
	}
}

func TestApplyPassesOnReadErrors(t *testing.T) {
	t.Parallel()
	data := archive(t, file("etc/passwd", "root"), file("x", ""))
	for _, n := range []int{0, 100, 512, 514, 1024, 1600} {
		x := &osindex.Index{}
		err := x.Apply(io.MultiReader(bytes.NewReader(data[:n]), failing{}))
		require.ErrorIs(t, err, io.ErrClosedPipe, "after %d bytes", n)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestApplyLimits(t *testing.T) {
	t.Parallel()
	t.Run("stops at too many layers", func(t *testing.T) {
		t.Parallel()
		x, empty := &osindex.Index{}, archive(t)
		for range osindex.MaxLayers {
			require.NoError(t, x.Apply(bytes.NewReader(empty)))
		}
		require.ErrorContains(t, x.Apply(bytes.NewReader(empty)), "at most 1024 layers")
	})
	t.Run("stops at too many paths, made of few entries", func(t *testing.T) {
		t.Parallel()
		const deep, each = 2000, 64
		var entries layer
		for n := range osindex.MaxBytes/each/deep + 1 {
			entries = append(entries, file(fmt.Sprintf("%d%s/f", n, strings.Repeat("/d", deep)), ""))
		}
		x := &osindex.Index{}
		require.ErrorContains(t, x.Apply(bytes.NewReader(archive(t, entries...))), "the image's paths take more than 48 MiB of memory")
		require.Equal(t, 1, x.Paths())
	})
	t.Run("stops at too long links, also over several layers", func(t *testing.T) {
		t.Parallel()
		x := &osindex.Index{}
		var err error
		for n := 0; err == nil && n < 4; n++ {
			var entries layer
			for i := range 5000 {
				entries = append(entries, symlink(fmt.Sprintf("%d-%d", n, i), strings.Repeat("x", 4000)))
			}
			err = x.Apply(bytes.NewReader(archive(t, entries...)))
		}
		require.ErrorContains(t, err, "the image's paths take more than 48 MiB of memory")
		require.Equal(t, 2, x.Layers())
	})
	t.Run("stops at objects that nothing shows", func(t *testing.T) {
		t.Parallel()
		var entries layer
		for i := range 13000 {
			entries = append(entries, symlink(object(i), strings.Repeat("x", 4000)))
		}
		require.ErrorContains(t, new(osindex.Index).Apply(bytes.NewReader(archive(t, entries...))), "more than 48 MiB of memory")
	})
	t.Run("stops at too many owners", func(t *testing.T) {
		t.Parallel()
		var entries layer
		for i := range 1<<14 + 1 {
			entries = append(entries, owned(file(strconv.Itoa(i), ""), i, i))
		}
		require.ErrorContains(t, new(osindex.Index).Apply(bytes.NewReader(archive(t, entries...))), "different sets of mode, owner")
	})
	t.Run("stops at too many extended attributes", func(t *testing.T) {
		t.Parallel()
		var entries layer
		for n := range 130 {
			entries = append(entries, withRecords(file(strconv.Itoa(n), ""), "SCHILY.xattr.user.a", fmt.Sprintf("%065000d", n)))
		}
		require.ErrorContains(t, new(osindex.Index).Apply(bytes.NewReader(archive(t, entries...))), "extended attributes of more than")
	})
	t.Run("takes an empty stream for an empty layer", func(t *testing.T) {
		t.Parallel()
		x := &osindex.Index{}
		require.NoError(t, x.Apply(strings.NewReader("")))
		require.Equal(t, 1, x.Layers())
	})
}

func TestZeroIndex(t *testing.T) {
	t.Parallel()
	x := &osindex.Index{}
	root, ok := x.Lookup("/")
	require.True(t, ok)
	require.Equal(t, osindex.Entry{Kind: osindex.Directory, Mode: 0o755}, root)
	require.Empty(t, list(x))
	require.Zero(t, x.Layers())
	require.Equal(t, 1, x.Paths())
	_, ok = x.Lookup("/etc")
	require.False(t, ok)
	r, err := x.Follow("/etc/../usr/bin")
	require.NoError(t, err)
	require.Equal(t, osindex.Resolved{Path: "/usr/bin"}, r)
	require.Empty(t, list(decoded(t, encoded(t, x))))
}

func TestRoot(t *testing.T) {
	t.Parallel()
	x := indexOf(t, layer{owned(dir("./", 0o700), 1, 2)}, layer{file("x", "")})
	root, ok := x.Lookup("/")
	require.True(t, ok)
	require.Equal(t, "dir 0700 1:2 @0", describe(root))
}

func TestLookup(t *testing.T) {
	t.Parallel()
	x := indexOf(t, layer{dir("usr/bin/", 0o755), file("usr/bin/bash", "x"), symlink("bin", "usr/bin")})
	for at, want := range map[string]bool{
		"/usr/bin/bash": true, "usr/bin/bash": true, "/usr//./bin/bash/": true, "/x/../usr/bin": true, "/../usr": true,
		"/bin": true, "/bin/bash": false, "/usr/bin/bash/x": false, "/usr/bin/b": false, "/usr/bin/zsh": false,
	} {
		_, ok := x.Lookup(at)
		require.Equal(t, want, ok, at)
	}
	for range x.Children("/bin") {
		require.Fail(t, "a link has no children")
	}
	for range x.Children("/missing") {
		require.Fail(t, "nothing has no children")
	}
	for name := range x.Children("/") {
		require.Equal(t, "bin", name)
		break
	}
}

func TestEntriesAreCopies(t *testing.T) {
	t.Parallel()
	x := indexOf(t, layer{withRecords(file("x", ""), "SCHILY.xattr.user.a", "1")})
	entry, _ := x.Lookup("/x")
	entry.Xattrs["user.a"] = "2"
	again, _ := x.Lookup("/x")
	require.Equal(t, "1", again.Xattrs["user.a"])
}
