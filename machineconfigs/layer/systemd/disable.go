package systemd

import "path"

// Disable removes the links that "systemctl disable" removes: all below /etc/systemd/system that
// have the name of one of the units or lead to it, and the same for the units that they name in
// Also=. A unit that does not exist is no failure.
func Disable(t Tree, names ...string) Report {
	d := disabling{enabling: enabling{tree: t}, marked: map[string]bool{}}
	for _, name := range names {
		if err := CheckName(name); err != nil {
			d.fail(err)
			continue
		}
		d.mark(name)
	}
	d.sweep()
	return d.Report
}

// Unlink removes the links of the units themselves, and leaves those that they name in Also= alone.
func Unlink(t Tree, names ...string) {
	d := disabling{enabling: enabling{tree: t}, marked: map[string]bool{}}
	for _, name := range names {
		d.marked[name] = true
	}
	d.sweep()
}

// disabling is the state of one run of disable. The queue is the enabling's.
type disabling struct {
	enabling
	// marked are names of units, and paths of links that were removed.
	marked map[string]bool
}

// mark marks a unit, the unit that it is an alias of, and what that one names in Also=.
func (d *disabling) mark(name string) {
	d.add(name, false)
	for len(d.queue) > 0 {
		next := d.queue[0]
		d.queue = d.queue[1:]
		u, err := resolve(d.tree, next.name)
		switch {
		case err != nil: // its links go all the same
			d.marked[next.name] = true
			if !next.also {
				d.notice("disabling %v", err)
			}
		case u.masked:
			d.notice("unit %q is masked, so it is not disabled", next.name)
		default:
			d.marked[u.name.String()] = true
			for _, also := range u.also {
				d.add(also, true)
			}
		}
	}
}

// sweep removes the links of what is marked, until no link leads to one that was removed.
func (d *disabling) sweep() {
	for again := len(d.marked) > 0; again; {
		again = d.sweepDir(ConfigDir)
	}
}

func (d *disabling) sweepDir(dir string) (removed bool) {
	for _, name := range d.tree.List(dir) {
		at := path.Join(dir, name)
		switch kind, _ := d.tree.Lookup(at); kind {
		case Directory:
			removed = d.sweepDir(at) || removed
		case Link:
			if isName(name) && d.leadsToMarked(at) && d.remove(at) {
				removed = true
			}
		case Nothing, File, Other:
		}
	}
	return removed
}

// remove removes a link, and reports whether the tree let it.
func (d *disabling) remove(at string) bool {
	d.tree.Remove(at)
	if kind, _ := d.tree.Lookup(at); kind != Nothing {
		return false
	}
	d.marked[at] = true
	return true
}

// leadsToMarked follows a link.
func (d *disabling) leadsToMarked(at string) bool {
	if d.marked[Template(path.Base(at))] {
		return true // with a template go all links of its instances, also of those that have files of their own
	}
	for range maxHops {
		if d.marked[at] || d.marked[path.Base(at)] {
			return true
		}
		kind, target := d.tree.Lookup(at)
		if kind != Link {
			return false
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(at), target)
		}
		at = path.Clean(target)
	}
	return false
}
