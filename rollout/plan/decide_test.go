package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/words"
)

// t0 is when the tests take place.
var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// pool is a pool of three that take one after the other, with changes.
func pool(name string, change ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range change {
		c(p)
	}
	return p
}

func unavailable(value string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.Parse(value)) }
}

func stagingOf(mode mcfgv1.StagingMode, parallel int32) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Rollout = &mcfgv1.RolloutSpec{Staging: &mcfgv1.RolloutStaging{Mode: mode, MaxParallel: ptr.To(parallel)}}
	}
}

// to is the target of most tests: configuration b with image 2.
func to() nodes.Target { return nodes.Target{Config: "b", Image: nodestest.Pinned("2")} }

// node has configuration a and image 1, and is Done.
func node(name string, change ...func(*plan.Node)) plan.Node {
	n := plan.Node{
		Node:    nodes.Observe(nodestest.New(name, []string{"worker"}, nodestest.Having("a"), nodestest.HavingImage("1"))),
		Created: t0, Stages: true,
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

func staged(n *plan.Node) {
	n.StageImage, n.StagedImage = nodestest.Pinned("2"), nodestest.Pinned("2")
}

func asked(n *plan.Node) { n.DesiredConfig, n.DesiredImage = to().Config, to().Image }

func arrived(n *plan.Node) {
	asked(n)
	n.CurrentConfig, n.CurrentImage, n.State = to().Config, to().Image, mcfgv1.NodeStateDone
}

func failed(n *plan.Node) {
	n.State, n.Reason = mcfgv1.NodeStateDegraded, "disk full"
}

func down(n *plan.Node) { n.Ready = false }

// wentBack is a node that was rolled back from the target.
func wentBack(n *plan.Node) { n.FailedTarget, n.FailedReason = to(), "no disk" }

func rollback(s mcfgv1.Switch) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Spec.Rollout = &mcfgv1.RolloutSpec{AutomaticRollback: s} }
}

