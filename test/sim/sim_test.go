package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
)

const (
	seeds = 500
	// stormy is how many ticks things break, and calm how many a pool of any size may take after
	// that.
	stormy, calm = 300, 1000
	// large is how many machines a large pool has, and largeStorm how long things break there.
	large, largeStorm = 200, 60
)

// TestRollouts plays many rollouts in which everything breaks for a while, and holds to each tick
// what is promised of each. After that, every node gets the target.
func TestRollouts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newWorld(seed).play(t, stormy)
		})
	}
}

// TestLargeRollouts does the same with many machines, several of which break at once.
func TestLargeRollouts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			newLargeWorld(seed).play(t, largeStorm)
		})
	}
}

func (w *world) play(t *testing.T, stormy int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(w.log, "\n"))
		}
	}()
	for ; w.tick < stormy; w.tick++ {
		for range 1 + len(w.machines)/50 {
			w.chaos()
		}
		w.step(t)
	}
	w.peace()
	for ; w.tick < stormy+calm && !w.isDone(); w.tick++ {
		w.step(t)
	}
	require.True(t, w.isDone(), "not every node has %s", w.target.Config)
}

// step lets everyone who is up act once.
func (w *world) step(t *testing.T) {
	t.Helper()
	if w.controllerDown <= w.tick && w.serverDown <= w.tick {
		in := w.input()
		p := plan.Decide(in)
		before := w.away()
		w.requireSound(t, &in, &p)
		w.apply(&p)
		w.requireAllowed(t, before)
		w.requireQuarantine(t)
	}
	for _, m := range w.machines {
		was, wasReady, mayGo := m.has(), m.Ready && !m.Unschedulable, !m.LiveOnly
		w.agent(m)
		if !mayGo && wasReady && (!m.Ready || m.Unschedulable) {
			require.Fail(t, m.Name+" went away in a live change")
		}
		if m.has() != was {
			require.True(t, w.verified[m.CurrentImage], "%s runs an image that was never verified", m.Name)
		}
	}
	w.requireBounded(t)
}

// away is how many machines are not available, also those that have just been told to change. One
// that is degraded and stays where it is runs its pods.
func (w *world) away() int {
	n := 0
	for _, m := range w.members() {
		isServing := m.IsHealthy() && (!m.IsMoving() || m.LiveOnly)
		if m.IsUnavailable() && (!m.IsDegraded() || !isServing) {
			n++
		}
	}
	return n
}

// requireSound holds to a plan what needs no memory.
func (w *world) requireSound(t *testing.T, in *plan.Input, p *plan.Plan) {
	t.Helper()
	told := map[string]bool{}
	for _, h := range p.Holds {
		if h.Reason == "" {
			require.Fail(t, "nothing says why "+h.Node+" is not moved")
		}
		told[h.Node] = true
	}
	for _, move := range p.Moves {
		told[move.Node] = true
		require.NotEmpty(t, move.Reason, "why %s is moved", move.Node)
		require.Equal(t, []string{w.pool.Name}, w.machine(move.Node).selecting, "%s moves while two pools claim it", move.Node)
		if move.Action == plan.Unstage {
			continue
		}
		if move.Action == plan.Repeat { // changes nothing, so that nothing holds it
			require.Equal(t, w.machine(move.Node).has(), move.Target, "what %s is told again", move.Node)
			continue
		}
		require.False(t, in.Pool.Spec.Paused, "%s moves while the pool is paused", move.Node)
		if move.Action == plan.Rollback {
			w.requireBack(t, in, &move)
			continue
		}
		require.Empty(t, in.Hold, "%s moves while the image is held back", move.Node)
		require.Empty(t, p.Halt, "%s moves while the rollout is halted", move.Node)
		require.False(t, w.quarantined[move.Image+move.Target.Image], "%s gets an image that is in quarantine", move.Node)
		require.True(t, w.verified[move.Image+move.Target.Image], "%s gets an image that was never verified", move.Node)
		if move.Action == plan.Update {
			w.requireQuorum(t, in, move.Node)
			require.NotEqual(t, w.target, w.machine(move.Node).FailedTarget, "%s gets again what it failed with", move.Node)
			if m := w.machine(move.Node); !m.IsDegraded() || !m.IsMoving() { // one that failed can't wait where it is
				require.True(t, p.Window.Open, "%s moves outside of the maintenance windows", move.Node)
				require.Empty(t, in.Wait.Reason, "%s moves before another pool", move.Node)
				w.requireBatch(t, p, move.Node)
			}
		}
	}
	w.requireOneOfTheControlPlane(t, p)
	left := 0
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !n.IsAt(in.Target) && !slices.Contains(p.FailedNodes, n.Name) {
			left++
		}
		if !n.IsAt(in.Target) && !told[n.Name] {
			require.Fail(t, "nothing says why "+n.Name+" does not have the target")
		}
	}
	require.Equal(t, left, p.Cost.Nodes(), "nodes that the cost is of")
	for _, name := range p.Away {
		m := w.machine(name)
		require.NotContains(t, p.FailedNodes, name, "alerts of a node that failed are not silenced")
		require.False(t, m.LiveOnly && !slices.ContainsFunc(p.Moves, func(m plan.Move) bool { return m.Node == name && !m.Live }) && !m.IsAt(in.Target), "%s does not go away", name)
	}
}

