//go:build e2e

package conformance

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// node is a file, folder or link: all that matters of it.
type node struct {
	kind     byte // as in archive/tar
	mode     int64
	uid, gid int
	xattrs   string
	content  string // the target of a link, the sum of a file
}

func (n node) String() string {
	return fmt.Sprintf("%c %04o %d:%d %q %s", n.kind, n.mode, n.uid, n.gid, n.xattrs, n.content)
}

// tree has nodes by their paths.
type tree map[string]node

// below are the nodes below a folder, by their paths in it.
func (t tree) below(dir string) tree {
	out := tree{}
	for name, n := range t {
		if rest, is := strings.CutPrefix(name, dir+"/"); is {
			out[rest] = n
		}
	}
	return out
}

// without are the nodes that are not below a folder, nor the folder.
func (t tree) without(dir string) tree {
	out := maps.Clone(t)
	maps.DeleteFunc(out, func(name string, _ node) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
	return out
}

// requireEqual names what differs.
func requireEqual(t *testing.T, want, got tree, what string) {
	t.Helper()
	require.NotEmpty(t, want, what)
	var differ []string
	all := maps.Clone(want)
	maps.Copy(all, got)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w, isWanted := want[name]
		g, isGot := got[name]
		switch {
		case !isGot:
			differ = append(differ, fmt.Sprintf("%s is missing: %s", name, w))
		case !isWanted:
			differ = append(differ, fmt.Sprintf("%s is too much: %s", name, g))
		case w != g:
			differ = append(differ, fmt.Sprintf("%s:\n\twant %s\n\tgot  %s", name, w, g))
		}
	}
	require.Empty(t, differ, "%s: %d of %d\n%s", what, len(differ), len(all), strings.Join(differ[:min(len(differ), 40)], "\n"))
}

// readTree reads a folder of the disk.
func readTree(t *testing.T, dir string) tree {
	t.Helper()
	out := tree{}
	require.NoError(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		n, err := readNode(file, entry)
		out[strings.TrimPrefix(file, dir+"/")] = n
		return err
	}))
	return out
}

func readNode(file string, entry fs.DirEntry) (n node, err error) {
	info, err := entry.Info()
	if err != nil {
		return n, err
	}
	stat := info.Sys().(*syscall.Stat_t)
	n = node{mode: int64(stat.Mode & 0o7777), uid: int(stat.Uid), gid: int(stat.Gid)}
	if n.xattrs, err = readXattrs(file); err != nil {
		return n, err
	}
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		n.kind = tar.TypeDir
	case syscall.S_IFLNK:
		n.kind, n.mode = tar.TypeSymlink, 0
		n.content, err = os.Readlink(file)
	case syscall.S_IFREG:
		n.kind = tar.TypeReg
		content, errRead := os.ReadFile(file)
		n.content, err = sum(content), errRead
	default:
		err = fmt.Errorf("%s is neither file nor folder nor link", file)
	}
	return n, err
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

func readXattrs(file string) (string, error) {
	buffer := make([]byte, 64<<10)
	size, err := unix.Llistxattr(file, buffer)
	if err != nil || size == 0 {
		return "", err
	}
	all := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimRight(string(buffer[:size]), "\x00"), "\x00") {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(file, name, value)
		if err != nil {
			return "", err
		}
		all[name] = string(value[:n])
	}
	return xattrText(all), nil
}

func xattrText(all map[string]string) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text = append(text, name+"="+hex.EncodeToString([]byte(all[name])))
	}
	return strings.Join(text, " ")
}

// flatten is what an image has, by the specification of images alone: layers over each other, each
// with what it removes of those below it.
func flatten(t *testing.T, image v1.Image) tree {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	out := tree{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		require.NoError(t, err)
		require.NoError(t, out.apply(content))
		require.NoError(t, content.Close())
	}
	return out
}

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// apply puts a layer over what is there.
func (t tree) apply(layer io.Reader) error {
	lower := maps.Clone(t) // what a layer removes is never its own
	var here []string
	for r := tar.NewReader(layer); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean("/" + header.Name)[1:]
		dir, base := path.Split(name)
		switch {
		case name == "":
		case base == opaque:
			for old := range lower {
				if strings.HasPrefix(old, dir) && !slices.Contains(here, old) {
					delete(t, old)
				}
			}
		case strings.HasPrefix(base, whiteout):
			t.remove(dir + strings.TrimPrefix(base, whiteout))
		default:
			n, err := t.tarNode(header, r)
			if err != nil {
				return err
			}
			if n.kind != tar.TypeDir {
				t.remove(name)
			}
			t[name], here = n, append(here, name)
		}
	}
}

func (t tree) remove(name string) {
	maps.DeleteFunc(t, func(old string, _ node) bool { return old == name || strings.HasPrefix(old, name+"/") })
}

func (t tree) tarNode(header *tar.Header, content io.Reader) (node, error) {
	n := node{kind: header.Typeflag, mode: header.Mode & 0o7777, uid: header.Uid, gid: header.Gid}
	xattrs := map[string]string{}
	for key, value := range header.PAXRecords {
		if name, is := strings.CutPrefix(key, "SCHILY.xattr."); is {
			xattrs[name] = value
		}
	}
	n.xattrs = xattrText(xattrs)
	switch header.Typeflag {
	case tar.TypeDir:
	case tar.TypeSymlink:
		n.mode, n.content = 0, header.Linkname
	case tar.TypeReg:
		all, err := io.ReadAll(content)
		n.content = sum(all)
		return n, err
	case tar.TypeLink:
		target, has := t[path.Clean("/" + header.Linkname)[1:]]
		if !has {
			return n, fmt.Errorf("%s is a link to %s, which is not there", header.Name, header.Linkname)
		}
		return target, nil
	default:
		return n, fmt.Errorf("%s is neither file nor folder nor link", header.Name)
	}
	return n, nil
}