// said is a plan in a line for each move and hold.
func said(p plan.Plan) []string {
	var lines []string
	for _, m := range p.Moves {
		lines = append(lines, fmt.Sprintf("%s %s: %s", m.Action, m.Node, m.Reason))
	}
	for _, h := range p.Holds {
		lines = append(lines, h.String())
	}
	return lines
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const turn = "waits for a slot: maxUnavailable allows 1 unavailable at a time: "
	tests := map[string]struct {
		pool  *mcfgv1.MachineConfigPool
		hold  string
		etcd  []plan.EtcdMember
		nodes []plan.Node
		want  []string
	}{
		"all nodes stage at once": {
			nodes: []plan.Node{node("a"), node("b")},
			want:  []string{"Stage a: it does not hold the image yet", "Stage b: it does not hold the image yet"},
		},
		"no more nodes stage than the pool allows": {
			pool:  pool("worker", stagingOf(mcfgv1.StagingBackground, 1)),
			nodes: []plan.Node{node("a"), node("b")},
			want: []string{
				"Stage a: it does not hold the image yet",
				"b: waits to stage the image: spec.rollout.staging.maxParallel nodes are staging already",
			},
		},
		"a node that can't stage takes no slot": {
			pool: pool("worker", stagingOf(mcfgv1.StagingBackground, 1)),
			nodes: []plan.Node{node("a", func(n *plan.Node) {
				n.StageImage, n.StageError = nodestest.Pinned("2"), "registry does not answer"
			}), node("b")},
			want: []string{"Stage b: it does not hold the image yet", "a: can't stage the image: registry does not answer"},
		},
		"a host that can't do it takes no slot, and is no failure": {
			pool: pool("worker", stagingOf(mcfgv1.StagingBackground, 1)),
			nodes: []plan.Node{node("a", func(n *plan.Node) {
				n.StageImage, n.HostError, n.StageError = nodestest.Pinned("2"), "its bootc 1.4 can't set kernel arguments", "the same"
			}), node("b")},
			want: []string{"Stage b: it does not hold the image yet", "a: its host can't take the update: its bootc 1.4 can't set kernel arguments"},
		},
		"a host that waits for its policy": {
			nodes: []plan.Node{node("a", func(n *plan.Node) {
				n.StageImage, n.HostError, n.StageError, n.HostWaits = nodestest.Pinned("2"), "its policy", "the same", true
			})},
			want: []string{"a: its host can't take the update yet: its policy"},
		},
		"a host that can't do it with a slot": {
			nodes: []plan.Node{node("a", asked, func(n *plan.Node) {
				n.ReportedDesired, n.HostError, n.StepError = to(), "its /etc is read-only", "the same"
			})},
			want: []string{"a: its host can't take the update: its /etc is read-only"},
		},
		"a host without a lock": {
			nodes: []plan.Node{node("a", staged), node("b", staged, func(n *plan.Node) { n.BootsStaged = true }), node("c", func(n *plan.Node) { n.BootsStaged = true })},
			want: []string{
				"Update a: it has a slot", "Stage c: it does not hold the image yet",
				"b: " + turn + "a is told to change, and any reboot of it boots the staged image, which its host can't lock",
			},
		},
		"the first that holds the image changes": {
			nodes: []plan.Node{node("a", func(n *plan.Node) { n.StageImage = nodestest.Pinned("2") }), node("b", staged), node("c", staged)},
			want:  []string{"Update b: it has a slot", "a: stages the image", "c: " + turn + "b is told to change"},
		},
		"nodes stage when drained where the pool says so": {
			pool:  pool("worker", stagingOf(mcfgv1.StagingOnDrain, 1)),
			nodes: []plan.Node{node("a"), node("b")},
			want:  []string{"Update a: it has a slot", "b: " + turn + "a is told to change"},
		},
		"an agent that can't stage is not waited for": {
			nodes: []plan.Node{node("a", func(n *plan.Node) { n.Stages = false })},
			want:  []string{"Update a: it has a slot"},
		},
		"one on its way takes the room of the next": {
			nodes: []plan.Node{node("a", staged, asked, func(n *plan.Node) { n.State = mcfgv1.NodeStateRebooting }), node("b", staged)},
			want:  []string{"a: is rebooting", "b: " + turn + "a is rebooting"},
		},
		"a drain says who blocks it": {
			nodes: []plan.Node{node("a", staged, asked, func(n *plan.Node) {
				n.DesiredDrain, n.DrainBlocked = "drain-x", "pod ns/db-0 blocked by budget db"
			})},
			want: []string{"a: is draining: pod ns/db-0 blocked by budget db"},
		},
		"a drain without a kubelet says so": {
			nodes: []plan.Node{node("a", staged, asked, down, func(n *plan.Node) { n.DesiredDrain = "drain-x" })},
			want:  []string{"a: is draining, and is not Ready: look at its kubelet"},
		},
		"an agent that does not run is named": {
			nodes: []plan.Node{
				node("a", asked, func(n *plan.Node) { n.AgentDown = "pod x is not Ready" }),
				node("b", func(n *plan.Node) { n.StageImage, n.AgentDown = to().Image, "pod y is not Ready" }),
			},
			want: []string{
				"a: is changing, but its node agent can't answer: pod x is not Ready",
				"b: stages the image, but its node agent can't answer: pod y is not Ready",
			},
		},
		"a node that was told to go back has not gone": {
			nodes: []plan.Node{node("a", wentBack, failed, func(n *plan.Node) { n.Reason = "no disk" })},
			want:  []string{"a: goes back, because it failed: no disk"},
		},
		"two may be away at once": {
			pool:  pool("worker", unavailable("2")),
			nodes: []plan.Node{node("a", staged), node("b", staged), node("c", staged)},
			want: []string{
				"Update a: it has a slot", "Update b: it has a slot",
				"c: waits for a slot: maxUnavailable allows 2 unavailable at a time: a is told to change, b is told to change",
			},
		},
		"a node that is down takes room, and is not moved": {
			nodes: []plan.Node{node("a", staged, func(n *plan.Node) { n.Ready = false }), node("b", staged)},
			want:  []string{"a: is not Ready, and is not moved", "b: " + turn + "a is not Ready"},
		},
		"a cordon of others is respected": {
			pool:  pool("worker", unavailable("2")),
			nodes: []plan.Node{node("a", staged, func(n *plan.Node) { n.Unschedulable = true }), node("b", staged)},
			want:  []string{"Update b: it has a slot", "a: was cordoned, and is not moved"},
		},
		"a node that failed goes to the next target at once": {
			nodes: []plan.Node{node("a", failed, func(n *plan.Node) { n.DesiredConfig = "bad" }), node("b", staged)},
			want:  []string{"Update a: its update failed, and there is a new target", "b: " + turn + "a is told to change"},
		},
		"a node that failed to change as it runs needs a slot": {
			nodes: []plan.Node{node("a", staged, failed, func(n *plan.Node) { n.DesiredConfig, n.LiveOnly = "bad", true }), node("b", arrived, down)},
			want:  []string{"a: " + turn + "a is degraded, b is not Ready"},
		},
		"a node that failed as it ran lends no slot that it takes": {
			pool: pool("worker", func(p *mcfgv1.MachineConfigPool) {
				p.Spec.Rollout = &mcfgv1.RolloutSpec{Canary: &mcfgv1.RolloutCanary{MachineCount: new(int32(1))}}
			}),
			nodes: []plan.Node{
				node("a", staged, failed, func(n *plan.Node) {
					n.DesiredConfig, n.LiveOnly, n.ReportedDesired = "bad", true, nodes.Target{Config: "bad"}
				}),
				node("b", staged),
			},
			want: []string{"Update a: its update failed, and there is a new target", "b: " + turn + "a is told to change"},
		},
		"a node that failed with something else has time to answer": {
			nodes: []plan.Node{node("a", staged, asked, failed, func(n *plan.Node) { n.ReportedDesired = nodes.Target{Config: "bad"} }), node("b", staged)},
			want:  []string{"a: was told to change, and its agent has not answered yet", "b: " + turn + "a is degraded"},
		},
		"a node that answered that it failed goes back": {
			nodes: []plan.Node{node("a", staged, asked, failed, func(n *plan.Node) { n.ReportedDesired = to() })},
			want:  []string{"Rollback a: disk full"},
		},
		"a node with an edited file stages and waits for its window": {
			pool: pool("worker", func(p *mcfgv1.MachineConfigPool) {
				p.Spec.Rollout = &mcfgv1.RolloutSpec{Windows: []mcfgv1.RolloutWindow{{Name: "night", Start: "08:00", Duration: "1h"}}}
			}),
			nodes: []plan.Node{node("a", failed), node("b", staged, failed)},
			want:  []string{"Stage a: it does not hold the image yet", "b: waits for maintenance window night, which opens at 0001-01-01T08:00:00Z"},
		},
		"a node that is only degraded lets others go no further": {
			pool:  pool("worker", unavailable("2")),
			nodes: []plan.Node{node("a", staged, failed), node("b", staged), node("c", staged)},
			want: []string{
				"Update a: it has a slot", "Update b: it has a slot",
				"c: waits for a slot: maxUnavailable allows 2 unavailable at a time: a is told to change, b is told to change",
			},
		},
		"many nodes with edited files go one after the other": {
			nodes: []plan.Node{node("a", staged, failed), node("b", staged, failed), node("c", staged)},
			want: []string{
				"Update a: it has a slot", "b: " + turn + "b is degraded, a is told to change", "c: " + turn + "b is degraded, a is told to change",
			},
		},
		"a cordoned node with the target says that it has the slot": {
			nodes: []plan.Node{node("a", arrived, func(n *plan.Node) { n.Unschedulable = true }), node("b", staged)},
			want:  []string{"b: " + turn + "a was cordoned"},
		},
		"a degraded node that can't move says that it has the slot": {
			nodes: []plan.Node{node("a", arrived, failed), node("b", staged)},
			want:  []string{"a: is degraded: disk full", "b: " + turn + "a is degraded"},
		},
		"a node with an edited file takes no other slot than its own": {
			nodes: []plan.Node{node("a", staged, failed), node("b", staged)},
			want:  []string{"Update a: it has a slot", "b: " + turn + "a is told to change"},
		},
		"a node that failed with the target goes back": {
			nodes: []plan.Node{node("a", asked, failed), node("b", staged)},
			want:  []string{"Rollback a: disk full", "b: " + turn + "a is told to change"},
		},
		"a node that failed stays where the pool says so": {
			pool:  pool("worker", rollback(mcfgv1.Disabled)),
			nodes: []plan.Node{node("a", asked, failed), node("b", staged)},
			want:  []string{"a: its update failed, and automaticRollback is Disabled: disk full", "b: " + turn + "a is degraded"},
		},
		"a node that failed stays while the pool is paused": {
			pool:  pool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }),
			nodes: []plan.Node{node("a", asked, failed)},
			want:  []string{"a: its update failed, and the pool is paused: disk full"},
		},
		"a node that went back does not try again": {
			nodes: []plan.Node{node("a", wentBack), node("b", staged)},
			want:  []string{"Update b: it has a slot", "a: went back, because it failed: no disk"},
		},
		"a node that could not go back says so": {
			nodes: []plan.Node{node("a", wentBack, failed)},
			want:  []string{"a: could not go back: disk full"},
		},
		"a node that went back tries what is new": {
			nodes: []plan.Node{node("a", staged, func(n *plan.Node) { n.FailedTarget = nodes.Target{Config: "x"} })},
			want:  []string{"Update a: it has a slot"},
		},
		"a node in the middle of another change finishes first": {
			nodes: []plan.Node{node("a", func(n *plan.Node) {
				n.DesiredConfig, n.DesiredImage = "old", nodestest.Pinned("3")
			})},
			want: []string{"a: finishes the change to old and image 333333333333 first"},
		},
		"a paused pool moves nothing": {
			pool:  pool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }),
			nodes: []plan.Node{node("a", arrived), node("b", staged), node("c", asked)},
			want:  []string{"b: the pool is paused", "c: is changing"},
		},
		"an image that is held moves nothing": {
			hold:  "MachineOSImage x is not ready",
			nodes: []plan.Node{node("a", staged)},
			want:  []string{"a: MachineOSImage x is not ready"},
		},
		"a node without an agent is left alone": {
			nodes: []plan.Node{{Node: nodes.Observe(nodestest.New("a", nil))}},
			want:  []string{"a: no node agent has reported from it"},
		},
		"a node that is deleted is left alone": {
			nodes: []plan.Node{node("a", func(n *plan.Node) { n.Deleting = true })},
			want:  []string{"a: the node is being deleted"},
		},
		"a node that runs what it staged costs no further write": {
			nodes: []plan.Node{node("a", arrived, staged)},
		},
		"a request to stage another image is taken back": {
			nodes: []plan.Node{node("a", arrived, func(n *plan.Node) { n.StageImage = nodestest.Pinned("9") })},
			want:  []string{"Unstage a: it has what it should have"},
		},
		"a node that runs its image takes no slot of staging": {
			pool: pool("worker", stagingOf(mcfgv1.StagingBackground, 1)),
			nodes: []plan.Node{
				node("a", arrived, func(n *plan.Node) { n.StageImage, n.StagedImage = to().Image, "" }), node("b"),
			},
			want: []string{"Stage b: it does not hold the image yet"},
		},
		"a change of the configuration alone needs no staging": {
			nodes: []plan.Node{node("a", func(n *plan.Node) {
				n.CurrentImage, n.DesiredImage = to().Image, to().Image
			})},
			want: []string{"Update a: it has a slot"},
		},
		"the control plane goes one at a time": {
			pool:  pool("master", unavailable("3")),
			nodes: []plan.Node{node("a", staged), node("b", staged)},
			want:  []string{"Update a: it has a slot", "b: " + turn + "a is told to change"},
		},
		"etcd keeps its majority": {
			pool:  pool("master"),
			etcd:  []plan.EtcdMember{{Node: "a", Healthy: true}, {Node: "b", Healthy: true}, {Node: "c"}},
			nodes: []plan.Node{node("a", staged), node("c", staged)},
			want: []string{
				"Update c: it has a slot",
				"a: etcd would lose its majority: the member on node c is not healthy",
			},
		},
		"etcd keeps its majority also from a node that failed": {
			pool:  pool("master"),
			etcd:  []plan.EtcdMember{{Node: "a", Healthy: true}, {Node: "b", Healthy: true}, {Node: "c"}},
			nodes: []plan.Node{node("a", failed, func(n *plan.Node) { n.DesiredConfig = "bad" })},
			want:  []string{"a: etcd would lose its majority: the member on node c is not healthy"},
		},
		"failed control plane nodes take turns without etcd's status": {
			pool: pool("master"),
			nodes: []plan.Node{
				node("a", failed, func(n *plan.Node) { n.DesiredConfig = "bad" }), node("b", failed, func(n *plan.Node) { n.DesiredConfig = "bad" }),
			},
			want: []string{
				"Update a: its update failed, and there is a new target",
				"b: control plane nodes update one at a time, and a is unavailable or about to update",
			},
		},
		"two nodes of the control plane go back one after the other": {
			pool:  pool("master"),
			nodes: []plan.Node{node("a", asked, failed), node("b", asked, failed)},
			want: []string{
				"Rollback a: disk full",
				"b: failed, and can't go back: control plane nodes update one at a time, and a is unavailable or about to update",
			},
		},
		"a control plane node that is down goes back at once": {
			pool: pool("master"),
			nodes: []plan.Node{
				node("a", asked, failed, func(n *plan.Node) { n.Ready = false }), node("b", func(n *plan.Node) { n.Ready = false }),
			},
			want: []string{"Rollback a: disk full", "b: is not Ready, and is not moved"},
		},
		"a single member of etcd is no obstacle": {
			pool:  pool("master"),
			etcd:  []plan.EtcdMember{{Node: "a", Healthy: true}},
			nodes: []plan.Node{node("a", staged)},
			want:  []string{"Update a: it has a slot"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.pool == nil {
				tt.pool = pool("worker")
			}
			got := plan.Decide(plan.Input{Pool: tt.pool, Target: to(), Image: to().Image, Hold: tt.hold, Nodes: tt.nodes, Etcd: tt.etcd})
			assert.Equal(t, tt.want, said(got))
		})
	}
}

