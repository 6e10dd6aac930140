package systemd

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Report is what there is to say about an operation.
type Report struct {
	// Failures are why systemctl would have exited with an error. As systemctl does, the operation went on with the rest.
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
	e := enabling{tree: t}
	for _, name := range names {
		u, err := e.resolve(name)
		switch {
		case err != nil:
			e.fail(err)
		case u.masked:
			e.fail(fmt.Errorf("%q: %w", name, ErrMasked))
		default:
			e.add(u.name.String(), false)
			e.noteStatic(u)
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
	// lenient is that templates which no instance is known for are passed over, as presets do.
	lenient bool
}

// queued is a unit to be enabled.
type queued struct {
	name string
	// also is that another unit named it.
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

// resolve loads a unit, and the one that its name is an alias of.
func (e *enabling) resolve(name string) (*unit, error) { return resolve(e.tree, name) }

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

func (e *enabling) enable(u *unit) {
	for _, also := range u.also {
		e.add(also, true)
	}
	for _, alias := range u.aliases {
		if err := e.linkAlias(u, alias); err != nil {
			e.fail(fmt.Errorf("%q: Alias=: %w", u.name, err))
		}
	}
	e.linkDependents(u, "WantedBy", u.wantedBy, ".wants")
	e.linkDependents(u, "RequiredBy", u.requiredBy, ".requires")
	e.linkDependents(u, "UpheldBy", u.upheldBy, ".upholds")
	if !inUnitDirs(u.path) {
		if err := e.link(path.Join(ConfigDir, path.Base(u.path)), u.path, false); err != nil {
			e.fail(err)
		}
	}
}

// linkDependents puts the unit into the folders of those that want it.
func (e *enabling) linkDependents(u *unit, key string, dependents []string, suffix string) {
	name := u.name
	if name.kind == template && u.defaultInstance != "" {
		name = name.of(u.defaultInstance)
		if i, err := resolve(e.tree, name.String()); err == nil && i.masked && len(dependents) > 0 {
			e.fail(fmt.Errorf("%q: %w", name, ErrMasked))
			return
		}
	}
	for _, dependent := range dependents {
		target, err := expand(dependent, u.name, u.defaultInstance)
		if err != nil {
			e.fail(fmt.Errorf("%q: %s=: %w", u.name, key, err))
			continue
		}
		parsed, err := parseName(target)
		switch {
		case err != nil:
			e.fail(fmt.Errorf("%q: %s=: %w", u.name, key, err))
			continue
		case name.kind == template && parsed.kind != template && e.lenient:
			continue
		case name.kind == template && parsed.kind != template:
			e.fail(fmt.Errorf("%q: %s=: a template without DefaultInstance= cannot be enabled for %q: enable an instance, such as %q",
				u.name, key, target, name.of("name")))
			continue
		}
		if err := e.link(path.Join(ConfigDir, target+suffix, name.String()), u.path, true); err != nil {
			e.fail(err)
		}
		if _, err := resolve(e.tree, target); errors.Is(err, ErrNotFound) {
			e.notice("unit %q is enabled for %q, a unit that does not exist", name, target)
		}
	}
}

// linkAlias gives the unit another name.
func (e *enabling) linkAlias(u *unit, alias string) error {
	name, err := expand(alias, u.name, u.defaultInstance)
	if err != nil {
		return err
	}
	if name, err = checkAlias(u, name); err != nil {
		return err
	}
	return e.link(path.Join(ConfigDir, name), u.path, false)
}

// checkAlias tells whether a unit may have the alias, and gives it the unit's instance where it needs one.
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

// link makes a link. One that leads to the same unit already stays; another one is replaced only if that is allowed.
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
