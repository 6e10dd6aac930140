//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"encoding/json"
	"fmt"
	"os"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/storage"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/engine/layout"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// leaveFetched tells Push what was fetched.
func (r *run) leaveFetched(store storage.Store, found []reference.Named) error {
	images := make([]layout.Fetched, 0, len(found))
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
	if err := os.WriteFile(r.Paths.FetchedFile(), text, 0o600); err != nil {
		return fmt.Errorf("writing what was fetched: %w", err)
	}
	return nil
}

// readFetched reads the manifest and the config of an image in the store.
func readFetched(store storage.Store, named reference.Named) (*layout.Fetched, error) {
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
	fetched := &layout.Fetched{Image: reference.TrimNamed(named).Name() + "@" + digested.String()}
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
func (r *run) readFetchedImages() ([]layout.Fetched, error) {
	text, err := os.ReadFile(r.Paths.FetchedFile())
	if err != nil {
		return nil, fmt.Errorf("reading what was fetched: %w", err)
	}
	var images []layout.Fetched
	if err := json.Unmarshal(text, &images); err != nil {
		return nil, fmt.Errorf("reading what was fetched: %w", err)
	}
	return images, nil
}
