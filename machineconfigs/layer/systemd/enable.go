package systemd

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Report is what there is to say about an operation.
type Report struct {
	// Failures are why systemctl would have exited with an error. As systemctl does, the operation
	// went on with the rest.
	Failures []error
	// Notices are sentences about what systemctl would have printed a warning about.
	Notices []string
}

func (r *Report) fail(err error) { r.Failures = append(r.Failures, err) }

func (r *Report) notice(format string, args ...any) {
	r.Notices = append(r.Notices, fmt.Sprintf(format, args...))
}

// Enable makes the links that "systemctl enable" makes for the units.
func Enable(t Tree, names ...string) Report {
	e := enabling{tree: t, loaded: map[string]*unit{}}
	for _, name := range names {
		u, err := resolve(e.tree, name)
		switch {
		case err != nil:
			e.fail(err)
		case u.masked:
			e.fail(fmt.Errorf("%q: %w", name, ErrMasked))
		default:
			e.add(name, false)
			e.noteStatic(u)
			if u.name.String() == name {
				e.loaded[name] = u
			}
		}
	}
	e.apply()
	return e.Report
}

// noteStatic says that enabling a unit does nothing, where it does nothing.
func (e *enabling) noteStatic(u *unit) {
	if !u.installable() {
		e.notice("unit %q has nothing in its [Install] section, so enabling it changes nothing", u.name)
	}
}

// enabling is the state of one run of enable or preset.
type enabling struct {
	Report
	tree  Tree
	queue []queued
	known map[string]bool
	// loaded are units that have been read already.
	loaded map[string]*unit
	// lenient reports whether templates which no instance is known for are passed over, as presets
	// do.
	lenient bool
}

// queued is a unit to be enabled.
type queued struct {
	name string
	// also reports whether another unit named it.
	also bool
}

func (e *enabling) add(name string, also bool) {
	if e.known == nil {
		e.known = map[string]bool{}
	}
	if !e.known[name] {
		e.known[name] = true
		e.queue = append(e.queue, queued{name, also})
	}
}

// resolve loads a unit, and the one that its name is an alias of. Names that an administrator's
// links give are not taken for the unit: systemctl refuses to enable by them, too.
func (e *enabling) resolve(name string) (*unit, error) {
	if u, ok := e.loaded[name]; ok {
		return u, nil
	}
	u, err := load(e.tree, name)
	if err == nil && u.alias != "" && path.Dir(u.path) == ConfigDir {
		return nil, fmt.Errorf("%q: %w %q", name, ErrAlias, u.alias)
	}
	return resolve(e.tree, name)
}

// resolve loads a unit, or the one that its name is an alias of.
func resolve(t Tree, name string) (*unit, error) {
	for range maxHops {
		u, err := load(t, name)
		if err != nil || u.alias == "" {
			return u, err
		}
		next, err := parseName(u.alias)
		if err != nil {
			return nil, err
		}
		if next.kind == template && u.name.kind == instance {
			next = next.of(u.name.instance)
		}
		name = next.String()
	}
	return nil, fmt.Errorf("%q: %w", name, errLoop)
}

// apply enables what is queued, and what those units name in Also=.
func (e *enabling) apply() {
	for len(e.queue) > 0 {
		next := e.queue[0]
		e.queue = e.queue[1:]
		u, err := e.resolve(next.name)
		switch {
		case err != nil && next.also:
			e.notice("unit %q cannot be enabled together with the unit that names it in Also=: %v", next.name, err)
		case err != nil:
			e.fail(err)
		case u.masked:
			e.notice("unit %q is masked, so it is not enabled", next.name)
		default:
			e.known[u.name.String()] = true
			e.enable(u)
		}
	}
}

// enable makes the links of one unit. What cannot be done is a failure, and no reason to leave the
// rest. (systemctl before version 257 sometimes forgets in its exit status that something has
// failed.)
func (e *enabling) enable(u *unit) {
	for _, also := range u.also {
		e.add(also, true)
	}
	failures := slices.Concat(
		e.linkAliases(u),
		e.linkDependents(u, "WantedBy", u.wantedBy, ".wants"),
		e.linkDependents(u, "RequiredBy", u.requiredBy, ".requires"),
		e.linkDependents(u, "UpheldBy", u.upheldBy, ".upholds"),
	)
	if !inUnitDirs(u.path) { // a unit from elsewhere has to be made known
		failures = append(failures, e.link(path.Join(ConfigDir, path.Base(u.path)), u.path, false))
	}
	for _, err := range failures {
		if err != nil {
			e.fail(fmt.Errorf("%q: %w", u.name, err))
		}
	}
}

