package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/host"
)

// write says on the Node, and then in its MachineConfigNode, that a step was done.
func (a *Agent) write(ctx context.Context, n *corev1.Node, s *state, done step) error {
	if err := a.patchNode(ctx, n, s, done); err != nil {
		return fmt.Errorf("patching Node %q: %w", n.Name, err)
	}
	if reason := driftReason(s); reason != "" && n.Annotations[mcfgv1.AnnotationReason] == reason && !hasSaid(s, reason) {
		a.events.Publish(n, events.ConfigDriftDetected(reason))
	}
	s.nodeAnnotations = readWire(n.Annotations)
	return a.tell(ctx, s, conditionsOf(s, done))
}

// patchTries is how often a Node is patched that others write at the same time.
const patchTries = 5

// patchNode writes a step that was done on the Node as it is now. To look at a slow host takes
// longer than the time between two heartbeats of its kubelet: what the kubelet writes is no reason
// to look again, and what the controller wants by now is.
func (a *Agent) patchNode(ctx context.Context, n *corev1.Node, s *state, done step) error {
	decidedOn := readWire(n.Annotations)
	for try := 1; ; try++ {
		before := n.DeepCopy()
		annotate(n, s, done)
		err := client.IgnoreNotFound(a.client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
		if !apierrors.IsConflict(err) || try == patchTries {
			return err
		}
		now := &corev1.Node{}
		if errGet := a.reader.Get(ctx, client.ObjectKeyFromObject(n), now); errGet != nil {
			return client.IgnoreNotFound(errGet)
		}
		if readWire(now.Annotations) != decidedOn {
			return err
		}
		now.DeepCopyInto(n)
	}
}

// annotate writes a step that was done into the annotations of the Node.
func annotate(n *corev1.Node, s *state, done step) {
	set := func(key, value string) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value) }
	switch done.action {
	case actionIntroduce:
		set(mcfgv1.AnnotationStagedImage, s.staged)
		if s.bootImage != "" {
			set(mcfgv1.AnnotationBootImageVersion, s.bootImage)
		}
		if s.state == "" {
			set(mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
		}
	case actionUnstage:
		set(mcfgv1.AnnotationStagedImage, "")
		delete(n.Annotations, mcfgv1.AnnotationStagedChange)
	case actionReport:
		set(mcfgv1.AnnotationStagedImage, string(done.image))
		delete(n.Annotations, mcfgv1.AnnotationStagedChange)
		if change := s.change(); change != "" {
			set(mcfgv1.AnnotationStagedChange, change)
		}
	case actionDrain:
		set(mcfgv1.AnnotationStagedImage, string(done.image))
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateWorking)
		set(mcfgv1.AnnotationReason, "")
		set(mcfgv1.AnnotationDesiredDrain, mcfgv1.DrainPrefix+s.drainID())
	case actionPrepare:
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateRebooting)
	case actionArrive:
		arrive(n, s, done)
	case actionFail:
		if staged := mcfgv1.ImageDigestFormat(s.staged); staged != "" && !s.holds(staged) && !s.runs(staged) {
			set(mcfgv1.AnnotationStagedImage, "")
		}
		uncordon(n, s)
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateDegraded)
		set(mcfgv1.AnnotationReason, done.reason)
	default:
	}
}

// arrive says what the node has. One that should have something else by now goes on from there.
func arrive(n *corev1.Node, s *state, done step) {
	set := func(key, value string) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value) }
	set(mcfgv1.AnnotationCurrentConfig, done.target.Config)
	set(mcfgv1.AnnotationCurrentImage, done.target.Image)
	if done.target.Image == "" {
		delete(n.Annotations, mcfgv1.AnnotationCurrentImage)
	}
	set(mcfgv1.AnnotationStagedImage, "")
	delete(n.Annotations, mcfgv1.AnnotationStagedChange)
	if done.target != s.desired {
		return
	}
	uncordon(n, s)
	drifted := driftReason(s)
	set(mcfgv1.AnnotationReason, drifted)
	set(mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
	if drifted != "" {
		set(mcfgv1.AnnotationState, mcfgv1.NodeStateDegraded)
	}
}

