package streams

import (
	"regexp"
	"strings"
)

// Tag is a tag of an ImageStream as a release image has it.
type Tag struct {
	// Name is the tag.
	Name string
	// Kind is what it is imported from; only DockerImage is an image.
	Kind string
	// Image is the image's pull spec.
	Image string
	// Annotations are the tag's.
	Annotations map[string]string
}

const (
	// kindImage is the kind of what a tag stands for, if it is an image.
	kindImage = "DockerImage"
	// annotationSource says which repository an image was built from.
	annotationSource = "io.openshift.build.source-location"
	// sourceOfOS is the repository of OS images.
	sourceOfOS = "github.com/openshift/os"
	// extensionsPart is in the tags of extensions images.
	extensionsPart = "-extensions"
)

var tagOfOS = regexp.MustCompile(`^(rhel|stream|centos|fedora)[a-zA-Z0-9.+_-]*-coreos[a-zA-Z0-9.+_-]*$`)

// Candidates are the tags of which an OS image or extensions image is to be expected: of the many
// images of a release only theirs are looked at. It is the filter of
// openshift/machine-config-operator, and its spelling in the design of streams: by the tag's name,
// or by the repository that the image was built from.
func Candidates(tags []Tag) []Tag {
	var out []Tag
	for _, tag := range tags {
		if tag.Kind != kindImage {
			continue
		}
		if tagOfOS.MatchString(tag.Name) || isFromOS(tag.Annotations[annotationSource]) {
			out = append(out, tag)
		}
	}
	return out
}

// isFromOS reports whether a source location is the repository of OS images, or a folder in it.
func isFromOS(location string) bool {
	_, rest, found := strings.Cut(location, sourceOfOS)
	return found && (rest == "" || strings.ContainsAny(rest[:1], "./@?#"))
}

// roleOfTag is what the name of a tag says that its image is; a name that is not one of OS images
// says nothing.
func roleOfTag(name string) Role {
	switch {
	case !tagOfOS.MatchString(name):
		return RoleUnknown
	case strings.Contains(name, extensionsPart):
		return RoleExtensions
	default:
		return RoleOS
	}
}
