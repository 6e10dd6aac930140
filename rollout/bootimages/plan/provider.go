package plan

import (
	"regexp"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// query is what an image is looked for by.
type query struct {
	in     *Input
	arch   string
	images *stream.Arch
}

// platform knows where the provider specifications of one platform name a boot image, and what a
// stream has for it. None of its methods changes anything but, with set, the fields of the image.
type platform interface {
	// current is the image that a specification names; empty where it names none.
	current(s Spec) (string, *Problem)
	// wanted is the image that a machine should start with that has the current one.
	wanted(s Spec, current string, q *query) (Image, *Problem)
	// set makes a specification name an image.
	set(s Spec, image string) *Problem
	// versionIn is the version of an image that is among those of a stream for one architecture;
	// empty where it is not.
	versionIn(images *stream.Arch, image string) string
}

// provider is a kind of provider specification.
type provider struct {
	// name of the platform in metrics and messages.
	name string
	kind platform
	// fields are where the image is.
	fields [][]string
	// check refuses what the published type can't be read from; nil where there is no type that can
	// be imported.
	check func(Spec) error
}

// decodes reports whether a specification can be read as the published type.
func decodes[T any]() func(Spec) error {
	return func(s Spec) error { return runtime.DefaultUnstructuredConverter.FromUnstructured(s, new(T)) }
}

// providers are the provider specifications that are known, by kind: those of the Machine API, and
// the templates of Cluster API.
func providers() map[string]*provider {
	uploaded := func(name string, check func(Spec) error) *provider { return &provider{name, imported{}, nil, check} }
	return map[string]*provider{
		"AWSMachineProviderConfig": {"AWS", aws{[]string{"placement", "region"}}, [][]string{{"ami"}}, decodes[machinev1beta1.AWSMachineProviderConfig]()},
		"AWSMachineTemplate":       {"AWS", aws{}, [][]string{{"ami"}}, nil},
		"GCPMachineProviderSpec":   {"GCP", gcpDisks{}, [][]string{{"disks"}}, decodes[machinev1beta1.GCPMachineProviderSpec]()},
		"GCPMachineTemplate":       {"GCP", gcpImage{}, [][]string{{"image"}}, nil},
		"AzureMachineProviderSpec": {"Azure", azureMachine{}, [][]string{{"image"}}, decodes[machinev1beta1.AzureMachineProviderSpec]()},
		"AzureMachineTemplate":     {"Azure", azureTemplate{}, [][]string{{"image"}}, nil},
		"VSphereMachineProviderSpec": {
			"VSphere", vsphere{}, [][]string{{"template"}}, decodes[machinev1beta1.VSphereMachineProviderSpec](),
		},
		"VSphereMachineTemplate":       {"VSphere", vsphere{}, [][]string{{"template"}}, nil},
		"BareMetalMachineProviderSpec": {"BareMetal", bareMetal{}, [][]string{{"image"}}, nil},
		"Metal3MachineTemplate":        {"BareMetal", bareMetal{}, [][]string{{"image"}}, nil},
		"OpenstackProviderSpec":        uploaded("OpenStack", nil),
		"OpenStackMachineTemplate":     uploaded("OpenStack", nil),
		"NutanixMachineProviderConfig": uploaded("Nutanix", decodes[machinev1.NutanixMachineProviderConfig]()),
		"NutanixMachineTemplate":       uploaded("Nutanix", nil),
		"IBMCloudMachineProviderSpec":  uploaded("IBMCloud", nil),
		"IBMVPCMachineTemplate":        uploaded("IBMCloud", nil),
		"PowerVSMachineProviderConfig": uploaded("PowerVS", decodes[machinev1.PowerVSMachineProviderConfig]()),
		"IBMPowerVSMachineTemplate":    uploaded("PowerVS", nil),
	}
}

// Platform is the name of the platform that a kind of provider specification is of; empty where the
// kind is unknown.
func Platform(kind string) string {
	if p := providers()[kind]; p != nil {
		return p.name
	}
	return ""
}

// text reads a string; empty where there is none. The published types have been asked before
// whether it may be anything else.
func text(s Spec, path ...string) string {
	value, _, _ := unstructured.NestedString(s, path...)
	return value
}

// nested is the object at a path, nil where there is none.
func nested(s Spec, path ...string) Spec {
	value, _, _ := unstructured.NestedFieldNoCopy(s, path...)
	object, _ := value.(map[string]any)
	return object
}

// artifact is a disk image of a platform in a format.
func artifact(images *stream.Arch, platform, format string) (release string, a *stream.Artifact) {
	p, isThere := images.Artifacts[platform]
	if !isThere || p.Formats[format].Disk == nil {
		return "", nil
	}
	return p.Release, p.Formats[format].Disk
}

var (
	// names of images have dots of versions in them or, where the platform forbids dots, dashes.
	dotted = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.(?:\d{12}|\d{8})-\d+`)
	dashed = regexp.MustCompile(`(\d{1,3})-(\d{1,3})-(\d{12}|\d{8})-(\d+)`)
)

// versionInName is the version that an image's name has in it; empty where it has none.
func versionInName(name string) string {
	name = name[strings.LastIndex(name, "/")+1:]
	found := dotted.FindString(name)
	if m := dashed.FindStringSubmatch(name); found == "" && m != nil {
		found = m[1] + "." + m[2] + "." + m[3] + "-" + m[4]
	}
	if !IsRHCOS(found) {
		return ""
	}
	return found
}
