package images

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// checkOwn makes sure that the MachineOSImage of an image with this cluster's signature says what
// the image says of itself, and that it is none of before: whoever may create MachineOSImages could
// bring back any image that was ever signed.
func (r *Reconciler) checkOwn(ctx context.Context, images *registry.Client, image *mcfgv1alpha1.MachineOSImage) error {
	var builds mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	isKnown, fits := image.Status.RenderedMachineConfig != "", image.Status.RenderedMachineConfig != ""
	for i := range builds.Items {
		if builds.Items[i].Status.DigestedImagePushSpec == image.Spec.PullSpec {
			isKnown, fits = true, fits || builds.Items[i].Spec.MachineConfig.Name == image.Spec.RenderedMachineConfig
		}
	}
	isBuilt, err := checkLabels(ctx, images, image, fits)
	if err != nil || isKnown || !isBuilt {
		return err
	}
	return r.checkAge(ctx, image)
}

// checkLabels compares the pool and the configuration with the image's labels, which are signed
// with it. The builder may have found that the image fits a configuration of another name. An image
// without such labels was not built by Layerwright.
func checkLabels(ctx context.Context, images *registry.Client, image *mcfgv1alpha1.MachineOSImage, fits bool) (isBuilt bool, _ error) {
	pinned := string(image.Spec.PullSpec)
	resolved, err := images.Resolve(ctx, pinned)
	if err != nil {
		return false, err
	}
	for _, platform := range resolved.EachPlatform() {
		labels, err := images.Labels(ctx, pinned, platform)
		if err != nil {
			return false, err
		}
		pool, config := labels[mcfgv1.ImageLabelMachineConfigPool], labels[mcfgv1.ImageLabelMachineConfig]
		if pool != "" && pool != image.Spec.MachineConfigPool || config != "" && config != image.Spec.RenderedMachineConfig && !fits {
			return false, fault.NewTerminal(mcfgv1alpha1.ReasonNotTrusted, fmt.Errorf(
				"image %q was built for pool %q with the configuration %q; create a MachineOSImage with these as spec.machineConfigPool and spec.renderedMachineConfig",
				pinned, pool, config))
		}
		isBuilt = isBuilt || pool != ""
	}
	return isBuilt, nil
}

// checkAge refuses an image that no build of the cluster has any more, while its pool has another
// one: it was built before that.
func (r *Reconciler) checkAge(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	if allowsOlder(image) {
		return nil
	}
	var configs mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	for i := range configs.Items {
		config := &configs.Items[i]
		current := config.Status.CurrentImagePullSpec
		if config.Spec.MachineConfigPool.Name != image.Spec.MachineConfigPool || current == "" || current.Digest() == image.Spec.PullSpec.Digest() {
			continue
		}
		return fault.NewTerminal(mcfgv1alpha1.ReasonNotTrusted, fmt.Errorf(
			"image %q is older than %s, which pool %q has now; to allow that, set the annotation %s of this MachineOSImage",
			image.Spec.PullSpec, current.Short(), image.Spec.MachineConfigPool, mcfgv1alpha1.AnnotationAllowOlder))
	}
	return nil
}

func allowsOlder(image *mcfgv1alpha1.MachineOSImage) bool {
	_, allows := image.Annotations[mcfgv1alpha1.AnnotationAllowOlder]
	return allows
}
