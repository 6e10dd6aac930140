package retention

import (
	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/names"
)

// contentTags are the tags of the content with a key: its own, and one for each architecture where
// there are several. Each may have followers.
func contentTags(key string, architectures []mcfgv1.Architecture) []string {
	tags := []string{names.ContentTag(key)}
	for _, arch := range architectures {
		tags = append(tags, names.ContentTag(key)+"-"+containerfiles.GoArch(mcfgv1.ContainerfileArch(arch)))
	}
	return tags
}
