package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Node is everything about a corev1.Node that matters. What is not in here changes no pool and no
// rollout: two Nodes that Observe makes the same of are the same.
type Node struct {
	Name   string
	Labels map[string]string

	// What the annotations say; empty on a Node without an agent.
	CurrentConfig, DesiredConfig, FirstConfig string
	CurrentImage, DesiredImage                string
	// PreviousConfig and PreviousImage are what a node goes back to.
	PreviousConfig, PreviousImage string
	State, Reason                 string
	// LiveOnly reports whether the node may change only as it runs, so that it never goes away.
	LiveOnly bool

	Ready, DiskPressure, Unschedulable bool

	// Kernel is the version that runs, such as 5.14.0-427.37.1.el9_4.x86_64.
	Kernel string
	// TakesPods reports whether pods that tolerate nothing can be scheduled there, as far as it is
	// the control plane's taints that keep them away.
	TakesPods bool
}

// Observe takes from a Node what matters. The labels are the Node's own map: they are only read.
func Observe(n *corev1.Node) Node {
	a := n.Annotations
	return Node{
		Name: n.Name, Labels: n.Labels,
		CurrentConfig: a[mcfgv1.AnnotationCurrentConfig], DesiredConfig: a[mcfgv1.AnnotationDesiredConfig],
		FirstConfig:  a[mcfgv1.AnnotationFirstPivotConfig],
		CurrentImage: a[mcfgv1.AnnotationCurrentImage], DesiredImage: a[mcfgv1.AnnotationDesiredImage],
		PreviousConfig: a[mcfgv1.AnnotationPreviousConfig], PreviousImage: a[mcfgv1.AnnotationPreviousImage],
		State: a[mcfgv1.AnnotationState], Reason: a[mcfgv1.AnnotationReason],
		LiveOnly: a[mcfgv1.AnnotationLiveOnly] == "true",
		Ready:    hasCondition(n, corev1.NodeReady), DiskPressure: hasCondition(n, corev1.NodeDiskPressure),
		Unschedulable: n.Spec.Unschedulable,
		Kernel:        n.Status.NodeInfo.KernelVersion,
		TakesPods:     !slices.ContainsFunc(n.Spec.Taints, isControlPlaneTaint),
	}
}

// Keys that mark nodes of the control plane, as labels and as taints.
const (
	KeyControlPlane = "node-role.kubernetes.io/control-plane"
	KeyMaster       = "node-role.kubernetes.io/master"
)

// isControlPlaneTaint reports whether a taint keeps pods off the control plane.
func isControlPlaneTaint(t corev1.Taint) bool {
	isOfControlPlane := t.Key == KeyControlPlane || t.Key == KeyMaster
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

// HasAgent reports whether a node agent has ever said something about the node, or been told
// something. One on a new node has a state and no configuration yet.
func (n *Node) HasAgent() bool {
	return n.State != "" || n.CurrentConfig != "" || n.DesiredConfig != ""
}

// IsMoving reports whether the node is to have something else than it has.
func (n *Node) IsMoving() bool {
	return n.CurrentConfig != n.DesiredConfig || n.CurrentImage != n.DesiredImage
}

// IsAtWork reports whether the node agent is changing the node.
func (n *Node) IsAtWork() bool {
	return n.State == mcfgv1.NodeStateWorking || n.State == mcfgv1.NodeStateRebooting
}

// IsDegraded reports whether the node's update failed.
func (n *Node) IsDegraded() bool {
	return n.State == mcfgv1.NodeStateDegraded || n.State == mcfgv1.NodeStateUnreconcilable
}

// IsHealthy reports whether pods can be scheduled to the node, whatever its configuration.
func (n *Node) IsHealthy() bool { return n.Ready && !n.DiskPressure && !n.Unschedulable }

// IsUnavailable reports whether the node counts against maxUnavailable.
func (n *Node) IsUnavailable() bool {
	return !n.IsHealthy() || n.IsMoving() && !n.LiveOnly || n.IsAtWork() || n.IsDegraded()
}

// IsAt reports whether the node has the target and is done with getting there.
func (n *Node) IsAt(t Target) bool {
	return t.Config != "" && n.CurrentConfig == t.Config && n.CurrentImage == t.Image &&
		!n.IsMoving() && n.State == mcfgv1.NodeStateDone
}
