//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/storage"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// fetchedImage is what Push has to know of an image that Fetch pulled: an image that is built on it
// has these layers below its own. Push believes this and not the store, which RUN lines can change.
type fetchedImage struct {
	// Image is where its layers are, by digest.
	Image string `json:"image"`
	// Layers are those of its manifest, lowest first, with types of OCI.
	Layers []imagespec.Descriptor `json:"layers"`
	// DiffIDs are the digests of the same layers, unpacked.
	DiffIDs []digest.Digest `json:"diffIDs"`
}

// fetchedFile is written when Fetch is done. RUN lines may have run in the store from then on.
func (p Paths) fetchedFile() string { return filepath.Join(p.Fetched, "images.json") }

// forgetOldStore throws away a store in which RUN lines may have run, as after a restart of the
// node: Fetch has the pull secret, and must not open it.
func (p Paths) forgetOldStore() error {
	if _, err := os.Lstat(p.fetchedFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("looking for what an earlier attempt has fetched: %w", err)
	}
	for _, dir := range []string{p.store(), p.runtime(), p.temporary()} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the store of an earlier attempt: %w", err)
		}
	}
	if err := os.Remove(p.fetchedFile()); err != nil {
		return fmt.Errorf("removing what is known of the store of an earlier attempt: %w", err)
	}
	return nil
}

// leaveFetched tells Push what was fetched.
func (r *run) leaveFetched(store storage.Store, found []reference.Named) error {
	images := make([]fetchedImage, 0, len(found))
	for _, named := range found {
		image, err := readFetched(store, named)
		if err != nil {
			return err
		}
		images = append(images, *image)
	}
	text, err := json.Marshal(images)
	if err != nil {
		return fmt.Errorf("writing what was fetched: %w", err)
	}
	if err := os.WriteFile(r.Paths.fetchedFile(), text, 0o600); err != nil {
		return fmt.Errorf("writing what was fetched: %w", err)
	}
	return nil
}

// readFetched reads the manifest and the config of an image in the store.
func readFetched(store storage.Store, named reference.Named) (*fetchedImage, error) {
	image, err := find(store, named)
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, fmt.Errorf("reading the layers of %q: it is not in the store", named)
	}
	text, err := store.ImageBigData(image.ID, storage.ImageDigestBigDataKey)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %q: %w", named, err)
	}
	parsed, err := manifest.FromBlob(text, manifest.GuessMIMEType(text))
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %q: %w", named, err)
	}
	digested, err := manifest.Digest(text)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %q: %w", named, err)
	}
	fetched := &fetchedImage{Image: reference.TrimNamed(named).Name() + "@" + digested.String()}
	for _, layer := range parsed.LayerInfos() {
		mediaType, err := ociType(layer.MediaType)
		if err != nil {
			return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the manifest of %q: %w", named, err))
		}
		fetched.Layers = append(fetched.Layers, imagespec.Descriptor{
			MediaType: mediaType, Digest: layer.Digest, Size: layer.Size, URLs: layer.URLs, Annotations: layer.Annotations,
		})
	}
	config, err := store.ImageBigData(image.ID, parsed.ConfigInfo().Digest.String())
	if err != nil {
		return nil, fmt.Errorf("reading the config of %q: %w", named, err)
	}
	var content imagespec.Image
	if err := json.Unmarshal(config, &content); err != nil {
		return nil, fmt.Errorf("reading the config of %q: %w", named, err)
	}
	fetched.DiffIDs = content.RootFS.DiffIDs
	return fetched, nil
}

// ociType is the type that a manifest of OCI gives to a layer.
func ociType(mediaType string) (string, error) {
	switch mediaType {
	case manifest.DockerV2Schema2LayerMediaType:
		return imagespec.MediaTypeImageLayerGzip, nil
	case manifest.DockerV2SchemaLayerMediaTypeUncompressed:
		return imagespec.MediaTypeImageLayer, nil
	case manifest.DockerV2Schema2ForeignLayerMediaTypeGzip:
		return imagespec.MediaTypeImageLayerNonDistributableGzip, nil //nolint:staticcheck // images have it
	case manifest.DockerV2Schema2ForeignLayerMediaType:
		return imagespec.MediaTypeImageLayerNonDistributable, nil //nolint:staticcheck // images have it
	case imagespec.MediaTypeImageLayer, imagespec.MediaTypeImageLayerGzip, imagespec.MediaTypeImageLayerZstd,
		imagespec.MediaTypeImageLayerNonDistributable,     //nolint:staticcheck // images have it
		imagespec.MediaTypeImageLayerNonDistributableGzip, //nolint:staticcheck // images have it
		imagespec.MediaTypeImageLayerNonDistributableZstd: //nolint:staticcheck // images have it
		return mediaType, nil
	}
	return "", fmt.Errorf("layers of the type %q cannot be part of a new image", mediaType)
}

// readFetchedImages reads what Fetch left.
func (r *run) readFetchedImages() ([]fetchedImage, error) {
	text, err := os.ReadFile(r.Paths.fetchedFile())
	if err != nil {
		return nil, fmt.Errorf("reading what was fetched: %w", err)
	}
	var images []fetchedImage
	if err := json.Unmarshal(text, &images); err != nil {
		return nil, fmt.Errorf("reading what was fetched: %w", err)
	}
	return images, nil
}
