package configs

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/internal/status"
)

// setConfigStatus computes the status of a MachineOSConfig after a reconcile that ended with err.
func (r *Reconciler) setConfigStatus(s *scope, err error) {
	config := s.config
	if s.build != nil {
		config.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupVersion.Group, Resource: "machineosbuilds", Name: s.build.Name}
	}
	if s.decision != nil && s.decision.Action == plan.Nothing && s.build != nil && verdictOf(s) == nil {
		config.Status.CurrentImagePullSpec = s.build.Status.DigestedImagePushSpec
		config.Status.ShortDigest = config.Status.CurrentImagePullSpec.Short()
		config.Status.OSImageStream.Name = s.build.Asked().OSImageStream
	}
	conditions := config.GetConditions()
	now := status.NotBefore(r.options.Clock.Now(), conditions)
	setSeeded(&conditions, now, s)
	if !r.options.Enforces { // no one would take it back
		status.Remove(&conditions, mcfgv1.ConfigSignaturesEnforced)
	}
	summary := withPolicy(configSummary(s, r.options.Limit, r.options.Running()), conditions).WithError(err, lastState(conditions, config.Generation))
	status.SetSummary(&conditions, now, config.Generation, summary)
	config.SetConditions(conditions)
}

// withPolicy is the summary of a MachineOSConfig whose nodes may not insist on signatures: then not
// all is well, however good its image is.
func withPolicy(summary status.Summary, conditions []metav1.Condition) status.Summary {
	policy := status.Find(conditions, mcfgv1.ConfigSignaturesEnforced)
	if summary.State != status.StateReady || policy == nil || policy.Status != metav1.ConditionFalse {
		return summary
	}
	return status.Summary{State: status.StateStalled, Reason: policy.Reason, Message: "nodes are not made to require signatures: " + policy.Message}
}

// setSeeded sets the condition Seeded if the current build has a pre-built image, and removes it
// otherwise. Until an image is current it changes nothing.
func setSeeded(conditions *[]metav1.Condition, now time.Time, s *scope) {
	if s.decision == nil || s.decision.Action != plan.Nothing || s.build == nil {
		return
	}
	if image, is := s.build.Annotations[mcfgv1.AnnotationPreBuiltImage]; is {
		status.Set(conditions, now, metav1.Condition{
			Type: mcfgv1.ConfigSeeded, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonPreBuiltImageSeeded,
			Message: fmt.Sprintf("the installer had built %s", image),
		})
		return
	}
	status.Remove(conditions, mcfgv1.ConfigSeeded)
}

// lastState is the state before the reconcile, if it is about the spec in hand.
func lastState(conditions []metav1.Condition, generation int64) status.State {
	if ready := status.Find(conditions, status.Ready); ready != nil && ready.ObservedGeneration == generation {
		return status.StateOf(conditions)
	}
	return status.StateNotYetObserved
}

// configSummary is what a MachineOSConfig says after a decision.
func configSummary(s *scope, limit int, running []string) status.Summary {
	if s.decision == nil {
		last := status.StateOf(s.config.Status.Conditions)
		if ready := status.Find(s.config.Status.Conditions, status.Ready); ready != nil {
			return status.Summary{State: last, Reason: ready.Reason, Message: ready.Message}
		}
		return status.Summary{State: status.StateNotYetObserved}
	}
	d := s.decision
	out := status.Summary{State: status.StateReconciling, Reason: d.Reason, Message: d.Message}
	switch d.Action {
	case plan.Nothing:
		out.State, out.Message = status.StateReady, ""
		if v := verdictOf(s); v != nil {
			out = v.summary(s)
		}
	case plan.Stop:
		out.State = status.StateStalled
	case plan.Wait:
		if s.build != nil && !s.found.HasContent && status.BuildStageOf(s.build.Status.Conditions) == mcfgv1.BuildStagePending {
			if turn := queueText(s, limit, running); turn != "" {
				out.Message = turn
			}
		}
	case plan.Reuse, plan.Append, plan.Build:
	}
	return out
}

// queueText is when a build that has not begun will begin.
func queueText(s *scope, limit int, running []string) string {
	var waiting []plan.Existing
	for i := range s.all {
		if status.BuildStageOf(s.all[i].Status.Conditions) == mcfgv1.BuildStagePending {
			waiting = append(waiting, objects.Existing(&s.all[i]))
		}
	}
	return plan.Queue(s.build.Name, limit, running, waiting)
}

// poolTypes are the conditions of a pool that are about its image. All others are of others.
var poolTypes = []string{
	string(mcfgv1.PoolBuildPending), string(mcfgv1.PoolBuilding), string(mcfgv1.PoolBuildSuccess), string(mcfgv1.PoolBuildFailed),
	string(mcfgv1.PoolBuildInterrupted), string(mcfgv1.PoolImageBuildDegraded),
}

