package nodes

import (
	"cmp"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Target is what the nodes of a pool should have.
type Target struct {
	// Config is the rendered MachineConfig; empty while the pool has none.
	Config string
	// Image is the image by digest; empty where the nodes follow the OS image of the rendered
	// MachineConfig.
	Image string
}

// TargetOf is what a pool's nodes should have now. An image that the pool names brings the
// configuration of its own. images are all MachineOSImages.
func TargetOf(pool *mcfgv1.MachineConfigPool, images []mcfgv1alpha1.MachineOSImage) Target {
	t := Target{Config: pool.Spec.Configuration.Name, Image: string(pool.Status.OSImagePullSpec)}
	i := slices.IndexFunc(images, func(i mcfgv1alpha1.MachineOSImage) bool {
		return i.Name == pool.Spec.MachineOSImage && i.Spec.PullSpec == pool.Status.OSImagePullSpec
	})
	if i >= 0 {
		t.Config = cmp.Or(images[i].Configuration(), t.Config)
	}
	return t
}

// Counts are the numbers of a pool's nodes, as its status has them.
type Counts struct {
	Machines int32
	// Updated have the target and are done; Ready are those of them that pods can be scheduled to.
	Updated, Ready int32
	// Unavailable count against maxUnavailable, for whatever reason.
	Unavailable int32
	// Degraded are those whose update failed.
	Degraded int32
	// Silent have no node agent, so that they are never updated.
	Silent int32
}

// Count counts the nodes of a pool.
func Count(nodes []Node, t Target) Counts {
	c := Counts{Machines: int32(len(nodes))} //nolint:gosec // no cluster has two billion nodes
	for i := range nodes {
		n := &nodes[i]
		if n.IsAt(t) {
			c.Updated++
			c.Ready += one(n.IsHealthy())
		}
		c.Unavailable += one(n.IsUnavailable())
		c.Degraded += one(n.IsDegraded())
		c.Silent += one(!n.HasAgent())
	}
	return c
}

func one(is bool) int32 {
	if is {
		return 1
	}
	return 0
}
