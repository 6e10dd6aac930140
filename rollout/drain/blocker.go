package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/layerwright/layerwright/rollout/words"
)

// Blocker is what keeps one pod on a node that is being drained.
type Blocker struct {
	// Pod is the namespace and name of the pod.
	Pod types.NamespacedName
	// By is what keeps it there, such as `budget db`.
	By string
	// Since is when the node's drain was first seen blocked, or when a pod should have ended.
	Since time.Time
}

// String is the sentence for people: pod ns/x blocked by budget y since 2026-11-23T19:00:00Z.
func (b Blocker) String() string {
	return fmt.Sprintf("pod %s"+words.BlockedBy+"%s since %s", b.Pod, b.By, b.Since.UTC().Format(time.RFC3339))
}

// maxNamed is how many things of a kind a message names; who has removed these sees the next ones.
const maxNamed = 10

// join names the first of some texts and counts the others.
func join(texts []string, separator string) string {
	if others := len(texts) - maxNamed; others > 0 {
		texts = append(slices.Clone(texts[:maxNamed]), fmt.Sprintf("%d more", others))
	}
	return strings.Join(texts, separator)
}

// Describe names the first blockers and counts the others, in the same words for the same blockers.
func Describe(blockers []Blocker) string {
	sorted := slices.SortedFunc(slices.Values(blockers), func(a, b Blocker) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Pod.String(), b.Pod.String()))
	})
	texts := make([]string, len(sorted))
	for i := range sorted {
		texts[i] = sorted[i].String()
	}
	return join(texts, "; ")
}
