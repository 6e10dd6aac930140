package retention

import (
	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/names"
)

// contentTags are the tags of the content with a key, and of its architectures where there are
// several.
func contentTags(build *mcfgv1.MachineOSBuild, key string) []string {
	tags := []string{names.ContentTag(key)}
	for _, a := range build.Status.Architectures {
		tags = append(tags, names.ContentTag(key)+"-"+containerfiles.GoArch(mcfgv1.ContainerfileArch(a.Architecture)))
	}
	return tags
}
