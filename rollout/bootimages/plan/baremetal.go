package plan

import (
	"net/url"
	"path"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
)

// bareMetal writes an image to the disk of a machine. It is named by URL and checksum, here joined
// by a number sign.
type bareMetal struct{}

const sha256Prefix = "#sha256="

func (bareMetal) current(s Spec) (string, *Problem) {
	location := text(s, "image", "url")
	if location == "" {
		return "", nil
	}
	if kind := text(s, "image", "checksumType"); kind != "" && kind != "sha256" {
		return "", skip(ReasonCustomImage, "its image has a checksum of type %q", kind)
	}
	return location + sha256Prefix + text(s, "image", "checksum"), nil
}

// wanted is the image of the same kind from the same place; one from a mirror stays.
func (bareMetal) wanted(_ Spec, current string, q *query) (Image, *Problem) {
	location, _, _ := strings.Cut(current, sha256Prefix)
	has, err := url.Parse(location)
	if err != nil {
		return Image{}, failed(ReasonInvalidProviderSpec, "its image's URL can't be read")
	}
	if has.User != nil || has.RawQuery != "" { // which may be secret, and has no place in a history
		return Image{}, skip(ReasonCustomImage, "its image's URL has a user or a query in it")
	}
	for _, name := range []string{"openstack", "metal"} {
		if !strings.Contains(path.Base(has.Path), "-"+name+".") {
			continue
		}
		for format, of := range q.images.Artifacts[name].Formats {
			if of.Disk == nil || !strings.HasSuffix(has.Path, "."+format) {
				continue
			}
			wants, err := url.Parse(of.Disk.Location)
			if err != nil || wants.Host == "" || of.Disk.Sha256 == "" {
				return Image{}, failed(ReasonInvalidMetadata, "the stream's image %q has no location or no checksum", name)
			}
			if wants.Host != has.Host {
				return Image{}, skip(ReasonCustomImage, "its image is from %q, and not from %q", has.Host, wants.Host)
			}
			return Image{ID: of.Disk.Location + sha256Prefix + of.Disk.Sha256, Version: q.images.Artifacts[name].Release}, nil
		}
	}
	return Image{}, skip(ReasonCustomImage, "its image %q is none that the stream has", path.Base(has.Path))
}

func (bareMetal) set(s Spec, id string) *Problem {
	location, checksum, isWhole := strings.Cut(id, sha256Prefix)
	if !isWhole {
		return failed(ReasonUnknownPin, "%q is no URL with a checksum", id)
	}
	image := nested(s, "image")
	image["url"], image["checksum"] = location, checksum
	return nil
}

func (bareMetal) versionIn(images *stream.Arch, id string) string {
	location, _, _ := strings.Cut(id, sha256Prefix)
	for _, name := range []string{"openstack", "metal"} {
		for _, format := range images.Artifacts[name].Formats {
			if format.Disk != nil && format.Disk.Location == location {
				return images.Artifacts[name].Release
			}
		}
	}
	return ""
}
