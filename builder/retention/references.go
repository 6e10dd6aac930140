package retention

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// References are the images, by digest, that must not be removed: what nodes have and are on their
// way to, what pools name, what MachineOSConfigs stand for, and what other builds than the one of
// the given name have made.
func References(ctx context.Context, from client.Reader, but string) (map[string]bool, error) {
	var (
		nodes   corev1.NodeList
		agents  mcfgv1.MachineConfigNodeList
		pools   mcfgv1.MachineConfigPoolList
		images  mcfgv1alpha1.MachineOSImageList
		configs mcfgv1.MachineOSConfigList
		builds  mcfgv1.MachineOSBuildList
	)
	for _, list := range []client.ObjectList{&nodes, &agents, &pools, &images, &configs, &builds} {
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	found := map[string]bool{}
	for i := range nodes.Items {
		a := nodes.Items[i].Annotations
		found[a[mcfgv1.AnnotationCurrentImage]], found[a[mcfgv1.AnnotationDesiredImage]] = true, true
		found[a[mcfgv1.AnnotationPreviousImage]] = true // it goes back there
	}
	for i := range agents.Items {
		n := &agents.Items[i]
		for _, image := range []mcfgv1.ImageDigestFormat{
			n.Spec.ConfigImage.DesiredImage, n.Status.ConfigImage.CurrentImage, n.Status.ConfigImage.DesiredImage,
		} {
			found[string(image)] = true
		}
	}
	named := map[string]bool{}
	for i := range pools.Items {
		found[string(pools.Items[i].Status.OSImagePullSpec)] = true
		named[pools.Items[i].Spec.MachineOSImage] = true
	}
	for i := range images.Items {
		if named[images.Items[i].Name] {
			found[string(images.Items[i].Spec.PullSpec)] = true
		}
	}
	for i := range configs.Items {
		if configs.Items[i].DeletionTimestamp.IsZero() {
			found[string(configs.Items[i].Status.CurrentImagePullSpec)] = true
			if tag := configs.Items[i].Status.PoolTag; tag != nil { // the tag would go with its image
				found[string(tag.PullSpec)] = true
			}
		}
	}
	for i := range builds.Items {
		if builds.Items[i].Name != but && but != "" && builds.Items[i].DeletionTimestamp.IsZero() {
			found[string(builds.Items[i].Status.DigestedImagePushSpec)] = true
		}
	}
	delete(found, "")
	return found, nil
}
