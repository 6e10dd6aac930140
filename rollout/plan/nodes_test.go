package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/words"
)

// TestAbsentNodesDoNotBlock has nodes that nothing is heard of where others could go.
func TestAbsentNodesDoNotBlock(t *testing.T) {
	t.Parallel()
	down := func(n *plan.Node) { n.Ready = false }
	pulling := func(n *plan.Node) { n.StageImage = to().Image }
	tests := map[string]struct {
		pool  *mcfgv1.MachineConfigPool
		nodes []plan.Node
		want  []string
	}{
		"they are not the canaries": {
			rolling(mcfgv1.RolloutSpec{Canary: canary(1)}),
			[]plan.Node{node("a", staged, down), node("b", staged), node("c", staged)},
			[]string{"Update b: it has a slot", "a: is not Ready, and is not moved", "c: waits for the canaries: b"},
		},
		"they are canaries where there are no others": {
			rolling(mcfgv1.RolloutSpec{Canary: canary(1)}),
			[]plan.Node{node("a", staged, down)},
			[]string{"a: is not Ready, and is not moved"},
		},
		"a canary that has begun stays one": {
			rolling(mcfgv1.RolloutSpec{Canary: canary(1)}),
			[]plan.Node{node("a", asked, down), node("b", staged)},
			[]string{"a: is changing, and is not Ready", "b: waits for the canaries: a"},
		},
		"they do not fill a batch": {
			rolling(mcfgv1.RolloutSpec{Batches: []mcfgv1.RolloutBatch{batch("one", "1", "")}}),
			[]plan.Node{node("a", staged, down), node("b", staged), node("c", staged)},
			[]string{"Update b: it has a slot", "a: is not Ready, and is not moved", "c: waits for batch one: 0 of 1 nodes are healthy, and 1 have to be"},
		},
		"they pull nothing": {
			pool("worker", stagingOf(mcfgv1.StagingBackground, 1)),
			[]plan.Node{node("a", pulling, down), node("b")},
			[]string{"Stage b: it does not hold the image yet", "a: is not Ready, and is not moved"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plan.Decide(plan.Input{Pool: tt.pool, Target: to(), Image: to().Image, Nodes: tt.nodes, Now: t0})
			assert.Equal(t, tt.want, said(got))
		})
	}
}

// TestRemovedAnnotationsAreWrittenAgain has someone remove what says what a node should have.
func TestRemovedAnnotationsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	again := []string{"Repeat a: an annotation of what it should have was removed"}
	at := func(t nodes.Target) func(*plan.Node) {
		return func(n *plan.Node) { n.CurrentConfig, n.CurrentImage = t.Config, t.Image }
	}
	told := func(config, image string) func(*plan.Node) {
		return func(n *plan.Node) { n.DesiredConfig, n.DesiredImage = config, image }
	}
	layered := nodes.Target{Config: "rendered-1", Image: "old"}
	paused := pool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true })
	tests := map[string]struct {
		pool *mcfgv1.MachineConfigPool
		node plan.Node
		want []string
	}{
		"the image of a node that has the target":   {paused, node("a", at(to()), told(to().Config, "")), again},
		"the configuration of one that has it":      {paused, node("a", at(to()), told("", to().Image)), again},
		"both":                                      {paused, node("a", at(to()), told("", "")), again},
		"the image of a node that waits":            {paused, node("a", at(layered), told("rendered-1", "")), again},
		"a node that goes back because it failed":   {paused, node("a", at(layered), told("rendered-1", ""), func(n *plan.Node) { n.FailedTarget = layered }), []string{"a: the pool is paused"}},
		"a node that changes to something of old":   {paused, node("a", at(layered), told("rendered-1", "other")), []string{"a: the pool is paused"}},
		"a new node, which has said nothing so far": {paused, node("a", at(nodes.Target{}), told("", "")), []string{"a: the pool is paused"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plan.Decide(plan.Input{Pool: tt.pool, Target: to(), Image: to().Image, Nodes: []plan.Node{tt.node}, Now: t0})
			assert.Equal(t, tt.want, said(got))
			if len(got.Moves) > 0 {
				assert.Equal(t, nodes.Target{Config: tt.node.CurrentConfig, Image: tt.node.CurrentImage}, got.Moves[0].Target)
			}
		})
	}
}

