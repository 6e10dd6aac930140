package osindex

import (
	"archive/tar"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// node is one path. There are a hundred thousand of them, so what only some have is apart.
type node struct {
	name  string
	attrs *attrs // nil of a whiteout
	more  *more
	size  int64
	layer int32
	flags flags
	// late is how many of the nodes below are at the end because they came late.
	late uint16
}

// more is what few nodes have.
type more struct {
	below   []*node // of a directory, sorted by name
	target  string  // of a symbolic link
	content []byte  // of a file; nil if it is not kept
	origin  string  // of a file that its layer has under another name
}

// flags are about a layer that is being read; nodes of an index have none.
type flags uint8

const (
	// implied is a directory that the layer doesn't name, but has entries below.
	implied flags = 1 << iota
	// hides means that a whiteout has the name: nothing of what lower layers have there, or below,
	// shows.
	hides
	// opaque means that a directory has the marker: nothing of what lower layers have below shows.
	opaque
)

// attrs is what many nodes have in common.
type attrs struct {
	kind     Kind
	mode     uint32
	uid, gid int
	xattrs   map[string]string
}

// attrsKey is attrs as the key of a map.
type attrsKey struct {
	kind     Kind
	mode     uint32
	uid, gid int
	xattrs   string
}

// impliedAttrs are those of directories that no layer names.
func impliedAttrs() attrs { return attrs{kind: Directory, mode: 0o755} }

// kind is what the node is, 0 of a whiteout.
func (n *node) kind() Kind {
	if n.attrs == nil {
		return 0
	}
	return n.attrs.kind
}

const (
	// nodeBytes is about what a node takes, with its place among the children of its directory.
	nodeBytes = 64
	// moreBytes is what its other part takes.
	moreBytes = 80
)

// cost is about how many bytes the node takes. Contents have a budget of their own.
func (n *node) cost() int {
	bytes := nodeBytes + len(n.name)
	switch {
	case n.kind() == Directory:
		bytes += moreBytes
	case n.more != nil:
		bytes += moreBytes + len(n.more.target) + len(n.more.origin)
	}
	return bytes
}

// children are the nodes directly below, sorted by name.
func (n *node) children() []*node {
	if n.more == nil {
		return nil
	}
	n.settle()
	return n.more.below
}

// find is the place of a name among the nodes below. Those that came late are sorted apart.
func (n *node) find(name string) (int, bool) {
	if n.more == nil {
		return 0, false
	}
	below := n.more.below
	early := len(below) - int(n.late)
	// Archives are mostly sorted, so a new name mostly comes last.
	if n.late == 0 && (early == 0 || below[early-1].name < name) {
		return early, false
	}
	compare := func(child *node, name string) int { return strings.Compare(child.name, name) }
	if i, ok := slices.BinarySearchFunc(below[:early], name, compare); ok {
		return i, true
	}
	i, ok := slices.BinarySearchFunc(below[early:], name, compare)
	return early + i, ok
}

// child is nil if there is none.
func (n *node) child(name string) *node {
	if i, ok := n.find(name); ok {
		return n.more.below[i]
	}
	return nil
}

// maxLate is how many nodes are sorted apart before they go where they belong. Each that came late
// would otherwise move all behind it, which takes minutes for names in descending order.
const maxLate = 1 << 10

// put adds a child, or replaces the one of its name.
func (n *node) put(child *node) {
	i, ok := n.find(child.name)
	if ok {
		n.more.below[i] = child
		return
	}
	if n.more == nil {
		n.more = &more{}
	}
	isLast := n.late == 0 && (i == 0 && len(n.more.below) == 0 || i == len(n.more.below) && n.more.below[i-1].name < child.name)
	n.more.below = slices.Insert(n.more.below, i, child)
	if isLast {
		return
	}
	if n.late++; n.late == maxLate {
		n.settle()
	}
}

// settle moves nodes that came late to where they belong.
func (n *node) settle() {
	if n.late == 0 {
		return
	}
	below := n.more.below
	early, at := len(below)-int(n.late), len(below)
	late := slices.Clone(below[early:])
	for len(late) > 0 {
		at--
		if last := len(late) - 1; early > 0 && below[early-1].name > late[last].name {
			early--
			below[at] = below[early]
		} else {
			below[at] = late[last]
			late = late[:last]
		}
	}
	n.late = 0
}

// each visits the node and all below it, parents first, names in order.
func (n *node) each(visit func(*node) error) error {
	if err := visit(n); err != nil {
		return err
	}
	for _, child := range n.children() {
		if err := child.each(visit); err != nil {
			return err
		}
	}
	return nil
}

// intern gives the one attrs that is equal to a.
func (x *Index) intern(a attrs) (*attrs, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	key := attrsKey{kind: a.kind, mode: a.mode, uid: a.uid, gid: a.gid, xattrs: joinXattrs(a.xattrs)}
	if known, ok := x.attrs[key]; ok {
		return known, nil
	}
	if len(x.attrs) >= maxAttrs {
		return nil, fmt.Errorf("more than %d different sets of mode, owner and extended attributes", maxAttrs)
	}
	if x.xattrs += len(key.xattrs); x.xattrs > maxXattrs {
		return nil, fmt.Errorf("extended attributes of more than %d bytes", maxXattrs)
	}
	if x.attrs == nil {
		x.attrs = map[attrsKey]*attrs{}
	}
	x.attrs[key] = &a
	return &a, nil
}

// check finds extended attributes that no file can have.
func (a *attrs) check() error {
	if len(a.xattrs) > maxXattrCount {
		return fmt.Errorf("more than %d extended attributes", maxXattrCount)
	}
	for name, value := range a.xattrs {
		if len(name) > maxXattrName || len(value) > maxXattrValue {
			return fmt.Errorf("an extended attribute of %d bytes, whose name has %d", len(value), len(name))
		}
	}
	return nil
}

// joinXattrs is equal for equal xattrs only.
func joinXattrs(xattrs map[string]string) string {
	if len(xattrs) == 0 {
		return ""
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(xattrs)) {
		text.WriteString(strconv.Quote(name) + strconv.Quote(xattrs[name]))
	}
	return text.String()
}

const (
	xattrPrefix = "SCHILY.xattr."
	// modeBits are what a tar header's mode is made of.
	modeBits = 0o7777
)

// attrsOf reads the attributes of a header for what it is a header of.
func attrsOf(hdr *tar.Header, kind Kind) attrs {
	a := attrs{kind: kind, mode: uint32(hdr.Mode & modeBits), uid: hdr.Uid, gid: hdr.Gid}
	for record, value := range hdr.PAXRecords {
		name, ok := strings.CutPrefix(record, xattrPrefix)
		if !ok || name == "security.ima" || name == "security.evm" {
			continue
		}
		if a.xattrs == nil {
			a.xattrs = map[string]string{}
		}
		a.xattrs[strings.Clone(name)] = strings.Clone(value)
	}
	return a
}
