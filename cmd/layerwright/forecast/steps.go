package forecast

import (
	"slices"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/words"
)

const (
	// maxSteps is how many steps are foreseen: the more nodes a pool has, the longer each takes.
	maxSteps = 50
	// maxRounds ends a plan that waits again and again, such as for a window that is too short.
	maxRounds = 1000
)

// walk foresees the steps. What holds a node now is found first; then all nodes do what they are
// told.
func (f *Forecast) walk(in *Input, first plan.Input) {
	now := plan.Decide(first)
	for _, hold := range now.Holds {
		f.addReason(in, hold.Node, hold.Reason)
	}
	for _, m := range now.Moves {
		if m.Action == plan.Rollback {
			f.addReason(in, m.Node, words.UpdateFailed+": "+m.Reason)
		}
	}
	w := &walk{in: first, changes: map[string]string{}, each: updateTime(in.Pool)}
	w.in.Nodes = slices.Clone(first.Nodes)
	for i := range w.in.Nodes {
		w.begin(&w.in.Nodes[i], f)
	}
	w.run()
	f.Steps = w.steps
	for _, step := range f.Steps {
		for _, n := range step.Nodes {
			f.drained[n.Node] = n.Change != mcfgv1.NodeChangeLive
		}
	}
	if len(w.steps) == maxSteps {
		for i := range w.in.Nodes {
			if n := &w.in.Nodes[i]; !n.IsAt(w.in.Target) {
				f.More++
				f.drained[n.Name] = w.changes[n.Name] != mcfgv1.NodeChangeLive
			}
		}
		return
	}
	for _, hold := range w.plan.Holds {
		f.addReason(in, hold.Node, hold.Reason)
	}
}

// updateTime is how long the update of a node takes; 0 where that is not known.
func updateTime(pool *mcfgv1.MachineConfigPool) time.Duration {
	if r := pool.Status.Rollout; r != nil && r.MachineUpdateSeconds != nil {
		return time.Duration(*r.MachineUpdateSeconds) * time.Second
	}
	return 0
}

// walk goes through a rollout.
type walk struct {
	in    plan.Input
	plan  plan.Plan
	steps []Step
	// changes are what nodes have said that will happen to them.
	changes map[string]string
	each    time.Duration
}

// begin has a node finish what it has begun, and stage the image.
func (w *walk) begin(n *plan.Node, f *Forecast) {
	image := w.in.Image
	if n.StagedImage == image && image != "" {
		w.changes[n.Name] = n.StagedChange
	}
	waitsForTurn := n.LiveOnly && n.StagedImage != "" && n.StagedChange != mcfgv1.NodeChangeLive
	switch {
	case n.IsAt(w.in.Target):
		f.Updated++
	case n.IsMoving() && !n.IsDegraded() && !waitsForTurn:
		if n.IsOnItsWay(w.in.Target) {
			f.UnderWay = append(f.UnderWay, n.Name)
			f.drained[n.Name] = !n.LiveOnly
		}
		w.arrive(n, nodes.Target{Config: n.DesiredConfig, Image: n.DesiredImage})
	case n.IsAtWork():
		n.State = mcfgv1.NodeStateDone
	}
	if n.Stages && n.StageError == "" && !n.IsAt(w.in.Target) && n.CurrentImage != image {
		n.StageImage, n.StagedImage, n.StagedChange = image, image, w.changes[n.Name]
	}
}

// arrive has a node be at a target, and healthy.
func (w *walk) arrive(n *plan.Node, t nodes.Target) {
	n.Previous = nodes.Target{Config: n.CurrentConfig, Image: n.CurrentImage}
	n.CurrentConfig, n.CurrentImage, n.DesiredConfig, n.DesiredImage = t.Config, t.Image, t.Config, t.Image
	n.State, n.Reason, n.LiveOnly, n.Ready, n.Unschedulable = mcfgv1.NodeStateDone, "", false, true, false
	n.StageImage, n.StagedImage, n.StagedChange, n.LastAppliedDrain = "", "", "", n.DesiredDrain
	n.Rebooting, n.RolloutStarted, n.Arrived = time.Time{}, w.in.Started, w.in.Now
}

// run goes on until no node moves any more.
func (w *walk) run() {
	waited := map[string]string{}
	for range maxRounds {
		w.plan = plan.Decide(w.in)
		w.in.SoakEnd = w.plan.SoakEnd
		step := w.take(waited)
		if step != nil {
			w.steps = append(w.steps, *step)
			w.in.Now = w.in.Now.Add(w.each)
		}
		if len(w.steps) == maxSteps {
			return
		}
		if len(w.plan.Moves) == 0 {
			if !w.plan.Next.After(w.in.Now) {
				return
			}
			w.in.Now = w.plan.Next
		}
		waited = map[string]string{}
		for _, hold := range w.plan.Holds {
			waited[hold.Node] = hold.Reason
		}
	}
}

// take does what a plan says, which is a step where nodes change.
func (w *walk) take(waited map[string]string) *Step {
	step := &Step{Earliest: w.in.Now}
	if w.in.Started.IsZero() && w.plan.Updates() {
		w.in.Started = w.in.Now
	}
	byName := make(map[string]*plan.Node, len(w.in.Nodes))
	for i := range w.in.Nodes {
		byName[w.in.Nodes[i].Name] = &w.in.Nodes[i]
	}
	for _, m := range w.plan.Moves {
		n := byName[m.Node]
		switch m.Action {
		case plan.Stage:
			n.StageImage, n.StagedImage = m.Image, m.Image
		case plan.Unstage:
			n.StageImage = ""
		case plan.Repeat:
			n.DesiredConfig, n.DesiredImage = m.Target.Config, m.Target.Image
		case plan.Rollback:
			n.FailedTarget, n.FailedReason = m.Failed, m.Reason
			w.arrive(n, m.Target)
		case plan.Update:
			if step.After == "" {
				step.After = waited[m.Node]
			}
			step.Nodes = append(step.Nodes, NodeStep{m.Node, w.changes[m.Node]})
			w.arrive(n, m.Target)
		}
	}
	if step.Nodes == nil {
		return nil
	}
	return step
}
