package order

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Labels are what the image says about itself: labels, and annotations for registries and
// tools that read those.
func (o *Order) Labels() (labels, annotations map[string]string) {
	name, digest, _ := strings.Cut(o.Base.Image, "@")
	about := map[string]string{
		mcfgv1.ImageLabelBuildKey:   o.Record.Keys.Build,
		mcfgv1.ImageLabelContentKey: o.Record.Keys.Content,
		mcfgv1.ImageLabelBaseDigest: digest,
	}
	if hash := o.containerfileHash(); hash != "" {
		about[mcfgv1.ImageLabelContainerfileHash] = hash
	}
	if o.Base.Stream != "" {
		about[mcfgv1.ImageLabelStream] = o.Base.Stream
	}
	published := map[string]string{
		mcfgv1.ImageLabelMachineConfig:     o.Rendered,
		mcfgv1.ImageLabelMachineConfigPool: o.Pool,
		mcfgv1.ImageLabelBaseImage:         o.Base.Image,
	}
	labels, annotations = map[string]string{}, map[string]string{
		"org.opencontainers.image.base.name":   name,
		"org.opencontainers.image.base.digest": digest,
	}
	for _, part := range []map[string]string{about, published} {
		for key, value := range part {
			labels[key] = value
		}
	}
	for key, value := range about {
		annotations[key] = value
	}
	annotations[annotationPrefix+mcfgv1.ImageLabelMachineConfig] = o.Rendered
	annotations[annotationPrefix+mcfgv1.ImageLabelMachineConfigPool] = o.Pool
	return labels, annotations
}

// annotationPrefix makes annotations of the published labels, which have none.
const annotationPrefix = "layerwright.io/"

func (o *Order) containerfileHash() string {
	if len(o.Record.Inputs.Containerfiles) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, file := range o.Record.Inputs.Containerfiles {
		_, _ = fmt.Fprintf(hash, "%s\n%d\n%s", file.Arch, len(file.Text), file.Text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
