//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"errors"
	"fmt"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	istorage "go.podman.io/image/v5/storage"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/layerwright/layerwright/builder/backend"
)

// resultName is how the store knows what Build made.
func resultName(in *backend.Instructions) string {
	return fmt.Sprintf("localhost/layerwright/result:%s", strings.ToLower(string(in.Architecture)))
}

// openStore opens the store that the steps share. Overlay is the only driver: the others copy every
// file of every layer.
func (r *run) openStore() (storage.Store, error) {
	store, err := storage.GetStore(storage.StoreOptions{
		GraphRoot:       r.Paths.Store(),
		RunRoot:         r.Paths.Runtime(),
		GraphDriverName: "overlay",
	})
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return store, nil
}

// closeStore unmounts what is mounted. What can't be is gone with the mount namespace of the
// process.
func closeStore(store storage.Store) {
	_, _ = store.Shutdown(true)
}

// inStore is a name in the store.
func inStore(store storage.Store, named reference.Named) (types.ImageReference, error) {
	ref, err := istorage.Transport.NewStoreReference(store, named, "")
	if err != nil {
		return nil, fmt.Errorf("naming %q in the store: %w", named, err)
	}
	return ref, nil
}

// find is an image in the store; nil where there is none of that name, or one that misses a layer.
func find(store storage.Store, named reference.Named) (*storage.Image, error) {
	ref, err := inStore(store, named)
	if err != nil {
		return nil, err
	}
	_, image, err := istorage.ResolveReference(ref)
	switch {
	case errors.Is(err, storage.ErrImageUnknown), errors.Is(err, istorage.ErrNoSuchImage):
		return nil, nil //nolint:nilnil // that it is not there is the answer
	case err != nil:
		return nil, fmt.Errorf("looking for %q in the store: %w", named, err)
	}
	if _, err := chain(store, image); err != nil {
		return nil, nil //nolint:nilerr,nilnil // it is pulled again
	}
	return image, nil
}

// chain are the layers of an image, topmost first.
func chain(store storage.Store, image *storage.Image) ([]*storage.Layer, error) {
	var layers []*storage.Layer
	seen := map[string]bool{}
	for id := image.TopLayer; id != ""; {
		if seen[id] {
			return nil, fmt.Errorf("reading the layers of image %s: layer %s lies below itself", image.ID, id)
		}
		seen[id] = true
		layer, err := store.Layer(id)
		if err != nil {
			return nil, fmt.Errorf("reading the layers of image %s: %w", image.ID, err)
		}
		layers = append(layers, layer)
		id = layer.Parent
	}
	return layers, nil
}