// uncordon asks for the end of a drain, if one was asked for.
func uncordon(n *corev1.Node, s *state) {
	if id, isDrain := strings.CutPrefix(s.desiredDrain, mcfgv1.DrainPrefix); isDrain {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationDesiredDrain, mcfgv1.UncordonPrefix+id)
	}
}

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
		out := []condition{{mcfgv1.NodeImagePulledFromRegistry, yes, mcfgv1.ReasonStaged, image}, lockable(s)}
		if why := s.changeReason(); why != "" {
			out = append(out, condition{mcfgv1.NodeUpdatePrepared, yes, mcfgv1.ReasonStaged, why})
		}
		return out
	case actionDrain:
		return append(beginning(s),
			suitable(s), condition{mcfgv1.NodeUpdatePrepared, yes, mcfgv1.ReasonStaged, image},
			condition{mcfgv1.NodeImagePulledFromRegistry, yes, mcfgv1.ReasonStaged, image},
			condition{mcfgv1.NodeNodeDegraded, no, mcfgv1.ReasonAsExpected, ""})
	case actionPrepare:
		return []condition{
			{mcfgv1.NodeCordoned, yes, mcfgv1.ReasonDrained, ""},
			{mcfgv1.NodeDrained, yes, mcfgv1.ReasonDrained, ""},
			{mcfgv1.NodeAppliedFiles, yes, mcfgv1.ReasonPrepared, ""},
			{mcfgv1.NodeAppliedOSImage, yes, mcfgv1.ReasonPrepared, image},
			{mcfgv1.NodeAppliedFilesAndOS, yes, mcfgv1.ReasonPrepared, ""},
			{mcfgv1.NodeUpdateExecuted, yes, mcfgv1.ReasonPrepared, ""},
			{mcfgv1.NodeRebootedNode, no, mcfgv1.ReasonRebooting, ""},
		}
	case actionArrive:
		return arrival(s, done)
	case actionUnstage:
		return []condition{{mcfgv1.NodeImagePulledFromRegistry, no, mcfgv1.ReasonWithdrawn, done.reason}}
	case actionFail:
		out := []condition{degraded(done.reason, s)}
		if s.isChanging() || s.host.Booted != nil && !s.isThere() {
			out = append(out, condition{mcfgv1.NodeUpdated, no, mcfgv1.ReasonUpdateFailed, done.reason})
		}
		return out
	default:
		return nil
	}
}

// updating are the conditions of a node that changes to what it should have.
func updating(s *state) []condition {
	return []condition{
		{mcfgv1.NodeUpdated, no, mcfgv1.ReasonUpdating, "the node changes to " + s.desired.Config},
		{mcfgv1.NodeUpdateComplete, no, mcfgv1.ReasonUpdating, ""},
	}
}

// beginning are the conditions when an update begins: what was true of the last one no longer is.
func beginning(s *state) []condition {
	out := updating(s)
	for _, t := range stillToCome() {
		out = append(out, condition{t, no, mcfgv1.ReasonUpdating, ""})
	}
	return out
}

// stillToCome are the conditions that say of an update which has begun what was true of the last
// one.
func stillToCome() []string {
	return []string{
		mcfgv1.NodeCordoned, mcfgv1.NodeDrained, mcfgv1.NodeAppliedFiles, mcfgv1.NodeAppliedOSImage, mcfgv1.NodeAppliedFilesAndOS,
		mcfgv1.NodeUpdateExecuted, mcfgv1.NodeRebootedNode, mcfgv1.NodeUncordoned, mcfgv1.NodeUpdatePostActionComplete, mcfgv1.NodeResumed,
	}
}

func arrival(s *state, done step) []condition {
	reboot := condition{mcfgv1.NodeRebootedNode, yes, mcfgv1.ReasonUpdated, s.booted()}
	if s.liveFiles != nil {
		reboot.message = "not needed: " + s.booted() + " runs with the files of " + s.liveFiles.Image
	}
	out := append(applied(s), reboot, suitable(s))
	if done.target != s.desired {
		return out
	}
	if image := string(s.goal()); image != "" {
		out = append(out, condition{mcfgv1.NodeImagePulledFromRegistry, yes, mcfgv1.ReasonStaged, image})
	}
	health := condition{mcfgv1.NodeNodeDegraded, no, mcfgv1.ReasonAsExpected, ""}
	if drifted := driftReason(s); drifted != "" {
		health = degraded(drifted, s)
	}
	drained := condition{mcfgv1.NodeDrained, no, mcfgv1.ReasonUpdated, "not needed"}
	if strings.HasSuffix(s.desiredDrain, "-"+s.drainID()) { // in this update
		drained.is, drained.message = yes, ""
	}
	cordoned, uncordoned := drained, drained
	cordoned.conditionType, uncordoned.conditionType = mcfgv1.NodeCordoned, mcfgv1.NodeUncordoned
	for _, t := range []string{mcfgv1.NodeAppliedFilesAndOS, mcfgv1.NodeUpdateExecuted, mcfgv1.NodeUpdatePostActionComplete, mcfgv1.NodeResumed} {
		out = append(out, condition{t, yes, mcfgv1.ReasonUpdated, ""})
	}
	return append(out, health, cordoned, drained, uncordoned,
		condition{mcfgv1.NodeAppliedOSImage, yes, mcfgv1.ReasonUpdated, string(s.goal())},
		condition{mcfgv1.NodeUpdated, yes, mcfgv1.ReasonUpdated, "the node has " + s.desired.Config},
		condition{mcfgv1.NodeUpdateComplete, yes, mcfgv1.ReasonUpdated, ""})
}

// applied is the condition once a host has what no image carries.
func applied(s *state) []condition {
	files := condition{mcfgv1.NodeAppliedFiles, yes, mcfgv1.ReasonUpdated, ""}
	if len(s.left) > 0 {
		files.message = "left out: " + strings.Join(s.left, "; ")
	}
	return []condition{files}
}

