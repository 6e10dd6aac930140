package sbom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/turns"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/osimage/packages"
)

// Images reads what is in images; *baseimage.Loader is one.
type Images interface {
	Index(ctx context.Context, image v1.Image) (*osindex.Index, error)
	PackagesKey(ctx context.Context, image v1.Image, index *osindex.Index) (string, error)
	Packages(ctx context.Context, image v1.Image, index *osindex.Index) (*packages.List, error)
	OSRelease(ctx context.Context, image v1.Image, index *osindex.Index) (map[string]string, error)
}

// Maker makes SBOMs. Its methods may be called at the same time; one is made at a time,
// since each holds the index of an image.
type Maker struct {
	images  Images
	version string
	turns   *turns.Turns
}

// New returns a Maker that reads images so, and that calls itself by a version of Layerwright.
func New(images Images, version string, c clock.PassiveClock) *Maker {
	return &Maker{images: images, version: version, turns: turns.New(1, c)}
}

// Make is the SBOM of an image, as SPDX 2.3 in JSON: the packages that the databases
// of rpm and dpkg in it have beyond those of its base image. Where the layers above the base image
// leave the databases as they are, none is read.
//
// Errors are a [turns.WaitError] while another SBOM is made, and Terminal where the image is what
// is wrong: one that is not built on its base image, a database that cannot be read (a
// [packages.BrokenError] or a [packages.TooLargeError] is in it), a [TooLargeError]. Those of
// registries are as the reader of images has them.
func (m *Maker) Make(ctx context.Context, about Subject) ([]byte, error) {
	registry, _, _ := strings.Cut(about.Image, "/")
	ctx, end, err := m.turns.Take(ctx, registry, about.Image)
	if err != nil {
		return nil, fmt.Errorf("making the SBOM of image %q: %w", about.Image, err)
	}
	defer end()
	document, err := newDocument(about, m.version)
	if err != nil {
		return nil, fmt.Errorf("making the SBOM of image %q: %w", about.Image, err)
	}
	for i := range about.Platforms {
		p := &about.Platforms[i]
		found, err := m.examine(ctx, p)
		if err == nil {
			err = document.add(p, found)
		}
		if err != nil {
			return nil, fmt.Errorf("making the SBOM of image %q: platform %s: %w", about.Image, p.Platform, err)
		}
	}
	text, err := document.encode()
	if err != nil {
		return nil, fmt.Errorf("making the SBOM of image %q: %w", about.Image, err)
	}
	return text, nil
}

// TooLargeError means that an SBOM is larger than what can be attached to an image.
type TooLargeError struct {
	// Limit is in bytes.
	Limit int
}

// Error names the limit.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the image has so many packages beyond its base image that their list has more than %d bytes", e.Limit)
}

// NotOnBaseError means that an image does not begin with the layers of its base image.
type NotOnBaseError struct {
	// Image and Base are digests of manifests.
	Image, Base v1.Hash
}

// Error names both.
func (e *NotOnBaseError) Error() string {
	return fmt.Sprintf("image %s is not built on the layers of its base image %s", e.Image, e.Base)
}

// examined is what an image of one platform has beyond its base image.
type examined struct {
	base v1.Hash
	// baseName is the repository of the base image, empty where the image does not say it.
	baseName string
	// databases are those of the image, by path.
	databases []string
	// untouched reports whether no layer above the base image changes what is in a package
	// database.
	untouched bool
	changes   changes
	release   map[string]string
	// files is how many files are from layers above the base image.
	files int
}

func (m *Maker) examine(ctx context.Context, p *Platform) (*examined, error) {
	found := &examined{}
	layers, err := found.common(p)
	if err != nil {
		return nil, err
	}
	base, err := m.images.Index(ctx, p.Base)
	if err != nil {
		return nil, fmt.Errorf("its base image: %w", err)
	}
	before, err := m.images.PackagesKey(ctx, p.Base, base)
	if err != nil {
		return nil, fmt.Errorf("its base image: %w", err)
	}
	image, err := m.images.Index(ctx, p.Image)
	if err != nil {
		return nil, err
	}
	found.files = countFiles(image, "/", layers)
	after, err := m.images.PackagesKey(ctx, p.Image, image)
	if err != nil {
		return nil, err
	}
	if before == after {
		found.untouched = true
		return found, nil
	}
	// The image's own first: that it is broken is known after a small download.
	now, err := m.images.Packages(ctx, p.Image, image)
	if err != nil {
		return nil, err
	}
	then, err := m.images.Packages(ctx, p.Base, base)
	if err != nil {
		return nil, fmt.Errorf("its base image: %w", err)
	}
	found.databases, found.changes = now.Databases, diff(then, now)
	if found.release, err = m.images.OSRelease(ctx, p.Image, image); err != nil {
		return nil, err
	}
	return found, nil
}

// common makes sure that an image is built on its base image, and says how many layers it has of
// that: all, or all below a configuration layer, which gives way to that of the image.
func (e *examined) common(p *Platform) (int, error) {
	var err error
	if e.base, err = p.Base.Digest(); err != nil {
		return 0, fmt.Errorf("its base image: %w", err)
	}
	below, err := p.Base.ConfigFile()
	if err != nil {
		return 0, fmt.Errorf("its base image: %w", err)
	}
	config, err := p.Image.ConfigFile()
	if err != nil {
		return 0, err
	}
	name, _, pinned := strings.Cut(config.Config.Labels[mcfgv1.ImageLabelBaseImage], "@")
	if pinned {
		e.baseName = name
	}
	wanted := below.RootFS.DiffIDs
	if isPrefix(wanted, config.RootFS.DiffIDs) {
		return len(wanted), nil
	}
	if compose.HasConfigurationOnTop(below) && isPrefix(wanted[:len(wanted)-1], config.RootFS.DiffIDs) {
		return len(wanted) - 1, nil
	}
	return 0, fault.NewTerminal(mcfgv1.ReasonInvalid, &NotOnBaseError{Image: p.Digest, Base: e.base})
}

func isPrefix(below, all []v1.Hash) bool {
	return len(below) <= len(all) && slices.Equal(below, all[:len(below)])
}

// countFiles is how many files of a directory and those below it are from a layer or one above it.
func countFiles(index *osindex.Index, dir string, layer int) int {
	count := 0
	for name, entry := range index.Children(dir) {
		switch {
		case entry.Kind == osindex.Directory:
			count += countFiles(index, dir+name+"/", layer)
		case entry.Kind == osindex.File && entry.Layer >= layer:
			count++
		}
	}
	return count
}

// errNoPlatform is about a subject without platforms.
var errNoPlatform = errors.New("it has no platform")
