package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// resolve finds what a reference stands for.
func (i *inspection) resolve(ctx context.Context, reference string) (registry.Resolved, error) {
	return i.resolved.get(ctx, question{reference, i.result.Access, i.request.Fresh}, func() (registry.Resolved, error) {
		return i.result.Pull.Resolve(ctx, reference)
	})
}

// Pin finds what a reference stands for now, by digest.
func (c *Checker) Pin(ctx context.Context, with credentials.Credentials, reference string) (string, error) {
	found, err := c.resolved.get(ctx, question{reference, with.Access, false}, func() (registry.Resolved, error) {
		return with.Pull.Resolve(ctx, reference)
	})
	return found.Image, err
}

// resolveBase pins the OS image and reads what it has.
func (i *inspection) resolveBase(ctx context.Context) {
	spec := string(i.request.Config.Spec.BaseOSImagePullSpec)
	field, reference := "spec.baseOSImagePullSpec", spec
	if reference == "" {
		field, reference = recipe.FieldOSImageURL, i.request.Rendered.OSImageURL
	}
	if reference == "" {
		i.fail(fault.NewTerminal(mcfgv1.ReasonImageNotFound, errors.New(
			"nothing names an OS image to build on: see whether OSImageStream \"cluster\" is there and Ready, set osImageURL in a MachineConfig, or set spec.baseOSImagePullSpec")))
		return
	}
	found, err := i.resolve(ctx, reference)
	if err == nil {
		i.result.Base, err = i.chooseBase(ctx, &found)
	}
	if err != nil {
		i.fail(i.aboutImage(field, err))
	}
}

// aboutImage says which field names the image that an error is about.
func (i *inspection) aboutImage(field string, err error) error {
	if field == recipe.FieldOSImageURL || field == recipe.FieldExtensionsImage {
		return recipe.AboutField(i.request.Rendered, field, err)
	}
	return about(field, err)
}

// chooseBase reads what the OS image has for the architectures that are wanted.
func (i *inspection) chooseBase(ctx context.Context, found *registry.Resolved) (*recipe.Base, error) {
	var chosen []mcfgv1.Architecture
	if offered := architecturesOf(found.Platforms); len(offered) > 0 {
		var err error
		if chosen, err = i.request.Demand.Choose(offered); err != nil {
			return nil, unsuitable(found.Image, err.Error())
		}
	}
	base, err := i.BaseImage(ctx, i.result.Credentials, found.Image, chosen)
	if err != nil {
		return nil, err
	}
	if _, err := i.request.Demand.Choose(base.Architectures()); err != nil && chosen == nil { // a single image, which only now says what it is for
		return nil, unsuitable(found.Image, err.Error())
	}
	return base, nil
}

// ChooseBase finds the OS image that a reference stands for, and reads what it has for the
// architectures that are wanted.
func (c *Checker) ChooseBase(ctx context.Context, with credentials.Credentials, reference string, demand plan.Demand) (*recipe.Base, error) {
	i := &inspection{Checker: c, request: Request{Demand: demand}, result: &Result{Credentials: with}}
	found, err := i.resolve(ctx, reference)
	if err != nil {
		return nil, err
	}
	return i.chooseBase(ctx, &found)
}