func degraded(message string, s *state) condition {
	reason := mcfgv1.ReasonUpdateFailed
	if message == driftReason(s) {
		reason = mcfgv1.ReasonConfigDrift
	}
	return condition{mcfgv1.NodeNodeDegraded, yes, reason, message}
}

// stagingFailed is the condition while an image can't be staged.
func stagingFailed(err error) []condition {
	return []condition{{mcfgv1.NodeImagePulledFromRegistry, no, mcfgv1.ReasonStagingFailed, fault.Message(err)}}
}

// unstagingFailed is the condition while an image that is not wanted can't be removed.
func unstagingFailed(err error) []condition {
	return []condition{{mcfgv1.NodeImagePulledFromRegistry, no, mcfgv1.ReasonUnstagingFailed, fault.Message(err)}}
}

// preparingFailed is the condition while a host can't be made ready for its reboot.
func preparingFailed(err error) []condition {
	return []condition{{mcfgv1.NodeUpdateExecuted, no, mcfgv1.ReasonPreparingFailed, fault.Message(err)}}
}

// applyingFailed is the condition while a host can't get what no image carries.
func applyingFailed(err error) []condition {
	return []condition{{mcfgv1.NodeAppliedFiles, no, mcfgv1.ReasonApplyingFailed, fault.Message(err)}}
}

// rebootOverdue is the condition while a host does not shut down.
func rebootOverdue(since time.Time) []condition {
	return []condition{{
		mcfgv1.NodeRebootedNode, no, mcfgv1.ReasonRebootOverdue,
		"the host was told to reboot at " + since.UTC().Format(time.RFC3339) + " and still runs: systemctl list-jobs on it shows what it waits for",
	}}
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
	if apiequality.Semantic.DeepEqual(before.Status, report.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(a.client.Status().Patch(ctx, report, patch)); err != nil {
		return fmt.Errorf("writing status of MachineConfigNode %q: %w", report.Name, err)
	}
	return nil
}

func setStatus(report *mcfgv1.MachineConfigNode, s *state, conditions []condition, now time.Time) {
	if s.isChanging() && !isAbout(report, s.desired) {
		conditions = append(beginning(s), conditions...)
	}
	for _, c := range conditions {
		status.Set(&report.Status.Conditions, now, metav1.Condition{
			Type: c.conditionType, Status: c.is, Reason: c.reason, Message: c.message, ObservedGeneration: report.Generation,
		})
	}
	report.Status.ObservedGeneration = max(report.Status.ObservedGeneration, report.Generation)
	answers := slices.ContainsFunc(conditions, func(c condition) bool { return c.conditionType == mcfgv1.NodeNodeDegraded })
	if s.state == mcfgv1.NodeStateDegraded && !answers {
		return // it still says what it failed with, and not what it was told since
	}
	if s.current.Config != "" && s.desired.Config != "" {
		report.Status.ConfigVersion = &mcfgv1.MachineConfigNodeStatusMachineConfigVersion{Current: s.current.Config, Desired: s.desired.Config}
	}
	report.Status.ConfigImage = mcfgv1.MachineConfigNodeStatusConfigImage{
		CurrentImage: mcfgv1.ImageDigestFormat(s.current.Image), DesiredImage: mcfgv1.ImageDigestFormat(s.desired.Image),
	}
}

// isAbout reports whether a report is of the change to a target.
func isAbout(report *mcfgv1.MachineConfigNode, t nodes.Target) bool {
	v := report.Status.ConfigVersion
	return v != nil && v.Desired == t.Config && string(report.Status.ConfigImage.DesiredImage) == t.Image
}

// failHost says what the host can't do, of the host alone, and looks again later.
func (a *Agent) failHost(ctx context.Context, s *state, err error) (ctrl.Result, error) {
	said := condition{mcfgv1.NodeHostSuitable, no, fault.Reason(err), fault.Message(err)}
	a.hostSaid = said
	if told := a.tell(ctx, s, []condition{said}); told != nil { // again, where no one has made the object yet
		return status.Result(ctrl.Result{}, fmt.Errorf("reporting what the host can't do: %w", told))
	}
	if fault.IsWaiting(err) {
		return status.Result(ctrl.Result{}, err)
	}
	ctrl.LoggerFrom(ctx).Error(err, "The host can't do what it should")
	return ctrl.Result{RequeueAfter: hostRetry}, nil
}

// sayOfHost reports whether the host can do what it is asked for, unless that was said.
func (a *Agent) sayOfHost(ctx context.Context, s *state, said condition) error {
	if a.hostSaid == said {
		return nil
	}
	if err := a.tell(ctx, s, []condition{said}); err != nil {
		return err
	}
	a.hostSaid = said
	return nil
}

// suitable is the condition of a host that can do what it is asked for.
func suitable(s *state) condition {
	if s.host.UsrIsUnlocked {
		return condition{mcfgv1.NodeHostSuitable, yes, mcfgv1.ReasonUsrUnlocked, host.SaysUsrUnlocked}
	}
	return condition{mcfgv1.NodeHostSuitable, yes, mcfgv1.ReasonAsExpected, ""}
}
