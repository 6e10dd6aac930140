package drain

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// step is what a Node needs next.
type step int

const (
	// stepNone: nothing is asked for, or all of it has been done.
	stepNone step = iota
	// stepSkip: a drain is asked for where no other node could take the pods.
	stepSkip
	// stepDrain: the node is to be cordoned, if it is not, and its pods are to leave.
	stepDrain
	// stepCordon: the node is to take no more pods, and keeps those that it has.
	stepCordon
	// stepUncordon: the node is to take pods again.
	stepUncordon
	// stepUnknown: what is asked for is none of these.
	stepUnknown
)

// next decides what a Node needs. isAlone is that the cluster has no other Node.
func next(n *corev1.Node, isAlone bool) step {
	desired := n.Annotations[mcfgv1.AnnotationDesiredDrain]
	switch isDrain := strings.HasPrefix(desired, mcfgv1.DrainPrefix); {
	case desired == "" || desired == n.Annotations[mcfgv1.AnnotationLastAppliedDrain]:
		return stepNone
	case isDrain && isAlone:
		return stepSkip
	case isDrain:
		return stepDrain
	case strings.HasPrefix(desired, mcfgv1.CordonPrefix):
		return stepCordon
	case strings.HasPrefix(desired, mcfgv1.UncordonPrefix):
		return stepUncordon
	default:
		return stepUnknown
	}
}

// Cordon makes a Node unschedulable and marks the cordon as Layerwright's. A Node that others have
// cordoned keeps their cordon.
func Cordon(n *corev1.Node, now time.Time) {
	if n.Spec.Unschedulable {
		return
	}
	n.Spec.Unschedulable = true
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationCordonedAt, now.UTC().Format(time.RFC3339))
}

// uncordon ends the cordon of a Node if it is Layerwright's.
func uncordon(n *corev1.Node) {
	if _, isOurs := n.Annotations[mcfgv1.AnnotationCordonedAt]; isOurs {
		n.Spec.Unschedulable = false
		delete(n.Annotations, mcfgv1.AnnotationCordonedAt)
	}
}

// finish says that what was asked for has been done.
func finish(n *corev1.Node) {
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationLastAppliedDrain, n.Annotations[mcfgv1.AnnotationDesiredDrain])
}

// cordonedAt is when Layerwright cordoned a Node; false if it did not, or if the time can't be
// read.
func cordonedAt(n *corev1.Node) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, n.Annotations[mcfgv1.AnnotationCordonedAt])
	return at, err == nil
}