func TestDecideOrder(t *testing.T) {
	t.Parallel()
	zone := func(zone string, age time.Duration) func(*plan.Node) {
		return func(n *plan.Node) { n.Zone, n.Created = zone, t0.Add(-age) }
	}
	list := []plan.Node{
		node("own", staged, zone("a", time.Hour)), node("no-zone", staged, zone("", 9*time.Hour)),
		node("b-old", staged, zone("b", 2*time.Hour)), node("a-young", staged, zone("a", time.Minute)),
		node("a-old", staged, zone("a", time.Hour)), node("a-twin", staged, zone("a", time.Hour)),
	}
	for value, want := range map[string][]string{
		"":            {"a-old", "a-twin", "a-young", "b-old", "no-zone", "own"},
		"OldestFirst": {"a-old", "a-twin", "a-young", "b-old", "no-zone", "own"},
		"NewestFirst": {"a-young", "a-old", "a-twin", "b-old", "no-zone", "own"},
	} {
		p := pool("worker", unavailable("100%"))
		p.Annotations = map[string]string{mcfgv1.AnnotationUpdateOrder: value}
		var names []string
		for _, m := range plan.Decide(plan.Input{Pool: p, Target: to(), Image: to().Image, Nodes: list, OwnNode: "own"}).Moves {
			names = append(names, m.Node)
		}
		assert.Equal(t, want, names, value)
	}
}

