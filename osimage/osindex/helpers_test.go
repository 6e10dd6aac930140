package osindex_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// Entries of layers. Names ending in "/" are directories.

func dir(name string, mode int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}
}

// file has its content in Linkname, where an archive of regular files has nothing.
func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Linkname: content, Size: int64(len(content))}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target}
}

func hardlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Mode: 0o600, Uid: 99, Linkname: target}
}

func whiteout(name string) tar.Header {
	return file(path.Join(path.Dir(name), ".wh."+path.Base(name)), "")
}

func opaque(dir string) tar.Header { return file(path.Join(dir, ".wh..wh..opq"), "") }

func owned(hdr tar.Header, uid, gid int) tar.Header {
	hdr.Uid, hdr.Gid = uid, gid
	return hdr
}

func withMode(hdr tar.Header, mode int64) tar.Header {
	hdr.Mode = mode
	return hdr
}

// archive is a layer of these entries, as an uncompressed archive.
func archive(tb testing.TB, headers ...tar.Header) []byte {
	tb.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, hdr := range headers {
		content := ""
		if hdr.Typeflag == tar.TypeReg {
			content, hdr.Linkname = hdr.Linkname, ""
		}
		require.NoError(tb, w.WriteHeader(&hdr))
		_, err := w.Write([]byte(content))
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	return buffer.Bytes()
}

// indexOf is the index of an image of these layers.
func indexOf(tb testing.TB, layers ...[]tar.Header) *osindex.Index {
	tb.Helper()
	x := &osindex.Index{}
	for _, layer := range layers {
		require.NoError(tb, x.Apply(bytes.NewReader(archive(tb, layer...))))
	}
	return x
}

// walk gives all paths of an index with their entries, parents first.
func walk(x *osindex.Index) iter.Seq2[string, osindex.Entry] {
	return func(yield func(string, osindex.Entry) bool) {
		var visit func(dir string) bool
		visit = func(dir string) bool {
			for name, entry := range x.Children(dir) {
				if at := path.Join(dir, name); !yield(at, entry) || !visit(at) {
					return false
				}
			}
			return true
		}
		visit("/")
	}
}

// list describes all paths: kind, mode, owner unless it is root, size, target, layer.
func list(x *osindex.Index) map[string]string {
	all := map[string]string{}
	for at, entry := range walk(x) {
		all[at] = describe(entry)
	}
	return all
}

func describe(e osindex.Entry) string {
	text := fmt.Sprintf("%s %04o", map[osindex.Kind]string{
		osindex.File: "file", osindex.Directory: "dir", osindex.Symlink: "link", osindex.Special: "special",
	}[e.Kind], e.Mode)
	if e.UID != 0 || e.GID != 0 {
		text += fmt.Sprintf(" %d:%d", e.UID, e.GID)
	}
	switch e.Kind {
	case osindex.File:
		text += fmt.Sprintf(" %d bytes", e.Size)
	case osindex.Symlink:
		text += " -> " + e.Target
	case osindex.Directory, osindex.Special:
	}
	for _, name := range slices.Sorted(maps.Keys(e.Xattrs)) {
		text += " " + name + "=" + e.Xattrs[name]
	}
	return text + fmt.Sprintf(" @%d", e.Layer)
}

// encoded is the index as bytes.
func encoded(tb testing.TB, x *osindex.Index) []byte {
	tb.Helper()
	var buffer bytes.Buffer
	require.NoError(tb, x.Encode(&buffer))
	return buffer.Bytes()
}

func decoded(tb testing.TB, data []byte) *osindex.Index {
	tb.Helper()
	x, err := osindex.Decode(bytes.NewReader(data))
	require.NoError(tb, err)
	return x
}

// long is a name of n bytes.
func long(n int) string { return strings.Repeat("n", n) }
