package pools

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// node is everything about a Node that matters to pools. What is not in here changes no pool: two Nodes that observe makes the same of
// are the same (see nodeChanged).
type node struct {
	Name   string
	Labels map[string]string

	// What the annotations say; empty on a Node without an agent.
	CurrentConfig, DesiredConfig, FirstConfig string
	CurrentImage, DesiredImage                string
	State, Reason                             string

	Ready, DiskPressure, Unschedulable bool

	// Kernel is the version that runs, such as 5.14.0-427.37.1.el9_4.x86_64.
	Kernel string
	// TakesPods is whether pods that tolerate nothing can be scheduled there, as far as it is the control plane's taints that keep them away.
	TakesPods bool
}

// observe takes from a Node what matters. The labels are the Node's own map: they are only read.
func observe(n *corev1.Node) node {
	a := n.Annotations
	return node{
		Name: n.Name, Labels: n.Labels,
		CurrentConfig: a[mcfgv1.AnnotationCurrentConfig], DesiredConfig: a[mcfgv1.AnnotationDesiredConfig],
		FirstConfig:  a[mcfgv1.AnnotationFirstPivotConfig],
		CurrentImage: a[mcfgv1.AnnotationCurrentImage], DesiredImage: a[mcfgv1.AnnotationDesiredImage],
		State: a[mcfgv1.AnnotationState], Reason: a[mcfgv1.AnnotationReason],
		Ready: hasCondition(n, corev1.NodeReady), DiskPressure: hasCondition(n, corev1.NodeDiskPressure),
		Unschedulable: n.Spec.Unschedulable,
		Kernel:        n.Status.NodeInfo.KernelVersion,
		TakesPods:     !slices.ContainsFunc(n.Spec.Taints, isControlPlaneTaint),
	}
}

// isControlPlaneTaint tells whether a taint keeps pods off the control plane.
func isControlPlaneTaint(t corev1.Taint) bool {
	isOfControlPlane := t.Key == "node-role.kubernetes.io/control-plane" || t.Key == "node-role.kubernetes.io/master"
	return isOfControlPlane && t.Effect != corev1.TaintEffectPreferNoSchedule
}

func hasCondition(n *corev1.Node, conditionType corev1.NodeConditionType) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == conditionType {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// hasAgent tells whether a node agent has ever said something about the node, or been told something.
func (n *node) hasAgent() bool { return n.CurrentConfig != "" || n.DesiredConfig != "" }

// isMoving tells whether the node is to have something else than it has.
func (n *node) isMoving() bool {
	return n.CurrentConfig != n.DesiredConfig || n.CurrentImage != n.DesiredImage
}

// isDegraded tells whether the node's update failed.
func (n *node) isDegraded() bool {
	return n.State == mcfgv1.NodeStateDegraded || n.State == mcfgv1.NodeStateUnreconcilable
}

// isHealthy tells whether pods can be scheduled to the node, whatever its configuration.
func (n *node) isHealthy() bool { return n.Ready && !n.DiskPressure && !n.Unschedulable }

// isUnavailable tells whether the node counts against maxUnavailable.
func (n *node) isUnavailable() bool {
	isWorking := n.State == mcfgv1.NodeStateWorking || n.State == mcfgv1.NodeStateRebooting
	return !n.isHealthy() || n.isMoving() || isWorking || n.isDegraded()
}

// isAt tells whether the node has a target and is done with getting there.
func (n *node) isAt(t target) bool {
	return t.Config != "" && n.CurrentConfig == t.Config && !n.isMoving() && n.State == mcfgv1.NodeStateDone &&
		(t.Image == "" || n.CurrentImage == t.Image)
}
