package pools

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// image is what keeps nodes from the image that their pool is to have; the zero image is nothing.
type image struct {
	// says is how far the image is.
	says string
	// stopped is the reason why a person has to act before there is an image; empty while it is
	// being made.
	stopped string
}

// imageOf reads how far the image of a pool is from what the builder says in the pool's conditions.
// What it says is old while it has not looked at the newest MachineOSConfig. While the pool can't
// be rendered, the builder waits for it: then it counts whether there is an image of the
// configuration that the pool has.
func imageOf(pool *mcfgv1.MachineConfigPool, conditions []metav1.Condition, layer *mcfgv1.MachineOSConfig, isBuilt bool) image {
	if layer == nil {
		return image{}
	}
	isTrue := func(t mcfgv1.MachineConfigPoolConditionType) bool { return status.IsTrue(conditions, string(t)) }
	switch {
	case !isObserved(layer):
		return image{says: "OS image build pending"}
	case isTrue(mcfgv1.PoolImageBuildDegraded):
		return image{says: "see " + typeImageBuildDegraded, stopped: status.Find(conditions, typeImageBuildDegraded).Reason}
	case status.IsTrue(conditions, typeRenderDegraded) && isTrue(mcfgv1.PoolBuildPending):
		if isBuilt {
			return image{}
		}
		return image{says: "see " + typeRenderDegraded, stopped: status.Find(conditions, typeRenderDegraded).Reason}
	case isTrue(mcfgv1.PoolBuildPending), isTrue(mcfgv1.PoolBuildInterrupted): // one that is interrupted is built again
		return image{says: "OS image build pending"}
	case !isTrue(mcfgv1.PoolBuilding) && isToBeRolledOut(pool, layer):
		return image{says: "OS image rollout pending"}
	case !isTrue(mcfgv1.PoolBuilding):
		return image{}
	case status.Find(conditions, string(mcfgv1.PoolBuilding)).Reason != mcfgv1.ReasonBuilding:
		return image{says: "OS image verification in progress"}
	default:
		return image{says: "OS image build in progress"}
	}
}

// isToBeRolledOut reports whether nodes are to have the newest image, and the rollout has not
// begun.
func isToBeRolledOut(pool *mcfgv1.MachineConfigPool, layer *mcfgv1.MachineOSConfig) bool {
	return layer.Status.CurrentImagePullSpec != "" && layer.Status.CurrentImagePullSpec != pool.Status.OSImagePullSpec &&
		pool.Spec.MachineOSImage == "" && !layer.IsPushOnly()
}

// isObserved reports whether the builder has looked at the newest spec of a MachineOSConfig.
func isObserved(layer *mcfgv1.MachineOSConfig) bool {
	return layer.Status.ObservedGeneration >= layer.Generation
}
