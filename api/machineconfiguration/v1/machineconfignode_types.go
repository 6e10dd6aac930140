package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineConfigNode is how far one node is with its configuration and image. It has the node's
// name. The rollout controller writes spec, the node agent writes status.
//
// Published in github.com/openshift/api machineconfiguration/v1. Room for the conditions Ready,
// Reconciling and Stalled is added.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfignodes,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=openshift.io/operator-managed=
// +kubebuilder:printcolumn:name=PoolName,JSONPath=.spec.pool.name,type=string
// +kubebuilder:printcolumn:name=DesiredConfig,JSONPath=.spec.configVersion.desired,type=string
// +kubebuilder:printcolumn:name=CurrentConfig,JSONPath=.status.configVersion.current,type=string
// +kubebuilder:printcolumn:name=Updated,JSONPath=.status.conditions[?(@.type=="Updated")].status,type=string
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:printcolumn:name=UpdatePrepared,JSONPath=.status.conditions[?(@.type=="UpdatePrepared")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=UpdateExecuted,JSONPath=.status.conditions[?(@.type=="UpdateExecuted")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=UpdatePostActionComplete,JSONPath=.status.conditions[?(@.type=="UpdatePostActionComplete")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=UpdateComplete,JSONPath=.status.conditions[?(@.type=="UpdateComplete")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=Resumed,JSONPath=.status.conditions[?(@.type=="Resumed")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=UpdatedFilesAndOS,JSONPath=.status.conditions[?(@.type=="AppliedFilesAndOS")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=CordonedNode,JSONPath=.status.conditions[?(@.type=="Cordoned")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=DrainedNode,JSONPath=.status.conditions[?(@.type=="Drained")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=RebootedNode,JSONPath=.status.conditions[?(@.type=="RebootedNode")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=UncordonedNode,JSONPath=.status.conditions[?(@.type=="Uncordoned")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=AppliedOSImage,JSONPath=.status.conditions[?(@.type=="AppliedOSImage")].status,type=string,priority=1
// +kubebuilder:printcolumn:name=AppliedFiles,JSONPath=.status.conditions[?(@.type=="AppliedFiles")].status,type=string,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.node.name",message="spec.node.name should match metadata.name"
type MachineConfigNode struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object; its name is the node's.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the node should have.
	// +required
	Spec MachineConfigNodeSpec `json:"spec"`

	// status is what the node has.
	// +optional
	Status MachineConfigNodeStatus `json:"status"`
}

// MachineConfigNodeSpec is what a node should have.
type MachineConfigNodeSpec struct {
	// node is the Node; its name is also this object's.
	// +required
	Node MCOObjectReference `json:"node"`

	// pool is the MachineConfigPool that the node belongs to.
	// +required
	Pool MCOObjectReference `json:"pool"`

	// configVersion is the rendered MachineConfig that the node should have.
	// +required
	ConfigVersion MachineConfigNodeSpecMachineConfigVersion `json:"configVersion"`

	// configImage is the image that the node should run. When it is omitted, the node follows the
	// OS image of its rendered MachineConfig.
	// +optional
	ConfigImage MachineConfigNodeSpecConfigImage `json:"configImage,omitempty,omitzero"`
}

// MachineConfigNodeSpecConfigImage is the image that a node should run.
type MachineConfigNodeSpecConfigImage struct {
	// desiredImage is the image, by digest, as the node's annotation
	// machineconfiguration.openshift.io/desiredImage has it.
	// +required
	DesiredImage ImageDigestFormat `json:"desiredImage,omitempty"`
}

// MachineConfigNodeStatus is what a node has.
type MachineConfigNodeStatus struct {
	// conditions are the steps of an update, of the types that this package names
	// MachineConfigNode..., and Ready, Reconciling and Stalled. At most 24.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=24
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the status speaks of. It never goes
	// backwards.
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf", message="observedGeneration must not decrease"
	// +kubebuilder:validation:Minimum=1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// configVersion are the rendered MachineConfigs that the node has and is on its way to.
	// +optional
	ConfigVersion *MachineConfigNodeStatusMachineConfigVersion `json:"configVersion,omitempty"`

	// configImage are the images that the node has and is on its way to. When it is omitted, the
	// node follows the OS image of its rendered MachineConfig.
	// +optional
	ConfigImage MachineConfigNodeStatusConfigImage `json:"configImage,omitempty,omitzero"`

	// pinnedImageSets say how far the node is with each set of pinned images. At most 100.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	// +optional
	PinnedImageSets []MachineConfigNodeStatusPinnedImageSet `json:"pinnedImageSets,omitempty"`

	// irreconcilableChanges are differences between the node and its rendered MachineConfig that
	// only a new node would not have. 1 to 32, each field once.
	// +listType=map
	// +listMapKey=fieldPath
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +optional
	IrreconcilableChanges []IrreconcilableChangeDiff `json:"irreconcilableChanges,omitempty"`

	// internalReleaseImage are the release bundles on the node's disk. OpenShift's node agent
	// writes it.
	// +optional
	InternalReleaseImage MachineConfigNodeStatusInternalReleaseImage `json:"internalReleaseImage,omitzero,omitempty"`
}

// MachineConfigNodeStatusConfigImage are the images that a node has and is on its way to.
// +kubebuilder:validation:MinProperties:=1
type MachineConfigNodeStatusConfigImage struct {
	// currentImage is the image that the node has booted, by digest. When it is omitted, the node
	// runs no image of a MachineOSConfig.
	// +optional
	CurrentImage ImageDigestFormat `json:"currentImage,omitzero,omitempty"`

	// desiredImage is the image that the node is on its way to, by digest; the same as currentImage
	// when it has arrived. When it is omitted, the node is on its way back to the OS image of its
	// rendered MachineConfig.
	// +optional
	DesiredImage ImageDigestFormat `json:"desiredImage,omitzero,omitempty"`
}

// MachineConfigNodeList is a list of MachineConfigNodes.
// +kubebuilder:object:root=true
type MachineConfigNodeList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the list.
	// +optional
	metav1.ListMeta `json:"metadata"`

	// items are the MachineConfigNodes.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Items []MachineConfigNode `json:"items"`
}
