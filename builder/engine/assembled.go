//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"

	"github.com/layerwright/layerwright/builder/engine/classify"
	"github.com/layerwright/layerwright/builder/engine/layout"
)

// assembled is the image that Push uploads: the layers of the base as they are in its registry, and
// the exported ones. It is a source of images for containers/image, which asks it only for what the
// target's registry does not have.
type assembled struct {
	layout   *layout.Folder
	config   []byte
	manifest []byte
	layers   []imagespec.Descriptor
	// own are the digests of the exported layers.
	own map[digest.Digest]bool
	// base reads the layers of the base; nil where there is none.
	base types.ImageReference
	// about is the context for the base's registry.
	about *types.SystemContext
}

// assemble puts the exported layers on top of those of the base.
func assemble(l *layout.Folder, image *layout.Image, base *layout.Fetched) (*assembled, error) {
	a := &assembled{layout: l, config: image.Config, own: map[digest.Digest]bool{}}
	made := image.Manifest
	if base != nil {
		made.Layers = slices.Concat(base.Layers, image.Manifest.Layers)
	}
	for _, layer := range image.Manifest.Layers {
		a.own[layer.Digest] = true
	}
	a.layers = made.Layers
	var err error
	if a.manifest, err = json.Marshal(made); err != nil {
		return nil, fmt.Errorf("writing the manifest of the image: %w", err)
	}
	return a, nil
}

// on says where the layers of the base are.
func (a *assembled) on(ctx context.Context, base *layout.Fetched, system *system) error {
	named, err := reference.ParseNormalizedNamed(base.Image)
	if err != nil {
		return fmt.Errorf("reading the name of the base %q: %w", base.Image, err)
	}
	if a.about, err = system.about(ctx, named); err != nil {
		return err
	}
	if a.base, err = docker.NewReference(named); err != nil {
		return fmt.Errorf("reading the name of the base %q: %w", base.Image, err)
	}
	return nil
}

// Transport is that of images that are only read.
func (a *assembled) Transport() types.ImageTransport { return assembledTransport{} }

// StringWithinTransport is for errors.
func (a *assembled) StringWithinTransport() string { return "built" }

// DockerReference is nil: the image has no name yet.
func (a *assembled) DockerReference() reference.Named { return nil }

// PolicyConfigurationIdentity is empty: what may be pushed is no matter of the policy.
func (a *assembled) PolicyConfigurationIdentity() string { return "" }

// PolicyConfigurationNamespaces are none, as above.
func (a *assembled) PolicyConfigurationNamespaces() []string { return nil }

var errSourceOnly = errors.New("the image that was built is only read")

// NewImage is not used: copying takes a source.
func (a *assembled) NewImage(context.Context, *types.SystemContext) (types.ImageCloser, error) {
	return nil, errSourceOnly
}

// NewImageDestination is not possible.
func (a *assembled) NewImageDestination(context.Context, *types.SystemContext) (types.ImageDestination, error) {
	return nil, errSourceOnly
}

// DeleteImage is not possible.
func (a *assembled) DeleteImage(context.Context, *types.SystemContext) error { return errSourceOnly }

// NewImageSource is for one attempt to copy it.
func (a *assembled) NewImageSource(context.Context, *types.SystemContext) (types.ImageSource, error) {
	return &assembledSource{assembled: a}, nil
}

type assembledTransport struct{}

// Name is for errors.
func (assembledTransport) Name() string { return "layerwright" }

// ParseReference is not possible: no one names such an image.
func (assembledTransport) ParseReference(string) (types.ImageReference, error) {
	return nil, errSourceOnly
}

// ValidatePolicyConfigurationScope takes every scope, and no policy has one.
func (assembledTransport) ValidatePolicyConfigurationScope(string) error { return nil }

// assembledSource reads an assembled image once.
type assembledSource struct {
	*assembled
	mutex sync.Mutex
	lower types.ImageSource
}

// Reference is the image.
func (s *assembledSource) Reference() types.ImageReference { return s.assembled }

// HasThreadSafeGetBlob reports that layers may be read side by side.
func (s *assembledSource) HasThreadSafeGetBlob() bool { return true }

// Close ends reading the base.
func (s *assembledSource) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.lower == nil {
		return nil
	}
	return s.lower.Close()
}

// GetManifest is the manifest that is pushed.
func (s *assembledSource) GetManifest(context.Context, *digest.Digest) ([]byte, string, error) {
	return s.manifest, imagespec.MediaTypeImageManifest, nil
}

// GetSignatures are none: the controller signs what was pushed.
func (s *assembledSource) GetSignatures(context.Context, *digest.Digest) ([][]byte, error) {
	return nil, nil
}

// LayerInfosForCopy are those of the manifest.
func (s *assembledSource) LayerInfosForCopy(context.Context, *digest.Digest) ([]types.BlobInfo, error) {
	return nil, nil
}

// GetBlob reads the config from memory, a new layer from the layout, and one of the base from its
// registry. Whoever reads it compares it with its digest.
func (s *assembledSource) GetBlob(ctx context.Context, blob types.BlobInfo, cache types.BlobInfoCache) (io.ReadCloser, int64, error) {
	switch {
	case blob.Digest == digest.FromBytes(s.config):
		return io.NopCloser(bytes.NewReader(s.config)), int64(len(s.config)), nil
	case s.own[blob.Digest]:
		file, size, err := s.layout.Open(layout.BlobPath(blob.Digest))
		if err != nil {
			return nil, 0, err
		}
		if size != blob.Size {
			_ = file.Close()
			return nil, 0, layout.Changed("layer %s has %d bytes and not %d", blob.Digest, size, blob.Size)
		}
		return file, size, nil
	}
	content, size, err := s.baseBlob(ctx, blob, cache)
	if err != nil {
		return nil, 0, classify.Pull("reading a layer of the base image", err)
	}
	return content, size, nil
}

func (s *assembledSource) baseBlob(ctx context.Context, blob types.BlobInfo, cache types.BlobInfoCache) (io.ReadCloser, int64, error) {
	lower, err := s.openBase(ctx)
	if err != nil {
		return nil, 0, err
	}
	return lower.GetBlob(ctx, blob, cache)
}

func (s *assembledSource) openBase(ctx context.Context) (types.ImageSource, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.lower != nil {
		return s.lower, nil
	}
	if s.base == nil {
		return nil, errors.New("the image has a layer of a base, and no base")
	}
	lower, err := s.base.NewImageSource(ctx, s.about)
	if err != nil {
		return nil, err
	}
	s.lower = lower
	return lower, nil
}
