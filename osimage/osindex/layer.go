package osindex

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	whiteoutPrefix = ".wh."
	// opaqueMarker is the name of the file that makes its directory hide what lower layers have in
	// it.
	opaqueMarker = ".wh..wh..opq"
	// metaPrefix begins the names of files that only an old storage driver understood.
	metaPrefix = ".wh..wh."
)

// layer is what one layer has, in a tree of its own. It becomes part of the index when all of it
// was read, so that the order of whiteouts and entries in the archive doesn't matter, as it doesn't
// in a folder into which the layer was unpacked.
type layer struct {
	index   *Index // of the layers below; not changed, but for attributes that it learns
	number  int32
	implied *attrs // of the layer's implied directories
	root    *node
	bytes   int
	kept    int
	objects objects
}

// read reads a layer for the index.
func (x *Index) read(r io.Reader) (*layer, error) {
	if x.layers >= MaxLayers {
		return nil, fmt.Errorf("applying a layer: an index has at most %d layers", MaxLayers)
	}
	l := &layer{index: x, number: int32(x.layers)} //nolint:gosec // MaxLayers
	var err error
	if l.implied, err = x.intern(impliedAttrs()); err != nil {
		return nil, err
	}
	l.root = &node{attrs: l.implied, flags: implied}
	archive := tar.NewReader(r)
	for {
		hdr, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, fmt.Errorf("applying a layer: %w", err)
		}
		if err := l.add(hdr, archive); err != nil {
			return nil, fmt.Errorf("applying a layer: entry %q: %w", hdr.Name, err)
		}
	}
}

// add takes in one entry of the archive.
func (l *layer) add(hdr *tar.Header, body io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	parts, err := parse(hdr.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return l.addRoot(hdr)
	}
	if name, ok := objectName(parts); ok {
		return l.objects.add(l, name, hdr, body)
	}
	base := parts[len(parts)-1]
	if strings.HasPrefix(base, whiteoutPrefix) {
		return l.hide(parts)
	}
	if strings.HasPrefix(parts[0], metaPrefix) {
		return nil
	}
	dir, err := l.parent(parts[:len(parts)-1], true)
	if err != nil {
		return err
	}
	path := strings.TrimPrefix(append(dir, step{name: base}).path(), "/")
	if len(path) > MaxPathBytes {
		return fmt.Errorf("a path of more than %d bytes", MaxPathBytes)
	}
	n, err := l.node(hdr, path, body)
	if err != nil {
		return err
	}
	if n.kind() == File && n.more.originOr() == "" && n.layer == l.number {
		if name := strings.Join(parts, "/"); name != path {
			n.extra().origin = name
		}
	}
	n.name = strings.Clone(base)
	return l.set(dir.node(), n)
}

// addRoot takes the attributes of the root directory from its entry.
func (l *layer) addRoot(hdr *tar.Header) error {
	if hdr.Typeflag != tar.TypeDir {
		return errors.New("the root is not a directory")
	}
	a, err := l.index.intern(attrsOf(hdr, Directory))
	if err != nil {
		return err
	}
	l.root.attrs, l.root.flags, l.root.layer = a, l.root.flags&^implied, l.number
	return nil
}

// parse splits the name of an entry, or of a hard link's target.
func parse(name string) ([]string, error) {
	if len(name) > MaxPathBytes {
		return nil, fmt.Errorf("a path of more than %d bytes", MaxPathBytes)
	}
	parts := split(name)
	for _, part := range parts {
		if part == ".." {
			return nil, fmt.Errorf("%q leads out of the image", name)
		}
		if len(part) > MaxNameBytes {
			return nil, fmt.Errorf("a name of more than %d bytes", MaxNameBytes)
		}
	}
	return parts, nil
}

