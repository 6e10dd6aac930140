// Package v1alpha1 holds the kinds of machineconfiguration.openshift.io/v1alpha1 that are
// Layerwright's own: MachineOSImage, the record of an image that was built, and BootImageHistory,
// the record of a machine resource's boot images. They follow the proposals in the project's design
// documents and may change between releases; the kinds of package v1 don't depend on them.
//
// +kubebuilder:object:generate=true
// +groupName=machineconfiguration.openshift.io
package v1alpha1
