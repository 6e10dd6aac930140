package plan

import (
	"cmp"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// ContentBuild is the build that makes a content for all builds that want it: the first one that
// has begun, or else that was asked for. It is empty where there is none. A build that has made its
// image has made the content, and what a build waits for may concern it alone.
func ContentBuild(builds []Existing, content string) string {
	makes := slices.DeleteFunc(slices.Clone(builds), func(b Existing) bool {
		isWaiting := strings.HasPrefix(b.Reason, mcfgv1.ReasonWaiting) // Waiting itself is for a node
		return content == "" || b.Content != content || b.Stage.IsFinal() || b.Deleting || b.Image != "" || isWaiting
	})
	if len(makes) == 0 {
		return ""
	}
	return slices.MinFunc(makes, func(a, b Existing) int {
		hasBegun := a.Stage != mcfgv1.BuildStagePending
		if hasBegun != (b.Stage != mcfgv1.BuildStagePending) {
			return map[bool]int{true: -1, false: 1}[hasBegun]
		}
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	}).Name
}
