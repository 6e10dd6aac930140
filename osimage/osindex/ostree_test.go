package osindex_test

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// object is the name of the n-th object of an encapsulated commit.
func object(n int) string {
	return fmt.Sprintf("sysroot/ostree/repo/objects/%02x/%062x.file", n%256, n)
}

// encapsulated is an image as ostree-ext's "ostree container encapsulate" writes it: the first
// layer has all directories, and the others, without any directory, an object for each file and
// then the hard links to it. Links repeat owner and mode.
func encapsulated() []layer {
	link := func(name string, n int, mode int64, uid int) tar.Header {
		return owned(withMode(hardlink(name, object(n)), mode), uid, uid)
	}
	repository := layer{
		dir("sysroot/", 0o755), dir("sysroot/ostree/", 0o755), dir("sysroot/ostree/repo/", 0o755), dir("sysroot/ostree/repo/objects/", 0o755),
		dir("sysroot/ostree/repo/objects/00/", 0o755), file("sysroot/ostree/repo/config", "[core]\n"),
	}
	meta := append(layer{dir("./", 0o755)}, append(repository,
		file("sysroot/ostree/repo/objects/0a/bc.commit", "x"),
		dir("./usr/", 0o755), dir("./usr/bin/", 0o555), dir("./etc/", 0o755), owned(dir("./etc/app/", 0o750), 7, 7), dir("./usr/lib/", 0o755),
		dir("var/tmp", 0o1777),
	)...)
	return []layer{
		meta,
		append(append(layer{}, repository...),
			file("sysroot/ostree/repo/objects/11/22.file-xattrs", "x"),
			hardlink("sysroot/ostree/repo/objects/33/44.file-xattrs-link", "sysroot/ostree/repo/objects/11/22.file-xattrs"),
			withMode(file(object(1), "#!bash"), 0o755), link("usr/bin/bash", 1, 0o755, 0), link("usr/bin/sh", 1, 0o755, 0),
			owned(file(object(2), "root:x:0:0"), 5, 5), link("usr/lib/passwd", 2, 0o644, 5), link("etc/passwd", 2, 0o644, 5),
			symlink(object(3), "usr/bin"), link("bin", 3, 0o777, 0),
			withMode(file(object(4), "root:*"), 0), link("etc/shadow", 4, 0, 0),
			file("etc/empty", ""),
		),
		append(append(layer{}, repository...),
			file(object(5), strings.Repeat("x", 70<<10)), link("etc/big", 5, 0o644, 0),
			file(object(6), "conf"), file(object(7), "other"), link("etc/late", 6, 0o644, 0), link("etc/app/now", 7, 0o644, 0),
			link("usr/lib/elsewhere", 1, 0o711, 9),
		),
	}
}

func TestEncapsulatedCommit(t *testing.T) {
	t.Parallel()
	x := indexOf(t, encapsulated()...)
	want := map[string]string{ //nolint:gosec // no credentials
		"/bin": "link 0777 -> usr/bin @1", "/etc": "dir 0755 @0", "/etc/app": "dir 0750 7:7 @0", "/etc/app/now": "file 0644 5 bytes @2",
		"/etc/big": "file 0644 71680 bytes @2", "/etc/empty": "file 0644 0 bytes @1", "/etc/late": "file 0644 4 bytes @2",
		"/etc/passwd": "file 0644 5:5 10 bytes @1", "/etc/shadow": "file 0000 6 bytes @1",
		"/sysroot": "dir 0755 @2", "/sysroot/ostree": "dir 0755 @2", "/sysroot/ostree/repo": "dir 0755 @2",
		"/sysroot/ostree/repo/config": "file 0644 7 bytes @2", "/sysroot/ostree/repo/objects": "dir 0755 @2",
		"/usr": "dir 0755 @0", "/usr/bin": "dir 0555 @0", "/usr/bin/bash": "file 0755 6 bytes @1", "/usr/bin/sh": "file 0755 6 bytes @1",
		"/usr/lib": "dir 0755 @0", "/usr/lib/passwd": "file 0644 5:5 10 bytes @1",
		"/usr/lib/elsewhere": "file 0711 9:9 0 bytes @2", // the object is in another layer: what the link says has to do
		"/var":               "dir 0755 @0", "/var/tmp": "dir 1777 @0",
	}
	require.Empty(t, cmp.Diff(want, list(x)))
	kept := map[string]string{"/etc/passwd": "root:x:0:0", "/usr/lib/passwd": "root:x:0:0", "/etc/app/now": "other", "/etc/empty": ""} //nolint:gosec // no credentials
	for at, want := range kept {
		content, ok := x.Content(at)
		require.True(t, ok, at)
		require.Equal(t, want, string(content), at)
	}
	// Secrets and big files are not kept, nor are files whose object is not the newest one any
	// more.
	for _, at := range []string{"/etc/shadow", "/etc/big", "/etc/late", "/usr/bin/bash"} {
		_, ok := x.Content(at)
		require.False(t, ok, at)
	}
	source, ok := x.Source("/etc/late")
	require.True(t, ok)
	require.Equal(t, osindex.Source{Layer: 2, Name: "etc/late"}, source)
}

func TestObjectsDoNotLeakIntoAnotherLayer(t *testing.T) {
	t.Parallel()
	x := indexOf(t, layer{file(object(1), "1")}, layer{withMode(hardlink("etc/x", object(1)), 0o644)})
	_, ok := x.Content("/etc/x")
	require.False(t, ok)
	require.Empty(t, cmp.Diff(withParents(map[string]string{"/etc/x": "file 0644 99:0 0 bytes @1"}), list(x), ignoreLayers))
}

// ignoreLayers compares descriptions without the layer at their end.
var ignoreLayers = cmp.Comparer(func(a, b string) bool {
	cut := func(s string) string { before, _, _ := strings.Cut(s, " @"); return before }
	return cut(a) == cut(b)
})
