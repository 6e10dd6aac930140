package machineconfigs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// errOSImageURLConflict has the text of openshift/machine-config-operator, which people and tests
// look for.
var errOSImageURLConflict = errors.New("cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously")

// chooseImages decides which OS image and which extensions image the pool gets.
//
// An osImageURL that is the stream's own image overrides nothing: OpenShift's templates write it
// into 00-worker. Another one does, and is refused where the pool names a stream. The stream's
// extensions image belongs to the stream's OS image. With another OS image it is used only if a
// MachineConfig says so; packages of one release on the kernel of another are found out on the
// machines.
func (s sources) chooseImages(images Images, spec *mcfgv1.MachineConfigSpec) []*Error {
	var overriddenBy string
	spec.OSImageURL, spec.BaseOSExtensionsContainerImage = images.OSImage, ""
	for _, source := range s {
		if image := source.OSImageURL; image != "" {
			spec.OSImageURL, overriddenBy = image, source.Name
		}
		if image := source.ExtensionsImage; image != "" {
			spec.BaseOSExtensionsContainerImage = image
		}
	}
	overridden := spec.OSImageURL != images.OSImage
	if overridden && images.Explicit {
		return []*Error{{
			MachineConfig: overriddenBy,
			Path:          "spec.osImageURL",
			Reason:        mcfgv1.ReasonOSImageURLConflict,
			Err:           errOSImageURLConflict,
		}}
	}
	if spec.KernelType != mcfgv1.KernelTypeDefault && slices.Contains(spec.Extensions, "kernel-devel") {
		return []*Error{invalid(s.kernelFrom(), "spec.kernelType",
			fmt.Errorf("the extension kernel-devel belongs to the default kernel, and kernelType is %s: leave one of them out", spec.KernelType))}
	}
	switch {
	case spec.BaseOSExtensionsContainerImage != "":
	case !overridden:
		spec.BaseOSExtensionsContainerImage = images.ExtensionsImage
	case len(spec.Extensions) > 0 || spec.KernelType != mcfgv1.KernelTypeDefault:
		return []*Error{invalid(overriddenBy, "spec.osImageURL", missingExtensionsImage(images, spec))}
	}
	return nil
}

func missingExtensionsImage(images Images, spec *mcfgv1.MachineConfigSpec) error {
	wanted := "extensions (" + strings.Join(spec.Extensions, ", ") + ")"
	if len(spec.Extensions) == 0 {
		wanted = "the " + spec.KernelType + " kernel"
	}
	fix := "set baseOSExtensionsContainerImage beside osImageURL, to the extensions image that belongs to it"
	if images.ExtensionsImage != "" {
		fix += fmt.Sprintf(" (%s if it was built from the image of stream %q)", images.ExtensionsImage, images.Stream)
	}
	return fmt.Errorf("osImageURL replaces the stream's OS image, so there is no image to install %s from: %s", wanted, fix)
}

// kernelFrom is the name of the MachineConfig that chooses the kernel.
func (s sources) kernelFrom() string {
	name := ""
	for _, source := range s {
		if source.object.Spec.KernelType != "" {
			name = source.Name
		}
	}
	return name
}
