package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// layoutPrefix marks an image in a folder, as skopeo and podman write it: oci:FOLDER or
// oci:FOLDER:TAG.
const layoutPrefix = "oci:"

// LayoutName stands for the repository of an image in a folder, which has none.
const LayoutName = "localhost/base"

// Indexer reads what a base image has; *baseimage.Loader is one.
type Indexer interface {
	Index(ctx context.Context, image v1.Image) (*osindex.Index, error)
	configlayer.FileReader
}

// baseImage is an OS image with its architectures.
type baseImage struct {
	// pinned is name@digest.
	pinned    string
	platforms []platformImage
	// isChoice reports whether it is for several architectures, whether or not all of them are
	// wanted.
	isChoice bool
}

type platformImage struct {
	arch  mcfgv1.ContainerfileArch
	image v1.Image
	index *osindex.Index
}

// manifest is an image, or a list of images for several architectures.
type manifest struct {
	media  types.MediaType
	digest v1.Hash
	// One of these fits the media type.
	image func() (v1.Image, error)
	index func() (v1.ImageIndex, error)
}

// openBase finds the base image and those of its architectures that are wanted; all that have a
// name here if none is given.
func (r *renderer) openBase(ctx context.Context, reference string, wanted []mcfgv1.ContainerfileArch) (*baseImage, error) {
	found, repository, err := r.open(ctx, reference)
	if err != nil {
		return nil, fmt.Errorf("reading the base image %q: %w", reference, err)
	}
	base, err := newBase(found, repository, wanted)
	if err != nil {
		return nil, fmt.Errorf("reading the base image %q: %w", reference, err)
	}
	for i := range base.platforms {
		p := &base.platforms[i]
		if p.image, err = compose.WithoutConfiguration(p.image); err != nil {
			return nil, fmt.Errorf("reading the base image %q for %s: %w", reference, p.arch, err)
		}
		if p.index, err = r.Indexer.Index(ctx, p.image); err != nil {
			return nil, fmt.Errorf("reading the base image %q for %s: %w", reference, p.arch, err)
		}
	}
	return base, nil
}

// open finds what a reference names, and the repository to name it by.
func (r *renderer) open(ctx context.Context, reference string) (found *manifest, repository string, err error) {
	if folder, ok := strings.CutPrefix(reference, layoutPrefix); ok {
		_, found, err = openLayout(folder)
		return found, LayoutName, err
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, "", err
	}
	d, err := remote.Get(ref, r.remote(ctx)...)
	if err != nil {
		return nil, "", err
	}
	return &manifest{media: d.MediaType, digest: d.Digest, image: d.Image, index: d.ImageIndex}, ref.Context().Name(), nil
}

func (r *renderer) remote(ctx context.Context) []remote.Option {
	return append(slices.Clone(r.Registry), remote.WithContext(ctx))
}

// pin resolves a reference to name@digest.
func (r *renderer) pin(ctx context.Context, reference string) (string, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", err
	}
	if digest, ok := ref.(name.Digest); ok {
		return digest.Name(), nil
	}
	found, err := remote.Head(ref, r.remote(ctx)...)
	if err != nil {
		return "", err
	}
	return ref.Context().Digest(found.Digest.String()).Name(), nil
}

// InFolder reports whether a reference names an image in a folder, and finds it.
func InFolder(reference string) (folder string, digest v1.Hash, is bool, err error) {
	folder, is = strings.CutPrefix(reference, layoutPrefix)
	if !is {
		return "", digest, false, nil
	}
	folder, found, err := openLayout(folder)
	if err != nil {
		return "", digest, true, err
	}
	return folder, found.digest, true, nil
}

// openLayout finds the image of a tag in a folder, or the only image that is in it. A colon may be
// part of the folder's name.
func openLayout(reference string) (folder string, found *manifest, err error) {
	folder, tag := reference, ""
	index, err := layout.ImageIndexFromPath(folder)
	if colon := strings.LastIndex(folder, ":"); err != nil && colon > 0 {
		folder, tag = folder[:colon], folder[colon+1:]
		index, err = layout.ImageIndexFromPath(folder)
	}
	if err != nil {
		return "", nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return "", nil, err
	}
	candidates := slices.Clone(list.Manifests)
	if tag != "" {
		candidates = slices.DeleteFunc(candidates, func(d v1.Descriptor) bool { return d.Annotations[imagespec.AnnotationRefName] != tag })
	}
	if len(candidates) != 1 {
		return "", nil, fmt.Errorf("the folder %q has %d images that could be meant: name one as %s%s:TAG", folder, len(candidates), layoutPrefix, folder)
	}
	d := candidates[0]
	return folder, &manifest{
		media: d.MediaType, digest: d.Digest,
		image: func() (v1.Image, error) { return index.Image(d.Digest) },
		index: func() (v1.ImageIndex, error) { return index.ImageIndex(d.Digest) },
	}, nil
}

func newBase(found *manifest, repository string, wanted []mcfgv1.ContainerfileArch) (*baseImage, error) {
	base := &baseImage{pinned: repository + "@" + found.digest.String()}
	add := base.addImage
	if found.media.IsIndex() {
		add = base.addIndex
	}
	if err := add(found); err != nil {
		return nil, err
	}
	if err := base.choose(wanted); err != nil {
		return nil, err
	}
	return base, nil
}

func (b *baseImage) addImage(found *manifest) error {
	image, err := found.image()
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	return b.add(config.Architecture, image)
}

func (b *baseImage) addIndex(found *manifest) error {
	index, err := found.index()
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range list.Manifests {
		if d.Platform == nil || d.Platform.OS != "linux" {
			continue // attestations and the like are no image of an operating system
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return err
		}
		if err := b.add(d.Platform.Architecture, image); err != nil {
			return err
		}
	}
	return nil
}

func (b *baseImage) add(goarch string, image v1.Image) error {
	arch, ok := mcfgv1.ArchitectureFromOCI(goarch)
	if !ok {
		return fmt.Errorf("its architecture %q is none that nodes have here", goarch)
	}
	b.platforms = append(b.platforms, platformImage{arch: mcfgv1.ContainerfileArch(arch), image: image})
	return nil
}

// choose leaves the architectures that are wanted.
func (b *baseImage) choose(wanted []mcfgv1.ContainerfileArch) error {
	if len(b.platforms) == 0 {
		return errors.New("it has no image for linux")
	}
	has := make([]mcfgv1.ContainerfileArch, len(b.platforms))
	for i, p := range b.platforms {
		has[i] = p.arch
	}
	b.isChoice = len(has) > 1
	for _, arch := range wanted {
		if !slices.Contains(has, arch) {
			return fmt.Errorf("it has no image for %s, only for %v", arch, has)
		}
	}
	if len(wanted) > 0 {
		b.platforms = slices.DeleteFunc(b.platforms, func(p platformImage) bool { return !slices.Contains(wanted, p.arch) })
	}
	return nil
}

func (b *baseImage) described() *recipe.Base {
	platforms := make([]recipe.Platform, len(b.platforms))
	for i, p := range b.platforms {
		platforms[i] = recipe.Platform{Architecture: p.arch, Open: func(context.Context) (*osindex.Index, error) { return p.index, nil }}
	}
	return &recipe.Base{Image: b.pinned, Platforms: platforms, IsChoice: b.isChoice}
}
