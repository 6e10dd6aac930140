package layer

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Build makes the layer. It may be called any number of times. Errors: an input that the plan asks
// for is missing, or fetched content doesn't have its hash.
func (p *Plan) Build(in Inputs) (*Layer, error) {
	if p.build == nil {
		return nil, errors.New("building a layer: the plan does not come from Split")
	}
	b := assembly{tree: p.build.tree, below: p.build.below, in: in, entries: map[string]Entry{}, links: map[string][]string{}}
	for _, at := range sortedKeys(b.tree.nodes) {
		if err := b.add(b.tree.nodes[at]); err != nil {
			return nil, err
		}
	}
	if p.build.record.at != "" {
		record, err := p.build.record.encode(in.Remote)
		if err != nil {
			return nil, err
		}
		b.put(Entry{Path: p.build.record.at[1:], Type: RegularFile, Mode: recordMode, body: record})
	}
	b.nameFiles()
	l := &Layer{entries: make([]Entry, 0, len(b.entries))}
	for _, at := range sortedKeys(b.entries) {
		l.entries = append(l.entries, b.entries[at])
	}
	return l, nil
}

// assembly is a layer that is being built.
type assembly struct {
	tree  *tree
	below below
	in    Inputs
	// entries are by path without slashes at the ends.
	entries map[string]Entry
	// links are further names of files, by the file's path.
	links map[string][]string
}

const recordMode = 0o600

func (b *assembly) add(n *node) error {
	e := Entry{
		Path: n.path[1:], Type: n.kind, Mode: n.mode, UID: n.uid, GID: n.gid, Target: n.target, Xattrs: n.xattrs,
	}
	switch n.kind {
	case RegularFile:
		var err error
		if e.body, err = b.read(n); err != nil {
			return err
		}
	case HardLink:
		b.links[n.target[1:]] = append(b.links[n.target[1:]], e.Path)
	case Whiteout:
		e = whiteout(path.Dir(e.Path), path.Base(e.Path))
	case DirectoryEntry:
		if n.opaque {
			b.put(whiteout(e.Path, ".wh..opq"))
		}
	case SymbolicLink:
	}
	b.put(e)
	return nil
}

func whiteout(dir, name string) Entry {
	return Entry{Path: path.Join(dir, whiteoutPrefix+name), Type: Whiteout, Mode: defaultFileMode}
}

// put adds an entry and the directories that it is in.
func (b *assembly) put(e Entry) {
	b.entries[e.Path] = e
	for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
		if _, ok := b.entries[dir]; ok {
			return
		}
		b.entries[dir] = b.directory(dir)
	}
}

// directory is a directory as the layer or the image below has it. Without its own entry, what
// unpacks the layer could make it anew, as root's and with the mode 0755.
func (b *assembly) directory(dir string) Entry {
	e := Entry{Path: dir, Type: DirectoryEntry, Mode: defaultDirMode}
	if n, ok := b.tree.nodes["/"+dir]; ok {
		e.Mode, e.UID, e.GID, e.Xattrs = n.mode, n.uid, n.gid, n.xattrs
	} else if base := b.below.entries["/"+dir]; base.Kind != 0 && !b.tree.hidden(path.Dir("/"+dir)) {
		e.Mode, e.UID, e.GID, e.Xattrs = base.Mode, base.UID, base.GID, base.Xattrs
	}
	return e
}

// read gives a file's whole content.
func (b *assembly) read(n *node) (body, error) {
	data, err := n.content.read(b.in.Remote)
	if err != nil || n.content.base == "" {
		return data, located(n, err)
	}
	before, ok := b.below.contents[n.content.base]
	if !ok {
		before, ok = b.in.Base[n.content.base]
	}
	if !ok && b.below.entries[n.content.base].Size > 0 {
		return nil, located(n, fmt.Errorf("the content of %s in the image below was not read", n.content.base))
	}
	return append(bodyOf(before), data...), nil
}

// located says what of the configuration an error is about.
func located(n *node, err error) error {
	if err == nil || n.from == nil {
		return err
	}
	return n.from.wrong(err)
}

// nameFiles gives the content of a file with several names to the one that comes first in the
// archive: a hard link can only lead to what is there before it.
func (b *assembly) nameFiles() {
	for _, target := range sortedKeys(b.links) {
		file, first := b.entries[target], target
		for _, name := range b.links[target] {
			if strings.Compare(name, first) < 0 {
				first = name
			}
		}
		for _, name := range append(b.links[target], target) {
			e := Entry{Path: name, Type: HardLink, Mode: file.Mode, UID: file.UID, GID: file.GID, Target: first}
			if name == first {
				e = file
				e.Path = name
			}
			b.entries[name] = e
		}
	}
}