// requireQuarantine holds that no machine stages what is in quarantine. One that was told to boot
// it before goes on.
func (w *world) requireQuarantine(t *testing.T) {
	t.Helper()
	if !w.quarantined[w.target.Image] {
		return
	}
	for _, m := range w.members() {
		if m.isStaging(w.target.Image) && !m.IsOnItsWay(w.target) && m.HasAgent() && !m.Deleting {
			require.Fail(t, m.Name+" is to stage an image that is in quarantine")
		}
	}
}

// requireBack holds that a node which goes back failed, and that it had before what it goes back
// to.
func (w *world) requireBack(t *testing.T, in *plan.Input, move *plan.Move) {
	t.Helper()
	m := w.machine(move.Node)
	require.False(t, m.IsDegraded() && m.ReportedDesired != in.Target, "%s goes back from what it never heard of: %s", m.Name, move.Reason)
	require.Contains(t, []nodes.Target{m.Previous, m.has()}, move.Target, "what %s goes back to", move.Node)
	require.Equal(t, in.Target, move.Failed)
	require.NotEqual(t, in.Target, move.Target)
	require.NotEqual(t, mcfgv1.Disabled, automaticRollback(in.Pool))
}

func automaticRollback(pool *mcfgv1.MachineConfigPool) mcfgv1.Switch {
	if pool.Spec.Rollout == nil {
		return ""
	}
	return pool.Spec.Rollout.AutomaticRollback
}

// requireBounded holds that a bad image reached no more nodes than canaries and threshold allow.
func (w *world) requireBounded(t *testing.T) {
	t.Helper()
	r := w.pool.Spec.Rollout
	if r == nil || r.Canary == nil {
		return
	}
	threshold := max(2, w.joined/10)
	if r.HaltThreshold != nil {
		threshold = r.HaltThreshold.IntValue()
	}
	for image := range w.hit {
		if w.bad[image] && !w.resumed[image] {
			require.LessOrEqual(t, len(w.hit[image]), int(*r.Canary.MachineCount)+threshold, "nodes that ran a bad image")
		}
	}
}

// requireBatch holds that the first batch was done before a node outside of it was moved: each of
// so many nodes has the image, or failed with it.
func (w *world) requireBatch(t *testing.T, p *plan.Plan, node string) {
	t.Helper()
	r := w.pool.Spec.Rollout
	if r == nil || len(r.Batches) == 0 {
		return
	}
	batch, canaries := r.Batches[0].MachineCount.IntValue(), 0
	if r.Canary != nil {
		canaries = int(*r.Canary.MachineCount)
	}
	begun, finished := 0, 0
	for _, m := range w.members() {
		hasFailed := m.FailedTarget == w.target || slices.Contains(p.FailedNodes, m.Name)
		if m.has() == w.target && !m.IsMoving() || hasFailed { // with an edited file or without
			finished++
		}
		isBegun := m.IsAt(w.target) || m.FailedTarget == w.target || m.IsOnItsWay(w.target)
		if isBegun && m.Name != node { // one that was to change as it runs, and can't, is told again
			begun++
		}
	}
	for _, move := range p.Moves {
		if move.Node == node {
			break
		}
		if move.Action == plan.Update {
			begun++
		}
	}
	require.True(t, begun < batch+canaries || finished >= batch, "%s moves before the first batch is done", node)
}

// requireOneOfTheControlPlane holds that a plan takes at most one node of it away that works.
func (w *world) requireOneOfTheControlPlane(t *testing.T, p *plan.Plan) {
	t.Helper()
	if w.pool.Name != mcfgv1.PoolMaster {
		return
	}
	var working []string
	for _, move := range p.Moves {
		if (move.Action == plan.Update || move.Action == plan.Rollback) && w.machine(move.Node).Ready {
			working = append(working, move.Node)
		}
	}
	require.LessOrEqual(t, len(working), 1, "nodes of the control plane that move at once: %s", working)
}

// requireQuorum holds that etcd keeps its majority without the node, or loses nothing but it.
func (w *world) requireQuorum(t *testing.T, in *plan.Input, node string) {
	t.Helper()
	healthy, others := 0, 0
	for _, m := range in.Etcd {
		if m.Node == node {
			continue
		}
		others++
		if m.Healthy {
			healthy++
		}
	}
	require.True(t, healthy == others || healthy >= len(in.Etcd)/2+1, "%s takes etcd's majority away", node)
}

// requireAllowed holds that a plan took no more nodes away than the pool allows.
func (w *world) requireAllowed(t *testing.T, before int) {
	t.Helper()
	most := 1
	if w.pool.Name != mcfgv1.PoolMaster {
		switch value := w.pool.Spec.MaxUnavailable; value.String() {
		case "10%":
			most = max(1, len(w.members())/10)
		case "25%":
			most = max(1, len(w.members())/4)
		case "50%":
			most = max(1, len(w.members())/2)
		default:
			most = value.IntValue()
		}
	}
	require.LessOrEqual(t, w.away(), max(before, most), "nodes that are away")
}

func (w *world) isDone() bool {
	for _, m := range w.machines {
		if !m.IsAt(w.target) {
			return false
		}
	}
	return true
}
