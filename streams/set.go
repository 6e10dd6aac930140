package streams

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Source is where stream data comes from. Of two sources that know a stream the later one counts.
type Source int

// Sources in the order of their precedence.
const (
	// SourceArguments are the images on the command line of a program that runs before there is a
	// cluster.
	SourceArguments Source = iota
	// SourceConfigMap is the ConfigMap machine-config-osimageurl.
	SourceConfigMap
	// SourceRelease is the list of images in a release image, or in a file with such a list.
	SourceRelease
	// SourceSpec is spec.images of the OSImageStream.
	SourceSpec
)

// Names of ConfigMaps.
const (
	// ConfigMapName is the ConfigMap of SourceConfigMap, as openshift/machine-config-operator names
	// it.
	ConfigMapName = "machine-config-osimageurl"
	// LifecycleConfigMap has what an administrator knows of streams; see ParseLifecycle.
	LifecycleConfigMap = "osimagestream-lifecycle"
	// MetadataConfigMap has CoreOS stream metadata, as OpenShift's installer writes it; see
	// ParseStreamMetadata.
	MetadataConfigMap = "coreos-bootimages"
)

// String is the source as messages name it.
func (s Source) String() string {
	switch s {
	case SourceArguments:
		return "the command line"
	case SourceConfigMap:
		return fmt.Sprintf("ConfigMap %q", ConfigMapName)
	case SourceRelease:
		return "the release image"
	case SourceSpec:
		return "spec.images"
	default:
		return "an unknown source"
	}
}

// Role is what an image is to its stream.
type Role int

// Roles.
const (
	// RoleUnknown means that only the image's labels can say.
	RoleUnknown Role = iota
	// RoleOS is the OS image.
	RoleOS
	// RoleExtensions is the image of extensions and kernels.
	RoleExtensions
)

// String is the role as messages name it.
func (r Role) String() string {
	switch r {
	case RoleOS:
		return "OS image"
	case RoleExtensions:
		return "extensions image"
	default:
		return "image"
	}
}

// Found is an image that a source names, and what was found out about it.
type Found struct {
	// Where is its place in the source: a tag, a key or a field.
	Where string
	// Stream is the stream that the source gives it to; empty where only its labels say.
	Stream string
	// Role is what the source says that it is.
	Role Role
	// Image is how the source names it, Pinned the same by digest; Pinned is empty where it could
	// not be read.
	Image, Pinned string
	// Labels are its own.
	Labels map[string]string
	// Problem is why it can't be used, found out by whoever was to read it; nil where it could be
	// read.
	Problem *Problem
}

// Gathered is what a source gave.
type Gathered struct {
	Source Source
	Images []Found
	// Problems are those of the source itself.
	Problems []Problem
	// Failed reports whether the source, or part of it, could not be read: streams that it gave
	// before may still be there.
	Failed bool
	// OSOnly reports whether a stream without an extensions image is complete.
	OSOnly bool
}

// Problem is something that is wrong with a source or what it gives, as a condition says it.
type Problem struct {
	// Type is the condition type, Reason its reason.
	Type, Reason string
	// Message names source and subject, and says what helps.
	Message string
}

// Pair are the images of a stream as one source has them.
type Pair struct {
	Name                      string
	OSImage, ExtensionsImage  string
	unusable, unusableBecause string // reason and message
}

// IsUsable reports whether pools can follow the stream.
func (p *Pair) IsUsable() bool { return p.unusable == "" }

func (p *Pair) markUnusable(reason, message string) {
	if p.unusable == "" {
		p.unusable, p.unusableBecause = reason, message
	}
}

// asUnusable is the pair as status shows it.
func (p *Pair) asUnusable() mcfgv1.UnusableOSImageStream {
	return mcfgv1.UnusableOSImageStream{
		Name: cut(p.Name, maxName), OSImage: cut(p.OSImage, maxImage), OSExtensionsImage: cut(p.ExtensionsImage, maxImage),
		Reason: p.unusable, Message: cut(p.unusableBecause, maxMessage),
	}
}

// Limits of status.unusableStreams.
const (
	maxName    = 253
	maxImage   = 1024
	maxMessage = 4096
)

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
