package plan

import (
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// Observe takes from a Node and its MachineConfigNode, which may be nil, what a plan follows from.
func Observe(n *corev1.Node, report *mcfgv1.MachineConfigNode) Node {
	a := n.Annotations
	staged, stages := a[mcfgv1.AnnotationStagedImage]
	out := Node{
		Node: nodes.Observe(n), Created: n.CreationTimestamp.Time, Zone: n.Labels[corev1.LabelTopologyZone],
		Deleting: !n.DeletionTimestamp.IsZero(),
		Stages:   stages, StageImage: a[mcfgv1.AnnotationStageImage], StagedImage: staged,
		StagedChange: a[mcfgv1.AnnotationStagedChange],
		DesiredDrain: a[mcfgv1.AnnotationDesiredDrain], LastAppliedDrain: a[mcfgv1.AnnotationLastAppliedDrain],
		Previous:     nodes.Target{Config: a[mcfgv1.AnnotationPreviousConfig], Image: a[mcfgv1.AnnotationPreviousImage]},
		FailedTarget: nodes.Target{Config: a[mcfgv1.AnnotationFailedConfig], Image: a[mcfgv1.AnnotationFailedImage]},
		FailedReason: words.Shorten(a[mcfgv1.AnnotationFailedReason], maxReason),
	}
	out.Reason = words.Shorten(out.Reason, maxReason)
	if told, err := time.Parse(time.RFC3339, a[mcfgv1.AnnotationRolloutStarted]); err == nil {
		out.RolloutStarted = told
	}
	if report != nil {
		ObserveReport(&out, report)
	}
	if out.State != mcfgv1.NodeStateRebooting {
		out.Rebooting = time.Time{}
	}
	return out
}

// IsSettled reports whether the node's agent has nothing to do: then its MachineConfigNode says
// nothing that the Node does not.
func (n *Node) IsSettled() bool {
	isStaged := n.StageImage == "" || n.StageImage == n.StagedImage
	return isStaged && !n.IsMoving() && !n.IsAtWork() && !n.IsDegraded() && n.DesiredDrain == n.LastAppliedDrain
}

// stepErrors are the conditions of a MachineConfigNode that say why a step of its agent fails, with
// their reasons, the last step first.
var stepErrors = []struct{ conditionType, reason string }{
	{mcfgv1.NodeRebootedNode, mcfgv1.ReasonRebootOverdue},
	{mcfgv1.NodeUpdateExecuted, mcfgv1.ReasonPreparingFailed},
	{mcfgv1.NodeAppliedFiles, mcfgv1.ReasonApplyingFailed},
	{mcfgv1.NodeImagePulledFromRegistry, mcfgv1.ReasonStagingFailed},
}

// ObserveReport takes from a MachineConfigNode what a plan follows from.
func ObserveReport(out *Node, report *mcfgv1.MachineConfigNode) {
	if v := report.Status.ConfigVersion; v != nil {
		out.ReportedDesired = nodes.Target{Config: v.Desired, Image: string(report.Status.ConfigImage.DesiredImage)}
	}
	c := meta.FindStatusCondition(report.Status.Conditions, mcfgv1.NodeImagePulledFromRegistry)
	if c != nil && c.Status == metav1.ConditionFalse && c.Reason == mcfgv1.ReasonStagingFailed {
		out.StageError = words.Shorten(c.Message, maxReason)
	}
	for _, step := range stepErrors {
		if c = meta.FindStatusCondition(report.Status.Conditions, step.conditionType); c != nil && c.Status == metav1.ConditionFalse && c.Reason == step.reason {
			out.StepError = words.Shorten(c.Message, maxReason)
			break
		}
	}
	c = meta.FindStatusCondition(report.Status.Conditions, mcfgv1.NodeHostSuitable)
	if c != nil && c.Status == metav1.ConditionFalse {
		out.HostError = words.Shorten(c.Message, maxReason)
		out.HostWaits = c.Reason == mcfgv1.ReasonWaitingForSignaturePolicy || c.Reason == mcfgv1.ReasonHostBusy
		out.StageError, out.StepError = out.HostError, out.HostError
	}
	c = meta.FindStatusCondition(report.Status.Conditions, mcfgv1.NodeStagedImageLocked)
	out.BootsStaged = c != nil && c.Status == metav1.ConditionFalse && c.Reason == mcfgv1.ReasonLockUnsupported
	c = meta.FindStatusCondition(report.Status.Conditions, mcfgv1.NodeDrained)
	if c != nil && slices.Contains([]string{mcfgv1.ReasonDraining, mcfgv1.ReasonDrainBlocked, mcfgv1.ReasonDrainOverdue}, c.Reason) {
		out.DrainBlocked = words.Shorten(c.Message, maxReason)
	}
	if c = meta.FindStatusCondition(report.Status.Conditions, mcfgv1.NodeUpdated); c != nil && c.Status == metav1.ConditionTrue {
		out.Arrived = c.LastTransitionTime.Time
	}
	c = meta.FindStatusCondition(report.Status.Conditions, mcfgv1.NodeRebootedNode)
	if c != nil && c.Status == metav1.ConditionFalse {
		out.Rebooting = c.LastTransitionTime.Time
	}
}

// Look takes from the pool's Nodes what its image has to fit. Kubelets are those of nodes that were
// told to boot an image, and say that they have: a node that says so unasked must not hold back the
// others.
func (w *Wanted) Look(members iter.Seq[*corev1.Node]) {
	w.Kubelets = map[mcfgv1.ImageDigestFormat][]string{}
	for n := range members {
		if a := mcfgv1.Architecture(strings.ToUpper(n.Status.NodeInfo.Architecture)); a != "" && !slices.Contains(w.Architectures, a) {
			w.Architectures = append(w.Architectures, a)
		}
		image, version := mcfgv1.ImageDigestFormat(n.Annotations[mcfgv1.AnnotationCurrentImage]), n.Status.NodeInfo.KubeletVersion
		isTold := n.Annotations[mcfgv1.AnnotationDesiredImage] == string(image)
		if isTold && image != "" && version != "" && !slices.Contains(w.Kubelets[image], version) {
			w.Kubelets[image] = append(w.Kubelets[image], version)
		}
	}
	for _, versions := range w.Kubelets {
		slices.Sort(versions)
	}
}
