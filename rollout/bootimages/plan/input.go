package plan

import (
	"time"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Input is what Decide goes by.
type Input struct {
	Resource Resource
	// Images are the boot images there are.
	Images *BootImages
	// Stream is that of the pool that the machines will join; empty where that is not known.
	Stream string
	// Architecture is the one of the nodes that the machines will be beside, as Kubernetes names
	// it; empty where there are several.
	Architecture string
	// Region is the one of the cluster's nodes; empty where there are several, or none says it.
	Region string
	// Owners are the answers to questions so far.
	Owners map[Question]Owner
	// History are the images that the resource was given, the newest last.
	History []mcfgv1alpha1.BootImageHistoryDetail
	// Now is the time.
	Now time.Time
	// CanUpload reports whether images can be imported into the platform.
	CanUpload bool
}
