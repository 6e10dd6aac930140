package drain

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
