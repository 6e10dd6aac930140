package layer

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs/layer/nodestate"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// links takes the links apart. Where hard links lead is looked at when all files are known.
func (s *splitter) links() {
	for i, l := range s.cfg.Ignition.Storage.Links {
		it := s.newItem("link", l.Path, fmt.Sprintf("storage.links[%d]", i))
		p, err := s.find(l.Path, false)
		p, n := s.settle(it, p, err, s.cfg.NodeOnly.Links, func(p place) (*node, error) { return linkNode(l, p) })
		switch {
		case n != nil:
			s.record.links = append(s.record.links, recordedLink{link: l, node: n})
		case p.reason != "":
			s.plan.NodeState.Links = append(s.plan.NodeState.Links, nodestate.Link{Link: l, Resolved: p.real, Reason: p.reason})
		}
	}
}

func linkNode(l types.Link, p place) (*node, error) {
	if l.Target == nil || *l.Target == "" {
		return nil, errors.New("a link needs a target")
	}
	if strings.ContainsRune(*l.Target, 0) || !utf8.ValidString(*l.Target) || len(*l.Target) > osindex.MaxPathBytes {
		return nil, fmt.Errorf("the target must be text of at most %d bytes, without a zero byte", osindex.MaxPathBytes)
	}
	overwrite := l.Overwrite != nil && *l.Overwrite
	hard := l.Hard != nil && *l.Hard
	same := !hard && p.entry.Kind == osindex.Symlink && path.Clean(p.entry.Target) == path.Clean(*l.Target)
	switch {
	case p.entry.Kind == osindex.Directory, p.entry.Kind == osindex.Special:
		return nil, errors.New("the image below has a directory or device there: choose another path, or remove it in the Containerfile")
	case p.entry.Kind != 0 && !overwrite && !same:
		return nil, errors.New("the image below has another file or link there: set overwrite to true, or choose another path")
	}
	n := &node{path: p.real, kind: SymbolicLink, mode: linkMode, target: *l.Target}
	if hard {
		n.kind = HardLink
	}
	return n, nil
}

// hardLinks finds the files that hard links are further names of.
func (s *splitter) hardLinks() {
	for _, l := range s.record.links {
		if l.node.kind != HardLink {
			continue
		}
		target, err := s.hardLinkTarget(l)
		if err != nil {
			s.fail(l.node.from, err)
			continue
		}
		if l.link.User.ID != nil || l.link.User.Name != nil || l.link.Group.ID != nil || l.link.Group.Name != nil {
			s.plan.Notices = append(s.plan.Notices, fmt.Sprintf("%s: the owner of a hard link is that of its file, so user and group are ignored",
				l.node.from.words))
		}
		l.node.target = target
		s.addItem("link", l.node.path, "hard", target)
	}
}

// hardLinkTarget is the real path of the file that a hard link is another name of. One of the image
// below becomes part of the layer: names of different layers are never the same file.
func (s *splitter) hardLinkTarget(r recordedLink) (string, error) {
	l := r.link
	p, err := s.find(path.Join("/", *l.Target), false)
	if err != nil {
		return "", fmt.Errorf("target %s: %w", *l.Target, err)
	}
	if n, ok := s.tree.nodes[p.real]; ok {
		switch n.kind {
		case RegularFile:
			return p.real, nil
		case HardLink:
			return "", fmt.Errorf("the target %s is itself a hard link: link to its target", *l.Target)
		case DirectoryEntry, SymbolicLink, Whiteout:
		}
		return "", fmt.Errorf("the target %s is not a file: use a symbolic link", *l.Target)
	}
	switch {
	case p.reason != "" || s.taken[p.real] != nil:
		return "", fmt.Errorf("the target %s is not in the image, and a hard link cannot lead out of it: use a symbolic link", *l.Target)
	case p.entry.Kind != osindex.File:
		return "", fmt.Errorf("the target %s is not a file of the image: use a symbolic link, or add the file", *l.Target)
	}
	e := p.entry
	s.want(p.real, e)
	s.tree.put(&node{
		path: p.real, kind: RegularFile, mode: e.Mode, uid: e.UID, gid: e.GID, xattrs: e.Xattrs, content: content{base: p.real},
		from: r.node.from,
	})
	return p.real, nil
}
