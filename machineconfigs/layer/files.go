package layer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs/layer/nodestate"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// files takes the files apart.
func (s *splitter) files() {
	for i, f := range s.cfg.Ignition.Storage.Files {
		it := s.newItem("file", f.Path, fmt.Sprintf("storage.files[%d]", i))
		p, err := s.findFile(f)
		p, n := s.settle(it, p, err, s.cfg.NodeOnly.Files, func(p place) (*node, error) { return s.fileNode(f, p) })
		switch {
		case n != nil:
			s.record.files = append(s.record.files, recordedFile{file: f, node: n})
		case p.reason != "":
			s.plan.NodeState.Files = append(s.plan.NodeState.Files, nodestate.File{File: f, Resolved: p.real, Reason: p.reason})
		}
	}
}

// nodeOnly is the reason why an item is node state: that its author keeps it out of images comes
// first.
func (s *splitter) nodeOnly(list []string, name, reason string) string {
	if slices.Contains(list, name) {
		return "a MachineConfig with the annotation nodeOnly sets it"
	}
	return reason
}

// findFile resolves a file's path. What only changes a file goes to where a link at its path leads;
// new content replaces the link.
func (s *splitter) findFile(f types.File) (place, error) {
	p, err := s.find(f.Path, false)
	if err == nil && f.Contents.Source == nil && p.entry.Kind == osindex.Symlink {
		return s.find(f.Path, true)
	}
	return p, err
}

// fileNode is a file's place in the layer, without its owner.
func (s *splitter) fileNode(f types.File, p place) (*node, error) {
	if err := checkFile(f, p); err != nil {
		return nil, err
	}
	parts, err := decode(f)
	if err != nil {
		return nil, err
	}
	n := &node{path: p.real, kind: RegularFile, mode: defaultFileMode, content: content{parts: parts}}
	if p.entry.Kind == osindex.File && f.Contents.Source == nil {
		n.mode, n.uid, n.gid, n.xattrs = p.entry.Mode, p.entry.UID, p.entry.GID, p.entry.Xattrs
		if len(parts) > 0 {
			delete(n.xattrs, "security.capability") // the kernel drops it, too, when a file is written to
		}
		n.content.base = p.real
		s.want(p.real, p.entry)
	}
	if f.Mode != nil {
		n.mode = uint32(*f.Mode) & permissions //nolint:gosec // checkFile bounds it
	}
	for _, part := range parts {
		if part.remote != nil {
			s.remotes[part.remote.Key] = part.remote.Remote
		}
	}
	return n, nil
}

func checkFile(f types.File, p place) error {
	if err := checkMode(f.Mode); err != nil {
		return err
	}
	switch kind := p.entry.Kind; {
	case kind == osindex.Directory:
		return errors.New("the image below has a directory there: choose another path, or remove the directory in the Containerfile")
	case kind == osindex.Special:
		return errors.New("the image below has a device, pipe or socket there: choose another path, or remove it in the Containerfile")
	case (kind == osindex.File || kind == osindex.Symlink) && f.Contents.Source != nil && f.Overwrite != nil && !*f.Overwrite:
		return errors.New("the image below has a file or link there and overwrite is false: set overwrite to true, or use append")
	}
	return nil
}

const (
	maxMode = 0o7777
	// permissions are what of a mode has an effect: Ignition leaves out setuid, setgid and sticky
	// up to specification 3.5, and warns.
	permissions = 0o777
)

func checkMode(mode *int) error {
	if mode != nil && (*mode < 0 || *mode > maxMode) {
		return fmt.Errorf("the mode %d is out of range: it is a decimal number from 0 to %d (octal 7777); 0644 is 420", *mode, maxMode)
	}
	return nil
}

// own gives a node the owner that the configuration names.
func (s *splitter) own(n *node, written types.Node) {
	s.setOwner(n, written)
	if n.user != "" || n.group != "" {
		s.late.owners = append(s.late.owners, lateOwner{node: n, written: written})
	}
}

func (s *splitter) setOwner(n *node, written types.Node) {
	var err error
	if n.uid, err = choose(written.User.ID, written.User.Name, s.accounts.users, n.uid); err != nil {
		n.user = s.ownerNotFound(n, "user", written.User.Name, err)
	}
	if n.gid, err = choose(written.Group.ID, written.Group.Name, s.accounts.groups, n.gid); err != nil {
		n.group = s.ownerNotFound(n, "group", written.Group.Name, err)
	}
}

// ownerNotFound fails, or gives the name of an account that the content of the image is expected to
// bring.
func (s *splitter) ownerNotFound(n *node, kind string, name *string, err error) string {
	if !s.contentFollows || !errors.Is(err, errNoAccount) {
		s.fail(n.from, fmt.Errorf("%s %w", kind, err))
		return ""
	}
	s.plan.Expected = append(s.plan.Expected, kind+" "+*name)
	return *name
}

func (s *splitter) addFileItem(f recordedFile) {
	n := f.node
	s.addItem("file", n.path, append([]string{fmt.Sprintf("%o %s", n.mode, n.owner())}, n.content.identity()...)...)
}

// directories takes the directories apart.
func (s *splitter) directories() {
	for i, d := range s.cfg.Ignition.Storage.Directories {
		it := s.newItem("directory", d.Path, fmt.Sprintf("storage.directories[%d]", i))
		it.directory = true
		p, err := s.findDirectory(d)
		p, n := s.settle(it, p, err, s.cfg.NodeOnly.Directories, func(p place) (*node, error) { return directoryNode(d, p) })
		switch {
		case n != nil:
			s.record.directories = append(s.record.directories, recordedDirectory{directory: d, node: n})
		case p.reason != "":
			s.plan.NodeState.Directories = append(s.plan.NodeState.Directories, nodestate.Directory{Directory: d, Resolved: p.real, Reason: p.reason})
		}
	}
}

// findDirectory resolves a directory's path. A link to a directory stays, and the directory that it
// leads to is meant.
func (s *splitter) findDirectory(d types.Directory) (place, error) {
	p, err := s.find(d.Path, false)
	if err != nil || p.entry.Kind != osindex.Symlink {
		return p, err
	}
	followed, err := s.find(d.Path, true)
	if err == nil && followed.reason == "" && followed.entry.Kind != osindex.Directory {
		return p, nil // which directoryNode refuses
	}
	return followed, err
}

func directoryNode(d types.Directory, p place) (*node, error) {
	if err := checkMode(d.Mode); err != nil {
		return nil, err
	}
	n := &node{path: p.real, kind: DirectoryEntry, mode: defaultDirMode}
	switch p.entry.Kind {
	case osindex.File, osindex.Symlink, osindex.Special:
		return nil, errors.New("the image below has something else there, and no layer turns that into a directory: " +
			"choose another path, or remove it in the Containerfile")
	case osindex.Directory:
		if n.opaque = d.Overwrite != nil && *d.Overwrite; !n.opaque {
			n.mode, n.uid, n.gid, n.xattrs = p.entry.Mode, p.entry.UID, p.entry.GID, p.entry.Xattrs
		}
	}
	if d.Mode != nil {
		n.mode = uint32(*d.Mode) & permissions //nolint:gosec // checkMode bounds it
	}
	return n, nil
}
