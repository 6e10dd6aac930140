package owner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Kind is that of owners.
const Kind = "MachineOSConfig"

// Of names the MachineOSConfig that an object is controlled by; nil where that is none.
func Of(object metav1.Object) *metav1.OwnerReference {
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == Kind {
		return owner
	}
	return nil
}

// IsPreBuilt reports whether the installer had an image built: no one here knows what is in it,
// whatever its owner is.
func IsPreBuilt(image *mcfgv1alpha1.MachineOSImage) bool {
	_, is := image.Annotations[mcfgv1.AnnotationPreBuiltImage]
	return is
}

// Config is the MachineOSConfig that an image is of; nil where there is none, or it is gone, also
// if there is another one of its name now.
func Config(ctx context.Context, from client.Reader, image *mcfgv1alpha1.MachineOSImage) (*mcfgv1.MachineOSConfig, error) {
	owner := Of(image)
	if owner == nil {
		return nil, nil
	}
	config := &mcfgv1.MachineOSConfig{}
	err := from.Get(ctx, client.ObjectKey{Name: owner.Name}, config)
	if apierrors.IsNotFound(err) || err == nil && config.UID != owner.UID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading MachineOSConfig %q: %w", owner.Name, err)
	}
	return config, nil
}

// Builds are the builds of a MachineOSConfig. They are shared with the cache, and only read.
func Builds(ctx context.Context, from client.Reader, config string) ([]*mcfgv1.MachineOSBuild, error) {
	var list mcfgv1.MachineOSBuildList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	var builds []*mcfgv1.MachineOSBuild
	for i := range list.Items {
		if list.Items[i].Spec.MachineOSConfig.Name == config {
			builds = append(builds, &list.Items[i])
		}
	}
	return builds, nil
}

// ImagesOf are the images of a pool, the newest first.
func ImagesOf(images []mcfgv1alpha1.MachineOSImage, pool string) []*mcfgv1alpha1.MachineOSImage {
	var own []*mcfgv1alpha1.MachineOSImage
	for i := range images {
		if images[i].Spec.MachineConfigPool == pool {
			own = append(own, &images[i])
		}
	}
	slices.SortFunc(own, func(a, b *mcfgv1alpha1.MachineOSImage) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return own
}

// BuildOf is the build that made an image; nil where it is gone.
func BuildOf(builds []mcfgv1.MachineOSBuild, image *mcfgv1alpha1.MachineOSImage) *mcfgv1.MachineOSBuild {
	var made *mcfgv1.MachineOSBuild
	for i := range builds {
		b := &builds[i]
		if b.Name == image.Labels[mcfgv1.LabelMachineOSBuild] {
			return b
		}
		if b.Status.DigestedImagePushSpec == image.Spec.PullSpec {
			made = b
		}
	}
	return made
}
