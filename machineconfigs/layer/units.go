package layer

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer/nodestate"
	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// units takes the systemd units apart: files and masks. What is enabled is looked at when all files
// are known.
func (s *splitter) units() {
	seen := map[string]bool{}
	for i, u := range s.cfg.Ignition.Systemd.Units {
		it := s.newItem("unit", u.Name, fmt.Sprintf("systemd.units[%d]", i))
		if err := systemd.CheckName(u.Name); err != nil {
			s.fail(it, err)
			continue
		}
		if seen[u.Name] {
			s.fail(it, errors.New("the unit is there twice: join the two"))
			continue
		}
		seen[u.Name] = true
		if reason := s.nodeOnly(s.cfg.NodeOnly.Units, u.Name, ""); reason != "" {
			s.plan.NodeState.Units = append(s.plan.NodeState.Units, nodestate.Unit{Unit: u, Reason: reason})
			continue
		}
		s.unit(plannedUnit{u, it})
	}
}

func (s *splitter) unit(u plannedUnit) {
	s.record.units = append(s.record.units, u)
	fields := []string{"enabled=" + tristate(u.Enabled), "mask=" + tristate(u.Mask), ""}
	at := path.Join(systemd.ConfigDir, u.Name)
	switch {
	case isTrue(u.Mask):
		s.placeUnitFile(u.item, at, &node{kind: SymbolicLink, mode: linkMode, target: "/dev/null"})
		s.noteMasked(u)
	case u.hasContents():
		fields[2] = *u.Contents
		s.placeUnitFile(u.item, at, textNode(*u.Contents))
	case u.Mask != nil:
		s.unmask(at)
	}
	s.addItem("unit", u.Name, fields...)
	for i, d := range u.Dropins {
		s.dropin(u, i, d)
	}
}

// noteMasked says what of a masked unit has no effect.
func (s *splitter) noteMasked(u plannedUnit) {
	if u.Contents != nil && *u.Contents != "" {
		s.notice(u.item, "it is masked, so its contents are left out")
	}
	if isTrue(u.Enabled) {
		s.notice(u.item, "it is masked, so it is not enabled")
	}
}

func (s *splitter) notice(i *item, text string) {
	s.plan.Notices = append(s.plan.Notices, i.words+": "+text)
}

func textNode(text string) *node {
	return &node{kind: RegularFile, mode: defaultFileMode, content: content{parts: []part{{contents: machineconfigs.PlainContents([]byte(text))}}}}
}

// placeUnitFile puts the file of a unit into the layer, in the place of a file or link that is
// there.
func (s *splitter) placeUnitFile(i *item, at string, n *node) {
	p, err := s.find(at, false)
	switch {
	case err != nil:
	case p.reason != "":
		err = fmt.Errorf("units are read from %s before the node agent could write them there: %s", at, p.reason)
	case p.entry.Kind == osindex.Directory || p.entry.Kind == osindex.Special:
		err = fmt.Errorf("the image below has a directory or device at %s: remove it in the Containerfile", at)
	}
	if err != nil {
		s.fail(i, err)
		return
	}
	if s.claim(i, p) {
		n.path, n.from = p.real, i
		s.tree.put(n)
	}
}

// unmask removes the image's own mask of a unit.
func (s *splitter) unmask(at string) {
	if kind, target := s.tree.Lookup(at); kind == systemd.Link && path.Clean(target) == "/dev/null" {
		s.tree.Remove(at)
	}
}

// dropin places one drop-in. One without contents removes that of the image, as the published node
// agent does.
func (s *splitter) dropin(u plannedUnit, number int, d types.Dropin) {
	it := s.newItem("drop-in", fmt.Sprintf("%s of unit %s", d.Name, u.Name), fmt.Sprintf("systemd.units[%d].dropins[%d]", slices.IndexFunc(
		s.cfg.Ignition.Systemd.Units, func(other types.Unit) bool { return other.Name == u.Name }), number))
	if d.Name == "" || strings.ContainsAny(d.Name, "/\x00") || !strings.HasSuffix(d.Name, ".conf") {
		s.fail(it, errors.New("the name of a drop-in is a file name that ends in .conf"))
		return
	}
	at := path.Join(systemd.ConfigDir, u.Name+".d", d.Name)
	contents := ""
	if d.Contents != nil {
		contents = *d.Contents
	}
	s.addItem("drop-in", d.Name+" of unit "+u.Name, contents)
	if contents != "" {
		s.placeUnitFile(it, at, textNode(contents))
		return
	}
	s.notice(it, "it has no contents, so there will be no such drop-in")
	p, err := s.find(at, false)
	if err != nil {
		s.fail(it, err)
		return
	}
	if !s.claim(it, p) {
		return
	}
	if p.entry.Kind == osindex.File || p.entry.Kind == osindex.Symlink {
		s.tree.put(&node{path: p.real, kind: Whiteout, from: it})
	}
}

func tristate(b *bool) string {
	if b == nil {
		return "unset"
	}
	return fmt.Sprint(*b)
}
