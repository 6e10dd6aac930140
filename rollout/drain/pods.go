package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/layerwright/layerwright/rollout/words"
)

// byTermination is what keeps a pod whose grace period is long over.
func byTermination(pod *corev1.Pod) string {
	if len(pod.Finalizers) == 0 {
		return "its own termination, which is overdue"
	}
	return "its finalizers " + strings.Join(pod.Finalizers, ", ") + ", which have not been removed"
}

// maxEnding is how many pods are named that are about to end.
const maxEnding = 3

// describeEnding names the pods that may take longest. It counts nothing: each pod that ends would
// be another text.
func describeEnding(pods []*corev1.Pod) string {
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(b.DeletionTimestamp.Compare(a.DeletionTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	texts := make([]string, 0, maxEnding+1)
	for _, pod := range sorted[:min(len(sorted), maxEnding)] {
		text := fmt.Sprintf("pod %s/%s"+words.EndsUntil+"%s to end", pod.Namespace, pod.Name, pod.DeletionTimestamp.UTC().Format(time.RFC3339))
		if len(pod.Finalizers) > 0 {
			text += " (finalizers " + strings.Join(pod.Finalizers, ", ") + ")"
		}
		texts = append(texts, text)
	}
	if len(sorted) > maxEnding {
		texts = append(texts, "and others")
	}
	return strings.Join(texts, "; ")
}

// describeKubelet says since when the kubelet of a node does not answer; it is empty if it does.
func describeKubelet(n *corev1.Node) string {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Sprintf(words.KubeletAway+"%s: its pods end when its kubelet answers again", c.LastTransitionTime.UTC().Format(time.RFC3339))
		}
	}
	return ""
}