// tellPool writes the pool's conditions that are about its image. A lost race says nothing about
// the MachineOSConfig, as any conflict.
func (r *Reconciler) tellPool(ctx context.Context, s *scope) error {
	if s.pool == nil || s.decision == nil {
		return nil
	}
	res, err := r.writePool(ctx, s.pool, func(conditions *[]metav1.Condition, now time.Time) { setPoolConditions(conditions, now, s) })
	if err == nil && res.RequeueAfter > 0 {
		resource := mcfgv1.GroupVersion.WithResource("machineconfigpools").GroupResource()
		return apierrors.NewConflict(resource, s.pool.Name, errors.New("it changed meanwhile"))
	}
	return err
}

// writePool writes conditions of a pool and leaves all others alone. A lost race comes back soon.
func (r *Reconciler) writePool(ctx context.Context, pool *mcfgv1.MachineConfigPool, set func(*[]metav1.Condition, time.Time)) (ctrl.Result, error) {
	patch := status.NewPatcher(r.options.Client, pool, status.Owning(poolTypes...), status.KeepGeneration())
	conditions := pool.GetConditions()
	set(&conditions, status.NotBefore(r.options.Clock.Now(), conditions))
	pool.SetConditions(conditions)
	return patch.Finish(ctx, pool, ctrl.Result{}, nil)
}

// poolImage is what a pool's conditions say of its image.
type poolImage struct {
	is       mcfgv1.MachineConfigPoolConditionType
	reason   string
	message  string
	degraded bool
}

// imageOfPool is what a decision means for the pool. The texts begin as those of
// openshift/machine-config-operator do.
func imageOfPool(s *scope) poolImage {
	name := s.pool.Name
	stage := mcfgv1.BuildStagePending
	if s.build != nil {
		stage = status.BuildStageOf(s.build.Status.Conditions)
	}
	switch {
	case s.decision.Action == plan.Nothing && verdictOf(s) != nil:
		return verdictOf(s).ofPool(name)
	case s.decision.Action == plan.Nothing:
		return poolImage{is: mcfgv1.PoolBuildSuccess, reason: mcfgv1.ReasonBuildSuccess, message: "Build succeeded for pool " + name}
	case s.decision.Action == plan.Stop && stage == mcfgv1.BuildStageInterrupted:
		_, message := objects.FinalOf(s.build.Status.Conditions)
		return poolImage{
			is: mcfgv1.PoolBuildInterrupted, reason: mcfgv1.ReasonInterrupted, degraded: true,
			message: fmt.Sprintf("Build interrupted for pool %s (MachineOSBuild: %s): %s", name, s.build.Name, message),
		}
	case s.decision.Action == plan.Stop:
		text := fmt.Sprintf("Failed to build OS image for pool %s: %s: %s", name, s.decision.Reason, s.decision.Message)
		if stage == mcfgv1.BuildStageFailed {
			reason, message := objects.FinalOf(s.build.Status.Conditions)
			text = fmt.Sprintf("Failed to build OS image for pool %s (MachineOSBuild: %s): %s: %s", name, s.build.Name, reason, message)
		}
		return poolImage{is: mcfgv1.PoolBuildFailed, reason: mcfgv1.ReasonBuildFailed, message: text, degraded: true}
	case stage == mcfgv1.BuildStageInterrupted:
		return poolImage{is: mcfgv1.PoolBuildInterrupted, reason: mcfgv1.ReasonInterrupted, message: "Build interrupted for pool " + name}
	case stage == mcfgv1.BuildStagePrepared, stage == mcfgv1.BuildStageBuilding, stage == mcfgv1.BuildStageSucceeded:
		return poolImage{is: mcfgv1.PoolBuilding, reason: mcfgv1.ReasonBuilding, message: "Build started for pool " + name}
	default:
		return poolImage{is: mcfgv1.PoolBuildPending, reason: mcfgv1.ReasonBuildPending, message: s.decision.Message}
	}
}

// setPoolConditions writes the conditions of a pool that are about its image: one of the Build...
// family is True.
func setPoolConditions(conditions *[]metav1.Condition, now time.Time, s *scope) {
	image := imageOfPool(s)
	for _, t := range poolTypes {
		c := metav1.Condition{Type: t, Status: metav1.ConditionFalse, Reason: image.reason}
		if t == string(image.is) || t == string(mcfgv1.PoolImageBuildDegraded) {
			c.Message = image.message
		}
		if t == string(image.is) || t == string(mcfgv1.PoolImageBuildDegraded) && image.degraded {
			c.Status = metav1.ConditionTrue
		}
		status.Set(conditions, now, c)
	}
}

// setNoLayer takes back what was said of a pool that has no image of its own any more.
func setNoLayer(conditions *[]metav1.Condition, now time.Time) {
	if status.Find(*conditions, string(mcfgv1.PoolImageBuildDegraded)) == nil {
		return
	}
	for _, t := range poolTypes {
		status.Remove(conditions, t)
	}
	status.Set(conditions, now, metav1.Condition{
		Type: string(mcfgv1.PoolImageBuildDegraded), Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonNoLayeredObjects,
	})
}
