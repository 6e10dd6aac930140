package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BootImageHistory is the record of the boot images that one machine resource, such as a
// MachineSet, has had. Layerwright creates it, in the resource's namespace and with the name
// <name>-<resource>, the first time that it updates the resource's boot image. Proposed in the
// design of boot image updates.
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=bootimagehistories,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Resource,JSONPath=.spec.machineResourceReference.resource,type=string
// +kubebuilder:printcolumn:name=ResourceName,JSONPath=.spec.machineResourceReference.name,type=string
// +kubebuilder:printcolumn:name=BootImage,JSONPath=.status.details[-1:].bootImageVersion,type=string,description="Version of the newest boot image"
// +kubebuilder:printcolumn:name=Updated,JSONPath=.status.details[-1:].updateTime,type=date,description="When it was set"
// +kubebuilder:printcolumn:name=Ready,JSONPath=.status.conditions[?(@.type=="Ready")].status,type=string
// +kubebuilder:printcolumn:name=Reason,JSONPath=.status.conditions[?(@.type=="Ready")].reason,type=string
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:printcolumn:name=APIGroup,JSONPath=.spec.machineResourceReference.apiGroup,type=string,priority=1
type BootImageHistory struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the resource that the record is about.
	// +required
	Spec BootImageHistorySpec `json:"spec"`

	// status is the record.
	// +optional
	Status BootImageHistoryStatus `json:"status,omitempty,omitzero"`
}

// BootImageHistorySpec is the resource that a record is about.
type BootImageHistorySpec struct {
	// machineResourceReference is the resource. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="machineResourceReference is immutable once set"
	MachineResourceReference MachineResourceReference `json:"machineResourceReference"`
}

// MachineResourceReference names a machine resource in the record's namespace.
type MachineResourceReference struct {
	// name of the resource. A lowercase RFC 1123 subdomain of at most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	Name string `json:"name"`

	// resource is the kind of the resource, such as MachineSet or MachineDeployment. Letters and
	// digits, at most 63.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9]*$')",message="resource must be a kind, such as MachineSet: letters and digits, starting with a letter"
	Resource string `json:"resource"`

	// apiGroup is the API group of the resource, such as machine.openshift.io or cluster.x-k8s.io:
	// two groups have a MachineSet. A lowercase RFC 1123 subdomain of at most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character."
	APIGroup string `json:"apiGroup"`
}

// BootImageHistoryStatus is the record of a resource's boot images.
type BootImageHistoryStatus struct {
	// details are the boot images, the newest last. At most 50; the oldest give way.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Details []BootImageHistoryDetail `json:"details,omitempty"`

	// conditions are Ready, Reconciling and Stalled: whether the resource has the boot image that
	// it should have. At most 16.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of spec that the status speaks of. It never goes
	// backwards.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="observedGeneration must not move backwards"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// BootImageHistoryDetail is a boot image that a resource was given.
type BootImageHistoryDetail struct {
	// updateTime is when the resource was given the image.
	// +required
	UpdateTime metav1.Time `json:"updateTime"`

	// bootImageVersion is the version of the boot image, such as 415.92.202311241643-0. At most 128
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	BootImageVersion string `json:"bootImageVersion"`

	// configMapGeneration is the version of the ConfigMap that the boot image was read from: its
	// resourceVersion, since ConfigMaps have no generation. 0 for one from elsewhere, such as the
	// installation or an earlier entry.
	// +required
	// +kubebuilder:validation:Minimum=0
	ConfigMapGeneration int64 `json:"configMapGeneration"`

	// stream that the boot image belongs to. When it is omitted, the source named none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Stream string `json:"stream,omitempty"`

	// image is the boot image as the platform names it, such as an AMI or an image path. At most
	// 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// BootImageHistoryList is a list of BootImageHistories.
// +kubebuilder:object:root=true
type BootImageHistoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the BootImageHistories.
	Items []BootImageHistory `json:"items"`
}
