package recipe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/containerfiles/render"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// Description is an image, said exactly.
type Description struct {
	// Inputs are everything that decides what the image holds, and Keys its identity.
	Inputs plan.Inputs
	Keys   plan.Keys
	// Platforms are the architectures, in the order of the base image.
	Platforms []PlatformDescription

	recipe Recipe
}

// PlatformDescription is the image of one architecture.
type PlatformDescription struct {
	Architecture mcfgv1.ContainerfileArch
	// Layer is the configuration, taken apart: what goes into the image, and what is node state.
	// Where content is built, it is what can be said before: LayerOn says the rest.
	Layer *layer.Plan
	// Source is the Containerfile that was chosen; zero where there is none for this architecture.
	Source containerfiles.Source
	// Findings are what the linter says about it; none of them is an error.
	Findings []lint.Finding
	// Strategy says when the configuration comes into the image, and StrategyReason why.
	Strategy       containerfiles.Strategy
	StrategyReason string
	// HasContent reports whether anything is built: Containerfile, extensions or another kernel.
	HasContent bool

	containerfile  *containerfiles.Containerfile
	packageManager render.PackageManager
}

func (d *Description) describe(arch mcfgv1.ContainerfileArch, index *osindex.Index) (PlatformDescription, error) {
	p := PlatformDescription{Architecture: arch, packageManager: packageManager(index)}
	p.Source, _ = containerfiles.Select(d.recipe.Sources, arch)
	failed := p.content(&d.recipe)
	// Content may bring accounts and units that the configuration is about.
	split := layer.Split
	if failed != nil || p.HasContent {
		split = layer.Provisional
	}
	var err error
	if p.Layer, err = split(d.recipe.Configuration, index); err != nil {
		err = fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	return p, fault.Join(err, failed)
}

// content says what is built. It is rendered once here: what is wrong with extensions and kernel is
// known before anything starts.
func (p *PlatformDescription) content(r *Recipe) error {
	if err := p.check(); err != nil {
		return fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, err)
	}
	rendered, err := p.render(r, placeholder, nil)
	if err != nil {
		return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	p.Strategy, p.StrategyReason, p.HasContent = rendered.Strategy, rendered.Reason, !rendered.Empty
	return nil
}

// placeholder stands for the image with the configuration where only the text around it is wanted.
var placeholder = "configuration.invalid/image@sha256:" + strings.Repeat("0", 2*sha256.Size)

// check parses and lints the platform's Containerfile.
func (p *PlatformDescription) check() error {
	file, findings := lint.Check(p.Source.Name, []byte(p.Source.Text),
		lint.Options{Architecture: p.Architecture, Context: p.Source.Context})
	if lint.HasErrors(findings) {
		findings = slices.DeleteFunc(findings, func(f lint.Finding) bool { return f.Severity != lint.SeverityError })
		return &lint.Error{File: p.Source.Name, Findings: findings}
	}
	p.containerfile, p.Findings = file, findings
	return nil
}

func (p *PlatformDescription) render(r *Recipe, configImage string, labels map[string]string) (*render.Rendered, error) {
	return render.Render(render.Input{
		Containerfile:   p.containerfile,
		Context:         p.Source.Context,
		BaseImage:       r.Base.Image,
		ConfigImage:     configImage,
		ExtensionsImage: r.Extensions,
		Extensions:      r.Configuration.Extensions,
		Kernel:          render.KernelType(r.Configuration.KernelType),
		Architecture:    p.Architecture,
		PackageManager:  p.packageManager,
		Labels:          labels,
	})
}

// Render writes the Containerfile that builds the content of one architecture. The configImage is
// the base image with the configuration appended, as name@sha256:digest; it may be empty where the
// strategy is AppendAfter.
func (d *Description) Render(p *PlatformDescription, configImage string, labels map[string]string) (*render.Rendered, error) {
	return p.render(&d.recipe, configImage, labels)
}

// StartsFromConfigs reports whether the Containerfile starts from the image with the configuration.
func (p *PlatformDescription) StartsFromConfigs() bool {
	return p.containerfile != nil && render.UsesConfigImage(p.containerfile, p.Architecture)
}

// FullName is what an image's name in the Containerfile means; empty for short names, and for those
// that it does not name itself.
func (p *PlatformDescription) FullName(image string) string {
	uses, _ := containerfiles.Images(p.containerfile, containerfiles.PlatformArgs(p.Architecture)) // names that stand for nothing were refused
	i := slices.IndexFunc(uses, func(use containerfiles.ImageUse) bool { return use.Reference == image })
	if i < 0 || uses[i].Short {
		return ""
	}
	return uses[i].Normalized
}

// IsConfigFirst reports whether content is built on top of the configuration.
func (p *PlatformDescription) IsConfigFirst() bool {
	return p.HasContent && p.Strategy == containerfiles.ConfigFirst
}

// LayerOn is the configuration of one architecture, taken apart for content that has been built: it
// may have brought accounts, units and links that the base image lacks. Where the configuration is
// below the content, it is what that lacks, and nil where it lacks nothing. Errors are Terminal.
func (d *Description) LayerOn(p *PlatformDescription, open func() (*osindex.Index, error)) (*layer.Plan, *osindex.Index, error) {
	if p.IsConfigFirst() && len(p.Layer.Expected) == 0 {
		return nil, nil, nil
	}
	index, err := open()
	if err != nil {
		return nil, nil, err
	}
	var on *layer.Plan
	if p.IsConfigFirst() {
		on, err = p.Layer.Complete(index)
	} else {
		on, err = layer.Split(d.recipe.Configuration, index)
	}
	if err != nil {
		return nil, nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	return on, index, nil
}

// Fields of a MachineConfig that name images.
const (
	FieldOSImageURL      = layer.FieldOSImageURL
	FieldExtensionsImage = layer.FieldExtensionsImage
)

// AboutField is an error about a field of a configuration.
func AboutField(config *machineconfigs.Config, field string, err error) error {
	return &layer.Error{MachineConfig: config.Name, Path: field, Err: err}
}

// packageManager is the program of a base image that installs packages; empty where it has none
// that is known.
func packageManager(index *osindex.Index) render.PackageManager {
	for _, known := range []struct {
		path    string
		manager render.PackageManager
	}{
		{"/usr/bin/rpm-ostree", render.RPMOSTree},
		{"/usr/bin/dnf", render.DNF},
	} {
		if found, err := index.Follow(known.path); err == nil && found.Exists() {
			return known.manager
		}
	}
	return ""
}

// joinOnce joins errors and leaves out what was said before: architectures mostly have the same
// mistakes.
func joinOnce(errs []error) error {
	seen := map[string]bool{}
	return fault.Join(slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})...)
}