// linkDependents puts the unit into the folders of those that want it.
func (e *enabling) linkDependents(u *unit, key string, dependents []string, suffix string) (failures []error) {
	name := u.name
	if name.kind == template && u.defaultInstance != "" {
		name = name.of(u.defaultInstance)
		if i, err := resolve(e.tree, name.String()); err == nil && i.masked && len(dependents) > 0 {
			return []error{fmt.Errorf("%q: %w", name, ErrMasked)}
		}
	}
	for _, dependent := range dependents {
		target, err := e.dependent(u, name, dependent)
		switch {
		case err != nil:
			failures = append(failures, fmt.Errorf("%s=: %w", key, err))
			continue
		case target == "":
			continue
		}
		failures = append(failures, e.link(path.Join(ConfigDir, target+suffix, name.String()), u.path, true))
		if !exists(e.tree, target) {
			e.notice("unit %q is enabled for %q, a unit that does not exist", name, target)
		}
	}
	return failures
}

// dependent is the name of a unit that wants another one; empty where that is to be passed over.
func (e *enabling) dependent(u *unit, name unitName, written string) (string, error) {
	target, err := expand(written, u.name, u.defaultInstance)
	if err != nil {
		return "", err
	}
	parsed, err := parseName(target)
	switch {
	case err != nil:
		return "", err
	case name.kind != template || parsed.kind != plain:
		return target, nil
	case e.lenient:
		return "", nil
	}
	return "", fmt.Errorf("a template without DefaultInstance= cannot be enabled for %q: enable an instance, such as %q", target, name.of("name"))
}

// linkAliases gives the unit its other names.
func (e *enabling) linkAliases(u *unit) (failures []error) {
	for _, alias := range u.aliases {
		name, err := expand(alias, u.name, u.defaultInstance)
		if err == nil {
			name, err = checkAlias(u, name)
		}
		if err == nil {
			err = e.link(path.Join(ConfigDir, name), u.path, false)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%s=: %w", "Alias", err))
		}
	}
	return failures
}

// checkAlias reports whether a unit may have the alias, and gives it the unit's instance where it
// needs one.
func checkAlias(u *unit, alias string) (string, error) {
	if dir, base, ok := cutLast(alias, "/"); ok {
		return alias, checkDependencyAlias(u, dir, base)
	}
	a, err := parseName(alias)
	if err != nil {
		return "", err
	}
	if a.kind == template && u.name.kind == instance {
		a = a.of(u.name.instance)
	}
	switch {
	case a.suffix != u.name.suffix:
		return "", fmt.Errorf("a .%s cannot be another name of a .%s", a.suffix, u.name.suffix)
	case a.kind != u.name.kind && (a.kind != instance || u.name.kind != template), a.kind == instance &&
		u.name.kind == instance && a.instance != u.name.instance:
		return "", fmt.Errorf("%q cannot be another name of %q: both must be plain units, or templates, or the same instance", alias, u.name)
	}
	return a.String(), nil
}

// checkDependencyAlias allows an alias that is really a dependency: other.wants/this.
func checkDependencyAlias(u *unit, dir, base string) error {
	dependent, ok := strings.CutSuffix(dir, ".wants")
	if !ok {
		dependent, ok = strings.CutSuffix(dir, ".requires")
	}
	if !ok || !isName(dependent) {
		return fmt.Errorf("%q is no name of a unit", cut(dir+"/"+base))
	}
	same := base == u.name.String() || u.name.kind == template && Template(base) == u.name.String()
	if !same {
		return fmt.Errorf("%q would be a link to another unit than %q", cut(dir+"/"+base), u.name)
	}
	return nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// link makes a link. One that leads to the same unit already stays; another one is replaced only if
// that is allowed.
func (e *enabling) link(at, target string, replace bool) error {
	kind, old := e.tree.Lookup(at)
	if kind == Nothing {
		e.tree.Put(at, target)
		return nil
	}
	if kind != Link {
		return fmt.Errorf("%q: %w", at, ErrExists)
	}
	if !path.IsAbs(old) {
		old = path.Join(path.Dir(at), old)
	}
	old = path.Clean(old)
	switch {
	case old == target, path.Base(old) == path.Base(target) && inUnitDirs(old) && inUnitDirs(target):
		return nil
	case !replace:
		return fmt.Errorf("%q leads to %q: %w", at, old, ErrExists)
	}
	e.tree.Put(at, target)
	return nil
}
