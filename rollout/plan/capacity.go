package plan

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// defaultParallelStaging is how many nodes pull at once where the pool does not say
// (RolloutStaging).
const defaultParallelStaging = 10

// maxUnavailable is how many of a pool's nodes may be unavailable. A percentage is rounded down,
// and it is never below one, as openshift/machine-config-operator has it. Nodes of the control
// plane go one at a time whatever the pool says.
func maxUnavailable(pool *mcfgv1.MachineConfigPool, total int) int {
	if IsControlPlane(pool) || pool.Spec.MaxUnavailable == nil {
		return 1
	}
	value, err := intstr.GetScaledValueFromIntOrPercent(pool.Spec.MaxUnavailable, total, false)
	if err != nil {
		return 1
	}
	return max(value, 1)
}

// IsControlPlane reports whether the pool's nodes run the control plane.
func IsControlPlane(pool *mcfgv1.MachineConfigPool) bool {
	return pool.Name == mcfgv1.PoolMaster || pool.Name == mcfgv1.PoolArbiter
}

// staging is how the pool's nodes stage: whether in the background, and how many at once.
func staging(pool *mcfgv1.MachineConfigPool) (background bool, parallel int) {
	background, parallel = true, defaultParallelStaging
	rollout := pool.Spec.Rollout
	if rollout == nil || rollout.Staging == nil {
		return background, parallel
	}
	if m := rollout.Staging.MaxParallel; m != nil {
		parallel = int(*m)
	}
	return rollout.Staging.Mode != mcfgv1.StagingOnDrain, parallel
}

// losesQuorum is the unhealthy etcd member that keeps a node from going away: without the node,
// etcd would have no majority. It is empty where etcd does not stand in the way. A cluster whose
// members are all healthy is never held: one that can't lose a member at all has to be updated too.
func losesQuorum(members []EtcdMember, node string) string {
	healthy, isMember, unhealthy := 0, false, ""
	for _, m := range members {
		switch {
		case m.Node == node:
			isMember = true
		case m.Healthy:
			healthy++
		case unhealthy == "" || m.Node < unhealthy:
			unhealthy = m.Node
		}
	}
	if !isMember || healthy >= len(members)/2+1 {
		return ""
	}
	return unhealthy
}
