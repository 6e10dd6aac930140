package retention

import (
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
)

// Removal is a build that retention removes.
type Removal struct {
	Build string `json:"build"`
	// Tag and Image are what it pushed; Image is empty where it made none.
	Tag   string                   `json:"tag"`
	Image mcfgv1.ImageDigestFormat `json:"image,omitempty"`
	// Reason is why the build is removed, and Stays why its image is not; empty where that is.
	Reason string `json:"reason"`
	Stays  string `json:"stays,omitempty"`
}

// Preview says what the controller would remove of the builds of a MachineOSConfig, the newest
// first. References are the images, by digest, that something uses. Waits is why it removes nothing
// before that.
func Preview(config *mcfgv1.MachineOSConfig, builds []mcfgv1.MachineOSBuild, references map[string]bool) (removals []Removal, waits string) {
	own, existing := map[string]*mcfgv1.MachineOSBuild{}, []plan.Existing(nil)
	for i := range builds {
		if builds[i].Spec.MachineOSConfig.Name == config.Name {
			own[builds[i].Name] = &builds[i]
			existing = append(existing, objects.Existing(&builds[i]))
		}
	}
	wanted := ""
	if named := config.Status.MachineOSBuild; named != nil {
		wanted = named.Name
	}
	newest := own[wanted]
	if newest == nil || objects.Existing(newest).Stage != mcfgv1.BuildStageSucceeded {
		return nil, fmt.Sprintf("the image that MachineOSConfig %s asks for is not made yet, and nothing is removed before", config.Name)
	}
	keep := objects.RetentionOf(config)
	gone := plan.Retain(existing, wanted, references, keep)
	isGone := map[string]bool{}
	for _, name := range gone {
		isGone[name] = true
	}
	for _, name := range gone {
		b := own[name]
		r := Removal{
			Build: name, Tag: string(b.Spec.RenderedImagePushSpec), Image: b.Status.DigestedImagePushSpec,
			Reason: fmt.Sprintf("it did not succeed, and spec.retention.failedBuilds keeps the newest %d of those", keep.Failed),
		}
		if objects.Existing(b).Stage == mcfgv1.BuildStageSucceeded {
			r.Reason = fmt.Sprintf("no node uses its image, and spec.retention.successfulBuilds keeps the newest %d", keep.Successful)
		}
		r.Stays = stays(config, b, builds, isGone)
		removals = append(removals, r)
	}
	return removals, ""
}

// stays is why the image of a build that goes is kept; empty where it is removed.
func stays(config *mcfgv1.MachineOSConfig, b *mcfgv1.MachineOSBuild, builds []mcfgv1.MachineOSBuild, isGone map[string]bool) string {
	image := b.Status.DigestedImagePushSpec
	switch {
	case isKept(b, config) && b.Annotations[mcfgv1.AnnotationPreBuiltImage] != "":
		return "someone else built it"
	case isKept(b, config):
		return "spec.retention.imageDeletion is Disabled"
	}
	for i := range builds {
		if o := &builds[i]; !isGone[o.Name] && image != "" && o.Status.DigestedImagePushSpec == image {
			return "MachineOSBuild " + o.Name + " has made the same image"
		}
	}
	return ""
}