// inputs are what the keys are made of.
func (d *Description) inputs() (plan.Inputs, error) {
	in := plan.Inputs{
		ExtensionNames: d.recipe.Configuration.Extensions,
		KernelType:     d.recipe.Configuration.KernelType,
		BuildInputs:    slices.Clone(d.recipe.Inputs.Items),
		ConfigVersion:  layer.Version,
	}
	var err error
	if in.Base, err = digestOf("base image", d.recipe.Base.Image); err != nil {
		return in, err
	}
	if d.recipe.Extensions != "" {
		if in.Extensions, err = digestOf("extensions image", d.recipe.Extensions); err != nil {
			return in, err
		}
	}
	if d.recipe.Base.IsChoice {
		for _, p := range d.Platforms {
			in.Architectures = append(in.Architectures, mcfgv1.Architecture(p.Architecture))
		}
	}
	config := map[plan.Item]bool{}
	sources := map[mcfgv1.ContainerfileArch]containerfiles.Source{}
	for _, p := range d.Platforms {
		for _, item := range p.Layer.Items {
			config[plan.Item(item)] = true
		}
		if p.containerfile != nil && !p.containerfile.Empty() {
			sources[p.Source.Arch] = p.Source
		}
	}
	in.Config = sortedItems(maps.Keys(config))
	for _, arch := range slices.Sorted(maps.Keys(sources)) {
		in.Containerfiles = append(in.Containerfiles, plan.Containerfile{Arch: arch, Text: sources[arch].Canonical()})
		in.BuildInputs = append(in.BuildInputs, contextItems(sources[arch])...)
	}
	return in, nil
}

func sortedItems(items func(func(plan.Item) bool)) []plan.Item {
	return slices.SortedFunc(items, func(a, b plan.Item) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Hash, b.Hash))
	})
}

// contextItems are the files that a Containerfile takes from its ConfigMap.
func contextItems(source containerfiles.Source) []plan.Item {
	var items []plan.Item
	for _, name := range source.ContextFiles() {
		sum := sha256.Sum256(source.Context[name])
		items = append(items, plan.Item{
			Name: fmt.Sprintf("file %s of the build context for %s", name, source.Arch),
			Hash: hex.EncodeToString(sum[:]),
		})
	}
	return items
}

// digestOf is the digest of a pinned reference.
func digestOf(what, pinned string) (string, error) {
	_, digest, found := strings.Cut(pinned, "@")
	if !found || digest == "" {
		return "", fmt.Errorf("describing an image: the %s %q has no digest", what, pinned)
	}
	return digest, nil
}

// Warnings are what the linter says of the Containerfiles, each once.
func (d *Description) Warnings() []string {
	var said []string
	for _, p := range d.Platforms {
		for _, finding := range p.Findings {
			if text := finding.String(); finding.Severity == lint.SeverityWarning && !slices.Contains(said, text) {
				said = append(said, text)
			}
		}
	}
	return said
}
