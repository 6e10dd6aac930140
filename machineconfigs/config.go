package machineconfigs

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Config is what a MachineConfig asks for, read and checked: its Ignition configuration in the
// newest specification that is understood (3.5), and the fields beside it.
type Config struct {
	// Name is the MachineConfig's, for messages.
	Name string
	// Ignition is the configuration, translated up to specification 3.5.
	Ignition types.Config
	// NodeOnly is what of it stays out of images, because a MachineConfig with the annotation
	// nodeOnly has a part in it.
	NodeOnly NodeOnly
	// KernelArguments are single words, in the order in which they go onto the command line: first
	// those that shouldExist of spec.config adds, then those of spec.kernelArguments.
	// One that is in both is there once, as it would be on a machine; one that is in
	// spec.kernelArguments twice is there twice.
	KernelArguments []string
	// RemoveKernelArguments are the words that must not be on the command line
	// (kernelArguments.shouldNotExist in spec.config). None of them is in KernelArguments.
	RemoveKernelArguments []string
	// Extensions are names of package sets, sorted, each once.
	Extensions []string
	// KernelType is default, realtime or 64k-pages; never empty.
	KernelType string
	// FIPS reports whether the machine runs in FIPS mode.
	FIPS bool
	// OSImageURL is the OS image, as a pull spec; empty where no one named one.
	OSImageURL string
	// ExtensionsImage is the image that extensions and kernels come from, as a pull spec; empty
	// where no one named one.
	ExtensionsImage string
	// Warnings are what Ignition's validation found odd, such as keys that it does not know, and
	// files that hosts can't pull images with; texts for people, sorted.
	Warnings []string
}

// NodeOnly are the parts of a configuration that stay out of images, each list sorted: the
// annotation nodeOnly on a MachineConfig keeps everything that it has a part in out of the image,
// also where another MachineConfig sets the same path.
type NodeOnly struct {
	// Files, Directories and Links are absolute paths as the configuration spells them.
	Files       []string `json:"files,omitempty"`
	Directories []string `json:"directories,omitempty"`
	Links       []string `json:"links,omitempty"`
	// Units are names of systemd units.
	Units []string `json:"units,omitempty"`
	// Users and Groups are names.
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
}
