package plan

import (
	"cmp"
	"fmt"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Retention is how many builds are kept, beside those that something needs.
type Retention struct {
	Successful, Failed int
}

// DefaultRetention is what holds where a MachineOSConfig says nothing (spec.retention).
var DefaultRetention = Retention{Successful: 3, Failed: 1}

// Retain says which builds can go, the oldest last. These stay: active ones; the wanted one,
// whatever became of it, since it would only be made again; the newest success; every one whose
// image is referenced, because a node uses it or may go back to it; and of the rest the newest, as
// many as the retention says. References are images by digest.
func Retain(builds []Existing, wanted string, references map[string]bool, keep Retention) []string {
	newestFirst := slices.Clone(builds)
	slices.SortFunc(newestFirst, func(a, b Existing) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Name, a.Name))
	})
	left := map[bool]int{true: max(keep.Successful, 1), false: keep.Failed}
	var gone []string
	for _, b := range newestFirst {
		if !b.Stage.IsFinal() || b.Deleting {
			continue
		}
		succeeded := b.Stage == mcfgv1.BuildStageSucceeded
		left[succeeded]--
		if left[succeeded] >= 0 || b.Name == wanted || b.Image != "" && references[b.Image] {
			continue
		}
		gone = append(gone, b.Name)
	}
	return gone
}

// Queue says in words when a build that has not begun will begin, if limit builds run at once. The
// others are the active builds of all MachineOSConfigs; of those that have not begun, the oldest is
// the next. It is empty for a build that begins at once.
func Queue(name string, limit int, running []string, waiting []Existing) string {
	inOrder := slices.Clone(waiting)
	slices.SortFunc(inOrder, func(a, b Existing) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	before := slices.IndexFunc(inOrder, func(b Existing) bool { return b.Name == name })
	if before < 0 || len(running)+before < limit {
		return ""
	}
	return fmt.Sprintf("it waits for a slot: %s; at most %d run at a time", ahead(len(running), before), limit)
}

func ahead(running, before int) string {
	builds := "builds"
	if running == 1 {
		builds = "build"
	}
	if before == 0 {
		return fmt.Sprintf("%d %s running, this one is next", running, builds)
	}
	return fmt.Sprintf("%d %s running and %d before it", running, builds, before)
}
