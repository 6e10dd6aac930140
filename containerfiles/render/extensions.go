package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
)

// PackageManager is the program of the base image that installs extensions and kernels.
type PackageManager string

// Package managers.
const (
	// RPMOSTree is that of CoreOS systems.
	RPMOSTree PackageManager = "rpm-ostree"
	// DNF is that of bootc systems without rpm-ostree.
	DNF PackageManager = "dnf"
)

// KernelType is the kernel that a MachineConfig asks for (published in MachineConfig's
// spec.kernelType).
type KernelType string

// Kernel types.
const (
	// KernelDefault is the kernel of the base image, whichever that is.
	KernelDefault KernelType = mcfgv1.KernelTypeDefault
	// KernelRealtime is the realtime kernel.
	KernelRealtime KernelType = mcfgv1.KernelTypeRealtime
	// Kernel64kPages is the kernel with memory pages of 64 KiB, for ARM64.
	Kernel64kPages KernelType = mcfgv1.KernelType64kPages
)

// extensionPackages are the published extensions with their packages.
var extensionPackages = map[string][]string{
	"ipsec":                {"NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"},
	"kerberos":             {"krb5-workstation", "libkadm5"},
	"kernel-devel":         {"kernel-devel", "kernel-headers"},
	"sandboxed-containers": {"kata-containers"},
	"sysstat":              {"sysstat"},
	"two-node-ha":          {"fence-agents-all", "pacemaker", "pcs"},
	"usbguard":             {"usbguard"},
}

// extensionDirs are directories below /var that an extension's programs want, as lines of
// tmpfiles.d (published).
var extensionDirs = map[string][]string{
	"ipsec":    {"d /var/lib/ipsec 0700 root root -", "d /var/lib/ipsec/nss 0700 root root -"},
	"usbguard": {"d /var/log/usbguard 0755 root root -"},
}

// Kernel is what a kernel type means.
type Kernel struct {
	// Packages are installed; the first of them reports whether they are there already (published).
	Packages []string
	// Optional is installed where the extensions image has it: not every release and architecture
	// does.
	Optional string
	// Architectures are those that have it.
	Architectures []mcfgv1.ContainerfileArch
}

var kernels = map[KernelType]Kernel{
	KernelRealtime: {
		Packages:      []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"},
		Optional:      "kernel-rt-kvm",
		Architectures: []mcfgv1.ContainerfileArch{mcfgv1.Amd64, mcfgv1.Arm64},
	},
	Kernel64kPages: {
		Packages:      []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"},
		Architectures: []mcfgv1.ContainerfileArch{mcfgv1.Arm64},
	},
}

// defaultKernel are the packages of the kernel that base images come with.
var defaultKernel = []string{"kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"}

// Extensions are the names of the extensions that are known, sorted.
func Extensions() []string { return slices.Sorted(maps.Keys(extensionPackages)) }

// ExtensionPackages are the packages of an extension, sorted; nil where it is not known.
func ExtensionPackages(name string) []string { return slices.Clone(extensionPackages[name]) }

// KernelOf is what a kernel type means; empty for the default one and for kernels that are not
// known.
func KernelOf(name KernelType) Kernel { return kernels[name] }

// checkExtensions sorts the names, each once, and refuses unknown ones.
func checkExtensions(names []string) ([]string, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var unknown []string
	for _, name := range names {
		if _, ok := extensionPackages[name]; !ok {
			unknown = append(unknown, fmt.Sprintf("%q", containerfiles.Clip(name)))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("unknown extension %s; known are %s", strings.Join(unknown, ", "), strings.Join(Extensions(), ", "))
	}
	return names, nil
}

var errKernelDevel = errors.New("the extension kernel-devel belongs to the default kernel, and another kernel is asked for")

// checkKernel refuses kernels that the architecture has not, and kernel-devel beside another kernel
// (published).
func checkKernel(name KernelType, arch mcfgv1.ContainerfileArch, extensions []string) error {
	if name == KernelDefault {
		return nil
	}
	k, ok := kernels[name]
	switch {
	case !ok:
		return fmt.Errorf("unknown kernel type %q; known are %s, %s and %s", containerfiles.Clip(string(name)), KernelDefault, KernelRealtime, Kernel64kPages)
	case !slices.Contains(k.Architectures, arch):
		return fmt.Errorf("there is no kernel %s for %s; there is one for %s", name, arch, joinArchs(k.Architectures))
	case slices.Contains(extensions, "kernel-devel"):
		return errKernelDevel
	}
	return nil
}

func joinArchs(archs []mcfgv1.ContainerfileArch) string {
	names := make([]string, len(archs))
	for i, arch := range archs {
		names[i] = string(arch)
	}
	return strings.Join(names, " and ")
}
