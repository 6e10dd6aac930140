package plan

import (
	"fmt"
	"regexp"

	"github.com/coreos/stream-metadata-go/stream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// gcpProject is where images of RHEL CoreOS are published.
const gcpProject = "rhcos-cloud"

// gcpPath is an image by name, in the short form or as a URL. An image family is none.
var gcpPath = regexp.MustCompile(`^(?:https://(?:www|compute)\.googleapis\.com/compute/v1/)?projects/([a-z0-9.:-]+)/global/images/([a-z0-9-]+)$`)

var gcpName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// wantedGCP is the image of a stream, for what has an image of the same publisher.
func wantedGCP(current string, q *query) (Image, *Problem) {
	found := q.images.Images.Gcp
	if found == nil {
		return Image{}, skip(ReasonNoImageForStream, "the stream has no images of Google Cloud")
	}
	if !gcpName.MatchString(found.Name) || !gcpName.MatchString(found.Project) {
		return Image{}, failed(ReasonInvalidMetadata, "the stream's image %q in project %q is not a valid name", found.Name, found.Project)
	}
	m := gcpPath.FindStringSubmatch(current)
	if m == nil || m[1] != gcpProject && m[1] != found.Project { //nolint:gocritic // a match of this expression has both parts
		return Image{}, skip(ReasonCustomImage, "its image %q is not one of project %s", current, found.Project)
	}
	if m[1] == found.Project && m[2] == found.Name { // however it is written
		return Image{ID: current, Version: found.Release}, nil
	}
	return Image{ID: gcpID(found), Version: found.Release}, nil
}

func gcpID(i *stream.GcpImage) string {
	return fmt.Sprintf("projects/%s/global/images/%s", i.Project, i.Name)
}

func gcpVersionIn(images *stream.Arch, image string) string {
	m := gcpPath.FindStringSubmatch(image)
	if found := images.Images.Gcp; found != nil && m != nil && m[1] == found.Project && m[2] == found.Name {
		return found.Release
	}
	return ""
}

// gcpImage is a template of Cluster API.
type gcpImage struct{}

func (gcpImage) current(s Spec) (string, *Problem) {
	if text(s, "image") == "" && text(s, "imageFamily") != "" {
		return "", skip(ReasonCustomImage, "its image is the newest of a family")
	}
	return text(s, "image"), nil
}

func (gcpImage) wanted(_ Spec, current string, q *query) (Image, *Problem) {
	return wantedGCP(current, q)
}

func (gcpImage) set(s Spec, image string) *Problem {
	s["image"] = image
	return nil
}

func (gcpImage) versionIn(images *stream.Arch, image string) string {
	return gcpVersionIn(images, image)
}

// gcpDisks is a specification of the Machine API, where the image is that of the boot disk.
type gcpDisks struct{}

// bootDisks are the disks that machines start from.
func bootDisks(s Spec) []Spec {
	disks, _, _ := unstructured.NestedFieldNoCopy(s, "disks")
	list, _ := disks.([]any)
	var out []Spec
	for _, each := range list {
		if disk, isObject := each.(map[string]any); isObject && disk["boot"] == true {
			out = append(out, disk)
		}
	}
	return out
}

func (gcpDisks) current(s Spec) (string, *Problem) {
	disks := bootDisks(s)
	switch len(disks) {
	case 0:
		return "", nil
	case 1:
		return text(disks[0], "image"), nil
	default:
		return "", failed(ReasonInvalidProviderSpec, "it has %d boot disks", len(disks))
	}
}

func (gcpDisks) wanted(_ Spec, current string, q *query) (Image, *Problem) {
	return wantedGCP(current, q)
}

func (gcpDisks) set(s Spec, image string) *Problem {
	bootDisks(s)[0]["image"] = image // current has seen that there is one
	return nil
}

func (gcpDisks) versionIn(images *stream.Arch, image string) string {
	return gcpVersionIn(images, image)
}