func TestMaxUnavailable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool *mcfgv1.MachineConfigPool
		want int
	}{
		"one where nothing is said":          {pool("worker"), 1},
		"one where 0 is said":                {pool("worker", unavailable("0")), 1},
		"a number":                           {pool("worker", unavailable("4")), 4},
		"a percentage is rounded down":       {pool("worker", unavailable("19%")), 1},
		"but never below one":                {pool("worker", unavailable("1%")), 1},
		"half":                               {pool("worker", unavailable("50%")), 5},
		"one where it can't be read":         {pool("worker", unavailable("many")), 1},
		"one of the control plane":           {pool("master", unavailable("50%")), 1},
		"one of the control plane's arbiter": {pool("arbiter", unavailable("50%")), 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list []plan.Node
			for i := range 10 {
				list = append(list, node(fmt.Sprint("n", i), staged))
			}
			got := plan.Decide(plan.Input{Pool: tt.pool, Target: to(), Image: to().Image, Nodes: list})
			assert.Len(t, got.Moves, tt.want)
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	decide := func(list ...plan.Node) plan.Plan {
		return plan.Decide(plan.Input{Pool: pool("worker"), Target: to(), Image: to().Image, Nodes: list})
	}
	tests := map[string]struct {
		plan    plan.Plan
		summary string
		waiting []string
	}{
		"the target is not known": {
			plan:    plan.Decide(plan.Input{Pool: pool("worker"), Hold: "waits for the image of b", Nodes: []plan.Node{node("a")}}),
			summary: "waits for the image of b",
			waiting: []string{"waits for the image of b"},
		},
		"everything is updated": {plan: decide(node("a", arrived)), summary: "1/1 updated"},
		"the node that everyone waits for comes first": {
			plan: decide(
				node("a", staged), node("b", arrived),
				node("z", staged, asked, func(n *plan.Node) { n.DesiredDrain, n.DrainBlocked = "drain-x", "pod ns/db blocked by budget db" })),
			summary: "1/3 updated, z: is draining: pod ns/db blocked by budget db",
			waiting: []string{
				"a: waits for a slot: maxUnavailable allows 1 unavailable at a time: z is draining",
				"z: is draining: pod ns/db blocked by budget db",
			},
		},
		"a digest does not fill it": {
			plan: decide(node("a", func(n *plan.Node) {
				n.Stages, n.StageImage, n.StageError = true, to().Image, "no policy for r.test/os@sha256:"+strings.Repeat("0123456789abcdef", 4)
			})),
			summary: "0/1 updated, a: can't stage the image: no policy for r.test/os@sha256:0123456789ab",
			waiting: []string{"a: can't stage the image: no policy for r.test/os@sha256:" + strings.Repeat("0123456789abcdef", 4)},
		},
		"what an agent can't do is said": {
			plan: decide(node("a", asked, func(n *plan.Node) {
				n.ReportedDesired, n.StepError = to(), "node state: write /var/lib/app: /var/lib/app is a file, and no directory: remove it"
			})),
			summary: "0/1 updated, a: ... node state: write /var/lib/app: /var/lib/app is a file, and no directory: remove it",
			waiting: []string{"a: is changing, and can't go on: node state: write /var/lib/app: /var/lib/app is a file, and no directory: remove it"},
		},
		"a host that does not shut down": {
			plan: decide(node("a", asked, func(n *plan.Node) {
				n.State, n.ReportedDesired, n.StepError = mcfgv1.NodeStateRebooting, to(), "the host still runs"
			})),
			summary: "0/1 updated, a: is rebooting, and can't go on: the host still runs",
			waiting: []string{"a: is rebooting, and can't go on: the host still runs"},
		},
		"what an agent could not do before is not": {
			plan:    decide(node("a", asked, func(n *plan.Node) { n.StepError = "disk full" })),
			summary: "0/1 updated, a: is changing",
			waiting: []string{"a: is changing"},
		},
		"nodes that wait for the same are one line": {
			plan:    decide(node("a", asked), node("b", staged), node("c", staged), node("d", staged), node("e", staged)),
			summary: "0/5 updated, a: is changing",
			waiting: []string{"a: is changing", "nodes b, c, d and 1 more: waits for a slot: maxUnavailable allows 1 unavailable at a time: a is changing"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.summary, tt.plan.Summary())
			assert.Equal(t, tt.waiting, tt.plan.WaitingFor())
		})
	}
}

