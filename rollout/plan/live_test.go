package plan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
)

// TestLiveChangesTakeNoSlot has three nodes that hold the image, of a pool that lets one go away.
func TestLiveChangesTakeNoSlot(t *testing.T) {
	t.Parallel()
	target := nodes.Target{Config: "new", Image: nodestest.Pinned("2")}
	input := func(change ...func(*plan.Node)) plan.Input {
		pool := &mcfgv1.MachineConfigPool{}
		pool.Name = mcfgv1.PoolWorker
		in := plan.Input{Pool: pool, Target: target, Image: target.Image}
		for _, name := range []string{"a", "b", "c"} {
			n := plan.Node{
				Node:   nodes.Observe(nodestest.New(name, []string{"worker"}, nodestest.Having("old"), nodestest.HavingImage("1"))),
				Stages: true, StageImage: target.Image, StagedImage: target.Image, StagedChange: mcfgv1.NodeChangeLive,
			}
			if len(in.Nodes) < len(change) {
				change[len(in.Nodes)](&n)
			}
			in.Nodes = append(in.Nodes, n)
		}
		return in
	}
	reboots := func(n *plan.Node) { n.StagedChange = mcfgv1.NodeChangeReboot }
	onTheWay := func(n *plan.Node) { n.DesiredConfig, n.DesiredImage, n.LiveOnly = target.Config, target.Image, true }
	cant := func(n *plan.Node) { onTheWay(n); reboots(n) }
	cannot := func(n *plan.Node) { cant(n) }
	away := func(n *plan.Node) { onTheWay(n); n.LiveOnly = false }
	// stays has the image of the target and an older configuration, and answers has said what that
	// does to it.
	stays := func(n *plan.Node) {
		n.CurrentImage, n.DesiredImage = target.Image, target.Image
		n.StageImage, n.StagedImage, n.StagedChange, n.SameArguments = "", "", "", true
	}
	otherArguments := func(n *plan.Node) { stays(n); n.SameArguments = false }
	asked := func(n *plan.Node) { stays(n); onTheWay(n) }
	answers := func(n *plan.Node) { asked(n); n.StagedImage, n.StagedChange = target.Image, mcfgv1.NodeChangeReboot }
	anOldAgent := func(n *plan.Node) { stays(n); n.Stages = false }
	staying := func(change ...func(*plan.Node)) plan.Input {
		for len(change) < 3 {
			change = append(change, stays)
		}
		return input(change...)
	}
	waiting := func(in plan.Input) plan.Input {
		in.Wait.Reason = "waits for pool infra"
		return in
	}
	tests := map[string]struct {
		in plan.Input
		// live and slots are the names of the nodes that are moved as they run, and of the others.
		live, slots []string
	}{
		"all at once":                         {input(), []string{"a", "b", "c"}, nil},
		"beside one that goes away":           {input(away), []string{"b", "c"}, nil},
		"one that has to reboot takes a slot": {input(reboots), []string{"b", "c"}, []string{"a"}},
		"one on its way holds no one back":    {input(onTheWay, reboots), []string{"c"}, []string{"b"}},
		"one that finds that it can't":        {input(cant), []string{"b", "c"}, []string{"a"}},
		"two that find that they can't":       {input(cant, cannot), []string{"c"}, []string{"a"}},
		"one that can't waits for one away":   {input(away, cant), []string{"c"}, nil},
		"the image stays":                     {staying(), []string{"a", "b", "c"}, nil},
		"the image stays beside one away":     {staying(away), []string{"b", "c"}, nil},
		"the image stays, other arguments":    {staying(otherArguments), []string{"b", "c"}, []string{"a"}},
		"the image stays, not answered yet":   {staying(asked), []string{"b", "c"}, nil},
		"the image stays, a policy reboots":   {staying(answers), []string{"b", "c"}, []string{"a"}},
		"the image stays, an older agent":     {staying(anOldAgent), []string{"b", "c"}, []string{"a"}},
		"one that can't waits for a pool":     {waiting(input(cant)), nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var live, slots []string
			for _, m := range plan.Decide(tt.in).Moves {
				if m.Live {
					live = append(live, m.Node)
				} else {
					slots = append(slots, m.Node)
				}
			}
			assert.Equal(t, tt.live, live)
			assert.Equal(t, tt.slots, slots)
		})
	}
}

// turn has a node wait that was to change as it runs, and can't.
func turn(n *plan.Node) {
	n.DesiredConfig, n.DesiredImage, n.LiveOnly = to().Config, to().Image, true
	n.StagedImage, n.StagedChange = to().Image, mcfgv1.NodeChangeReboot
}

func TestTurnsFollowTheHaltThreshold(t *testing.T) {
	t.Parallel()
	got := plan.Decide(plan.Input{
		Pool: rolling(mcfgv1.RolloutSpec{HaltThreshold: new(intstr.FromInt32(1))}), Target: to(), Image: to().Image, Now: t0,
		Nodes: []plan.Node{node("a", turn), node("b", turn), node("c", turn)},
	})
	assert.Equal(t, []string{
		"Update a: it needs a drain or reboot, and has a slot", "b: waits until others are healthy: haltThreshold allows 1 nodes to try at a time",
		"c: waits until others are healthy: haltThreshold allows 1 nodes to try at a time",
	}, said(got))
}

// TestATurnThatIsTakenBack has begun nothing, so that it needs neither slot nor window.
func TestATurnThatIsTakenBack(t *testing.T) {
	t.Parallel()
	a := node("a", turn)
	has := nodes.Target{Config: a.CurrentConfig, Image: a.CurrentImage}
	paused := pool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	got := plan.Decide(plan.Input{Pool: paused, Target: has, Image: has.Image, Nodes: []plan.Node{a}, Now: t0})
	assert.Equal(t, []string{"Repeat a: it has what it should, and has begun nothing else"}, said(got))
	assert.Equal(t, has, got.Moves[0].Target)
}
