//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/compression"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/archive"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// indexFile is where an image layout says which manifest it has (OCI image-layout.md).
const indexFile = imagespec.ImageIndexFile

// export writes what Build made. The library that reads the store waits for ever where RUN lines
// left it a FIFO, so that it is given up once nothing was read for as long as Patience: the process
// ends then, and what waits ends with it.
func (r *run) export(ctx context.Context) error {
	if err := checkStore(r.Paths.store()); err != nil {
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
			return report.NewAdmin(mcfgv1.ReasonBuildFailed, fmt.Errorf("reading the store: nothing came for %s: %w", r.Patience, errStoreChanged))
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
	e, err := newExport(r.Paths.Layout, read)
	if err != nil {
		return nil, err
	}
	out := imagespec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imagespec.MediaTypeImageManifest}
	if out.Config, err = e.add(imagespec.MediaTypeImageConfig, config); err != nil {
		return nil, err
	}
	for i, layer := range layers {
		r.output.Progress(int64(i), int64(len(layers)), "exporting layers")
		descriptor, err := e.layer(ctx, store, layer, how)
		if err != nil {
			return out.Layers, err
		}
		out.Layers = append(out.Layers, descriptor)
	}
	r.output.Progress(int64(len(layers)), int64(len(layers)), "exported layers")
	return out.Layers, e.end(out)
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

// export is a layout being written.
type export struct {
	dir  string
	read chan<- struct{}
}

// Write tells that something of a layer was read.
func (e *export) Write(p []byte) (int, error) {
	select {
	case e.read <- struct{}{}:
	default: // it is known already
	}
	return len(p), nil
}

// newExport begins anew: what is in the folder is of an attempt that was cut off.
func newExport(dir string, read chan<- struct{}) (*export, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder for the exported image: %w", err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return nil, fmt.Errorf("emptying the folder for the exported image: %w", err)
		}
	}
	e := &export{dir: dir, read: read}
	blobs := filepath.Join(dir, imagespec.ImageBlobsDir, digest.SHA256.String())
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for the exported image: %w", err)
	}
	err = e.write(imagespec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+imagespec.ImageLayoutVersion+`"}`))
	return e, err
}

func (e *export) path(d digest.Digest) string { return filepath.Join(e.dir, blobPath(d)) }

// blobPath is where a layout has a blob.
func blobPath(d digest.Digest) string {
	return filepath.Join(imagespec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func (e *export) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(e.dir, name), content, 0o600); err != nil {
		return fmt.Errorf("writing the exported image: %w", err)
	}
	return nil
}

// add writes a small blob.
func (e *export) add(mediaType string, content []byte) (imagespec.Descriptor, error) {
	d := imagespec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	return d, e.write(blobPath(d.Digest), content)
}

// layer writes a layer, packed.
func (e *export) layer(ctx context.Context, store storage.Store, layer *storage.Layer, how compression.Algorithm) (imagespec.Descriptor, error) {
	descriptor, err := e.pack(ctx, store, layer, how)
	if err != nil {
		return descriptor, fmt.Errorf("exporting layer %s: %w", layer.ID, err)
	}
	return descriptor, nil
}

func (e *export) pack(ctx context.Context, store storage.Store, layer *storage.Layer, how compression.Algorithm) (d imagespec.Descriptor, err error) {
	plain := archive.Uncompressed
	diff, err := store.Diff("", layer.ID, &storage.DiffOptions{Compression: &plain})
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, diff.Close()) }()
	file, err := os.CreateTemp(e.dir, "layer")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	packed, unpacked := digest.SHA256.Digester(), digest.SHA256.Digester()
	out, err := compression.CompressStream(io.MultiWriter(file, packed.Hash()), how, nil)
	if err != nil {
		return d, err
	}
	// One byte more than the layer has: a file that became a giant is not read to its end.
	diffed, err := io.Copy(io.MultiWriter(out, unpacked.Hash(), e), &until{ctx: ctx, Reader: io.LimitReader(diff, layer.UncompressedSize+1)})
	if err := errors.Join(err, out.Close()); err != nil {
		return d, err
	}
	if is := unpacked.Digest(); is != layer.UncompressedDigest || diffed != layer.UncompressedSize {
		return d, report.NewAdmin(mcfgv1.ReasonBuildFailed, fmt.Errorf("it is %s and not %s any more: %w", is, layer.UncompressedDigest, errStoreChanged))
	}
	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return d, err
	}
	mediaType := imagespec.MediaTypeImageLayerGzip
	if how.Name() == compression.Zstd.Name() {
		mediaType = imagespec.MediaTypeImageLayerZstd
	}
	d = imagespec.Descriptor{MediaType: mediaType, Digest: packed.Digest(), Size: size}
	return d, os.Rename(file.Name(), e.path(d.Digest))
}

// end writes the manifest, and the index that makes the layout complete.
func (e *export) end(made imagespec.Manifest) error {
	text, err := json.Marshal(made)
	if err != nil {
		return fmt.Errorf("writing the manifest of the exported image: %w", err)
	}
	descriptor, err := e.add(imagespec.MediaTypeImageManifest, text)
	if err != nil {
		return err
	}
	index, err := json.Marshal(imagespec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imagespec.MediaTypeImageIndex, Manifests: []imagespec.Descriptor{descriptor},
	})
	if err != nil {
		return fmt.Errorf("writing the index of the exported image: %w", err)
	}
	return e.write(indexFile, index)
}

// until reads until the context ends.
type until struct {
	io.Reader
	ctx context.Context //nolint:containedctx // Read has none
}

func (u *until) Read(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.Reader.Read(p)
}

// isZstd looks at the last layer of a manifest, which is the newest.
func isZstd(text []byte) bool {
	parsed, err := manifest.OCI1FromManifest(text)
	if err != nil || len(parsed.Layers) == 0 {
		return false
	}
	return parsed.Layers[len(parsed.Layers)-1].MediaType == imagespec.MediaTypeImageLayerZstd
}
