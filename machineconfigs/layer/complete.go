package layer

import (
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// late is what a provisional layer lacks, because content brings the units and accounts for it.
type late struct {
	units  []plannedUnit
	owners []lateOwner
}

// lateOwner is a node whose owner is not known before the content is there.
type lateOwner struct {
	node    *node
	written types.Node
}

// Complete is what the layer of a provisional plan lacks, for an image whose content was built on
// that layer: units are enabled, and files get their owners. What the content has removed, replaced
// or given to someone stays as it is. The plan is nil where nothing is left to do.
//
// The error lists what the content was expected to bring and has not, see Errors.
func (p *Plan) Complete(finished *osindex.Index) (*Plan, error) {
	if len(p.Expected) == 0 {
		return nil, nil
	}
	s := newSplitter(&machineconfigs.Config{}, finished)
	s.accounts = readAccounts(s.tree)
	s.ownLate(p)
	for _, u := range p.build.late.units {
		s.enable(u)
	}
	if err := s.wrong(); err != nil {
		return nil, err
	}
	if len(s.tree.nodes) == 0 {
		return nil, nil
	}
	return s.finish(), nil
}

// ownLate gives nodes their owners, and writes the record again where that changes it.
func (s *splitter) ownLate(p *Plan) {
	owned := map[*node]*node{}
	for _, late := range p.build.late.owners {
		if n := s.lateNode(late); n != nil {
			owned[late.node] = late.known(n)
			s.tree.put(n)
			s.linkAgain(p.build.record.links, late.node, n)
		}
	}
	if len(owned) == 0 {
		return
	}
	s.record = p.build.record.owned(owned)
	s.plan.Items = slices.Clone(p.Items) // the record is named by them
	for _, r := range p.Remote {
		s.remotes[r.Key] = r
	}
}

// known is the node as the configuration says it, with what n says of its owner.
func (l lateOwner) known(n *node) *node {
	known := *l.node
	if known.user != "" {
		known.user, known.uid = "", n.uid
	}
	if known.group != "" {
		known.group, known.gid = "", n.gid
	}
	return &known
}

// lateNode is a node as the finished image has it, with its owner; nil where the content has done
// something else with it.
func (s *splitter) lateNode(late lateOwner) *node {
	p, err := s.find(late.node.path, false)
	if err != nil || p.reason != "" || late.node.kind != entryTypes[p.entry.Kind] {
		return nil
	}
	written := late.written
	if late.node.user == "" || p.entry.UID != late.node.uid {
		written.User = types.NodeUser{}
	}
	if late.node.group == "" || p.entry.GID != late.node.gid {
		written.Group = types.NodeGroup{}
	}
	n := &node{
		path: p.real, kind: late.node.kind, mode: p.entry.Mode, uid: p.entry.UID, gid: p.entry.GID, xattrs: p.entry.Xattrs,
		target: p.entry.Target, from: late.node.from,
	}
	if n.kind == RegularFile {
		n.content.base = p.real
	}
	s.setOwner(n, written)
	if n.uid == p.entry.UID && n.gid == p.entry.GID {
		return nil
	}
	if n.kind == RegularFile {
		s.want(p.real, p.entry)
	}
	return n
}

// entryTypes are what entries of an image are in a layer.
var entryTypes = map[osindex.Kind]EntryType{osindex.File: RegularFile, osindex.Directory: DirectoryEntry, osindex.Symlink: SymbolicLink}

// linkAgain keeps further names of a file: those of different layers are never the same file.
func (s *splitter) linkAgain(links []recordedLink, before, n *node) {
	for _, l := range links {
		if entry, _ := s.base.Lookup(l.node.path); l.node.kind == HardLink && l.node.target == before.path && entry.Kind == osindex.File {
			s.tree.put(&node{path: l.node.path, kind: HardLink, target: n.path, from: l.node.from})
		}
	}
}

// owned is the record with other nodes in the place of some.
func (r record) owned(others map[*node]*node) record {
	r.files, r.directories, r.links, r.units = slices.Clone(r.files), slices.Clone(r.directories), slices.Clone(r.links), slices.Clone(r.units)
	for i, f := range r.files {
		if n, ok := others[f.node]; ok {
			r.files[i].node = n
		}
	}
	for i, d := range r.directories {
		if n, ok := others[d.node]; ok {
			r.directories[i].node = n
		}
	}
	for i, l := range r.links {
		if n, ok := others[l.node]; ok {
			r.links[i].node = n
		}
	}
	return r
}
