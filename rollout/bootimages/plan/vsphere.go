package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
)

// vsphere starts machines from a template in its inventory, which an image has to be imported as.
// Both APIs name it in the same field.
type vsphere struct{}

func (vsphere) current(s Spec) (string, *Problem) { return text(s, "template"), nil }

// wanted is a template of a name of its own beside the one that there is: no one ever changes what
// machines are being made from.
func (vsphere) wanted(s Spec, current string, q *query) (Image, *Problem) {
	infra := q.in.Resource.infraName()
	if infra == "" || !strings.HasPrefix(path.Base(current), infra+"-rhcos") || strings.HasSuffix(current, "/") {
		return Image{}, skip(ReasonCustomImage, "template %q is not one of the installation", current)
	}
	if snapshot := text(s, "snapshot"); snapshot != "" {
		return Image{}, skip(ReasonCustomImage, "its machines are made from snapshot %q of its template", snapshot)
	}
	release, ova := artifact(q.images, "vmware", "ova")
	if ova == nil {
		return Image{}, skip(ReasonNoImageForStream, "the stream has no image of vSphere")
	}
	if ova.Location == "" || ova.Sha256 == "" {
		return Image{}, failed(ReasonInvalidMetadata, "the stream's image of vSphere has no location or no checksum")
	}
	return Image{
		ID:      current[:len(current)-len(path.Base(current))] + infra + "-rhcos-" + release + "-" + storeOf(s),
		Version: release, Upload: &Upload{ova.Location, ova.Sha256},
	}, nil
}

// storeOf tells datastores apart in names: machines of one failure domain may not reach a template
// that lies in the datastore of another.
func storeOf(s Spec) string {
	const shown = 8
	sum := sha256.Sum256([]byte(strings.Join([]string{text(s, "workspace", "server"), text(s, "workspace", "datacenter"), text(s, "workspace", "datastore")}, "\n")))
	return hex.EncodeToString(sum[:])[:shown]
}

func (vsphere) set(s Spec, image string) *Problem {
	s["template"] = image
	return nil
}

func (vsphere) versionIn(*stream.Arch, string) string { return "" }
