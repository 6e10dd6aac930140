package osindex

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// link makes the node of a hard link: a second name of what its target is.
func (l *layer) link(hdr *tar.Header, path string) (*node, error) {
	parts, err := parse(hdr.Linkname)
	if err != nil {
		return nil, err
	}
	if name, ok := objectName(parts); ok {
		return l.objects.link(l, name, hdr, path)
	}
	target, origin := l.target(parts)
	if target == nil || target.attrs == nil || target.kind() == Directory {
		return nil, fmt.Errorf("a hard link to %q, which is no file", hdr.Linkname)
	}
	n := l.copied(target, path)
	if n.kind() == File && n.layer != l.number {
		n.extra().origin = origin
	}
	return n, nil
}

// copied is the node under another name: that decides whether its content is kept.
func (l *layer) copied(target *node, path string) *node {
	n := &node{attrs: target.attrs, size: target.size, layer: target.layer}
	if target.more == nil {
		return n
	}
	m := more{target: target.more.target, origin: target.more.origin}
	if target.more.content != nil && keeps(path, n.attrs, n.size) && l.index.kept+l.kept+len(target.more.content) <= MaxKept {
		m.content = target.more.content
		l.kept += len(m.content)
	}
	if m.target != "" || m.content != nil || m.origin != "" {
		n.more = &m
	}
	return n
}

// target finds what a hard link leads to, in this layer or in those below, and the name under which
// its layer has it.
func (l *layer) target(parts []string) (*node, string) {
	path := "/" + strings.Join(parts, "/")
	// Both trees are walked in the same way: the layer's own nodes are in a tree like that of an
	// index.
	for _, x := range []*Index{{root: l.root}, l.index} {
		end, err := x.walk(path, false)
		if err != nil || end.node() == nil || end.node().kind() == Directory {
			continue
		}
		origin := strings.TrimPrefix(end.path(), "/")
		if o := end.node().more.originOr(); o != "" {
			origin = o
		}
		return end.node(), origin
	}
	return nil, ""
}

const (
	// objectDir is where the layers of an encapsulated OSTree commit (ostree-ext, "tar stream
	// layout") have each file once, right before the hard links that give it its names. No one
	// looks there for a file of the system: it is not in the index.
	objectDir = "sysroot/ostree/repo/objects"
	// maxObjects is how many objects of one layer are remembered, some 200 bytes each; an operating
	// system has fewer files. They are part of the budget of memory.
	maxObjects = 1 << 17
)

// objects are the files of a layer that only hard links make visible.
type objects struct {
	byName map[string]*node
	// last is the newest object if it is small, and body its content: the links to an object mostly
	// follow at once.
	last *node
	body []byte
}

// objectName reports whether a path is below objectDir, and its name there.
func objectName(parts []string) (string, bool) {
	return strings.CutPrefix(strings.Join(parts, "/"), objectDir+"/")
}

// add remembers an object for the links that follow.
func (o *objects) add(l *layer, name string, hdr *tar.Header, body io.Reader) error {
	if hdr.Typeflag != tar.TypeReg && hdr.Typeflag != tar.TypeSymlink || len(o.byName) >= maxObjects {
		return nil
	}
	n, err := l.node(hdr, "", nil)
	if err != nil {
		return err
	}
	o.last = nil
	if n.kind() == File && n.size <= maxSystemFile {
		o.last, o.body = n, slices.Grow(o.body[:0], int(n.size))[:n.size]
		if _, err := io.ReadFull(body, o.body); err != nil {
			return err
		}
	}
	if o.byName == nil {
		o.byName = map[string]*node{}
	}
	o.byName[strings.Clone(name)] = n
	return l.spend(len(name) + n.cost())
}

// link makes the node of a hard link to an object. The header of such a link repeats what the
// object's says, but for its size: that has to do where the object is in another layer.
func (o *objects) link(l *layer, name string, hdr *tar.Header, path string) (*node, error) {
	target, ok := o.byName[name]
	if !ok {
		a, err := l.index.intern(attrsOf(hdr, File))
		if err != nil {
			return nil, err
		}
		return &node{attrs: a, layer: l.number}, nil
	}
	n := l.copied(target, path)
	if target == o.last && keeps(path, n.attrs, n.size) {
		return n, l.keep(n, bytes.NewReader(o.body))
	}
	return n, nil
}
