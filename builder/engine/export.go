//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/compression"
	"go.podman.io/storage"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/layout"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// export writes what Build made. The library that reads the store waits for ever where RUN lines
// left it a FIFO, so that it is given up once nothing was read for as long as Patience: the process
// ends then, and what waits ends with it.
func (r *run) export(ctx context.Context) error {
	if err := layout.CheckStore(r.Paths.Store()); err != nil {
		return report.NewAdmin(mcfgv1.ReasonBuildFailed, err)
	}
	read, ended := make(chan struct{}, 1), make(chan exportedLayers, 1)
	go func() { ended <- r.exportLayers(ctx, read) }()
	patience := r.Clock.NewTimer(r.Patience)
	defer patience.Stop()
	for {
		select {
		case end := <-ended:
			for _, layer := range end.layers {
				r.report.Layers++
				r.report.Bytes += layer.Size
			}
			return end.err
		case <-ctx.Done():
			return ctx.Err()
		case <-read:
			restart(patience, r.Patience)
		case <-patience.C():
			return report.NewAdmin(mcfgv1.ReasonBuildFailed, fmt.Errorf("reading the store: nothing came for %s: %w", r.Patience, layout.ErrStoreChanged))
		}
	}
}

// exportedLayers is how an export ended.
type exportedLayers struct {
	layers []imagespec.Descriptor
	err    error
}

// exportLayers tells read of all that it reads of layers.
func (r *run) exportLayers(ctx context.Context, read chan<- struct{}) (end exportedLayers) {
	defer r.recovered(&end.err)
	end.layers, end.err = r.writeLayout(ctx, read)
	return end
}

// writeLayout writes what Build made as an image layout, without the layers of the base: its
// manifest has the new layers only. It has no secret, since RUN lines could change every file that
// it reads.
func (r *run) writeLayout(ctx context.Context, read chan<- struct{}) ([]imagespec.Descriptor, error) {
	store, err := r.openStore()
	if err != nil {
		return nil, err
	}
	defer closeStore(store)
	image, err := r.built(store)
	if err != nil {
		return nil, err
	}
	layers, how, err := r.newLayers(store, image)
	if err != nil {
		return nil, err
	}
	text, err := store.ImageBigData(image.ID, storage.ImageDigestBigDataKey)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of the image that was built: %w", err)
	}
	made, err := manifest.OCI1FromManifest(text)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of the image that was built: %w", err)
	}
	config, err := store.ImageBigData(image.ID, made.Config.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("reading the config of the image that was built: %w", err)
	}
	e, err := layout.NewWriter(r.Paths.Layout, read)
	if err != nil {
		return nil, err
	}
	out := imagespec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imagespec.MediaTypeImageManifest}
	if out.Config, err = e.Add(imagespec.MediaTypeImageConfig, config); err != nil {
		return nil, err
	}
	for i, layer := range layers {
		r.output.Progress(int64(i), int64(len(layers)), "exporting layers")
		descriptor, err := e.Layer(ctx, store, layer, how)
		if err != nil {
			return out.Layers, err
		}
		out.Layers = append(out.Layers, descriptor)
	}
	r.output.Progress(int64(len(layers)), int64(len(layers)), "exported layers")
	return out.Layers, e.End(out)
}

// built is the image that Build made.
func (r *run) built(store storage.Store) (*storage.Image, error) {
	name, err := reference.ParseNormalizedNamed(resultName(r.instructions))
	if err != nil {
		return nil, fmt.Errorf("naming the image that was built: %w", err)
	}
	image, err := find(store, name)
	if err == nil && image == nil {
		err = errors.New("the store has no image that was built")
	}
	return image, err
}

// newLayers are the layers of an image above those of its base, lowest first, and how they are to
// be packed: as the base's newest layer is, so that nodes that can read the base can read the
// image.
func (r *run) newLayers(store storage.Store, image *storage.Image) ([]*storage.Layer, compression.Algorithm, error) {
	pulled, err := r.pulled(store)
	if err != nil {
		return nil, compression.Gzip, err
	}
	layers, err := chain(store, image)
	if err != nil {
		return nil, compression.Gzip, err
	}
	how := compression.Gzip
	if i := slices.IndexFunc(layers, func(l *storage.Layer) bool { return pulled[l.ID] != "" }); i >= 0 {
		text, err := store.ImageBigData(pulled[layers[i].ID], storage.ImageDigestBigDataKey)
		if err != nil {
			return nil, how, fmt.Errorf("reading the manifest of the base: %w", err)
		}
		if isZstd(text) {
			how = compression.Zstd
		}
		layers = layers[:i]
	}
	slices.Reverse(layers)
	return layers, how, nil
}

// isZstd reports whether the newest layer of a manifest, the last one, is compressed with zstd.
func isZstd(text []byte) bool {
	parsed, err := manifest.OCI1FromManifest(text)
	if err != nil || len(parsed.Layers) == 0 {
		return false
	}
	return parsed.Layers[len(parsed.Layers)-1].MediaType == imagespec.MediaTypeImageLayerZstd
}
