//go:build e2e

package fleet

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/e2e/nodelog"
)

// order are the nodes in the order in which they were told to change.
func (f *fleet) order() (told []string) {
	for _, c := range f.nodes.Changes() {
		if isTold(c) {
			told = append(told, c.Node.Name)
		}
	}
	return told
}

// brokenRules are what no node may ever do, or be told.
func (f *fleet) brokenRules() (broken []string) {
	for _, c := range f.nodes.Changes() {
		if isTold(c) && !holdsImage(c.Node) {
			broken = append(broken, fmt.Sprintf("%s was told to boot %s and holds %q", c.Node.Name, target(c.Node), c.Node.Annotations[mcfgv1.AnnotationStagedImage]))
		}
		var away []string
		for _, name := range slices.Sorted(maps.Keys(c.All)) {
			if c.All[name].Spec.Unschedulable {
				away = append(away, name)
			}
		}
		if len(away) > 1 {
			broken = append(broken, fmt.Sprintf("%v are away at once", away))
		}
	}
	return broken
}

func isTold(c nodelog.Change) bool { return c.Before != nil && target(c.Before) != target(c.Node) }

// holdsImage reports whether a node holds the image that it was told to boot, or need not.
func holdsImage(node *corev1.Node) bool {
	a := node.Annotations
	wanted := a[mcfgv1.AnnotationDesiredImage]
	return wanted == "" || wanted == a[mcfgv1.AnnotationStagedImage] || wanted == a[mcfgv1.AnnotationCurrentImage] || wanted == a[mcfgv1.AnnotationPreviousImage]
}

func target(node *corev1.Node) string {
	return node.Annotations[mcfgv1.AnnotationDesiredConfig] + " " + node.Annotations[mcfgv1.AnnotationDesiredImage]
}

func describeNode(node *corev1.Node) string {
	a := node.Annotations
	ready := "NotReady"
	if isReady(node) {
		ready = "Ready"
	}
	return fmt.Sprintf("%s cordoned=%t state=%s stage=%s staged=%s desired=%s current=%s drain=%s/%s boot=%.8s %s", ready, node.Spec.Unschedulable,
		a[mcfgv1.AnnotationState], short(a[mcfgv1.AnnotationStageImage]), short(a[mcfgv1.AnnotationStagedImage]), short(a[mcfgv1.AnnotationDesiredImage]),
		short(a[mcfgv1.AnnotationCurrentImage]), a[mcfgv1.AnnotationDesiredDrain], a[mcfgv1.AnnotationLastAppliedDrain], node.Status.NodeInfo.BootID, a[mcfgv1.AnnotationReason])
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func short(image string) string { return mcfgv1.ImageDigestFormat(image).Short() }
