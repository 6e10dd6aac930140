package objects

import (
	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/images/owner"
)

// IsOwnedBy reports whether a build belongs to a MachineOSConfig, and not to another one of its
// name.
func IsOwnedBy(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) bool {
	for _, reference := range build.OwnerReferences {
		if reference.Kind == owner.Kind {
			return reference.UID == config.UID
		}
	}
	return false
}
