package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
)

// changes is a node that holds the image and says what that does to it.
func changes(change string) func(*plan.Node) {
	return func(n *plan.Node) {
		staged(n)
		n.StagedChange = change
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	runs := func(digit string) func(*plan.Node) {
		return func(n *plan.Node) { n.RunsImage = mcfgv1.ImageDigestFormat(nodestest.Pinned(digit)) }
	}
	small, large := new(int64(20e6)), new(int64(1500e6))
	pull := plan.Pull{Previous: mcfgv1.ImageDigestFormat(nodestest.Pinned("1")), Less: small, All: large}
	tests := map[string]struct {
		nodes []plan.Node
		pull  plan.Pull
		want  plan.Cost
	}{
		"no nodes": {want: plan.Cost{Parallel: 2}},
		"what each node says": {nodes: []plan.Node{
			node("a", changes(mcfgv1.NodeChangeReboot)), node("b", changes(mcfgv1.NodeChangeSoftReboot)), node("c", changes(mcfgv1.NodeChangeDrain)),
			node("d", changes(mcfgv1.NodeChangeLive)), node("e", changes("Teleport")), node("f", changes("")), node("g"),
		}, want: plan.Cost{Reboots: 1, SoftReboots: 1, Drains: 1, Live: 1, Unknown: 3, Parallel: 2}},
		"what a node says of another image": {nodes: []plan.Node{
			node("a", changes(mcfgv1.NodeChangeLive), func(n *plan.Node) { n.StagedImage = nodestest.Pinned("7") }),
		}, want: plan.Cost{Unknown: 1, Parallel: 2}},
		"nodes that are done, failed or deleted": {nodes: []plan.Node{
			node("a", arrived), node("b", wentBack), node("c", asked, failed), node("d", func(n *plan.Node) { n.Deleting = true }),
		}, want: plan.Cost{Parallel: 2}},
		"a node on its way":                  {nodes: []plan.Node{node("a", changes(mcfgv1.NodeChangeReboot), asked)}, want: plan.Cost{Reboots: 1, Parallel: 2}},
		"nodes that run the image before":    {nodes: []plan.Node{node("a", runs("1")), node("b", runs("1"))}, pull: pull, want: plan.Cost{Unknown: 2, Parallel: 2, Pull: small}},
		"one that runs another one":          {nodes: []plan.Node{node("a", runs("1")), node("b", runs("5"))}, pull: pull, want: plan.Cost{Unknown: 2, Parallel: 2, Pull: large}},
		"one of which nothing is known":      {nodes: []plan.Node{node("a", runs("1")), node("b")}, pull: pull, want: plan.Cost{Unknown: 2, Parallel: 2, Pull: large}},
		"the image does not say it":          {nodes: []plan.Node{node("a", runs("1"))}, want: plan.Cost{Unknown: 1, Parallel: 2}},
		"it does not say it for one of them": {nodes: []plan.Node{node("a", runs("1")), node("b", runs("5"))}, pull: plan.Pull{Previous: pull.Previous, Less: small}, want: plan.Cost{Unknown: 2, Parallel: 2}},
		"all hold it":                        {nodes: []plan.Node{node("a", changes(mcfgv1.NodeChangeReboot))}, pull: pull, want: plan.Cost{Reboots: 1, Parallel: 2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := plan.Input{Pool: pool("worker", unavailable("2")), Target: to(), Image: to().Image, Pull: tt.pull, Nodes: tt.nodes, Now: t0}
			assert.Equal(t, tt.want, plan.Decide(in).Cost)
		})
	}
}

func TestCostText(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cost plan.Cost
		each time.Duration
		took time.Duration
		says string
	}{
		"nothing but reboots": {plan.Cost{Reboots: 9, Parallel: 2}, 4 * time.Minute, 20 * time.Minute, "nodes: 9 reboot; about 20m in all"},
		"all of it": {
			plan.Cost{Reboots: 3, SoftReboots: 1, Drains: 1, Live: 2, Unknown: 4, Parallel: 3, Pull: new(int64(181e6))},
			30 * time.Minute, 90 * time.Minute,
			"nodes: 3 reboot, 1 soft-reboot, 1 only drained, 2 without drain or reboot, 4 not known yet; about 1h30m in all; a node pulls at most 181 MB",
		},
		"how long is not known":  {plan.Cost{Unknown: 3, Parallel: 1, Pull: new(int64(1500e6))}, 0, 0, "nodes: 3 not known yet; a node pulls at most 1.5 GB"},
		"a layer is tiny":        {plan.Cost{Unknown: 1, Parallel: 1, Pull: new(int64(152))}, 0, 0, "nodes: 1 not known yet; a node pulls at most 152 B"},
		"no node has to go away": {plan.Cost{Live: 3, Parallel: 1, Pull: new(int64(1200))}, time.Minute, 0, "nodes: 3 without drain or reboot; a node pulls at most 1 kB"},
		"it takes seconds":       {plan.Cost{Drains: 1, Parallel: 1}, 3 * time.Second, 3 * time.Second, "nodes: 1 only drained; about 1m in all"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			took := tt.cost.Duration(tt.each)
			assert.Equal(t, tt.took, took)
			assert.Equal(t, tt.says, tt.cost.Words(took))
		})
	}
}

func TestWhichNodesAreAway(t *testing.T) {
	t.Parallel()
	live := func(n *plan.Node) { n.LiveOnly = true }
	unhealthy := func(n *plan.Node) {
		n.Arrived, n.Health = t0, []plan.HealthResult{{Name: "disk", Value: "false", Timeout: time.Minute}}
	}
	broken := func(n *plan.Node) { n.Arrived, n.Health = t0, []plan.HealthResult{{Name: "disk", Broken: true}} }
	tests := map[string]struct {
		nodes []plan.Node
		want  []string
	}{
		"those that are told now":             {[]plan.Node{node("a", staged), node("b", staged), node("c", staged)}, []string{"a", "b"}},
		"those that stage":                    {[]plan.Node{node("a"), node("b")}, nil},
		"those that are on their way":         {[]plan.Node{node("a", staged, asked), node("b")}, []string{"a"}},
		"those that finish another change":    {[]plan.Node{node("a", func(n *plan.Node) { n.DesiredConfig = "z" })}, []string{"a"}},
		"not those that change as they run":   {[]plan.Node{node("a", changes(mcfgv1.NodeChangeLive)), node("b", changes(mcfgv1.NodeChangeLive), asked, live)}, nil},
		"those that are not healthy yet":      {[]plan.Node{node("a", arrived, unhealthy)}, []string{"a"}},
		"not those that can't be judged":      {[]plan.Node{node("a", arrived, broken)}, nil},
		"not those that failed":               {[]plan.Node{node("a", asked, failed), node("b", wentBack)}, nil},
		"not those that are updated, and fit": {[]plan.Node{node("a", arrived)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := plan.Input{Pool: pool("worker", unavailable("2")), Target: to(), Image: to().Image, Nodes: tt.nodes, Now: t0, Started: t0}
			assert.Equal(t, tt.want, plan.Decide(in).Away)
		})
	}
}
