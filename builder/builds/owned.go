package builds

import (
	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/images/owner"
)

func isOwnedBy(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) bool {
	for _, reference := range build.OwnerReferences {
		if reference.Kind == owner.Kind {
			return reference.UID == config.UID
		}
	}
	return false
}
