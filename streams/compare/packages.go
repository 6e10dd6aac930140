package compare

import (
	"cmp"
	"slices"
)

// PackageChanges are how the packages of two images differ.
type PackageChanges struct {
	Added      []Package        `json:"added,omitempty"`
	Removed    []Package        `json:"removed,omitempty"`
	Upgraded   []PackageVersion `json:"upgraded,omitempty"`
	Downgraded []PackageVersion `json:"downgraded,omitempty"`
	// Same is how many have the same version in both.
	Same int `json:"same"`
}

// PackageVersion is a package that two images have in different versions.
type PackageVersion struct {
	Name   string `json:"name"`
	Arch   string `json:"arch,omitempty"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// id is what makes two packages versions of one. The architecture counts: libraries come in two.
type id struct{ kind, name, arch string }

// Packages compares by name and architecture. Of what an image has in several versions, such as
// kernels, each version counts alone. Everything is sorted by name.
func Packages(before, after []Package) *PackageChanges {
	c := &PackageChanges{}
	older, newer := group(before), group(after)
	for key, versions := range older {
		now := newer[key]
		if len(versions) == 1 && len(now) == 1 {
			c.add(key, versions[0], now[0])
			continue
		}
		for _, version := range versions {
			if slices.Contains(now, version) {
				c.Same++
			} else {
				c.Removed = append(c.Removed, Package{Type: key.kind, Name: key.name, Version: version, Arch: key.arch})
			}
		}
	}
	for key, versions := range newer {
		was := older[key]
		if len(versions) == 1 && len(was) == 1 {
			continue
		}
		for _, version := range versions {
			if !slices.Contains(was, version) {
				c.Added = append(c.Added, Package{Type: key.kind, Name: key.name, Version: version, Arch: key.arch})
			}
		}
	}
	c.sort()
	return c
}

func (c *PackageChanges) sort() {
	byName := func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Arch, b.Arch))
	}
	byVersion := func(a, b PackageVersion) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch)) }
	slices.SortFunc(c.Added, byName)
	slices.SortFunc(c.Removed, byName)
	slices.SortFunc(c.Upgraded, byVersion)
	slices.SortFunc(c.Downgraded, byVersion)
}

func (c *PackageChanges) add(key id, before, after string) {
	change := PackageVersion{Name: key.name, Arch: key.arch, Before: before, After: after}
	switch order := compareVersions(key.kind, before, after); {
	case before == after || order == 0:
		c.Same++
	case order < 0:
		c.Upgraded = append(c.Upgraded, change)
	default:
		c.Downgraded = append(c.Downgraded, change)
	}
}

func group(packages []Package) map[id][]string {
	groups := map[id][]string{}
	for _, p := range packages {
		key := id{p.Type, p.Name, p.Arch}
		if !slices.Contains(groups[key], p.Version) {
			groups[key] = append(groups[key], p.Version)
		}
	}
	return groups
}
