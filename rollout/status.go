package rollout

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/webhook"
)

// setStatus says in the pool's status what its nodes should have, and how far they are. An image
// that is held back changes nothing of what the nodes should have.
func setStatus(pool *mcfgv1.MachineConfigPool, s *scope, now time.Time) {
	v, p := &s.verdict, &s.plan
	if v.Hold == "" {
		pool.Status.OSImagePullSpec = mcfgv1.ImageDigestFormat(v.Target.Image)
		pool.Status.ShortDigest = pool.Status.OSImagePullSpec.Short()
	}
	before := pool.Status.Rollout
	if before == nil {
		before = &mcfgv1.RolloutStatus{}
	}
	r := &mcfgv1.RolloutStatus{
		Summary: p.Summary(), WaitingFor: p.WaitingFor(),
		TargetConfiguration: v.Target.Config, TargetImagePullSpec: mcfgv1.ImageDigestFormat(v.Image),
		StagedMachineCount: count(p.Staged), UpdatedMachineCount: count(p.Updated),
		FailedMachineCount: count(p.Failed), RolledBackMachineCount: count(p.RolledBack),
		StartTime: before.StartTime, CompletionTime: before.CompletionTime,
		MachineUpdateSeconds: updateSeconds(before.MachineUpdateSeconds, s.took),
	}
	r.Cost = costOf(&p.Cost, r.MachineUpdateSeconds)
	if !p.SoakEnd.IsZero() {
		r.CanarySoakEndTime = ptr.To(status.Second(p.SoakEnd))
	}
	isDone := p.Hold == "" && p.Updated == p.Total
	r.SupersededStartTime = before.SupersededStartTime
	if !isAbout(before, v) {
		r.SupersededStartTime = superseded(before, pool, now)
	}
	if !isAbout(before, v) || s.isUnderWay() && r.CompletionTime != nil {
		r.StartTime, r.CompletionTime = nil, nil // another rollout
	}
	if r.StartTime == nil && s.isUnderWay() {
		r.StartTime = ptr.To(status.Second(now))
	}
	if isDone && r.CompletionTime == nil && r.StartTime != nil {
		r.CompletionTime = ptr.To(status.Second(now))
	}
	if isDone {
		r.SupersededStartTime = nil // what nodes have is proven
	}
	r.EstimatedCompletionTime = estimate(before, r, p, now)
	pool.Status.Rollout = r
	conditions := pool.GetConditions()
	status.Set(&conditions, now, rolloutDegraded(s))
	pool.SetConditions(conditions)
}

// superseded is the start of a rollout that another one takes the place of, before its canaries
// have soaked, or a node was healthy where the pool has none. One in which no node was told to
// change leaves that of the rollout before.
func superseded(r *mcfgv1.RolloutStatus, pool *mcfgv1.MachineConfigPool, now time.Time) *metav1.Time {
	hasCanary := pool.Spec.Rollout != nil && pool.Spec.Rollout.Canary != nil
	hasSoaked := r.CanarySoakEndTime != nil && !now.Before(r.CanarySoakEndTime.Time)
	switch {
	case r.StartTime == nil && r.CompletionTime == nil:
		return r.SupersededStartTime
	case r.CompletionTime != nil, hasCanary && hasSoaked, !hasCanary && r.UpdatedMachineCount > 0:
		return nil
	default:
		return r.StartTime
	}
}

// estimate is when the rollout will be over. It changes only with the number of nodes that are
// updated: a status that changed with the clock would be written again and again.
func estimate(before, after *mcfgv1.RolloutStatus, p *plan.Plan, now time.Time) *metav1.Time {
	if after.StartTime == nil || after.CompletionTime != nil {
		return nil
	}
	isSame := after.StartTime.Equal(before.StartTime) && after.UpdatedMachineCount == before.UpdatedMachineCount
	if isSame && before.EstimatedCompletionTime != nil {
		return before.EstimatedCompletionTime
	}
	at := p.Estimate(after.StartTime.Time, now)
	if at.IsZero() {
		return nil
	}
	return ptr.To(status.Second(at))
}

// updateSeconds is how long the update of a node takes, by what it was known to be before and what
// the last ones took.
func updateSeconds(before *int64, took []time.Duration) *int64 {
	for _, t := range took {
		seconds := int64(t.Round(time.Second).Seconds())
		if before != nil {
			seconds = (*before + seconds) / 2 //nolint:mnd // the mean of the two
		}
		before = &seconds
	}
	return before
}

// costOf is the cost of a plan for the status; nil where nothing is left to do.
func costOf(c *plan.Cost, updateSeconds *int64) *mcfgv1.RolloutCost {
	if c.Nodes() == 0 {
		return nil
	}
	out := &mcfgv1.RolloutCost{
		RebootMachineCount: count(c.Reboots), SoftRebootMachineCount: count(c.SoftReboots), DrainMachineCount: count(c.Drains),
		LiveMachineCount: count(c.Live), UnknownMachineCount: count(c.Unknown), PullBytes: c.Pull,
	}
	var took time.Duration
	if updateSeconds != nil {
		took = c.Duration(time.Duration(*updateSeconds) * time.Second)
		out.DurationSeconds = new(int64(took.Seconds()))
	}
	out.Summary = c.Words(took)
	return out
}

// isUnderWay reports whether a node has been told to change to the target, and is not there.
func (s *scope) isUnderWay() bool {
	return s.plan.Updates() || slices.ContainsFunc(s.members, func(n plan.Node) bool {
		return n.IsOnItsWay(s.verdict.Target) && n.IsMoving()
	})
}

func count(n int) int32 {
	return int32(n) //nolint:gosec // no cluster has two billion nodes
}

// report tells about what changed between two states of a pool that have been written.
func (r *Reconciler) report(before *mcfgv1.MachineConfigPool, s *scope) {
	after, v := s.pool, &s.verdict
	was, is := before.Status.Rollout, after.Status.Rollout
	if was == nil {
		was = &mcfgv1.RolloutStatus{}
	}
	if isHalted(after) && !isHalted(before) {
		r.events.Publish(after, events.RolloutHalted(s.halted()))
		r.tellWebhook(s, webhook.Halted, "", s.halted())
	}
	switch {
	case v.Refused() && mentions(is.WaitingFor, v.Failed) && !mentions(was.WaitingFor, v.Failed):
		r.events.Publish(after, events.ImageHeldBack(v.Reason()))
	case is.StartTime != nil && was.StartTime == nil && is.CompletionTime == nil:
		r.events.Publish(after, events.PoolUpdating(after.Name))
		r.tellWebhook(s, webhook.Started, "", is.Summary)
	case is.CompletionTime != nil && was.CompletionTime == nil:
		r.events.Publish(after, events.PoolCompleted(after.Name))
		r.tellWebhook(s, webhook.Completed, "", is.Summary)
	}
}

// isHalted reports whether the rollout of a pool is halted.
func isHalted(pool *mcfgv1.MachineConfigPool) bool {
	c := status.Find(pool.GetConditions(), typeRolloutDegraded)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == mcfgv1.ReasonRolloutHalted
}

// mentions reports whether a line of status.rollout.waitingFor says that a check failed.
func mentions(lines []string, check plan.Check) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "check "+string(check)+": ") })
}