// architecturesOf are those of an image list that nodes can have, each once.
func architecturesOf(platforms []v1.Platform) []mcfgv1.Architecture {
	var out []mcfgv1.Architecture
	for _, p := range platforms {
		if a, known := mcfgv1.ArchitectureFromOCI(p.Architecture); known && p.OS == "linux" && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// resolveExtensions pins the extensions image, if anything is taken from one.
func (i *inspection) resolveExtensions(ctx context.Context) {
	reference, field := string(i.request.Config.Spec.BaseOSExtensionsImagePullSpec), "spec.baseOSExtensionsImagePullSpec"
	if reference == "" {
		field, reference = recipe.FieldExtensionsImage, i.request.Rendered.ExtensionsImage
	}
	if reference == "" || !i.usesExtensions() {
		return
	}
	found, err := i.resolve(ctx, reference)
	if err != nil {
		i.fail(i.aboutImage(field, err))
		i.isIncomplete = true
		return
	}
	i.result.Extensions = found.Image
}

// resolveNamed checks the images that the Containerfiles name. Short names are the build's
// business: which registry they stand for is decided where it runs.
func (i *inspection) resolveNamed(ctx context.Context) {
	architectures := i.architectures()
	sources := containerfiles.ForArchitectures(i.result.Sources, architectures)
	seen := map[string]bool{}
	for _, arch := range architectures {
		source := sources[arch]
		file, err := containerfiles.Parse(source.Name, []byte(source.Text))
		if err != nil {
			continue // the linter says so, with everything else
		}
		images, _ := containerfiles.Images(file, containerfiles.PlatformArgs(arch)) // names that stand for nothing are the linter's
		for _, image := range images {
			if image.Short || seen[image.Normalized] {
				continue
			}
			seen[image.Normalized] = true
			if _, err := i.resolve(ctx, image.Normalized); err != nil {
				i.fail(about(fmt.Sprintf("%s line %d", source.Name, image.Places[0].Line), err))
			}
		}
	}
}

// architectures are those that the image is for; without an OS image, those that there are
// Containerfiles for.
func (i *inspection) architectures() []mcfgv1.ContainerfileArch {
	var out []mcfgv1.ContainerfileArch
	if i.result.Base != nil {
		for _, p := range i.result.Base.Platforms {
			out = append(out, p.Architecture)
		}
		return out
	}
	for _, source := range i.result.Sources {
		if source.Arch == mcfgv1.NoArch {
			out = append(out, mcfgv1.Amd64)
		} else {
			out = append(out, source.Arch)
		}
	}
	return out
}

// BaseImage reads what an OS image has, by digest, for some of its architectures; for all that
// nodes can have where none is named. It is opened with the same credentials later, so what others
// have found with theirs is not given.
func (c *Checker) BaseImage(ctx context.Context, with credentials.Credentials, pinned string, wanted []mcfgv1.Architecture) (*recipe.Base, error) {
	return c.bases.get(ctx, question{about: pinned, with: with.Access + fmt.Sprint(wanted)}, func() (*recipe.Base, error) {
		return c.readBase(ctx, with.Pull, pinned, wanted)
	})
}

func (c *Checker) readBase(ctx context.Context, pull *registry.Client, pinned string, wanted []mcfgv1.Architecture) (*recipe.Base, error) {
	found, err := pull.Resolve(ctx, pinned)
	if err != nil {
		return nil, err
	}
	base := &recipe.Base{Image: found.Image, IsChoice: len(architecturesOf(found.Platforms)) > 1}
	for _, platform := range found.EachPlatform() {
		if arch, _ := mcfgv1.ArchitectureFromOCI(platform.Architecture); len(wanted) > 0 && found.Platforms != nil && !slices.Contains(wanted, arch) {
			continue
		}
		if err := c.addPlatform(ctx, base, pull, platform); err != nil {
			return nil, err
		}
	}
	if len(base.Platforms) == 0 {
		return nil, unsuitable(pinned, "it has no image for linux on an architecture that nodes have here (amd64, arm64, ppc64le, s390x)")
	}
	return base, nil
}

func (c *Checker) addPlatform(ctx context.Context, base *recipe.Base, pull *registry.Client, platform v1.Platform) error {
	if _, known := mcfgv1.ArchitectureFromOCI(platform.Architecture); platform.Architecture != "" && (!known || platform.OS != "linux") {
		return nil
	}
	image, err := pull.Image(ctx, base.Image, platform)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading the config of image %q: %w", base.Image, err)
	}
	arch, known := mcfgv1.ArchitectureFromOCI(config.Architecture)
	if !known || slices.Contains(base.Architectures(), arch) { // of two images for one architecture, container engines take the first
		return nil
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("reading image %q: %w", base.Image, err)
	}
	if !isBootable(config.Config.Labels) {
		return unsuitable(base.Image, fmt.Sprintf("it is no bootable OS image: it has none of the labels %q and %q with the value \"1\"",
			mcfgv1.ImageLabelBootc, labelOSTreeBootable))
	}
	base.Stream = cmp.Or(base.Stream, config.Config.Labels[mcfgv1.ImageLabelStream])
	if config.Created.After(base.Created) {
		base.Created = config.Created.Time
	}
	name, _, _ := strings.Cut(base.Image, "@")
	added := recipe.Platform{
		Architecture: mcfgv1.ContainerfileArch(arch), Image: name + "@" + digest.String(),
		Platform: v1.Platform{OS: "linux", Architecture: config.Architecture, Variant: platform.Variant},
	}
	index, err := c.index(ctx, image, &added)
	if err != nil {
		return err
	}
	added.Layers = index.Layers()
	added.Open = func(ctx context.Context) (*osindex.Index, error) {
		image, err := pull.Image(ctx, added.Image, added.Platform)
		if err != nil {
			return nil, err
		}
		return c.index(ctx, image, &added)
	}
	base.Platforms = append(base.Platforms, added)
	return nil
}

// index reads what an image has. One that Layerwright made has the configuration of another time or
// pool on top. The new one takes its place, so nothing of it counts.
func (c *Checker) index(ctx context.Context, image v1.Image, p *recipe.Platform) (*osindex.Index, error) {
	image, err := registry.WithoutConfiguration(image)
	if err != nil {
		return nil, err
	}
	index, err := c.options.Indexer.Index(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("reading what the image %q has for %s: %w", p.Image, p.Architecture, err)
	}
	return index, nil
}

// labelOSTreeBootable marks what rpm-ostree can boot, bootc or not.
const labelOSTreeBootable = "ostree.bootable"

func isBootable(labels map[string]string) bool {
	return slices.ContainsFunc([]string{mcfgv1.ImageLabelBootc, labelOSTreeBootable}, func(label string) bool {
		return labels[label] == "1" || labels[label] == "true"
	})
}

func unsuitable(image, problem string) error {
	return fault.NewTerminal(mcfgv1.ReasonUnsuitableBaseImage, fmt.Errorf("using image %q as a base: %s", image, problem))
}

// Has reports whether a registry has an image, by digest. Access identifies the credentials of the
// client. A fresh answer is asked for; others may be some minutes old.
func (c *Checker) Has(ctx context.Context, images *registry.Client, access, pinned string, fresh bool) (bool, error) {
	_, err := c.resolved.get(ctx, question{pinned, "has|" + access, fresh}, func() (registry.Resolved, error) {
		return images.Resolve(ctx, pinned)
	})
	if registry.IsNotFound(err) {
		return false, nil
	}
	if registry.IsDenied(err) { // whoever may not read may have written it
		return true, nil
	}
	return err == nil, err
}
