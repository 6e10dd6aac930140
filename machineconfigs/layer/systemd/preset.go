package systemd

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Presets are the rules of preset files (systemd.preset(5)), in their order.
type Presets struct{ rules []rule }

// rule is a line of a preset file.
type rule struct {
	enable, ignore bool
	pattern        string
	// instances are those of a template that an "enable" line lists.
	instances []string
}

// ReadPresets reads the preset files of a tree: by name, whichever folder they are in, and of those
// with the same name only that in the first folder.
func ReadPresets(t Tree) (Presets, error) {
	found := map[string]string{}
	for _, dir := range PresetDirs() {
		for _, name := range t.List(dir) {
			if _, ok := found[name]; !ok && strings.HasSuffix(name, ".preset") {
				found[name] = path.Join(dir, name)
			}
		}
	}
	var p Presets
	for _, file := range inOrder(found) {
		if masked(t, file) {
			continue
		}
		data, err := t.Read(file)
		if err != nil {
			return Presets{}, fmt.Errorf("reading %q: %w", file, err)
		}
		for line := range lines(data) {
			if r, ok := parseRule(strings.Trim(line, whitespace)); ok {
				p.rules = append(p.rules, r)
			}
		}
	}
	return p, nil
}

// masked reports whether a file is switched off by a link to /dev/null.
func masked(t Tree, file string) bool {
	kind, target := t.Lookup(file)
	return kind == Link && path.Clean(path.Join("/", target)) == "/dev/null"
}

func parseRule(line string) (rule, bool) {
	verb, rest, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	fields := strings.Fields(rest)
	switch {
	case len(fields) == 0:
		return rule{}, false
	case verb == "disable", verb == "ignore":
		return rule{ignore: verb == "ignore", pattern: strings.TrimSpace(rest)}, true
	case verb != "enable":
		return rule{}, false
	}
	r := rule{enable: true, pattern: fields[0], instances: fields[1:]}
	if n, err := parseName(r.pattern); len(r.instances) > 0 && (err != nil || n.kind != template) {
		return rule{}, false // instances are of templates only
	}
	return r, true
}

// action is what presets say about a unit.
type action struct {
	enable, ignore bool
	// instances are names of units to enable instead of the template that was asked for.
	instances []string
}

// query finds the first rule for a unit. Without one it is enabled.
func (p Presets) query(name unitName) action {
	for _, r := range p.rules {
		if len(r.instances) > 0 {
			if made, ok := r.matchInstances(name); ok {
				return action{enable: true, instances: made}
			}
			continue
		}
		if match(r.pattern, name.String()) {
			return action{enable: r.enable, ignore: r.ignore}
		}
	}
	return action{enable: true}
}

// Reenables reports whether a first boot would enable an instance although it is disabled: systemd
// asks presets about templates, not about their instances.
func (p Presets) Reenables(t Tree, name string) bool {
	n, err := parseName(name)
	if err != nil || n.kind != instance {
		return false
	}
	a := p.query(n.of(""))
	if !a.enable || len(a.instances) > 0 {
		return slices.Contains(a.instances, name)
	}
	u, err := resolve(t, n.of("").String())
	return err == nil && u.defaultInstance == n.instance && u.installable()
}

func (r rule) matchInstances(name unitName) (units []string, ok bool) {
	if name.kind == plain || name.of("").String() != r.pattern {
		return nil, false
	}
	for _, i := range r.instances {
		if name.kind == template {
			units = append(units, name.of(i).String())
		} else if i == name.instance {
			return nil, true
		}
	}
	return units, len(units) > 0
}

// match reports whether a name matches a pattern of the shell, in which a backslash is an ordinary
// character.
func match(pattern, name string) bool {
	ok, err := path.Match(strings.NewReplacer(`\`, `\\`, "[!", "[^").Replace(pattern), name)
	return ok || err != nil && pattern == name
}

// Preset does what "systemctl preset" does for the units: enable or disable them, as the first rule
// that is about them says.
func Preset(t Tree, presets Presets, names ...string) Report {
	e, d := enabling{tree: t, lenient: true}, disabling{enabling: enabling{tree: t}, marked: map[string]bool{}}
	for _, name := range names {
		u, err := resolve(t, name)
		switch {
		case err != nil:
			e.fail(err)
			continue
		case u.name.String() != name:
			e.notice("unit %q is another name of %q, so presets don't concern it", name, u.name)
			continue
		}
		switch a := presets.query(u.name); {
		case a.ignore:
		case u.masked && a.enable:
			e.fail(fmt.Errorf("%q: %w", name, ErrMasked))
		case u.masked:
			e.notice("unit %q is masked, so it is not disabled", name)
		case a.enable && len(a.instances) > 0:
			for _, i := range a.instances {
				e.add(i, false)
			}
		case a.enable:
			e.add(name, false)
		default:
			d.marked[name] = true
		}
	}
	d.sweep()
	e.apply()
	return e.Report
}
