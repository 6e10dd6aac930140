package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachineConfig is a part of the configuration of machines: files, systemd units, users, kernel
// arguments, extensions and the OS image. A pool selects MachineConfigs by label and joins them, in
// the order of their names, into one rendered MachineConfig.
//
// Published in github.com/openshift/api machineconfiguration/v1.
// +genclient
// +genclient:nonNamespaced
// +genclient:noStatus
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineconfigs,scope=Cluster,shortName=mc
// +kubebuilder:metadata:labels="openshift.io/operator-managed="
// +kubebuilder:printcolumn:name=GeneratedByController,JSONPath=.metadata.annotations.machineconfiguration\.openshift\.io/generated-by-controller-version,type=string,description="Version of the controller that wrote this MachineConfig; empty for those that people write"
// +kubebuilder:printcolumn:name=IgnitionVersion,JSONPath=.spec.config.ignition.version,type=string,description="Version of the Ignition specification that config follows"
// +kubebuilder:printcolumn:name=Age,JSONPath=.metadata.creationTimestamp,type=date
type MachineConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration. A MachineConfig has no status: what becomes of it is said by the
	// pools that select it.
	// +optional
	Spec MachineConfigSpec `json:"spec"`
}

// MachineConfigSpec is configuration of machines. Where several MachineConfigs of a pool set the
// same thing, the last one by name wins, except for lists, which are joined.
type MachineConfigSpec struct {
	// osImageURL is the OS image of the machines, as a pull spec. When it is omitted, the image of
	// the pool's stream. A pool that names a stream and selects a MachineConfig with osImageURL
	// reports RenderDegraded: it cannot follow both.
	// +optional
	OSImageURL string `json:"osImageURL"`

	// baseOSExtensionsContainerImage is the image that extensions and kernels are installed from,
	// as a pull spec. It has to belong to the OS image. When it is omitted, the extensions image of
	// the pool's stream.
	// +optional
	BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage"`

	// config is an Ignition configuration, specification 3.x or 2.2. It is checked when a pool
	// renders it, not when it is written: a configuration that cannot be read shows as
	// RenderDegraded on the pool, which keeps its last good configuration.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Config runtime.RawExtension `json:"config,omitempty"`

	// kernelArguments are added to the kernel's command line, for example "nosmt" or
	// "hugepages=16". They are applied on the node and never cause an image build.
	// +listType=atomic
	// +nullable
	// +optional
	KernelArguments []string `json:"kernelArguments"`

	// extensions are names of package sets to install from the extensions image: two-node-ha,
	// ipsec, usbguard, kerberos, kernel-devel, sandboxed-containers or sysstat. An unknown name, or
	// one that the stream does not offer, shows as RenderDegraded.
	// +listType=atomic
	// +optional
	Extensions []string `json:"extensions"`

	// fips is whether the machine runs in FIPS mode. It is chosen at installation; changing it on
	// existing machines is refused.
	// +optional
	FIPS bool `json:"fips"`

	// kernelType is the kernel to run: default, realtime, or 64k-pages (64-bit Arm only). When it
	// is omitted, default.
	// +optional
	KernelType string `json:"kernelType"`
}

// Values of spec.kernelType, as published.
const (
	// KernelTypeDefault is the kernel of the OS image; an empty kernelType means the same.
	KernelTypeDefault = "default"
	// KernelTypeRealtime is the realtime kernel.
	KernelTypeRealtime = "realtime"
	// KernelType64kPages is the kernel with memory pages of 64 KiB, for 64-bit Arm.
	KernelType64kPages = "64k-pages"
)

// MachineConfigList is a list of MachineConfigs.
// +kubebuilder:object:root=true
type MachineConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// items are the MachineConfigs.
	Items []MachineConfig `json:"items"`
}
