package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineConfigPool is a group of nodes that get the same configuration and the same OS image:
// which MachineConfigs it joins, which nodes it takes, which stream it follows, and how its nodes
// are updated.
//
// Published in github.com/openshift/api machineconfiguration/v1. Added are spec.machineOSImage,
// spec.deployMode, spec.rollout, and in status osImagePullSpec, shortDigest and rollout.
//
// Admission policies keep that a stream exists (layerwright-pool-stream), that it does not go back
// in major version (layerwright-pool-stream-downgrade), and that a custom pool joins the worker
// configuration (layerwright-pool-selector).
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfigpools,scope=Cluster,shortName=mcp
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="openshift.io/operator-managed="
// +kubebuilder:printcolumn:name=Config,JSONPath=.status.configuration.name,type=string,description="Rendered MachineConfig that all nodes of the pool have"
// +kubebuilder:printcolumn:name=Updated,JSONPath=.status.conditions[?(@.type=="Updated")].status,type=string,description="Whether all nodes have the pool's configuration and image"
// +kubebuilder:printcolumn:name=Updating,JSONPath=.status.conditions[?(@.type=="Updating")].status,type=string,description="Whether a node is still to be updated"
// +kubebuilder:printcolumn:name=Degraded,JSONPath=.status.conditions[?(@.type=="Degraded")].status,type=string,description="Whether something keeps the pool from its configuration or image"
// +kubebuilder:printcolumn:name=MachineCount,JSONPath=.status.machineCount,type=number,description="Nodes in the pool"
// +kubebuilder:printcolumn:name=ReadyMachineCount,JSONPath=.status.readyMachineCount,type=number,description="Nodes that are updated and Ready"
// +kubebuilder:printcolumn:name=UpdatedMachineCount,JSONPath=.status.updatedMachineCount,type=number,description="Nodes that have the pool's configuration and image"
// +kubebuilder:printcolumn:name=DegradedMachineCount,JSONPath=.status.degradedMachineCount,type=number,description="Nodes whose update failed"
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:printcolumn:name=Stream,JSONPath=.status.osImageStream.name,type=string,priority=1,description="Stream that all nodes of the pool are on"
// +kubebuilder:printcolumn:name=Image,JSONPath=.status.shortDigest,type=string,priority=1,description="Digest of the image that the pool's nodes should run"
// +kubebuilder:printcolumn:name=Building,JSONPath=.status.conditions[?(@.type=="Building")].status,type=string,priority=1,description="Whether an image for the pool is being built"
// +kubebuilder:printcolumn:name=Rollout,JSONPath=.status.rollout.summary,type=string,priority=1,description="How far the rollout is, or what it waits for"
// +kubebuilder:printcolumn:name=Deprecated,JSONPath=.status.conditions[?(@.type=="OSStreamDeprecated")].status,type=string,priority=1,description="Whether the pool should leave its stream"
type MachineConfigPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what an administrator asks for.
	// +required
	Spec MachineConfigPoolSpec `json:"spec"`

	// status is how far the pool is.
	// +optional
	Status MachineConfigPoolStatus `json:"status"`
}

// MachineConfigPoolSpec is what an administrator asks of a pool.
type MachineConfigPoolSpec struct {
	// machineConfigSelector selects the MachineConfigs that the pool joins, by label, usually
	// machineconfiguration.openshift.io/role. A pool other than master, worker and arbiter has to
	// take in the role worker. When it is omitted, nothing is selected.
	// +optional
	MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector,omitempty"`

	// nodeSelector selects the pool's nodes by label. A node that several pools select belongs to
	// master first, then to the custom pool, then to worker; one that two custom pools select is
	// reported by both and updated by none.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// paused stops the rollout: no further node stages an image or starts to update. MachineConfigs
	// are still rendered and images still built. A node in the middle of its update finishes it.
	// When it is omitted, false.
	// +optional
	Paused bool `json:"paused"`

	// maxUnavailable is how many of the pool's nodes may be unavailable during an update, as a
	// number or as a percentage (rounded down, but never below one node). Nodes that are
	// unavailable for any other reason count too. When it is omitted or 0, one node; use paused to
	// stop updates. Pod disruption budgets are kept whatever the number.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// configuration is the rendered MachineConfig that the pool's nodes should have. Layerwright
	// writes it.
	// +optional
	Configuration MachineConfigPoolStatusConfiguration `json:"configuration"`

	// pinnedImageSets are sets of container images that the nodes pull in advance and keep, each
	// name once, at most 100. They are read by OpenShift's node agent; a node without the room for
	// them makes the pool Degraded, and so do they on a cluster without that kind.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	PinnedImageSets []PinnedImageSetRef `json:"pinnedImageSets,omitempty"`

	// osImageStream is the stream whose images the pool follows; status.availableStreams of the
	// OSImageStream "cluster" lists them. When it is omitted, a new pool takes the default stream,
	// and a pool that has followed a stream stays on it. A stream that does not exist, or of an
	// older major version than the pool's, is refused. It cannot be combined with a MachineConfig
	// that sets osImageURL: such a pool reports RenderDegraded.
	// +optional
	OSImageStream OSImageStreamReference `json:"osImageStream,omitempty,omitzero"`

	// machineOSImage is the name of the MachineOSImage that the pool's nodes should run. When it is
	// omitted, the newest image that the pool's MachineOSConfig has built for rollout. Naming an
	// older image goes back to it; naming one that does not exist, is not signed by the cluster, or
	// is quarantined changes no node and says so in status.rollout. A lowercase RFC 1123 subdomain
	// of at most 253 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	MachineOSImage string `json:"machineOSImage,omitempty"`

	// deployMode is how an image gets onto a node: "image" rebases with rpm-ostree, "bootc"
	// switches with bootc. When it is omitted, whichever the node has, bootc first.
	// +optional
	DeployMode DeployMode `json:"deployMode,omitempty"`

	// rollout is how a new image or configuration reaches the pool's nodes. When it is omitted, all
	// nodes in turn at any time, as many at once as maxUnavailable says, halting when 10 % of the
	// nodes, and at least 2, have failed.
	// +optional
	Rollout *RolloutSpec `json:"rollout,omitempty"`
}

