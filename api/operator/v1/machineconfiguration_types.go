package v1

import (
	openshiftv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachineConfiguration steers, for the whole cluster, which machine resources get new boot images,
// how far boot images may lag behind, and what an update of files and units does to running nodes.
// There is one, named "cluster".
//
// Published in github.com/openshift/api operator/v1. Added are Cluster API resources among the
// machine managers. The machine managers and the root are written here because their rules stand
// behind feature gates in the published source, which an import loses; the parts below spec and
// status are imported where that loses nothing.
//
// The admission policy layerwright-machineconfiguration-name keeps its name,
// layerwright-boot-image-platforms the platforms.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfigurations,scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=BootImagesProgressing,JSONPath=.status.conditions[?(@.type=="BootImageUpdateProgressing")].status,type=string,description="Whether boot images are being updated"
// +kubebuilder:printcolumn:name=BootImagesDegraded,JSONPath=.status.conditions[?(@.type=="BootImageUpdateDegraded")].status,type=string,description="Whether a boot image could not be updated"
// +kubebuilder:printcolumn:name=Skew,JSONPath=.status.bootImageSkewEnforcementStatus.mode,type=string,description="How boot images that lag behind are dealt with"
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
// +kubebuilder:validation:XValidation:rule="self.?status.bootImageSkewEnforcementStatus.mode.orValue(\"\") == 'Automatic' ? self.?spec.managedBootImages.hasValue() || self.?status.managedBootImagesStatus.hasValue() : true",message="when skew enforcement is in Automatic mode, a boot image configuration is required"
// +kubebuilder:validation:XValidation:rule="self.?status.bootImageSkewEnforcementStatus.mode.orValue(\"\") == 'Automatic' ? !(self.?spec.managedBootImages.machineManagers.hasValue()) || size(self.spec.managedBootImages.machineManagers) > 0 : true",message="when skew enforcement is in Automatic mode, managedBootImages.machineManagers must not be an empty list"
// +kubebuilder:validation:XValidation:rule="self.?status.bootImageSkewEnforcementStatus.mode.orValue(\"\") == 'Automatic' ? !(self.?spec.managedBootImages.machineManagers.hasValue()) || !self.spec.managedBootImages.machineManagers.exists(m, m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io') || self.spec.managedBootImages.machineManagers.exists(m, m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io' && m.selection.mode == 'All') : true",message="when skew enforcement is in Automatic mode, any MachineAPI MachineSet MachineManager must use selection mode 'All'"
// +kubebuilder:validation:XValidation:rule="self.?status.bootImageSkewEnforcementStatus.mode.orValue(\"\") == 'Automatic' ? !(self.?status.managedBootImagesStatus.machineManagers.hasValue()) || self.status.managedBootImagesStatus.machineManagers.exists(m, m.selection.mode == 'All' && m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io'): true",message="when skew enforcement is in Automatic mode, managedBootImagesStatus must contain a MachineManager opting in all MachineAPI MachineSets"
type MachineConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// metadata of the object; its name is "cluster".
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what an administrator asks for.
	// +required
	Spec MachineConfigurationSpec `json:"spec"`

	// status is what is in force.
	// +optional
	Status MachineConfigurationStatus `json:"status,omitempty,omitzero"`
}

// MachineConfigurationName is the name of the one MachineConfiguration that there is.
const MachineConfigurationName = "cluster"

