package eviction

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fate is what a drain does with a pod.
type Fate int

// The fates.
const (
	// Stay: the pod belongs to the node.
	Stay Fate = iota
	// Evict: the pod should leave.
	Evict
	// Wait: the pod is leaving.
	Wait
	// Stuck: the pod should have left by now.
	Stuck
)

// FateOf decides what a drain does with a pod: what `kubectl drain` does with --ignore-daemonsets,
// --delete-emptydir-data and --force. A pod is stuck so long after the end of its grace period.
func FateOf(pod *corev1.Pod, now time.Time, stuckAfter time.Duration) Fate {
	_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	isFinished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case isMirror, IsOfDaemonSet(pod) && !isFinished:
		return Stay
	case pod.DeletionTimestamp.IsZero():
		return Evict
	case now.Sub(pod.DeletionTimestamp.Time) >= stuckAfter:
		return Stuck
	default:
		return Wait
	}
}

// IsOfDaemonSet reports whether a DaemonSet controls the pod. Unlike kubectl it does not ask
// whether that still exists: the garbage collector deletes pods of one that does not.
func IsOfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String()
}
