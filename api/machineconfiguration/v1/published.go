package v1

import openshiftv1 "github.com/openshift/api/machineconfiguration/v1"

// The types below are github.com/openshift/api's own: nothing is added to them, so their rules,
// defaults and documentation come with the import. The names here let callers use one package.
type (
	// CertExpiry is when a certificate of a pool's configuration ends.
	// +kubebuilder:object:generate=false
	CertExpiry = openshiftv1.CertExpiry
	// IrreconcilableChangeDiff is a difference between a node and its rendered MachineConfig that
	// only a new node can lose.
	// +kubebuilder:object:generate=false
	IrreconcilableChangeDiff = openshiftv1.IrreconcilableChangeDiff
	// MachineConfigNodeSpecMachineConfigVersion is the rendered MachineConfig that a node should
	// have.
	// +kubebuilder:object:generate=false
	MachineConfigNodeSpecMachineConfigVersion = openshiftv1.MachineConfigNodeSpecMachineConfigVersion
	// MachineConfigNodeStatusInternalReleaseImage are the release bundles that a node holds.
	// +kubebuilder:object:generate=false
	MachineConfigNodeStatusInternalReleaseImage = openshiftv1.MachineConfigNodeStatusInternalReleaseImage
	// MachineConfigNodeStatusMachineConfigVersion are the rendered MachineConfigs that a node has
	// and should have.
	// +kubebuilder:object:generate=false
	MachineConfigNodeStatusMachineConfigVersion = openshiftv1.MachineConfigNodeStatusMachineConfigVersion
	// MachineConfigNodeStatusPinnedImageSet is how far a node is with one set of pinned images.
	// +kubebuilder:object:generate=false
	MachineConfigNodeStatusPinnedImageSet = openshiftv1.MachineConfigNodeStatusPinnedImageSet
	// MachineConfigPoolCondition is a condition of a pool. It is older than metav1.Condition and
	// has no observedGeneration.
	// +kubebuilder:object:generate=false
	MachineConfigPoolCondition = openshiftv1.MachineConfigPoolCondition
	// MachineConfigPoolConditionType is the type of a pool's condition.
	// +kubebuilder:object:generate=false
	MachineConfigPoolConditionType = openshiftv1.MachineConfigPoolConditionType
	// MachineConfigPoolReference names a MachineConfigPool.
	// +kubebuilder:object:generate=false
	MachineConfigPoolReference = openshiftv1.MachineConfigPoolReference
	// MachineConfigPoolStatusConfiguration names a rendered MachineConfig and the MachineConfigs
	// that it was rendered from.
	// +kubebuilder:object:generate=false
	MachineConfigPoolStatusConfiguration = openshiftv1.MachineConfigPoolStatusConfiguration
	// MachineConfigReference names a rendered MachineConfig.
	// +kubebuilder:object:generate=false
	MachineConfigReference = openshiftv1.MachineConfigReference
	// MachineOSConfigReference names a MachineOSConfig.
	// +kubebuilder:object:generate=false
	MachineOSConfigReference = openshiftv1.MachineOSConfigReference
	// MCOObjectReference names a node or a pool.
	// +kubebuilder:object:generate=false
	MCOObjectReference = openshiftv1.MCOObjectReference
	// ObjectReference names any object by group, resource, namespace and name.
	// +kubebuilder:object:generate=false
	ObjectReference = openshiftv1.ObjectReference
	// OSImageStreamReference names a stream of the OSImageStream "cluster".
	// +kubebuilder:object:generate=false
	OSImageStreamReference = openshiftv1.OSImageStreamReference
	// PinnedImageSetRef names a PinnedImageSet.
	// +kubebuilder:object:generate=false
	PinnedImageSetRef = openshiftv1.PinnedImageSetRef
	// PoolSynchronizerStatus counts the nodes that one synchronizer of a pool has brought up to
	// date.
	// +kubebuilder:object:generate=false
	PoolSynchronizerStatus = openshiftv1.PoolSynchronizerStatus
)
