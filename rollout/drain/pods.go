package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/rollout/words"
)

// fate is what a drain does with a pod.
type fate int

const (
	// fateStay: the pod belongs to the node.
	fateStay fate = iota
	// fateEvict: the pod should leave.
	fateEvict
	// fateWait: the pod is leaving.
	fateWait
	// fateStuck: the pod should have left by now.
	fateStuck
)

// fateOf decides what a drain does with a pod: what `kubectl drain` does with --ignore-daemonsets,
// --delete-emptydir-data and --force. A pod is stuck so long after the end of its grace period.
func fateOf(pod *corev1.Pod, now time.Time, stuckAfter time.Duration) fate {
	_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	isFinished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case isMirror, isOfDaemonSet(pod) && !isFinished:
		return fateStay
	case pod.DeletionTimestamp.IsZero():
		return fateEvict
	case now.Sub(pod.DeletionTimestamp.Time) >= stuckAfter:
		return fateStuck
	default:
		return fateWait
	}
}

// isOfDaemonSet reports whether a DaemonSet controls the pod. Unlike kubectl it does not ask
// whether that still exists: the garbage collector deletes pods of one that does not.
func isOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}

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
