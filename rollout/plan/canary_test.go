package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/plan"
)

// rolling is a pool that has a rollout of its own, and lets all nodes go at once.
func rolling(r mcfgv1.RolloutSpec) *mcfgv1.MachineConfigPool {
	return pool("worker", unavailable("100%"), func(p *mcfgv1.MachineConfigPool) { p.Spec.Rollout = &r })
}

func canary(count int32) *mcfgv1.RolloutCanary {
	return &mcfgv1.RolloutCanary{MachineCount: ptr.To(count), SoakTime: "30m"}
}

// since is a node that has arrived at the target before a time.
func since(ago time.Duration, results ...plan.HealthResult) func(*plan.Node) {
	return func(n *plan.Node) {
		arrived(n)
		n.Arrived, n.Health = t0.Add(-ago), results
		n.Previous = nodes.Target{Config: "a", Image: "old"}
	}
}

func check(holds bool, value string) plan.HealthResult {
	return plan.HealthResult{Name: "disk", Holds: holds, Value: value, Timeout: 10 * time.Minute}
}

func many(n int, change ...func(*plan.Node)) []plan.Node {
	var list []plan.Node
	for i := range n {
		list = append(list, node(fmt.Sprintf("n%d", i), change...))
	}
	return list
}

func TestDecideJudges(t *testing.T) {
	t.Parallel()
	const (
		started  = "n0: "
		canaries = "waits for the canaries: "
	)
	rebooting := func(ago time.Duration) func(*plan.Node) {
		return func(n *plan.Node) {
			asked(n)
			n.State, n.Rebooting, n.Ready = mcfgv1.NodeStateRebooting, t0.Add(-ago), false
		}
	}
	tests := map[string]struct {
		rollout mcfgv1.RolloutSpec
		nodes   []plan.Node
		soakEnd time.Time
		fresh   bool // no node was told to change
		one     bool // only one node may be unavailable
		hold    string
		ignore  bool // a person ignores windows
		now     time.Duration
		want    []string
		updated int
		halt    string
		next    time.Duration
	}{
		"canaries go first": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(2)}, nodes: many(4, staged),
			want: []string{
				"Update n0: it has a slot", "Update n1: it has a slot",
				"n2: " + canaries + "n0, n1", "n3: " + canaries + "n0, n1",
			},
		},
		"others stage meanwhile": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, nodes: append(many(1, staged), node("z")),
			want: []string{"Update n0: it has a slot", "Stage z: it does not hold the image yet"},
		},
		"canaries are chosen by label": {
			rollout: mcfgv1.RolloutSpec{Canary: &mcfgv1.RolloutCanary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}},
			nodes: append(many(1, staged), node("z", staged, func(n *plan.Node) {
				n.Labels = map[string]string{"canary": "yes"}
			})),
			want: []string{"Update z: it has a slot", "n0: " + canaries + "z"},
		},
		"a selector without nodes holds the pool": {
			rollout: mcfgv1.RolloutSpec{Canary: &mcfgv1.RolloutCanary{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}},
			nodes:   many(1, staged),
			want:    []string{"n0: waits for canaries: spec.rollout.canary.nodeSelector matches no node of the pool"},
		},
		"a healthy node is a canary before one that is degraded": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, nodes: append(many(1, staged, failed), node("z", staged)),
			want: []string{"Update z: it has a slot", "n0: " + canaries + "z"},
		},
		"a node that can stage is a canary before one that can't": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)},
			nodes:   append(many(1, func(n *plan.Node) { n.StageImage, n.StageError = to().Image, "disk full" }), node("z", staged)),
			want:    []string{"Update z: it has a slot", "n0: can't stage the image: disk full"},
		},
		"a degraded node is a canary where there is no other": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, nodes: many(1, staged, failed),
			want: []string{"Update n0: it has a slot"},
		},
		"a canary takes the slot of a degraded node that waits for it": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, one: true, nodes: append(many(2, staged, failed), node("y", staged), node("z", staged)),
			want: []string{"Update y: it has a slot", "n0: " + canaries + "y", "n1: " + canaries + "y", "z: " + canaries + "y"},
		},
		"a canary does not take the slot of a node that is away": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, one: true,
			nodes: append(many(1, staged, failed, down), node("y", staged), node("z", staged)),
			want: []string{
				"n0: is not Ready, and is not moved",
				"y: waits for a slot: maxUnavailable allows 1 unavailable at a time: n0 is not Ready", "z: " + canaries + "y",
			},
		},
		"a degraded node follows the canaries": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, one: true, soakEnd: t0, updated: 1,
			nodes: append(many(1, staged, failed), node("y", since(time.Hour)), node("z", staged)),
			want:  []string{"Update n0: it has a slot", "z: waits for a slot: maxUnavailable allows 1 unavailable at a time: n0 is told to change"},
		},
		"canaries that are asked for late are nodes that are healthy": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, updated: 2,
			nodes: append(many(1, wentBack), node("x", since(time.Hour)), node("y", since(time.Hour)), node("z", staged)),
			want: []string{
				"n0: went back, because it failed: no disk", "z: waits for the canaries to stay healthy until 2026-03-04T05:36:07Z",
			}, next: 30 * time.Minute,
		},
		"canaries soak": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, nodes: append(many(1, since(0)), node("z", staged)), updated: 1,
			want: []string{"z: waits for the canaries to stay healthy until 2026-03-04T05:36:07Z"}, next: 30 * time.Minute,
		},
		"canaries have soaked": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)}, nodes: append(many(1, since(0)), node("z", staged)), updated: 1,
			soakEnd: t0, want: []string{"Update z: it has a slot"},
		},
		"a canary that is not healthy yet": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)},
			nodes:   append(many(1, since(time.Minute, check(false, "false"))), node("z", staged)),
			want: []string{
				started + "is not healthy yet: check disk is false", "z: " + canaries + "n0",
			}, next: 9 * time.Minute,
		},
		"a canary that fails halts the rollout and goes back": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)},
			nodes:   append(many(1, since(11*time.Minute, check(false, "false"))), node("z", staged)),
			want: []string{
				"Rollback n0: health check disk did not hold within 10m0s: false",
				"Unstage z: no node may get the image",
				"z: the rollout is halted: 1 of 2 nodes failed with b and image 222222222222: n0: health check disk did not hold within 10m0s: false",
			},
			halt: "1 of 2 nodes failed with b and image 222222222222: n0: health check disk did not hold within 10m0s: false",
		},
		"a canary that went back halts whatever the threshold": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1), HaltThreshold: ptr.To(intstr.FromInt32(3))},
			nodes:   append(many(1, wentBack), node("z", staged)),
			want: []string{
				"Unstage z: no node may get the image", "n0: went back, because it failed: no disk",
				"z: the rollout is halted: canary n0 failed: 1 of 2 nodes failed with b and image 222222222222: n0: no disk",
			},
			halt: "canary n0 failed: 1 of 2 nodes failed with b and image 222222222222: n0: no disk",
		},
		"a check that ceases to hold gives the node time again": {
			nodes: many(1, since(time.Hour, func() plan.HealthResult {
				h := check(false, "false")
				h.Since = t0.Add(-time.Minute)
				return h
			}())),
			want: []string{started + "is not healthy yet: check disk is false"}, next: 9 * time.Minute,
		},
		"a check that can't be evaluated holds the others": {
			rollout: mcfgv1.RolloutSpec{Canary: canary(1)},
			nodes: append(many(1, since(time.Hour, plan.HealthResult{Name: "disk", Broken: true, Value: "no such key", Timeout: time.Minute})),
				node("z", staged)),
			want: []string{"n0: can't be judged: health check disk: no such key", "z: " + canaries + "n0"},
		},
		"a check that has failed for good gives the node no time": {
			nodes: many(1, since(time.Minute, plan.HealthResult{Name: "net", Failed: true, Value: "exit code 3", Timeout: 10 * time.Minute})),
			want:  []string{"Rollback n0: health check net failed: exit code 3"},
		},
		"a check that fails is not hidden by one before it": {
			nodes: many(1, since(time.Hour, plan.HealthResult{Name: "a", Broken: true, Value: "no such key"},
				plan.HealthResult{Name: "b", Value: "false", Since: t0, Timeout: time.Minute}, check(false, "false"))),
			want: []string{"Rollback n0: health check disk did not hold within 10m0s: false"}, next: time.Minute,
		},
		"of several checks that pend the first is named": {
			nodes: many(1, since(time.Minute, check(true, "true"), check(false, "no disk"),
				plan.HealthResult{Name: "net", Value: "false", Timeout: 3 * time.Minute})),
			want: []string{started + "is not healthy yet: check disk is no disk"}, next: 2 * time.Minute,
		},
		"a node without Ready after its update fails": {
			nodes: append(many(1, since(10*time.Minute), down), node("z", staged)),
			want:  []string{"Rollback n0: was not Ready within 10m0s of its update", "Update z: it has a slot"},
		},
		"a node that does not come back fails": {
			nodes: many(1, rebooting(30*time.Minute)),
			want:  []string{"Rollback n0: did not come back within 30m0s of its reboot"},
		},
		"a node that may still come back": {
			rollout: mcfgv1.RolloutSpec{RebootTimeout: "45m"}, nodes: many(1, rebooting(30*time.Minute)),
			want: []string{"n0: is rebooting"}, next: 15 * time.Minute,
		},
		"files that were edited on a node are no failure of the image": {
			nodes: many(1, arrived, failed), want: []string{"n0: is degraded: disk full"},
		},
		"a node that had the target before is not judged": {
			nodes: many(1, since(2*time.Hour, check(false, "false"))), updated: 1,
		},
		"nothing is judged where no node was told to change": {
			nodes: many(1, since(0, check(false, "false"))), fresh: true, updated: 1,
		},
		"two failures halt a pool that says nothing": {
			nodes: append(many(2, wentBack), node("z", staged)),
			want: []string{
				"Unstage z: no node may get the image",
				"n0: went back, because it failed: no disk", "n1: went back, because it failed: no disk",
				"z: the rollout is halted: 2 of 3 nodes failed with b and image 222222222222: n0: no disk; n1: no disk",
			},
			halt: "2 of 3 nodes failed with b and image 222222222222: n0: no disk; n1: no disk",
		},
		"the pool says how many failures halt it": {
			rollout: mcfgv1.RolloutSpec{HaltThreshold: ptr.To(intstr.FromInt32(3))},
			nodes:   append(many(2, wentBack), node("y", staged), node("z", staged)),
			want: []string{
				"Update y: it has a slot",
				"n0: went back, because it failed: no disk", "n1: went back, because it failed: no disk",
				"z: waits until others are healthy: haltThreshold allows 3 nodes to try at a time",
			},
		},
		"no node changes outside of windows": {
			rollout: mcfgv1.RolloutSpec{Windows: []mcfgv1.RolloutWindow{nightly("")}}, nodes: many(1, staged),
			want: []string{"n0: waits for maintenance window nightly, which opens at 2026-03-04T22:00:00Z"},
			next: 16*time.Hour + 53*time.Minute + 53*time.Second,
		},
		"nodes stage and go back outside of windows": {
			rollout: mcfgv1.RolloutSpec{Windows: []mcfgv1.RolloutWindow{nightly("")}},
			nodes:   []plan.Node{node("n0"), node("z", asked, failed)},
			want:    []string{"Stage n0: it does not hold the image yet", "Rollback z: disk full"},
		},
		"nodes change in a window": {
			rollout: mcfgv1.RolloutSpec{Windows: []mcfgv1.RolloutWindow{nightly("")}}, nodes: many(1, staged), now: 18 * time.Hour,
			want: []string{"Update n0: it has a slot"},
		},
		"a person ignores the windows": {
			rollout: mcfgv1.RolloutSpec{Windows: []mcfgv1.RolloutWindow{nightly("")}}, nodes: many(1, staged), ignore: true,
			want: []string{"Update n0: it has a slot"},
		},
		"a node that failed goes back from an image in quarantine": {
			hold: "check Ready: it is in quarantine", nodes: append(many(1, asked, failed), node("z", staged)),
			want: []string{"Rollback n0: disk full", "Unstage z: no node may get the image", "z: check Ready: it is in quarantine"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := plan.Input{
				Pool: rolling(tt.rollout), Target: to(), Image: to().Image, Nodes: tt.nodes, Hold: tt.hold, Quarantined: tt.hold != "",
				Now: t0.Add(tt.now), Started: t0.Add(-time.Hour), SoakEnd: tt.soakEnd,
			}
			if tt.one {
				in.Pool.Spec.MaxUnavailable = nil
			}
			if tt.fresh {
				in.Started = time.Time{}
			}
			if tt.ignore {
				in.Pool.Annotations = map[string]string{mcfgv1.AnnotationIgnoreWindows: "CVE"}
			}
			p := plan.Decide(in)
			assert.Equal(t, tt.want, said(p))
			assert.Equal(t, tt.updated, p.Updated)
			assert.Equal(t, tt.halt, p.Halt)
			var next time.Duration
			if !p.Next.IsZero() {
				next = p.Next.Sub(in.Now)
			}
			assert.Equal(t, tt.next, next)
		})
	}
}

