package plan

import (
	"fmt"

	"github.com/coreos/stream-metadata-go/stream"
)

// imported are platforms (OpenStack, Nutanix, IBM Cloud, Power VS) that start machines from images
// which someone imported: streams name files, and no image that could be written into a
// specification.
type imported struct{}

func (imported) current(s Spec) (string, *Problem) {
	for _, field := range []string{"image", "imageRef"} {
		if s[field] != nil {
			return fmt.Sprint(s[field]), nil
		}
	}
	return "", nil
}

func (imported) wanted(Spec, string, *query) (Image, *Problem) {
	return Image{}, skip(ReasonNeedsUpload, "the platform has no public images; import the stream's and name it in the specification")
}

func (imported) set(Spec, string) *Problem {
	return failed(ReasonUnknownPin, "images of this platform can't be set")
}

func (imported) versionIn(*stream.Arch, string) string { return "" }
