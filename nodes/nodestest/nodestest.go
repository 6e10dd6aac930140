package nodestest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
)

// Pinned is an image by a digest of one repeated character.
func Pinned(digit string) string { return "quay.io/os/image@sha256:" + strings.Repeat(digit, 64) }

// New makes a healthy Node with roles.
func New(name string, roles []string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}, Annotations: map[string]string{}}}
	for _, role := range roles {
		n.Labels["node-role.kubernetes.io/"+role] = ""
	}
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	for _, c := range change {
		c(n)
	}
	return n
}

// Having says that the node has a configuration, and should have it.
func Having(config string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationCurrentConfig, config)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationDesiredConfig, config)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
	}
}

// HavingImage says that the node has an image (Pinned), and should have it.
func HavingImage(digit string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[mcfgv1.AnnotationCurrentImage] = Pinned(digit)
		n.Annotations[mcfgv1.AnnotationDesiredImage] = Pinned(digit)
	}
}

// Annotated gives the node an annotation.
func Annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = value }
}

// Labelled gives the node a label.
func Labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

// InState says what the node agent reports.
func InState(state, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationReason] = state, reason
	}
}

// WithCondition sets a condition that New gave the node.
func WithCondition(conditionType corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == conditionType {
				n.Status.Conditions[i].Status = status
			}
		}
	}
}

// Cordoned makes the node unschedulable.
func Cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

// ObserveAll is what Observe makes of each Node.
func ObserveAll(list ...*corev1.Node) []nodes.Node {
	var out []nodes.Node
	for _, n := range list {
		out = append(out, nodes.Observe(n))
	}
	return out
}