func TestSoakEndsAnewForCanariesThatFellIll(t *testing.T) {
	t.Parallel()
	in := plan.Input{
		Pool: rolling(mcfgv1.RolloutSpec{Canary: canary(1)}), Target: to(), Image: to().Image, Now: t0, Started: t0.Add(-time.Hour),
		Nodes: append(many(1, since(time.Minute, check(false, "false"))), node("z", staged)), SoakEnd: t0.Add(time.Minute),
	}
	assert.Zero(t, plan.Decide(in).SoakEnd, "it does not soak while it is ill")
	in.Nodes[0].Health, in.SoakEnd = nil, time.Time{}
	assert.Equal(t, t0.Add(30*time.Minute), plan.Decide(in).SoakEnd)
}

func TestRollbackTarget(t *testing.T) {
	t.Parallel()
	before := nodes.Target{Config: "a", Image: "old"}
	tests := map[string]struct {
		node plan.Node
		want nodes.Target
	}{
		"a node that never arrived keeps what it has": {node("n", asked, failed), nodes.Target{Config: "a", Image: node("n").CurrentImage}},
		"a node keeps what was proven before it":      {node("n", asked, failed, func(n *plan.Node) { n.Previous = before }), before},
		"a node that arrived has it on its disk":      {node("n", since(time.Hour, check(false, "false"))), before},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plan.Decide(plan.Input{
				Pool: pool("worker"), Target: to(), Image: to().Image, Nodes: []plan.Node{tt.node}, Now: t0, Started: t0.Add(-2 * time.Hour),
			})
			assert.Equal(t, []plan.Move{{Node: "n", Action: plan.Rollback, Target: tt.want, Failed: to(), Reason: p.Moves[0].Reason}}, p.Moves)
			assert.Equal(t, 1, p.RolledBack)
			assert.Equal(t, []string{"n"}, p.FailedNodes)
		})
	}
}

func TestSoakIsNoLongerWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	in := plan.Input{
		Now: t0, Started: t0.Add(-time.Hour), Target: to(), Image: to().Image, Pool: rolling(mcfgv1.RolloutSpec{Canary: canary(1)}),
		Nodes: append(many(1, since(time.Minute)), node("z", staged)), SoakEnd: t0.Add(12 * time.Hour),
	}
	assert.Equal(t, t0.Add(30*time.Minute), plan.Decide(in).SoakEnd)
}
