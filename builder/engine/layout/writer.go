//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/pkg/compression"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/archive"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// indexFile is where an image layout says which manifest it has (OCI image-layout.md).
const indexFile = imagespec.ImageIndexFile

// Writer is a layout being written.
type Writer struct {
	dir  string
	read chan<- struct{}
}

// Write tells that something of a layer was read.
func (e *Writer) Write(p []byte) (int, error) {
	select {
	case e.read <- struct{}{}:
	default: // it is known already
	}
	return len(p), nil
}

// NewWriter begins anew: what is in the folder is of an attempt that was cut off.
func NewWriter(dir string, read chan<- struct{}) (*Writer, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder for the exported image: %w", err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return nil, fmt.Errorf("emptying the folder for the exported image: %w", err)
		}
	}
	e := &Writer{dir: dir, read: read}
	blobs := filepath.Join(dir, imagespec.ImageBlobsDir, digest.SHA256.String())
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for the exported image: %w", err)
	}
	err = e.write(imagespec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+imagespec.ImageLayoutVersion+`"}`))
	return e, err
}

func (e *Writer) path(d digest.Digest) string { return filepath.Join(e.dir, BlobPath(d)) }

// BlobPath is where a layout has a blob.
func BlobPath(d digest.Digest) string {
	return filepath.Join(imagespec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func (e *Writer) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(e.dir, name), content, 0o600); err != nil {
		return fmt.Errorf("writing the exported image: %w", err)
	}
	return nil
}

// Add writes a small blob.
func (e *Writer) Add(mediaType string, content []byte) (imagespec.Descriptor, error) {
	d := imagespec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	return d, e.write(BlobPath(d.Digest), content)
}

// Layer writes a layer, packed.
func (e *Writer) Layer(ctx context.Context, store storage.Store, layer *storage.Layer, how compression.Algorithm) (imagespec.Descriptor, error) {
	descriptor, err := e.pack(ctx, store, layer, how)
	if err != nil {
		return descriptor, fmt.Errorf("exporting layer %s: %w", layer.ID, err)
	}
	return descriptor, nil
}

func (e *Writer) pack(ctx context.Context, store storage.Store, layer *storage.Layer, how compression.Algorithm) (d imagespec.Descriptor, err error) {
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
		return d, report.NewAdmin(mcfgv1.ReasonBuildFailed, fmt.Errorf("it is %s and not %s any more: %w", is, layer.UncompressedDigest, ErrStoreChanged))
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

// End writes the manifest, and the index that makes the layout complete.
func (e *Writer) End(made imagespec.Manifest) error {
	text, err := json.Marshal(made)
	if err != nil {
		return fmt.Errorf("writing the manifest of the exported image: %w", err)
	}
	descriptor, err := e.Add(imagespec.MediaTypeImageManifest, text)
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