func TestLongSummaries(t *testing.T) {
	t.Parallel()
	const long = "the update of a node with a name that is longer than it has to be did not end as it should have"
	tests := map[string]struct{ reason, want string }{
		"the cause is whole": {
			"its update failed: " + long + ": writing /etc/motd: no space left on device",
			"0/1 updated, a: ... writing /etc/motd: no space left on device",
		},
		"as much as fits comes before the cause": {
			long + ": applying: writing /etc/motd: no space left on device",
			"0/1 updated, a: ... applying: writing /etc/motd: no space left on device",
		},
		"a cause that is too long is cut between words": {
			long + ": " + long + ", and this is how it ends",
			"0/1 updated, a: ... the update of a node with a name ... it has to be did not end as it should have, and this is how it ends",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Plan{Total: 1, Holds: []words.Hold{{Node: "a", Reason: tt.reason}}}
			assert.Equal(t, tt.want, p.Summary())
			assert.LessOrEqual(t, len(p.Summary()), 128)
		})
	}
}

func TestSummaryOfAHaltedRollout(t *testing.T) {
	t.Parallel()
	p := plan.Decide(plan.Input{
		Pool: rolling(mcfgv1.RolloutSpec{Canary: canary(1)}), Target: to(), Image: to().Image, Now: t0, Started: t0,
		Nodes: []plan.Node{node("a", staged), node("b", wentBack)},
	})
	assert.Equal(t, "halted, 0/2 updated, b: went back, because it failed: no disk", p.Summary())
	p = plan.Decide(plan.Input{
		Pool: pool("worker"), Target: to(), Image: to().Image, Hold: "check Ready: it is in quarantine", Quarantined: true, Nodes: many(1, staged),
	})
	assert.Equal(t, "halted, 0/1 updated, n0: check Ready: it is in quarantine", p.Summary())
}

func TestTextsFitTheirFields(t *testing.T) {
	t.Parallel()
	var list []plan.Node
	for i := range 40 {
		list = append(list, node(fmt.Sprintf("n%02d", i), asked, failed, func(n *plan.Node) {
			n.Reason = fmt.Sprintf("step %d of a long story ", i) + string(make([]byte, 400)) + "ends with the cause"
		}))
	}
	p := plan.Decide(plan.Input{Pool: pool("worker", rollback(mcfgv1.Disabled)), Target: to(), Image: to().Image, Nodes: list})
	assert.LessOrEqual(t, len(p.Summary()), 128)
	assert.Contains(t, p.Summary(), "ends with the cause")
	lines := p.WaitingFor()
	assert.Len(t, lines, 16)
	assert.Equal(t, "and 25 more reasons", lines[15])
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), 256)
	}
	assert.Equal(t, 40, p.Failed)
}