// TestTheClocksOfNodesDecideNothing has nodes whose own clocks are wrong.
func TestTheClocksOfNodesDecideNothing(t *testing.T) {
	t.Parallel()
	started := t0.Add(-time.Hour)
	told := func(at time.Time, clock time.Duration, more ...func(*plan.Node)) plan.Node {
		n := node("a", since(-clock, check(false, "false")))
		n.RolloutStarted = at
		for _, m := range more {
			m(&n)
		}
		return n
	}
	ill := func(ago time.Duration) func(*plan.Node) {
		return func(n *plan.Node) { n.Health[0].Since = t0.Add(-ago) }
	}
	down := func(ago time.Duration) func(*plan.Node) {
		return func(n *plan.Node) { n.Ready, n.Health, n.Unready = false, nil, t0.Add(-ago) }
	}
	const pending, lost = "a: is not healthy yet: check disk is false", "Rollback a: health check disk did not hold within 10m0s: false"
	tests := map[string]struct {
		node plan.Node
		want []string
	}{
		"a clock that is behind keeps no node from being judged": {told(started, -2*time.Hour, ill(0)), []string{pending}},
		"a clock that is behind fails no node":                   {told(started, -30*time.Minute, ill(time.Minute)), []string{pending}},
		"a clock that is ahead gives no node more time":          {told(started, 5*time.Hour, ill(10*time.Minute)), []string{lost}},
		"a node of another rollout is not judged":                {told(started.Add(-time.Second), 0, ill(time.Hour)), nil},
		"a node that is not Ready has its time by this clock":    {told(started, -2*time.Hour, down(time.Minute)), []string{"a: has the image, and is not Ready"}},
		"and fails by this clock":                                {told(started, 5*time.Hour, down(10*time.Minute)), []string{"Rollback a: was not Ready within 10m0s of its update"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plan.Decide(plan.Input{
				Pool: rolling(mcfgv1.RolloutSpec{}), Target: to(), Image: to().Image, Nodes: []plan.Node{tt.node}, Now: t0, Started: started,
			})
			assert.Equal(t, tt.want, said(got))
		})
	}
}

// TestNodeMessagesAreBounded has many nodes fail, each at length: what the plan says of it is the
// same for all nodes that it holds, so that its size does not grow with both numbers.
func TestNodeMessagesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1024)
	list := append(many(500, asked, failed, func(n *plan.Node) { n.Reason = long }), node("z", staged))
	got := plan.Decide(plan.Input{Pool: rolling(mcfgv1.RolloutSpec{}), Target: to(), Image: to().Image, Nodes: list, Now: t0})
	assert.Equal(t, 500, got.Failed)
	assert.Less(t, len(got.Halt), 11*1100)
	assert.Contains(t, got.Halt, "; and 490 more")
}

func TestShortenMakesALine(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a  [31mred b", words.Shorten("a\n\x1b[31mred\tb", 100))
	assert.Equal(t, "é", words.Shorten("é", 2))
}

// TestNodesOfASupersededRolloutAreJudged is about a target that is wanted again.
func TestNodesOfASupersededRolloutAreJudged(t *testing.T) {
	t.Parallel()
	told := func(n *plan.Node) { n.RolloutStarted = t0.Add(-time.Minute) }
	got := plan.Decide(plan.Input{
		Pool: rolling(mcfgv1.RolloutSpec{Canary: canary(1)}), Target: to(), Image: to().Image, Now: t0, Superseded: t0.Add(-time.Minute),
		Nodes: []plan.Node{node("a", since(0, check(false, "false")), told), node("b", staged)},
	})
	assert.Equal(t, []string{"a: is not healthy yet: check disk is false", "b: waits for the canaries: a"}, said(got))
}
