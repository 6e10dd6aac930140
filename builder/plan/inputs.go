package plan

import (
	"cmp"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Inputs are everything that decides what an image holds, by content: no names of secrets, rendered
// MachineConfigs or pools are among them, so renaming one of those changes no key
// (docs/architecture.md).
//
// It can be written as JSON and read back, so that the inputs of one build can be compared with
// those of the next.
type Inputs struct {
	// Base is the digest of the base OS image ("sha256:..."), as the stream or the MachineOSConfig
	// named it: of the manifest list where there is one.
	Base string `json:"base"`
	// Architectures are those that the image is for, in any order, where the base is for several;
	// else there are none.
	Architectures []mcfgv1.Architecture `json:"architectures,omitempty"`
	// Extensions is the digest of the extensions image; empty where there is none. It counts only
	// if something is taken from it.
	Extensions string `json:"extensions,omitempty"`
	// ExtensionNames are the package sets to install from it, in any order.
	ExtensionNames []string `json:"extensionNames,omitempty"`
	// KernelType is the kernel to run; empty means default.
	KernelType string `json:"kernelType,omitempty"`
	// Containerfiles are the administrator's, one for each architecture that has one; of all
	// others, NoArch.
	Containerfiles []Containerfile `json:"containerfiles,omitempty"`
	// BuildInputs are what the RUN lines can see beside images: entitlements, package repositories,
	// keys, files of the build context. They count only if something is built.
	BuildInputs []Item `json:"buildInputs,omitempty"`
	// Config is what the rendered MachineConfig puts into the image.
	Config []Item `json:"config,omitempty"`
	// ConfigVersion is the version of the way in which a layer is made of Config.
	ConfigVersion int `json:"configVersion,omitempty"`
}

// Containerfile is the administrator's text for one architecture.
type Containerfile struct {
	Arch mcfgv1.ContainerfileArch `json:"arch"`
	Text string                   `json:"text"`
}

// Item is one thing among the inputs.
type Item struct {
	// Name says what it is in words, such as "file /etc/chrony.conf". It is part of the key: a file
	// at another path is another file.
	Name string `json:"name"`
	// Hash is over its content and everything else that gets into the image with it, such as mode
	// and owner.
	Hash string `json:"hash"`
}

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
