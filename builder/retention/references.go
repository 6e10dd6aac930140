package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// ErrPoolNames means that nothing but the status of a pool names an image, which follows what the
// pool is to have.
var ErrPoolNames = errors.New("the status of a MachineConfigPool still names the image")

// known is everything that can name an image.
type known struct {
	nodes   corev1.NodeList
	agents  mcfgv1.MachineConfigNodeList
	pools   mcfgv1.MachineConfigPoolList
	images  mcfgv1alpha1.MachineOSImageList
	configs mcfgv1.MachineOSConfigList
	builds  mcfgv1.MachineOSBuildList
}

func read(ctx context.Context, from client.Reader) (*known, error) {
	k := &known{}
	for _, list := range []client.ObjectList{&k.nodes, &k.agents, &k.pools, &k.images, &k.configs, &k.builds} {
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	return k, nil
}

// References are the images, by digest, that must not be removed: what nodes have and are on their
// way to, what pools name, what MachineOSConfigs stand for, and what other builds than the one of
// the given name have made.
func References(ctx context.Context, from client.Reader, but string) (map[string]bool, error) {
	k, err := read(ctx, from)
	if err != nil {
		return nil, err
	}
	found := k.used(but)
	for i := range k.pools.Items {
		found[string(k.pools.Items[i].Status.OSImagePullSpec)] = true
	}
	for i := range k.configs.Items {
		for _, image := range ofConfig(&k.configs.Items[i]) {
			found[image] = true
		}
	}
	delete(found, "")
	return found, nil
}

// used are the images that nodes have, are on their way to or go back to, those that pools want,
// and those of other builds than the one of the given name.
func (k *known) used(but string) map[string]bool {
	found := map[string]bool{}
	for i := range k.nodes.Items {
		a := k.nodes.Items[i].Annotations
		found[a[mcfgv1.AnnotationCurrentImage]], found[a[mcfgv1.AnnotationDesiredImage]] = true, true
		found[a[mcfgv1.AnnotationPreviousImage]] = true // it goes back there
	}
	for i := range k.agents.Items {
		n := &k.agents.Items[i]
		for _, image := range []mcfgv1.ImageDigestFormat{
			n.Spec.ConfigImage.DesiredImage, n.Status.ConfigImage.CurrentImage, n.Status.ConfigImage.DesiredImage,
		} {
			found[string(image)] = true
		}
	}
	named := map[string]bool{}
	for i := range k.pools.Items {
		named[k.pools.Items[i].Spec.MachineOSImage] = true
	}
	for i := range k.images.Items {
		if named[k.images.Items[i].Name] {
			found[string(k.images.Items[i].Spec.PullSpec)] = true
		}
	}
	for i := range k.builds.Items {
		if k.builds.Items[i].Name != but && but != "" && k.builds.Items[i].DeletionTimestamp.IsZero() {
			found[string(k.builds.Items[i].Status.DigestedImagePushSpec)] = true
		}
	}
	return found
}

// ofConfig are the images that a MachineOSConfig stands for. The tag would go with its image.
func ofConfig(config *mcfgv1.MachineOSConfig) []string {
	if !config.DeletionTimestamp.IsZero() {
		return nil
	}
	images := []string{string(config.Status.CurrentImagePullSpec)}
	if tag := config.Status.PoolTag; tag != nil {
		images = append(images, string(tag.PullSpec))
	}
	return images
}

// isUsed reports whether an image must stay that a build has made. What goes with the build may
// still be in the cache, as it was: the API server is asked about that. The error is ErrPoolNames
// while only the status of a pool names it, whose controller is about to change that.
func (r *Remover) isUsed(ctx context.Context, image, build string) (bool, error) {
	k, err := read(ctx, r.options.Client)
	if err != nil || k.used(build)[image] {
		return err == nil, err
	}
	for i := range k.configs.Items {
		config := k.configs.Items[i].DeepCopy()
		is, err := r.still(ctx, config, func() bool { return slices.Contains(ofConfig(config), image) })
		if err != nil || is {
			return is, err
		}
	}
	for i := range k.pools.Items {
		pool := k.pools.Items[i].DeepCopy()
		is, err := r.still(ctx, pool, func() bool { return string(pool.Status.OSImagePullSpec) == image })
		if err != nil {
			return false, err
		}
		if is {
			return false, fmt.Errorf("MachineConfigPool %q: %w", pool.Name, ErrPoolNames)
		}
	}
	return false, nil
}

// still reports whether something holds of an object, and the API server says so too.
func (r *Remover) still(ctx context.Context, object client.Object, holds func() bool) (bool, error) {
	if !holds() {
		return false, nil
	}
	err := r.options.Reader.Get(ctx, client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %T %q: %w", object, object.GetName(), err)
	}
	return err == nil && holds(), nil
}
