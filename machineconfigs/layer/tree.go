package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
	"github.com/layerwright/layerwright/osimage/osindex"
)

const (
	defaultFileMode = 0o644
	defaultDirMode  = 0o755
	linkMode        = 0o777
)

// node is what the layer has at a path.
type node struct {
	path string
	kind EntryType
	mode uint32
	uid  int
	gid  int
	// user and group are names that are not known yet, instead of uid and gid.
	user, group string
	// xattrs are those of the base's path that the node stands for.
	xattrs map[string]string
	// target is a symbolic link's, as written, or the real path of a hard link's other name.
	target  string
	content content
	// opaque hides what the base has below the directory.
	opaque bool
	// from is the item of the configuration that the node is for; nil for those that follow from
	// others.
	from *item
}

// owner is who owns the node, as part of an item's identity.
func (n *node) owner() string {
	owner := fmt.Sprintf("%d:%d", n.uid, n.gid)
	if n.user != "" || n.group != "" {
		owner += fmt.Sprintf(" %q:%q", n.user, n.group)
	}
	return owner
}

// tree is the layer's nodes over the image below. It is what the package systemd works on.
type tree struct {
	base  *osindex.Index
	nodes map[string]*node
	// below has the names of nodes, and of directories on the way to nodes, in each directory.
	below map[string]map[string]bool
	// quiet reports whether links of units give way to what the configuration has in their place.
	// Otherwise that is a clash.
	quiet   bool
	clashes []error
}

func newTree(base *osindex.Index) *tree {
	return &tree{base: base, nodes: map[string]*node{}, below: map[string]map[string]bool{}}
}

func (t *tree) put(n *node) {
	t.nodes[n.path] = n
	for at := n.path; at != "/"; at = path.Dir(at) {
		dir, name := path.Dir(at), path.Base(at)
		if t.below[dir][name] {
			return
		}
		if t.below[dir] == nil {
			t.below[dir] = map[string]bool{}
		}
		t.below[dir][name] = true
	}
}

func (t *tree) drop(at string) {
	delete(t.nodes, at)
	delete(t.below[path.Dir(at)], path.Base(at))
}

// hidden reports whether the layer replaces what the base has in a directory.
func (t *tree) hidden(dir string) bool {
	for ; dir != "/"; dir = path.Dir(dir) {
		if n, ok := t.nodes[dir]; ok && n.opaque {
			return true
		}
	}
	return false
}

// real is where a path leads, not following its last part.
func (t *tree) real(at string) (string, bool) {
	r, err := t.base.Resolve(at)
	return r.Path, err == nil
}

// Lookup is of [systemd.Tree].
func (t *tree) Lookup(at string) (kind systemd.Kind, target string) {
	at, ok := t.real(at)
	if !ok {
		return systemd.Nothing, ""
	}
	if n, ok := t.nodes[at]; ok {
		return n.systemdKind(), n.target
	}
	if len(t.below[at]) > 0 {
		return systemd.Directory, ""
	}
	entry, ok := t.base.Lookup(at)
	if !ok || t.hidden(path.Dir(at)) {
		return systemd.Nothing, ""
	}
	switch entry.Kind {
	case osindex.File:
		return systemd.File, ""
	case osindex.Directory:
		return systemd.Directory, ""
	case osindex.Symlink:
		return systemd.Link, entry.Target
	case osindex.Special:
	}
	return systemd.Other, ""
}

func (n *node) systemdKind() systemd.Kind {
	switch n.kind {
	case RegularFile, HardLink:
		return systemd.File
	case DirectoryEntry:
		return systemd.Directory
	case SymbolicLink:
		return systemd.Link
	case Whiteout:
	}
	return systemd.Nothing
}

// follow is where a path leads, following links of the base and of the layer.
func (t *tree) follow(at string) (string, bool) {
	for range osindex.MaxLinks {
		here, ok := t.real(at)
		if !ok {
			return "", false
		}
		kind, target := t.Lookup(here)
		if kind != systemd.Link {
			return here, true
		}
		if at = target; !path.IsAbs(target) {
			at = path.Dir(here) + "/" + target // not cleaned: ".." is of where the link leads
		}
	}
	return "", false
}

// List is of [systemd.Tree].
func (t *tree) List(dir string) []string {
	dir, ok := t.follow(dir)
	if !ok {
		return nil
	}
	names := map[string]bool{}
	if !t.hidden(dir) {
		for name := range t.base.Children(dir) {
			names[name] = true
		}
	}
	for name := range t.below[dir] {
		n, ok := t.nodes[path.Join(dir, name)]
		names[name] = !ok || n.kind != Whiteout
	}
	maps.DeleteFunc(names, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(names))
}

// Read is of [systemd.Tree].
func (t *tree) Read(at string) ([]byte, error) {
	at, ok := t.follow(at)
	if !ok {
		return nil, fs.ErrNotExist
	}
	n, ok := t.nodes[at]
	if ok && n.kind == HardLink {
		at = n.target
		n, ok = t.nodes[at]
	}
	if !ok {
		return t.readBase(at)
	}
	if n.kind != RegularFile {
		return nil, fs.ErrNotExist
	}
	data, err := n.content.local()
	if err != nil || n.content.base == "" {
		return data, err
	}
	before, err := t.readBase(n.content.base)
	return slices.Concat(before, data), err
}

// errNotKept means that the content of a file of the image below is needed before anything can be
// fetched.
var errNotKept = errors.New("it is too large to decide by it whether units are enabled")

func (t *tree) readBase(at string) ([]byte, error) {
	entry, ok := t.base.Lookup(at)
	if !ok || entry.Kind != osindex.File || t.hidden(path.Dir(at)) {
		return nil, fs.ErrNotExist
	}
	data, ok := t.base.Content(at)
	if !ok && entry.Size > 0 {
		return nil, errNotKept
	}
	return data, nil
}

// Put is of [systemd.Tree].
func (t *tree) Put(at, target string) {
	at, ok := t.real(at)
	if !ok || t.clash(at, "a link to "+target) {
		return
	}
	if entry, ok := t.base.Lookup(at); ok && entry.Kind == osindex.Symlink && entry.Target == target && !t.hidden(path.Dir(at)) {
		t.drop(at)
		return
	}
	t.put(&node{path: at, kind: SymbolicLink, mode: linkMode, target: target})
}

// Remove is of [systemd.Tree].
func (t *tree) Remove(at string) {
	at, ok := t.real(at)
	if !ok || t.clash(at, "nothing") {
		return
	}
	t.drop(at)
	if _, ok := t.base.Lookup(at); ok && !t.hidden(path.Dir(at)) {
		t.put(&node{path: at, kind: Whiteout})
	}
}

// clash reports whether the configuration has something at the path, which stays.
func (t *tree) clash(at, wanted string) bool {
	n, ok := t.nodes[at]
	if !ok || n.from == nil {
		return false
	}
	if !t.quiet {
		t.clashes = append(t.clashes, n.from.wrong(fmt.Errorf(
			"a unit with \"enabled\" needs %s there: remove one of the two settings", wanted)))
	}
	return true
}

// check finds nodes that are below others which are no directories.
func (t *tree) check() error {
	for _, at := range sortedKeys(t.nodes) {
		for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
			above, ok := t.nodes[dir]
			if !ok || above.kind == DirectoryEntry {
				continue
			}
			err := fmt.Errorf("%s has to be below it, and so it must be a directory: remove it", at)
			if above.from == nil {
				return err
			}
			return above.from.wrong(err)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