// MachineConfigurationSpec is what an administrator asks for.
type MachineConfigurationSpec struct {
	// managementState is Managed, Unmanaged, Force or Removed, as operators of OpenShift have it.
	// Layerwright reads Managed and Unmanaged: with Unmanaged no boot image is touched. When it is
	// omitted, Managed.
	// +optional
	ManagementState openshiftv1.ManagementState `json:"managementState,omitempty"`

	// logLevel is how much OpenShift's operator logs about what it manages: Normal, Debug, Trace or
	// TraceAll. Layerwright has command-line options instead and does not read it.
	// +optional
	// +kubebuilder:default=Normal
	LogLevel openshiftv1.LogLevel `json:"logLevel,omitempty"`

	// operatorLogLevel is how much OpenShift's operator logs about itself: Normal, Debug, Trace or
	// TraceAll. Layerwright does not read it.
	// +optional
	// +kubebuilder:default=Normal
	OperatorLogLevel openshiftv1.LogLevel `json:"operatorLogLevel,omitempty"`

	// unsupportedConfigOverrides replace what OpenShift's operator computes, and block cluster
	// upgrades there. Layerwright does not read them.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	UnsupportedConfigOverrides runtime.RawExtension `json:"unsupportedConfigOverrides,omitempty"`

	// observedConfig is what OpenShift's operator has observed. Layerwright does not read it.
	// +optional
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	ObservedConfig runtime.RawExtension `json:"observedConfig,omitempty"`

	// forceRedeploymentReason, when it is changed, makes OpenShift's operator deploy again.
	// Layerwright does not read it.
	// +optional
	ForceRedeploymentReason string `json:"forceRedeploymentReason,omitempty"`

	// failedRevisionLimit is how many failed revisions OpenShift's operator keeps: -1 all, 0 or
	// omitted five. Layerwright does not read it.
	// +optional
	FailedRevisionLimit int32 `json:"failedRevisionLimit,omitempty"`

	// succeededRevisionLimit is how many good revisions OpenShift's operator keeps: -1 all, 0 or
	// omitted five. Layerwright does not read it.
	// +optional
	SucceededRevisionLimit int32 `json:"succeededRevisionLimit,omitempty"`

	// managedBootImages are the machine resources whose boot image is kept in step with their
	// pool's stream. When it is omitted, all MachineSets on AWS, Azure, GCP and vSphere, and none
	// elsewhere.
	// +optional
	ManagedBootImages ManagedBootImages `json:"managedBootImages,omitempty,omitzero"`

	// nodeDisruptionPolicy is what a change of a file, unit or SSH key does to a node instead of a
	// reboot. It has no effect on a change of the OS image, which always reboots. When it is
	// omitted, the built-in policies, which status lists.
	// +optional
	NodeDisruptionPolicy openshiftv1.NodeDisruptionPolicyConfig `json:"nodeDisruptionPolicy,omitempty,omitzero"`

	// irreconcilableValidationOverrides are sections of MachineConfigs that may change although
	// existing nodes cannot follow. Only new nodes get such a change; existing ones report the
	// difference in their MachineConfigNode. When it is omitted, such a change is refused.
	// +optional
	IrreconcilableValidationOverrides openshiftv1.IrreconcilableValidationOverrides `json:"irreconcilableValidationOverrides,omitempty,omitzero"`

	// bootImageSkewEnforcement is whether boot images that lag too far behind block a cluster
	// upgrade: Manual compares with a version that the administrator reports, None never blocks.
	// When it is omitted, Automatic where all boot images are managed; elsewhere an upgrade is
	// blocked until a mode is chosen.
	// +optional
	BootImageSkewEnforcement openshiftv1.BootImageSkewEnforcementConfig `json:"bootImageSkewEnforcement,omitempty,omitzero"`
}

// MachineConfigurationStatus is what is in force.
type MachineConfigurationStatus struct {
	// observedGeneration is the generation of spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are BootImageUpdateProgressing and BootImageUpdateDegraded, and Ready, Reconciling
	// and Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodeDisruptionPolicyStatus are the built-in policies and those of spec, joined.
	// +optional
	NodeDisruptionPolicyStatus openshiftv1.NodeDisruptionPolicyStatus `json:"nodeDisruptionPolicyStatus,omitempty,omitzero"`

	// managedBootImagesStatus are the machine resources whose boot image is kept in step: those of
	// spec, or the platform's default.
	// +optional
	ManagedBootImagesStatus ManagedBootImages `json:"managedBootImagesStatus,omitempty,omitzero"`

	// bootImageSkewEnforcementStatus is the mode in force and the version that is compared. While
	// it is omitted, nothing is known and an upgrade is blocked.
	// +optional
	BootImageSkewEnforcementStatus openshiftv1.BootImageSkewEnforcementStatus `json:"bootImageSkewEnforcementStatus,omitempty,omitzero"`
}

// ManagedBootImages are machine resources whose boot image is kept in step with their pool's
// stream.
type ManagedBootImages struct {
	// machineManagers are the kinds of machine resources, each kind of a group once, at most 5. A
	// kind that is not listed is left alone.
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +listMapKey=apiGroup
	// +kubebuilder:validation:MaxItems=5
	MachineManagers []MachineManager `json:"machineManagers,omitempty"`
}

