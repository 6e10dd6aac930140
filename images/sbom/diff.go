package sbom

import (
	"cmp"
	"slices"

	"github.com/layerwright/layerwright/osimage/packages"
)

// change is a package that the base image does not have.
type change struct {
	packages.Package
	// before are the versions that it takes the place of, sorted; none where it was added.
	before []string
}

// changes are what an image has other than its base image, sorted.
type changes struct {
	added []change
	// replaced are what the base image has and the added ones take the place of; removed are what
	// it has beside.
	replaced, removed []packages.Package
	// unknown are the types of packages of which the base image has a database and the image has
	// none: no one knows which are still there.
	unknown []string
}

// group has the packages that can take each other's place.
type group struct{ kind, name, arch string }

func groupOf(p packages.Package) group { return group{p.Type, p.Name, p.Arch} }

// diff compares the packages of a base image with those of an image on it. A package that an image
// lists twice counts once.
func diff(base, image *packages.List) changes {
	var c changes
	for _, kind := range base.Types {
		if !slices.Contains(image.Types, kind) {
			c.unknown = append(c.unknown, kind)
		}
	}
	slices.Sort(c.unknown)
	before, after := setOf(base.Packages), setOf(image.Packages)
	gone := map[group][]string{}
	for p := range before {
		if !after[p] && !slices.Contains(c.unknown, p.Type) {
			c.removed = append(c.removed, p)
			gone[groupOf(p)] = append(gone[groupOf(p)], p.Version)
		}
	}
	isReplaced := map[group]bool{}
	for p := range after {
		if before[p] {
			continue
		}
		g := groupOf(p)
		versions := slices.Clone(gone[g])
		slices.Sort(versions)
		c.added = append(c.added, change{Package: p, before: slices.Compact(versions)})
		isReplaced[g] = true
	}
	c.removed = slices.DeleteFunc(c.removed, func(p packages.Package) bool {
		if isReplaced[groupOf(p)] {
			c.replaced = append(c.replaced, p)
			return true
		}
		return false
	})
	slices.SortFunc(c.replaced, compare)
	slices.SortFunc(c.removed, compare)
	slices.SortFunc(c.added, func(a, b change) int { return compare(a.Package, b.Package) })
	return c
}

func setOf(list []packages.Package) map[packages.Package]bool {
	set := make(map[packages.Package]bool, len(list))
	for _, p := range list {
		set[p] = true
	}
	return set
}

// compare orders packages by all that is known of them.
func compare(a, b packages.Package) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Type, b.Type),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.SourceVersion, b.SourceVersion), cmp.Compare(a.License, b.License),
	)
}
