package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/machineconfigs/osindex"
)

// Base is an OS image: what it is called, and what it has.
type Base struct {
	// Image is it by digest, the manifest list where there is one.
	Image string
	// Stream is the stream that it says it is of; empty where it says nothing.
	Stream string
	// Created is when it says that it was made, the newest of its architectures; zero where it says nothing.
	Created time.Time
	// Platforms are those of the architectures that nodes can have, in the image's order.
	Platforms []Platform
}

// Platform is the image for one architecture.
type Platform struct {
	Architecture mcfgv1.ContainerfileArch
	// Platform is how the image list names it.
	Platform v1.Platform
	// Index is what it has.
	Index *osindex.Index
}

// Described is the base as a description takes it.
func (b *Base) Described() []description.Platform {
	out := make([]description.Platform, len(b.Platforms))
	for i, p := range b.Platforms {
		out[i] = description.Platform{Architecture: p.Architecture, Index: p.Index}
	}
	return out
}

// resolve finds what a reference stands for.
func (i *inspection) resolve(ctx context.Context, reference string) (registry.Resolved, error) {
	return i.resolved.get(reference+"|"+i.result.Access, i.request.Fresh, func() (registry.Resolved, error) {
		return i.result.Pull.Resolve(ctx, reference)
	})
}

// Pin finds what a reference stands for now, by digest.
func (c *Checker) Pin(ctx context.Context, credentials Credentials, reference string) (string, error) {
	found, err := c.resolved.get(reference+"|"+credentials.Access, false, func() (registry.Resolved, error) {
		return credentials.Pull.Resolve(ctx, reference)
	})
	return found.Image, err
}

// resolveBase pins the OS image and reads what it has.
func (i *inspection) resolveBase(ctx context.Context) {
	spec := string(i.request.Config.Spec.BaseOSImagePullSpec)
	field, reference := "spec.baseOSImagePullSpec", spec
	if reference == "" {
		field = fmt.Sprintf("osImageURL of MachineConfig %q", i.request.Rendered.Name)
		reference = i.request.Rendered.OSImageURL
	}
	if reference == "" {
		i.fail(fault.NewTerminal(mcfgv1.ReasonImageNotFound, errors.New(
			"nothing names an OS image to build on: add an OSImageStream, set osImageURL in a MachineConfig, or set spec.baseOSImagePullSpec")))
		return
	}
	found, err := i.resolve(ctx, reference)
	if err == nil {
		i.result.Base, err = i.BaseImage(ctx, i.result.Pull, found.Image)
	}
	if err != nil {
		i.fail(about(field, err))
	}
}

// resolveExtensions pins the extensions image, if anything is taken from one.
func (i *inspection) resolveExtensions(ctx context.Context) {
	reference, field := string(i.request.Config.Spec.BaseOSExtensionsImagePullSpec), "spec.baseOSExtensionsImagePullSpec"
	if reference == "" {
		reference = i.request.Rendered.ExtensionsImage
		field = fmt.Sprintf("the extensions image of MachineConfig %q", i.request.Rendered.Name)
	}
	if reference == "" || !i.usesExtensions() {
		return
	}
	found, err := i.resolve(ctx, reference)
	if err != nil {
		i.fail(about(field, err))
		i.isIncomplete = true
		return
	}
	i.result.Extensions = found.Image
}

// resolveNamed checks the images that the Containerfiles name. Short names are the build's business: which registry they stand for is decided
// where it runs.
func (i *inspection) resolveNamed(ctx context.Context) {
	seen := map[string]bool{}
	for _, source := range i.sources {
		file, err := containerfiles.Parse(source.Name, []byte(source.Text))
		if err != nil {
			continue // the linter says so, with everything else
		}
		args := containerfiles.PlatformArgs(cmp.Or(source.Arch, mcfgv1.Amd64))
		if source.Arch == mcfgv1.NoArch {
			args = containerfiles.PlatformArgs(mcfgv1.Amd64)
		}
		images, _ := containerfiles.Images(file, args) // names that stand for nothing are the linter's
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

// BaseImage reads what an OS image has, by digest.
func (c *Checker) BaseImage(ctx context.Context, pull *registry.Client, pinned string) (*Base, error) {
	return c.bases.get(pinned, false, func() (*Base, error) { return c.readBase(ctx, pull, pinned) })
}

func (c *Checker) readBase(ctx context.Context, pull *registry.Client, pinned string) (*Base, error) {
	found, err := pull.Resolve(ctx, pinned)
	if err != nil {
		return nil, err
	}
	base := &Base{Image: found.Image}
	platforms := found.Platforms
	if platforms == nil {
		platforms = []v1.Platform{{}} // a single image says itself what it is for
	}
	for _, platform := range platforms {
		if err := c.addPlatform(ctx, base, pull, platform); err != nil {
			return nil, err
		}
	}
	if len(base.Platforms) == 0 {
		return nil, unsuitable(pinned, "it has no image for linux on an architecture that nodes have here (amd64, arm64, ppc64le, s390x)")
	}
	return base, nil
}

func (c *Checker) addPlatform(ctx context.Context, base *Base, pull *registry.Client, platform v1.Platform) error {
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
	if !known {
		return nil
	}
	if !isBootable(config.Config.Labels) {
		return unsuitable(base.Image, fmt.Sprintf("it is no bootable OS image: it has none of the labels %q and %q with the value \"1\"",
			mcfgv1.ImageLabelBootc, labelOSTreeBootable))
	}
	base.Stream = cmp.Or(base.Stream, config.Config.Labels[mcfgv1.ImageLabelStream])
	if config.Created.After(base.Created) {
		base.Created = config.Created.Time
	}
	// An image that Layerwright made has the configuration of another time or pool on top. The new one takes its place, so nothing of it counts.
	if image, err = registry.WithoutConfiguration(image); err != nil {
		return err
	}
	index, err := c.options.Indexer.Index(ctx, image)
	if err != nil {
		return fmt.Errorf("reading what the image %q has for %s: %w", base.Image, arch, err)
	}
	base.Platforms = append(base.Platforms, Platform{
		Architecture: mcfgv1.ContainerfileArch(arch), Index: index,
		Platform: v1.Platform{OS: "linux", Architecture: config.Architecture, Variant: platform.Variant},
	})
	return nil
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

// Has tells whether a registry has an image, by digest. Access identifies the credentials of the client.
func (c *Checker) Has(ctx context.Context, images *registry.Client, access, pinned string) (bool, error) {
	_, err := c.resolved.get("has|"+pinned+"|"+access, false, func() (registry.Resolved, error) {
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