// DeployMode is how an image gets onto a node.
// +kubebuilder:validation:Enum=image;bootc
type DeployMode string

const (
	// DeployModeImage rebases the node with rpm-ostree.
	DeployModeImage DeployMode = "image"
	// DeployModeBootc switches the node with bootc.
	DeployModeBootc DeployMode = "bootc"
)

// MachineConfigPoolStatus is how far a pool is.
type MachineConfigPoolStatus struct {
	// observedGeneration is the generation of spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// configuration is the rendered MachineConfig that all nodes of the pool have.
	// +optional
	Configuration MachineConfigPoolStatusConfiguration `json:"configuration"`

	// machineCount is the number of nodes in the pool.
	// +optional
	MachineCount int32 `json:"machineCount"`

	// updatedMachineCount is the number of nodes that have the pool's configuration and image.
	// +optional
	UpdatedMachineCount int32 `json:"updatedMachineCount"`

	// readyMachineCount is the number of nodes that are updated and Ready.
	// +optional
	ReadyMachineCount int32 `json:"readyMachineCount"`

	// unavailableMachineCount is the number of nodes that are being updated, cordoned, or not
	// Ready.
	// +optional
	UnavailableMachineCount int32 `json:"unavailableMachineCount"`

	// degradedMachineCount is the number of nodes whose update failed.
	// +optional
	DegradedMachineCount int32 `json:"degradedMachineCount"`

	// conditions are the pool's conditions: the published ones (Updated, Updating, Degraded and its
	// causes, the Build... family) and Ready, Reconciling and Stalled.
	// +listType=atomic
	// +optional
	Conditions []MachineConfigPoolCondition `json:"conditions"`

	// certExpirys say when certificates in the pool's configuration end.
	// +listType=atomic
	// +optional
	CertExpirys []CertExpiry `json:"certExpirys"`

	// poolSynchronizersStatus counts, for each synchronizer, how many nodes it has brought up to
	// date.
	// +listType=map
	// +listMapKey=poolSynchronizerType
	// +optional
	PoolSynchronizersStatus []PoolSynchronizerStatus `json:"poolSynchronizersStatus,omitempty"`

	// osImageStream is the stream that all nodes of the pool are on. It is written when the pool is
	// fully updated, and is what a pool that names no stream stays on.
	// +optional
	OSImageStream OSImageStreamReference `json:"osImageStream,omitempty,omitzero"`

	// osImagePullSpec is the image, by digest, that the pool's nodes should run now. When it is
	// omitted, the nodes follow the OS image of the rendered MachineConfig.
	// +optional
	OSImagePullSpec ImageDigestFormat `json:"osImagePullSpec,omitempty"`

	// shortDigest is the first 12 characters of the digest of osImagePullSpec, for people who
	// compare by eye.
	// +optional
	// +kubebuilder:validation:MaxLength=12
	ShortDigest string `json:"shortDigest,omitempty"`

	// rollout is how far the rollout of osImagePullSpec is. When it is omitted, there has been
	// none.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
}

// MachineConfigPoolList is a list of MachineConfigPools.
// +kubebuilder:object:root=true
type MachineConfigPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// items are the MachineConfigPools.
	Items []MachineConfigPool `json:"items"`
}
