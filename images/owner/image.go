package owner

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/names"
)

// ImageNames are the names that the object of an image may have.
func ImageNames(pool string, pinned mcfgv1.ImageDigestFormat) []string {
	return names.MachineOSImages(pool, string(pinned))
}

// ImageObject is the object of an image; nil where there is none.
func ImageObject(ctx context.Context, from client.Reader, pool string, pinned mcfgv1.ImageDigestFormat) (*mcfgv1alpha1.MachineOSImage, error) {
	for _, name := range ImageNames(pool, pinned) {
		image := &mcfgv1alpha1.MachineOSImage{}
		err := from.Get(ctx, client.ObjectKey{Name: name}, image)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading the MachineOSImage of %q: %w", pinned, err)
		}
		if err == nil && image.Spec.PullSpec == pinned {
			return image, nil
		}
	}
	return nil, nil //nolint:nilnil // that there is none is the answer
}
