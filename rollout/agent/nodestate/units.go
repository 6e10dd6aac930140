package nodestate

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

// unit wants the files of a unit.
func (r *reader) unit(u *types.Unit) {
	if err := systemd.CheckName(u.Name); err != nil {
		r.leave("unit %s: %v", u.Name, err)
		return
	}
	at := path.Join(systemd.ConfigDir, u.Name)
	switch {
	case isTrue(u.Mask):
		r.put(Item{Path: at, Entry: Entry{Kind: Link, Target: "/dev/null"}})
	case u.Contents != nil && *u.Contents != "":
		r.put(newFile(at, []byte(*u.Contents)))
	case u.Enabled != nil:
		r.leave("unit %s: only units that have contents are enabled or disabled on nodes", u.Name)
	}
	for _, d := range u.Dropins {
		if d.Contents == nil || *d.Contents == "" {
			continue
		}
		if d.Name == "" || strings.ContainsRune(d.Name, '/') {
			r.leave("drop-in %q of unit %s: it is no name of a file", d.Name, u.Name)
			continue
		}
		r.put(newFile(path.Join(at+".d", d.Name), []byte(*d.Contents)))
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// enable wants the links by which systemd knows the units that are enabled.
func (r *reader) enable() {
	var names []string
	for i := range r.cfg.Ignition.Systemd.Units {
		u := &r.cfg.Ignition.Systemd.Units[i]
		isHere := slices.Contains(r.cfg.NodeOnly.Units, u.Name) && u.Contents != nil && *u.Contents != ""
		if isHere && isTrue(u.Enabled) && !isTrue(u.Mask) {
			names = append(names, u.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	for _, err := range systemd.Enable(unitTree{r}, names...).Failures {
		r.leave("enabling %v", err)
	}
}

// unitTree is what units are looked up in: those of the configuration alone. A unit of the image
// may be another one in the next image.
type unitTree struct{ r *reader }

// Lookup implements systemd.Tree.
func (t unitTree) Lookup(at string) (systemd.Kind, string) {
	switch i := t.r.items[at]; i.Kind {
	case File:
		return systemd.File, ""
	case Directory:
		return systemd.Directory, ""
	case Link:
		return systemd.Link, i.Target
	default:
		return systemd.Nothing, ""
	}
}

// List implements systemd.Tree.
func (t unitTree) List(dir string) []string {
	var names []string
	for at := range t.r.items {
		if path.Dir(at) == dir {
			names = append(names, path.Base(at))
		}
	}
	slices.Sort(names)
	return names
}

// Read implements systemd.Tree.
func (t unitTree) Read(at string) ([]byte, error) {
	i, has := t.r.items[at]
	if !has || i.Kind != File {
		return nil, &fs.PathError{Op: "read", Path: at, Err: fs.ErrNotExist}
	}
	return i.Content, nil
}

// Put implements systemd.Tree.
func (t unitTree) Put(at, target string) {
	t.r.put(Item{Path: at, Entry: Entry{Kind: Link, Target: target}})
}

// Remove implements systemd.Tree.
func (t unitTree) Remove(at string) {
	if t.r.items[at].Kind == Link {
		delete(t.r.items, at)
	}
}