// node makes the node of an entry, without its name.
func (l *layer) node(hdr *tar.Header, path string, body io.Reader) (*node, error) {
	var kind Kind
	switch hdr.Typeflag {
	case tar.TypeLink:
		return l.link(hdr, path)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		kind = File
	case tar.TypeDir:
		kind = Directory
	case tar.TypeSymlink:
		kind = Symlink
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		kind = Special
	default:
		return nil, fmt.Errorf("unknown type %q", hdr.Typeflag)
	}
	a, err := l.index.intern(attrsOf(hdr, kind))
	if err != nil {
		return nil, err
	}
	n := &node{attrs: a, layer: l.number}
	if kind == Symlink {
		if hdr.Linkname == "" || len(hdr.Linkname) > MaxPathBytes {
			return nil, fmt.Errorf("a symbolic link with a target of %d bytes", len(hdr.Linkname))
		}
		n.more = &more{target: strings.Clone(hdr.Linkname)}
	}
	if kind == File {
		n.size = hdr.Size
		if keeps(path, a, hdr.Size) {
			return n, l.keep(n, body)
		}
	}
	return n, nil
}

// keep reads a file's content, if there is room for it.
func (l *layer) keep(n *node, body io.Reader) error {
	if l.index.kept+l.kept+int(n.size) > MaxKept {
		return nil
	}
	content := make([]byte, n.size)
	if _, err := io.ReadFull(body, content); err != nil {
		return err
	}
	l.kept += len(content)
	n.extra().content = content
	return nil
}

// extra is what more can be written to.
func (n *node) extra() *more {
	if n.more == nil {
		n.more = &more{}
	}
	return n.more
}

func (m *more) originOr() string {
	if m == nil {
		return ""
	}
	return m.origin
}

// set puts a node where it belongs. What it replaces in the same layer is gone, but not what the
// layer hides there.
func (l *layer) set(dir, n *node) error {
	old := dir.child(n.name)
	if old != nil && old.kind() == Directory && n.kind() == Directory {
		old.attrs, old.layer, old.flags = n.attrs, n.layer, old.flags&^implied
		return nil
	}
	if old != nil {
		n.flags |= old.flags & hides
	}
	dir.put(n)
	return l.spend(n.cost())
}

// spend takes from the budget of memory, which layer and index share.
func (l *layer) spend(bytes int) error {
	if l.bytes += bytes; l.bytes+l.index.bytes > MaxBytes {
		return errTooLarge
	}
	return l.index.need(l.bytes + l.kept + l.index.Bytes())
}

var errTooLarge = fmt.Errorf("the image's paths take more than %d MiB of memory, with the targets of its links: use an image with fewer or shorter ones",
	MaxBytes>>20)

// hide notes what a whiteout says.
func (l *layer) hide(parts []string) error {
	base := parts[len(parts)-1]
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	if base != opaqueMarker && strings.HasPrefix(base, metaPrefix) {
		return nil
	}
	if hidden == "" || hidden == "." || hidden == ".." {
		return errors.New("a whiteout of nothing")
	}
	dir, err := l.parent(parts[:len(parts)-1], false)
	if err != nil || dir == nil {
		return err
	}
	if base == opaqueMarker {
		dir.node().flags |= opaque
		return nil
	}
	if n := dir.node().child(hidden); n != nil {
		n.flags |= hides
		return nil
	}
	return l.set(dir.node(), &node{name: strings.Clone(hidden), flags: hides})
}

// parent goes to a directory of this layer, making what is missing. Symbolic links are followed as
// far as this layer has them: whoever unpacks a layer sees nothing of those below. Without create
// it returns nil where the layer hides the directory.
func (l *layer) parent(parts []string, create bool) (trail, error) {
	here, links := trail{{node: l.root}}, 0
	for rest := parts; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			here = here.up()
			continue
		}
		child := here.node().child(name)
		switch {
		case child == nil || child.attrs == nil:
			if child != nil && !create {
				return nil, nil
			}
			child = &node{name: strings.Clone(name), attrs: l.implied, layer: l.number, flags: implied}
			if err := l.set(here.node(), child); err != nil {
				return nil, err
			}
		case child.kind() == Symlink:
			if links++; links > MaxLinks {
				return nil, &LoopError{Path: "/" + strings.Join(parts, "/"), Link: append(here, step{name: name}).path()}
			}
			here, rest = here.through(child.more.target, rest)
			continue
		case child.kind() != Directory:
			return nil, &NotDirectoryError{Path: "/" + strings.Join(parts, "/"), Parent: append(here, step{name: name}).path()}
		}
		here = append(here, step{name: child.name, node: child})
	}
	return here, nil
}
