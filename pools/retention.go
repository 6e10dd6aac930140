package pools

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes"
)

// prune says which of a pool's rendered MachineConfigs can go: all but those that something refers
// to and, beside them or not, the newest limit ones. Of those made in the same second the last by
// name counts as the newest, so that the answer is the same each time.
func prune(rendered []*mcfgv1.MachineConfig, referenced sets.Set[string], limit int) []*mcfgv1.MachineConfig {
	newestFirst := slices.Clone(rendered)
	slices.SortFunc(newestFirst, func(a, b *mcfgv1.MachineConfig) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	var gone []*mcfgv1.MachineConfig
	for _, mc := range newestFirst[min(limit, len(newestFirst)):] {
		if !referenced.Has(mc.Name) && mc.DeletionTimestamp.IsZero() {
			gone = append(gone, mc)
		}
	}
	return gone
}

// referenced are the names of all rendered MachineConfigs that something refers to, and which must
// therefore stay: what pools want and have, what nodes have, should get and go back to, what images
// are built of, and what images are kept to go back to.
func referenced(pools []*mcfgv1.MachineConfigPool, nodes []nodes.Node, builds []mcfgv1.MachineOSBuild, images []mcfgv1alpha1.MachineOSImage) sets.Set[string] {
	names := sets.New[string]()
	for _, pool := range pools {
		names.Insert(pool.Spec.Configuration.Name, pool.Status.Configuration.Name)
	}
	for i := range nodes {
		names.Insert(nodes[i].CurrentConfig, nodes[i].DesiredConfig, nodes[i].FirstConfig, nodes[i].PreviousConfig)
	}
	for i := range builds {
		names.Insert(builds[i].Spec.MachineConfig.Name)
	}
	for i := range images {
		names.Insert(images[i].Spec.RenderedMachineConfig, images[i].Configuration())
	}
	return names
}

// onNodes are the images, by digest, that nodes have, are told to have, or go back to.
func onNodes(all []nodes.Node) sets.Set[string] {
	images := sets.New[string]()
	for i := range all {
		images.Insert(all[i].CurrentImage, all[i].DesiredImage, all[i].PreviousImage)
	}
	return images
}

// abandoned are the images of the pool whose MachineOSConfig was deleted, and that neither nodes
// nor pools need. Those that were never a MachineOSConfig's do not belong to the pool.
func abandoned(s *scope) []*mcfgv1alpha1.MachineOSImage {
	var gone []*mcfgv1alpha1.MachineOSImage
	for i := range s.images {
		image := &s.images[i]
		controller := metav1.GetControllerOf(image)
		hasConfig := controller != nil && s.layer != nil && controller.UID == s.layer.UID
		isPools := slices.ContainsFunc(image.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.pool.UID })
		isNeeded := s.onNodes.Has(string(image.Spec.PullSpec)) || slices.ContainsFunc(s.pools, func(p *mcfgv1.MachineConfigPool) bool {
			return p.Spec.MachineOSImage == image.Name || p.Status.OSImagePullSpec == image.Spec.PullSpec
		})
		if isPools && !hasConfig && !isNeeded && image.DeletionTimestamp.IsZero() {
			gone = append(gone, image)
		}
	}
	return gone
}

// renderedOf are the rendered MachineConfigs that belong to a pool.
func renderedOf(pool *mcfgv1.MachineConfigPool, configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
	var own []*mcfgv1.MachineConfig
	for _, mc := range configs {
		if metav1.IsControlledBy(mc, pool) {
			own = append(own, mc)
		}
	}
	return own
}
