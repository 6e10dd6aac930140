package compose

import (
	"encoding/json"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is a manifest and a config, byte for byte, and the layers that they name.
type Image struct {
	Type         types.MediaType
	Text, config []byte
	layers       []v1.Layer
	// MountFrom is where those layers are that come from a registry, when the registry that the
	// image is pushed to can take them from there without moving them; nil where it can't.
	MountFrom name.Reference
	// Known are layers that the repository has, as far as one of its images tells.
	Known map[v1.Hash]bool
}

var _ v1.Image = (*Image)(nil)

// Layers are the layers to push, the lowest first: all that are not known to be there.
func (i *Image) Layers() ([]v1.Layer, error) {
	var layers []v1.Layer
	for _, layer := range i.layers {
		if digest, err := layer.Digest(); err != nil || !i.Known[digest] {
			layers = append(layers, i.mountable(layer))
		}
	}
	return layers, nil
}

// mountable tells go-containerregistry where a layer can be mounted from.
func (i *Image) mountable(layer v1.Layer) v1.Layer {
	if _, ok := layer.(*sourceLayer); ok && i.MountFrom != nil {
		return &remote.MountableLayer{Layer: layer, Reference: i.MountFrom}
	}
	return layer
}

// MediaType is the manifest's.
func (i *Image) MediaType() (types.MediaType, error) { return i.Type, nil }

// Size is the manifest's.
func (i *Image) Size() (int64, error) { return int64(len(i.Text)), nil }

// Digest is the manifest's.
func (i *Image) Digest() (v1.Hash, error) { return partial.Digest(i) }

// Manifest is the parsed manifest.
func (i *Image) Manifest() (*v1.Manifest, error) { return partial.Manifest(i) }

// RawManifest is the manifest.
func (i *Image) RawManifest() ([]byte, error) { return i.Text, nil }

// ConfigName is the config's digest.
func (i *Image) ConfigName() (v1.Hash, error) { return partial.ConfigName(i) }

// ConfigFile is the parsed config.
func (i *Image) ConfigFile() (*v1.ConfigFile, error) { return partial.ConfigFile(i) }

// RawConfigFile is the config.
func (i *Image) RawConfigFile() ([]byte, error) { return i.config, nil }

// LayerByDigest finds a layer, or the config.
func (i *Image) LayerByDigest(digest v1.Hash) (v1.Layer, error) {
	if config, err := i.ConfigName(); err == nil && config == digest {
		return partial.ConfigLayer(i)
	}
	return i.layer(digest, v1.Layer.Digest)
}

// LayerByDiffID finds a layer by the digest of its content.
func (i *Image) LayerByDiffID(diffID v1.Hash) (v1.Layer, error) {
	return i.layer(diffID, v1.Layer.DiffID)
}

func (i *Image) layer(wanted v1.Hash, by func(v1.Layer) (v1.Hash, error)) (v1.Layer, error) {
	for _, layer := range i.layers {
		if hash, err := by(layer); err == nil && hash == wanted {
			return i.mountable(layer), nil
		}
	}
	return nil, fmt.Errorf("finding layer %s: the image has none of that digest", wanted)
}

// list is an index, byte for byte, and its images.
type list struct {
	parsed *v1.IndexManifest
	raw    []byte
	images []*Image
}

var _ v1.ImageIndex = (*list)(nil)

// NewList is an index of images.
func NewList(manifest *v1.IndexManifest, images []*Image) (v1.ImageIndex, error) {
	raw, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("writing an index: %w", err)
	}
	return &list{parsed: manifest, raw: raw, images: images}, nil
}

// MediaType is the index's.
func (l *list) MediaType() (types.MediaType, error) { return l.parsed.MediaType, nil }

// Digest is that of the index.
func (l *list) Digest() (v1.Hash, error) { return partial.Digest(l) }

// Size is that of the index.
func (l *list) Size() (int64, error) { return int64(len(l.raw)), nil }

// IndexManifest is the parsed index.
func (l *list) IndexManifest() (*v1.IndexManifest, error) { return l.parsed.DeepCopy(), nil }

// RawManifest is the index.
func (l *list) RawManifest() ([]byte, error) { return l.raw, nil }

// Image finds an image.
func (l *list) Image(digest v1.Hash) (v1.Image, error) {
	for i, desc := range l.parsed.Manifests {
		if desc.Digest == digest {
			return l.images[i], nil
		}
	}
	return nil, fmt.Errorf("finding image %s: the index has none of that digest", digest)
}

// ImageIndex finds nothing: there are no indexes inside.
func (l *list) ImageIndex(digest v1.Hash) (v1.ImageIndex, error) {
	return nil, fmt.Errorf("finding index %s: the index has none inside", digest)
}
