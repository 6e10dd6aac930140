package systemd

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Why a unit cannot be enabled.
var (
	// ErrNotFound means that no folder has the unit.
	ErrNotFound = errors.New("there is no such unit")
	// ErrMasked means that the unit is a link to /dev/null, or empty.
	ErrMasked = errors.New("the unit is masked")
	// ErrAlias means that the name is a link in /etc/systemd/system to another unit. The error ends
	// with that unit's name.
	ErrAlias = errors.New("the name is only a link to")
	// ErrExists means that something else is where a link should be.
	ErrExists = errors.New("another file or link is in the place of the unit's link")
)

// errLoop means that alias names lead to each other.
var errLoop = errors.New("the links of the unit's name go in a circle")

// maxHops is how many links are followed from one name to another.
const maxHops = 64

// unit is a unit as its files describe it.
type unit struct {
	name unitName
	// path is that of the unit's own file, the template's for an instance.
	path   string
	masked bool
	// alias is the unit that this one is another name of.
	alias string

	aliases, wantedBy, requiredBy, upheldBy, also []string

	defaultInstance string
}

// installable reports whether there is anything in [Install] that enabling could do.
func (u *unit) installable() bool {
	return len(u.aliases)+len(u.wantedBy)+len(u.requiredBy)+len(u.upheldBy)+len(u.also) > 0
}

// load reads a unit and its drop-ins. It does not follow alias names.
func load(t Tree, name string) (*unit, error) {
	parsed, err := parseName(name)
	if err != nil {
		return nil, err
	}
	u := &unit{name: parsed}
	if err := u.find(t); err != nil || u.masked || u.alias != "" {
		return u, err
	}
	data, err := t.Read(u.path)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", u.path, err)
	}
	if len(data) == 0 {
		u.masked = true
		return u, nil
	}
	for _, file := range append([]string{u.path}, dropIns(t, parsed)...) {
		if err := u.read(t, file); err != nil {
			return nil, fmt.Errorf("reading %q: %w", file, err)
		}
	}
	return u, nil
}

// find looks for the unit's file: first under its own name in all folders, then that of its
// template.
func (u *unit) find(t Tree) error {
	candidates := []string{u.name.String()}
	if u.name.kind == instance {
		candidates = append(candidates, u.name.of("").String())
	}
	for _, name := range candidates {
		for _, dir := range UnitDirs() {
			found, err := u.look(t, path.Join(dir, name))
			if found || err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%q: %w", u.name, ErrNotFound)
}

// exists reports whether there is a unit, or another name of one.
func exists(t Tree, name string) bool {
	parsed, err := parseName(name)
	return err == nil && (&unit{name: parsed}).find(t) == nil
}

// look takes the file or link at the path for the unit, if there is one.
func (u *unit) look(t Tree, file string) (bool, error) {
	u.path = file
	for range maxHops {
		kind, target := t.Lookup(u.path)
		switch kind {
		case File:
			return true, nil
		case Link:
		case Nothing, Directory, Other:
			// A link that leads nowhere still says which unit is meant; without a link there is
			// none.
			return u.path != file, nil
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(u.path), target)
		}
		target = path.Clean(target)
		if target == "/dev/null" {
			u.masked = true
			return true, nil
		}
		if inUnitDirs(target) && !u.sameUnit(path.Base(target)) {
			u.alias = path.Base(target)
			return true, nil
		}
		u.path = target
	}
	return false, errLoop
}

// sameUnit reports whether a file of that name is this unit's own: its name, or its template's.
func (u *unit) sameUnit(name string) bool {
	return name == u.name.String() || u.name.kind == instance && name == u.name.of("").String()
}

func inUnitDirs(file string) bool { return slices.Contains(UnitDirs(), path.Dir(file)) }

// dropIns lists a unit's drop-ins in the order in which they count. Of those with the same name,
// the one in the first folder does.
func dropIns(t Tree, unit unitName) []string {
	names := []string{unit.String()}
	if unit.kind == instance {
		names = append(names, unit.of("").String())
	}
	found := map[string]string{}
	for _, name := range names {
		for _, dir := range UnitDirs() {
			dir = path.Join(dir, name+".d")
			for _, file := range t.List(dir) {
				if _, ok := found[file]; !ok && strings.HasSuffix(file, ".conf") {
					found[file] = path.Join(dir, file)
				}
			}
		}
	}
	return inOrder(found)
}

// inOrder gives the values in the order of their keys.
func inOrder(byName map[string]string) []string {
	all := make([]string, 0, len(byName))
	for name := range byName {
		all = append(all, name)
	}
	slices.Sort(all)
	for i, name := range all {
		all[i] = byName[name]
	}
	return all
}

// read adds what the [Install] section of a file says.
func (u *unit) read(t Tree, file string) error {
	data, err := t.Read(file)
	if err != nil {
		return err
	}
	assignments, err := parseInstall(data)
	if err != nil {
		return err
	}
	for _, a := range assignments {
		if err := u.assign(a); err != nil {
			return fmt.Errorf("%s=: %w", a.key, err)
		}
	}
	return nil
}

func (u *unit) assign(a assignment) error {
	lists := map[string]*[]string{
		"Alias": &u.aliases, "WantedBy": &u.wantedBy, "RequiredBy": &u.requiredBy, "UpheldBy": &u.upheldBy,
	}
	switch list := lists[a.key]; {
	case a.key == "Also":
		return u.addAlso(a.value)
	case a.key == "DefaultInstance":
		return u.setDefaultInstance(a.value)
	case list == nil, a.key == "Alias" && !unitTypes()[u.name.suffix]:
	case a.value == "":
		*list = nil
	default:
		*list = append(*list, words(a.value)...)
	}
	return nil
}

// addAlso takes the units that are enabled and disabled together with this one. An empty value does
// not reset the list. One that is no unit's name makes the whole file useless to systemctl.
func (u *unit) addAlso(value string) error {
	for _, word := range plainWords(value) {
		name, err := expand(word, u.name, u.defaultInstance)
		if err != nil {
			return err
		}
		if err := CheckName(name); err != nil {
			return err
		}
		u.also = append(u.also, name)
	}
	return nil
}

// setDefaultInstance counts for templates only, and is ignored where it could not be an instance's
// name.
func (u *unit) setDefaultInstance(value string) error {
	if u.name.kind != template {
		return nil
	}
	name, err := expand(value, u.name, u.defaultInstance)
	if err != nil {
		return err
	}
	if strings.TrimLeftFunc(name, isNameRune) == "" {
		u.defaultInstance = name
	}
	return nil
}
