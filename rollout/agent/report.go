package agent

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// condition is one that a step changes.
type condition struct {
	conditionType   string
	is              metav1.ConditionStatus
	reason, message string
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// conditionsOf are those that are true after a step; nil where it changes none.
func conditionsOf(s *state, done step) []condition {
	image := string(done.image)
	switch done.action {
	case actionReport:
		return []condition{{mcfgv1.NodeImagePulledFromRegistry, yes, "Staged", image}}
	case actionDrain:
		return []condition{
			{mcfgv1.NodeUpdated, no, "Updating", "the node changes to " + s.desired.Config},
			{mcfgv1.NodeUpdateComplete, no, "Updating", ""},
			{mcfgv1.NodeUpdatePrepared, yes, "Staged", image},
			{mcfgv1.NodeImagePulledFromRegistry, yes, "Staged", image},
			{mcfgv1.NodeNodeDegraded, no, mcfgv1.ReasonAsExpected, ""},
		}
	case actionPrepare:
		return []condition{
			{mcfgv1.NodeAppliedOSImage, yes, "Staged", string(s.goal())},
			{mcfgv1.NodeUpdateExecuted, yes, "Prepared", ""},
			{mcfgv1.NodeRebootedNode, no, "Rebooting", ""},
		}
	case actionArrive:
		return []condition{
			{mcfgv1.NodeRebootedNode, yes, "Booted", s.booted()},
			{mcfgv1.NodeUpdated, yes, "Updated", "the node has " + s.desired.Config},
			{mcfgv1.NodeUpdateComplete, yes, "Updated", ""},
			{mcfgv1.NodeNodeDegraded, no, mcfgv1.ReasonAsExpected, ""},
		}
	case actionFail:
		return []condition{{mcfgv1.NodeNodeDegraded, yes, "UpdateFailed", done.reason}}
	default:
		return nil
	}
}

// stagingFailed is the condition while an image can't be staged.
func stagingFailed(err error) []condition {
	return []condition{{mcfgv1.NodeImagePulledFromRegistry, no, mcfgv1.ReasonStagingFailed, err.Error()}}
}

// tell writes conditions, and what the node has and should have, into the status of its
// MachineConfigNode. That the object is not there yet is no error: the controller makes it.
func (a *Agent) tell(ctx context.Context, s *state, conditions []condition) error {
	if len(conditions) == 0 {
		return nil
	}
	report := &mcfgv1.MachineConfigNode{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: a.options.Node}, report); err != nil {
		if err = client.IgnoreNotFound(err); err != nil {
			return fmt.Errorf("reading MachineConfigNode %q: %w", a.options.Node, err)
		}
		return nil
	}
	before := report.DeepCopy()
	setStatus(report, s, conditions, a.clock.Now())
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(a.client.Status().Patch(ctx, report, patch)); err != nil {
		return fmt.Errorf("writing status of MachineConfigNode %q: %w", report.Name, err)
	}
	return nil
}

func setStatus(report *mcfgv1.MachineConfigNode, s *state, conditions []condition, now time.Time) {
	for _, c := range conditions {
		status.Set(&report.Status.Conditions, now, metav1.Condition{
			Type: c.conditionType, Status: c.is, Reason: c.reason, Message: c.message, ObservedGeneration: report.Generation,
		})
	}
	report.Status.ObservedGeneration = max(report.Status.ObservedGeneration, report.Generation)
	if s.current.Config != "" && s.desired.Config != "" {
		report.Status.ConfigVersion = &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: s.current.Config, Desired: s.desired.Config}
	}
	report.Status.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{
		CurrentImage: mcfgv1.ImageDigestFormat(s.current.Image), DesiredImage: mcfgv1.ImageDigestFormat(s.desired.Image),
	}
}
