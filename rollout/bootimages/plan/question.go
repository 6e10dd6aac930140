package plan

import "fmt"

// Spec is a provider specification, as a JSON object.
type Spec = map[string]any

// Reasons why a resource is skipped. Those that Problem.Uncounted is true for are in no count.
const (
	ReasonOwnerReference     = "OwnerReference"
	ReasonAuthoritativeAPI   = "AuthoritativeAPI"
	ReasonPartOfAnother      = "PartOfAnother"
	ReasonWindows            = "Windows"
	ReasonUnknownProvider    = "UnknownProvider"
	ReasonNoArchitecture     = "NoArchitecture"
	ReasonNoImageForStream   = "NoImageForStream"
	ReasonNoImageForRegion   = "NoImageForRegion"
	ReasonStreamConflict     = "StreamConflict"
	ReasonCustomImage        = "CustomImage"
	ReasonUnknownImageOwner  = "UnknownImageOwner"
	ReasonMarketplaceImage   = "MarketplaceImage"
	ReasonConfidential       = "Confidential"
	ReasonNoMarketplaceImage = "NoMarketplaceImage"
	ReasonNeedsUpload        = "NeedsUpload"
	ReasonNoImage            = "NoImage"
	ReasonNotOptedIn         = "NotOptedIn"
	ReasonPinned             = "Pinned"
)

// Reasons of errors.
const (
	ReasonInvalidProviderSpec = "InvalidProviderSpec"
	ReasonUnknownArchitecture = "UnknownArchitecture"
	ReasonInvalidMetadata     = "InvalidMetadata"
	ReasonUnknownPin          = "UnknownPin"
	ReasonHotLoop             = "HotLoop"
)

// Problem is why a resource's boot image is not managed, or can't be.
type Problem struct {
	// Fails reports whether someone has to correct something; otherwise the resource is skipped.
	Fails bool
	// Uncounted reports whether no one expects the resource to be managed.
	Uncounted bool
	// Reason is one of those above.
	Reason string
	// Message is for people.
	Message string
	// question is what has to be known first.
	question *Question
}

func skip(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func failed(reason, format string, args ...any) *Problem {
	return &Problem{Fails: true, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Question is what only a cloud knows: whose an image is.
type Question struct{ Region, Image string }

// Owner is the account that an image belongs to or, where that is empty, why no one can say.
type Owner struct{ Account, Unknown string }

// Image is a boot image.
type Image struct {
	// ID is how the platform names it.
	ID string
	// Version of the boot image.
	Version string
	// Upload is where a platform without public images gets it from; nil elsewhere.
	Upload *Upload
}

// Upload is an image that has to be imported under Image.ID before it can be used.
type Upload struct{ URL, SHA256 string }

// Resource is what of a machine resource decides about its boot image.
type Resource struct {
	Labels, Annotations map[string]string
	// MachineLabels are those of the machines that it makes.
	MachineLabels map[string]string
	// IsOwned reports whether something else made it, and may put back what is changed.
	IsOwned bool
	// IsElsewhere reports whether another API has the say about its machines.
	IsElsewhere bool
	// Main is the machine resource that made this one, or that it mirrors, and that is looked at in
	// its place; empty where there is none.
	Main string
	// ProviderKind is the kind of the provider specification, or of the template that has it.
	ProviderKind string
	// ProviderSpec is the provider specification; nil where there is none.
	ProviderSpec Spec
}

// infraName is the infrastructure name of the resource's cluster.
func (r *Resource) infraName() string {
	for _, labels := range []map[string]string{r.Labels, r.MachineLabels} {
		for _, key := range []string{labelInfra, labelClusterName} {
			if labels[key] != "" {
				return labels[key]
			}
		}
	}
	return ""
}

// Labels that say what machines are for.
const (
	labelWindows = "machine.openshift.io/os-id"
	// labelInfra is the infrastructure name of the cluster, which the names of its own images begin
	// with.
	labelInfra = "machine.openshift.io/cluster-api-cluster"
	// labelClusterName is the same in Cluster API.
	labelClusterName = "cluster.x-k8s.io/cluster-name"
)
