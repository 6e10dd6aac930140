package plan

import (
	"cmp"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Inputs are everything that decides what an image holds (docs/architecture.md). A MachineOSBuild
// has them in spec, so that those of one build can be compared with those of the next. Extensions
// count only if something is taken from them, and BuildInputs only if something is built.
type Inputs mcfgv1.ImageInputs

// Containerfile is the administrator's text for one architecture.
type Containerfile = mcfgv1.InputContainerfile

// Item is one thing among the inputs. Its name is part of the key: a file at another path is
// another file.
type Item = mcfgv1.InputItem

// kernel is the kernel by name.
func (in *Inputs) kernel() string { return cmp.Or(in.KernelType, mcfgv1.KernelTypeDefault) }

// UsesExtensions reports whether anything is taken from the extensions image.
func (in *Inputs) UsesExtensions() bool {
	return len(in.ExtensionNames) > 0 || in.kernel() != mcfgv1.KernelTypeDefault
}

// HasContent reports whether there is anything to build: without extensions, kernel and
// Containerfile the content image is the base image itself, and configuration is all that is added.
func (in *Inputs) HasContent() bool {
	return in.UsesExtensions() || slices.ContainsFunc(in.Containerfiles, func(c Containerfile) bool { return c.Text != "" })
}

// canonical is the same inputs in one order, without what does not count.
func (in *Inputs) canonical() Inputs {
	out := Inputs{
		Base:           in.Base,
		Architectures:  slices.Compact(slices.Sorted(slices.Values(in.Architectures))),
		ExtensionNames: slices.Compact(slices.Sorted(slices.Values(in.ExtensionNames))),
		KernelType:     in.kernel(),
		Config:         sortedItems(in.Config),
		ConfigVersion:  in.ConfigVersion,
	}
	if in.UsesExtensions() {
		out.Extensions = in.Extensions
	}
	if in.HasContent() {
		out.BuildInputs = sortedItems(in.BuildInputs)
	}
	for _, c := range in.Containerfiles {
		if c.Text != "" {
			out.Containerfiles = append(out.Containerfiles, Containerfile{Arch: cmp.Or(c.Arch, mcfgv1.NoArch), Text: c.Text})
		}
	}
	slices.SortStableFunc(out.Containerfiles, func(a, b Containerfile) int { return cmp.Compare(a.Arch, b.Arch) })
	return out
}

// sortedItems gives the items by name. Most lists come sorted, and are then not copied.
func sortedItems(items []Item) []Item {
	byName := func(a, b Item) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Hash, b.Hash)) }
	if slices.IsSortedFunc(items, byName) {
		return items
	}
	items = slices.Clone(items)
	slices.SortFunc(items, byName)
	return items
}
