package baseimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// parts is what an image says of its layers.
type parts struct {
	name v1.Hash // digest of the configuration
	// image is what people call it, and registry where it is read from; both are the name for what
	// comes from no registry.
	image, registry string
	layers          []v1.Layer
	sizes           []int64   // compressed
	diffIDs         []v1.Hash // of the uncompressed layers
	keys            []string  // of the cache: of the image's first layer, of its first two, and so on
}

// sourced is a layer that knows its image and the registry that it is in, as those of
// internal/registry do.
type sourced interface {
	Source() (image, registry string)
}

// open reads an image's manifest and configuration.
func open(ctx context.Context, image v1.Image) (*parts, error) {
	p, err := await(ctx, func() (*parts, error) { return describe(image) }, nil)
	if err != nil {
		return nil, classify(err)
	}
	if len(p.layers) != len(p.diffIDs) || len(p.layers) != len(p.sizes) {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid,
			fmt.Errorf("image %q is broken: its manifest has %d layers, its configuration %d", p.name, len(p.layers), len(p.diffIDs)))
	}
	return p, nil
}

func describe(image v1.Image) (*parts, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("reading its manifest: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading its configuration %q: %w", manifest.Config.Digest, err)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, fmt.Errorf("reading its layers: %w", err)
	}
	p := &parts{name: manifest.Config.Digest, layers: layers, diffIDs: config.RootFS.DiffIDs, keys: chain(config.RootFS.DiffIDs)}
	p.image, p.registry = p.name.String(), p.name.String()
	if len(layers) > 0 {
		if from, ok := layers[0].(sourced); ok {
			p.image, p.registry = from.Source()
		}
	}
	for _, layer := range manifest.Layers {
		p.sizes = append(p.sizes, layer.Size)
	}
	return p, nil
}

// flight is the key of something that is read once for all who want it. Who names another registry
// has no part in it: what that one answers may be something else.
func (p *parts) flight(key string) string { return key + "|" + p.registry }

// chain identifies each sequence of layers from the first one on (OCI image specification, "Layer
// ChainID").
func chain(diffIDs []v1.Hash) []string {
	var keys []string
	id := ""
	for _, diffID := range diffIDs {
		if id != "" {
			sum := sha256.Sum256([]byte(id + " " + diffID.String()))
			id = "sha256:" + hex.EncodeToString(sum[:])
		} else {
			id = diffID.String()
		}
		keys = append(keys, id)
	}
	return keys
}
