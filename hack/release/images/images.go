package images

import (
	"fmt"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/layerwright/layerwright/hack/release/binimage"
)

// Names of images, as deploy/ has them.
const (
	// Registry begins all of them.
	Registry   = "ghcr.io/layerwright/"
	Controller = Registry + "layerwright"
	Agent      = Registry + "layerwright-agent"
	Builder    = Registry + "layerwright-builder"
)

// Source is the repository of the programs.
const Source = "https://github.com/layerwright/layerwright"

// KMS is the program of the controller's image that signs with keys of key management services.
const KMS = "layerwright-kms"

// KMSLinks are the names that sigstore looks for it by, one for each service.
var KMSLinks = []string{"sigstore-kms-awskms", "sigstore-kms-azurekms", "sigstore-kms-gcpkms", "sigstore-kms-hashivault", "sigstore-kms-openbao"}

// Programs are those that images of one platform are made of.
type Programs struct {
	// Folder has all but KMS, which is in the folder KMS.
	Folder, KMS string
	// CABundle has the certificate authorities that controller and builder trust; empty for none.
	CABundle string
}

// Controller describes the image of the controller. Beside it is the program that signs with keys
// of services.
func (p Programs) Controller() binimage.Options {
	return binimage.Options{
		Binary: filepath.Join(p.Folder, "layerwright"), Cmd: []string{"controller"}, CABundle: p.CABundle,
		Others: map[string][]string{filepath.Join(p.KMS, KMS): KMSLinks},
	}
}

// Agent describes the image of the node agent, which is root as on the host. It asks the API server
// alone; registries are asked by the host's programs.
func (p Programs) Agent() binimage.Options {
	return binimage.Options{Binary: filepath.Join(p.Folder, "layerwright-agent"), Root: true}
}

// Builder describes the image of build pods. It is for root: the program itself makes user
// namespaces and overlay mounts.
func (p Programs) Builder() binimage.Options {
	return binimage.Options{Binary: filepath.Join(p.Folder, "layerwright-builder"), Root: true, Folders: []string{"/var/tmp"}, CABundle: p.CABundle}
}

// Release says of which release an image is.
type Release struct {
	// Version is a tag, such as v0.1.0, and Revision the commit.
	Version, Revision string
	// Created is when that commit was made.
	Created time.Time
}

// Index makes the index of the images for several platforms, in the order given.
func (r Release) Index(platforms ...binimage.Options) (v1.ImageIndex, error) {
	list := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var labels map[string]string
	for _, options := range platforms {
		options.Version, options.Revision, options.Source, options.Created = r.Version, r.Revision, Source, r.Created
		options.Labels = map[string]string{
			"org.opencontainers.image.created":       r.Created.UTC().Format(time.RFC3339),
			"org.opencontainers.image.documentation": Source + "/tree/" + r.Version + "/docs",
			"org.opencontainers.image.licenses":      "Apache-2.0",
			"org.opencontainers.image.url":           Source,
			"org.opencontainers.image.vendor":        "Layerwright",
		}
		image, err := binimage.Build(options)
		if err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		descriptor, err := partial.Descriptor(image)
		if err != nil {
			return nil, err
		}
		descriptor.Platform, descriptor.Annotations = config.Platform(), nil
		list, labels = mutate.AppendManifests(list, mutate.IndexAddendum{Add: image, Descriptor: *descriptor}), config.Config.Labels
	}
	annotated, ok := mutate.Annotations(list, labels).(v1.ImageIndex)
	if !ok {
		return nil, fmt.Errorf("annotating an index of %d images: it is no index any more", len(platforms))
	}
	return annotated, nil
}