// MachineManager is a kind of machine resources and which of them are meant.
// +kubebuilder:validation:XValidation:rule="self.resource != 'controlplanemachinesets' || self.selection.mode == 'All' || self.selection.mode == 'None'",message="Only All or None selection mode is permitted for ControlPlaneMachineSets"
// +kubebuilder:validation:XValidation:rule="self.resource != 'controlplanemachinesets' || self.apiGroup == 'machine.openshift.io'",message="the controlplanemachinesets resource is only supported in the machine.openshift.io API group"
// +kubebuilder:validation:XValidation:rule="self.resource != 'machinedeployments' || self.apiGroup == 'cluster.x-k8s.io'",message="the machinedeployments resource is only supported in the cluster.x-k8s.io API group"
type MachineManager struct {
	// resource is the kind, as a plural: machinesets, controlplanemachinesets (machine.openshift.io
	// only) or machinedeployments (cluster.x-k8s.io only).
	// +required
	Resource MachineManagerMachineSetsResourceType `json:"resource"`

	// apiGroup is machine.openshift.io (OpenShift's Machine API) or cluster.x-k8s.io (Cluster API).
	// +required
	APIGroup MachineManagerMachineSetsAPIGroupType `json:"apiGroup"`

	// selection is which resources of the kind are meant: All, None, or Partial with a label
	// selector. Partial is not for controlplanemachinesets, of which there is one.
	// +required
	Selection openshiftv1.MachineManagerSelector `json:"selection"`
}

// MachineManagerMachineSetsResourceType is a kind of machine resources, as a plural.
// +kubebuilder:validation:Enum=machinesets;controlplanemachinesets;machinedeployments
type MachineManagerMachineSetsResourceType string

const (
	// MachineSets are MachineSets of either group.
	MachineSets MachineManagerMachineSetsResourceType = "machinesets"
	// ControlPlaneMachineSets are ControlPlaneMachineSets of machine.openshift.io.
	ControlPlaneMachineSets MachineManagerMachineSetsResourceType = "controlplanemachinesets"
	// MachineDeployments are MachineDeployments of cluster.x-k8s.io.
	MachineDeployments MachineManagerMachineSetsResourceType = "machinedeployments"
)

// MachineManagerMachineSetsAPIGroupType is the API group of machine resources.
// +kubebuilder:validation:Enum=machine.openshift.io;cluster.x-k8s.io
type MachineManagerMachineSetsAPIGroupType string

const (
	// MachineAPI is OpenShift's Machine API.
	MachineAPI MachineManagerMachineSetsAPIGroupType = "machine.openshift.io"
	// ClusterAPI is Cluster API.
	ClusterAPI MachineManagerMachineSetsAPIGroupType = "cluster.x-k8s.io"
)

// MachineConfigurationList is a list of MachineConfigurations, of which there is one.
// +kubebuilder:object:root=true
type MachineConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// items are the MachineConfigurations.
	Items []MachineConfiguration `json:"items"`
}

// Condition types of the MachineConfiguration, beside Ready, Reconciling and Stalled.
const (
	// BootImageUpdateProgressing is True while boot images are being updated. Reasons:
	// BootImagesUpdating, BootImagesUpToDate.
	BootImageUpdateProgressing = openshiftv1.MachineConfigurationBootImageUpdateProgressing
	// BootImageUpdateDegraded is True when a boot image could not be updated; the message names the
	// resource. Reasons: BootImageUpdateFailed, BootImagesUpToDate.
	BootImageUpdateDegraded = openshiftv1.MachineConfigurationBootImageUpdateDegraded
	// BootImagesUpgradeable is False while boot images are too old for the cluster to be upgraded;
	// the message says what to do. On OpenShift the ClusterOperator "layerwright" repeats it.
	// Reasons: ClusterBootImageSkewError, Succeeded.
	BootImagesUpgradeable = "Upgradeable"
)

// Reasons of the MachineConfiguration's conditions.
const (
	// ReasonBootImagesUpdating means that some resources have an older boot image than they should.
	ReasonBootImagesUpdating = "BootImagesUpdating"
	// ReasonBootImagesUpToDate means that every managed resource has the boot image of its stream.
	ReasonBootImagesUpToDate = "BootImagesUpToDate"
	// ReasonBootImageUpdateFailed means that a resource's boot image could not be updated.
	ReasonBootImageUpdateFailed = "BootImageUpdateFailed"
	// ReasonBootImagesIdle means that nothing is managed; the message says why.
	ReasonBootImagesIdle = "BootImagesIdle"
	// ReasonClusterBootImageSkewError means that machines may start with a boot image that is older
	// than the release allows.
	ReasonClusterBootImageSkewError = "ClusterBootImageSkewError"
)
