package plan

import (
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Progress is how far the cluster is on its way to the release that the boot images are of.
type Progress struct {
	// HasClusterVersion reports whether the cluster has OpenShift's ClusterVersion, which
	// IsCompleted and Desired are from.
	HasClusterVersion bool
	// IsCompleted reports whether its newest update is done.
	IsCompleted bool
	// Desired is the release that the cluster is on its way to.
	Desired string
	// ControlPlane is the pool of the control plane; nil where there is none.
	ControlPlane *mcfgv1.MachineConfigPool
}

// Unstable is why boot images are not changed yet; empty where they may be. New machines must not
// start with the images of a release that no node of the control plane runs: what configures them
// is still the old one.
func Unstable(p Progress, images *BootImages) string {
	switch {
	case p.HasClusterVersion && images.Release != "" && p.Desired != "" && images.Release != p.Desired:
		return fmt.Sprintf("the boot images are of release %s, but the cluster's desired release is %s", images.Release, p.Desired)
	case p.HasClusterVersion && (p.IsCompleted || p.Desired != "" && images.Stamp == p.Desired):
		return ""
	case p.HasClusterVersion:
		return "the cluster is being updated, and no node of its control plane is known to have the new release"
	case p.ControlPlane != nil && p.ControlPlane.Status.MachineCount > 0 && p.ControlPlane.Status.UpdatedMachineCount == 0:
		return fmt.Sprintf("no node of pool %q has been updated", p.ControlPlane.Name)
	}
	return ""
}
