package pools

import mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"

// target is what the nodes of a pool should have.
type target struct {
	// Config is the rendered MachineConfig; empty while the pool has none.
	Config string
	// Image is the image by digest; empty where the nodes follow the OS image of the rendered MachineConfig.
	Image string
}

// targetOf is what a pool's nodes should have now.
func targetOf(pool *mcfgv1.MachineConfigPool) target {
	return target{Config: pool.Spec.Configuration.Name, Image: string(pool.Status.OSImagePullSpec)}
}

// counts are the numbers of a pool's nodes, as its status has them.
type counts struct {
	machines int32
	// updated have the target and are done, ready are those of them that pods can be scheduled to.
	updated, ready int32
	// unavailable count against maxUnavailable, for whatever reason.
	unavailable int32
	// degraded are those whose update failed.
	degraded int32
	// silent have no node agent: nobody updates them.
	silent int32
}

func count(nodes []node, t target) counts {
	c := counts{machines: int32(len(nodes))} //nolint:gosec // no cluster has two billion nodes
	for i := range nodes {
		n := &nodes[i]
		if n.isAt(t) {
			c.updated++
			c.ready += one(n.isHealthy())
		}
		c.unavailable += one(n.isUnavailable())
		c.degraded += one(n.isDegraded())
		c.silent += one(!n.hasAgent())
	}
	return c
}

func one(is bool) int32 {
	if is {
		return 1
	}
	return 0
}
