package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
)

// minutes is how long a tick takes.
const minutes = 2

// t0 is when the first node joined.
var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// world is one pool and everything around it.
type world struct {
	random *rand.Rand
	tick   int
	calm   bool // nothing breaks any more
	// large reports whether there are many machines, which may not be joined by others.
	large bool

	pool     *mcfgv1.MachineConfigPool
	machines []*machine
	target   nodes.Target
	targets  int
	joined   int
	// verified are the images that were ever allowed to reach nodes; hold is why the target is not.
	verified map[string]bool
	hold     string
	// bad are the images that break the nodes that boot them, and hit the machines that did.
	bad map[string]bool
	hit map[string]map[string]bool
	// live are the images that need no reboot.
	live map[string]bool
	// started and soakEnd are what the pool's status remembers of the rollout.
	started, soakEnd time.Time
	// resumed are the images that a person had nodes try again that had failed with them.
	resumed map[string]bool
	// quarantined are the images that no node may get.
	quarantined map[string]bool

	// hidesEtcd reports whether etcd runs where the controller does not see it.
	hidesEtcd bool

	// Until when a component is away, and until when other pools go first.
	controllerDown, serverDown, registryDown, othersFirst int
	// jumped is how far the clock is from what it would be if it had not been set.
	jumped time.Duration

	log []string
}

// machine is a node with its host and its agent. What the host has is not what the Node says.
type machine struct {
	plan.Node

	// busy is until when the present step takes.
	busy int
	// pulling is what the agent pulls in the background.
	pulling string
	phase   phase
	// blocked is until when a budget keeps the node's pods.
	blocked int
	// lost is until when the node does not return from its reboot.
	lost int
	// bootsOld reports whether the next reboot brings back what was there.
	bootsOld bool
	// agentDown is until when the agent does nothing.
	agentDown int
	// cordoned reports whether a person has cordoned the node.
	cordoned bool
	// edited reports whether a file was edited on the node, which it keeps unless an update heals
	// it.
	edited, heals bool
	// booted is what the host runs, and boots what it runs after the reboot that it is in.
	booted, boots nodes.Target
	// flaps is until when a health check fails for no reason.
	flaps int
	// selecting are the pools that select the node: where two custom pools claim it, it belongs to
	// none.
	selecting []string
	// skew is how far the machine's clock is from the controller's.
	skew time.Duration
	// oldAgent is until when an agent of the previous version runs, which does not stage.
	oldAgent int
}

// phase is how far the agent is with a change.
type phase int

const (
	idle phase = iota
	draining
	rebooting
	returning
)

func newWorld(seed uint64) *world {
	w := &world{
		random:   rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // a simulation is to be repeatable
		verified: map[string]bool{}, bad: map[string]bool{}, live: map[string]bool{}, hit: map[string]map[string]bool{},
		resumed: map[string]bool{}, quarantined: map[string]bool{},
	}
	name := mcfgv1.PoolWorker
	if w.chance(4) {
		name = mcfgv1.PoolMaster
		w.hidesEtcd = w.chance(2)
	}
	w.begin(name, 1+w.random.IntN(9))
	return w
}

// newLargeWorld is a pool of many workers, of which some may go at once, with canaries.
func newLargeWorld(seed uint64) *world {
	w := newWorld(seed)
	w.large, w.machines, w.joined = true, nil, 0
	w.begin(mcfgv1.PoolWorker, large)
	w.pool.Spec.MaxUnavailable = new(intstr.FromString("25%"))
	if w.pool.Spec.Rollout == nil {
		w.pool.Spec.Rollout = &mcfgv1.RolloutSpec{RebootTimeout: "1h"}
	}
	r := w.pool.Spec.Rollout
	if r.HaltThreshold != nil { // as many try an image at a time
		r.HaltThreshold = new(intstr.FromInt32(int32(10 + w.random.IntN(10))))
	}
	r.Staging = &mcfgv1.RolloutStaging{MaxParallel: new(int32(large / 4))}
	if r.Canary == nil {
		r.Canary = &mcfgv1.RolloutCanary{MachineCount: new(int32(1 + w.random.IntN(10))), SoakTime: "30m"}
	}
	return w
}

// begin makes the pool, and machines that have what was there before.
func (w *world) begin(pool string, machines int) {
	w.pool = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
	w.setMaxUnavailable()
	w.setRollout()
	w.verified[nodestest.Pinned("0")] = true
	for range machines {
		w.join()
	}
	w.newTarget()
}

func (w *world) chance(of int) bool { return w.random.IntN(of) == 0 }

// until is a time soon.
func (w *world) until(most int) int { return w.tick + 1 + w.random.IntN(most) }

func (w *world) join() {
	name := fmt.Sprintf("node-%d", w.joined)
	w.joined++
	w.machines = append(w.machines, &machine{selecting: []string{w.pool.Name}, Node: plan.Node{
		Node:    nodes.Observe(nodestest.New(name, []string{w.pool.Name}, nodestest.Having("c0"), nodestest.HavingImage("0"))),
		Created: t0.Add(time.Duration(w.random.IntN(100)) * time.Minute),
		Zone:    []string{"", "a", "b"}[w.random.IntN(3)],
		Stages:  !w.chance(5), // else an agent of the previous version
	}, booted: nodes.Target{Config: "c0", Image: nodestest.Pinned("0")}})
}

// now is the time of a tick.
func (w *world) now() time.Time { return t0.Add(time.Duration(w.tick)*minutes*time.Minute + w.jumped) }

// setRollout gives half of the pools canaries, windows and thresholds of their own.
func (w *world) setRollout() {
	if w.chance(2) {
		return
	}
	r := &mcfgv1.RolloutSpec{RebootTimeout: "1h"}
	if !w.chance(3) {
		r.Canary = &mcfgv1.RolloutCanary{MachineCount: new(int32(1 + w.random.IntN(3))), SoakTime: "30m"}
	}
	if w.chance(2) {
		r.Batches = []mcfgv1.RolloutBatch{{Name: "first", MachineCount: new(intstr.FromInt32(int32(1 + w.random.IntN(3))))}}
	}
	if w.chance(3) {
		r.Windows = []mcfgv1.RolloutWindow{{Name: "daily", Start: "08:00", Duration: "16h", TimeZone: "Europe/Prague"}}
	}
	if w.chance(2) {
		r.HaltThreshold = new(intstr.FromInt32(int32(1 + w.random.IntN(3))))
	}
	if w.chance(4) {
		r.AutomaticRollback = mcfgv1.Disabled
	}
	w.pool.Spec.Rollout = r
}

func (w *world) setMaxUnavailable() {
	w.pool.Spec.MaxUnavailable = new([]intstr.IntOrString{
		intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("10%"), intstr.FromString("50%"),
	}[w.random.IntN(4)])
}

func (w *world) newTarget() {
	w.targets++
	w.aim(w.targets)
	w.bad[w.target.Image] = !w.calm && w.chance(4)
	w.live[w.target.Image] = w.chance(3)
	if !w.calm && w.chance(3) {
		w.hold = "MachineOSImage is not ready: NotVerified"
	} else {
		w.verified[w.target.Image] = true
	}
}

// aim has the nodes get the target of a number.
func (w *world) aim(number int) {
	w.target = nodes.Target{Config: fmt.Sprintf("c%d", number), Image: nodestest.Pinned(fmt.Sprint(number))}
	w.hold, w.started, w.soakEnd = "", time.Time{}, time.Time{}
}

// oldTarget has an old spec ask for what there was before.
func (w *world) oldTarget() {
	w.aim(1 + w.random.IntN(w.targets))
	if !w.verified[w.target.Image] {
		w.hold = "MachineOSImage is not ready: NotVerified"
	}
	if !w.quarantined[w.target.Image] { // else the nodes that it hit are known
		delete(w.hit, w.target.Image)
	}
}

// resume has nodes try again what they failed with, as a person asks for it.
func (w *world) resume() {
	w.resumed[w.target.Image] = true
	delete(w.quarantined, w.target.Image)
	for _, m := range w.machines {
		if m.FailedTarget == w.target {
			m.FailedTarget = nodes.Target{}
		}
	}
}

// input is what the controller sees now.
func (w *world) input() plan.Input {
	in := plan.Input{
		Pool: w.pool.DeepCopy(), Target: w.target, Image: w.target.Image, Hold: w.hold, OwnNode: "node-0",
		Now: w.now(), Started: w.started, SoakEnd: w.soakEnd,
	}
	if w.quarantined[w.target.Image] {
		in.Hold, in.Quarantined = "MachineOSImage is in quarantine", true
	}
	if w.othersFirst > w.tick {
		in.Wait = plan.Wait{Reason: "waits for pool infra"}
	}
	members := w.members()
	in.Nodes = make([]plan.Node, 0, len(members))
	for _, m := range members {
		n := m.Node
		n.Health = []plan.HealthResult{
			{Name: "works", Holds: !w.bad[m.CurrentImage] && m.flaps <= w.tick, Value: "false", Timeout: 30 * time.Minute},
			{Name: "job", Holds: !w.failsForGood(m), Failed: w.failsForGood(m), Value: "exit code 3"},
		}
		in.Nodes = append(in.Nodes, n)
		if w.pool.Name == mcfgv1.PoolMaster && !w.hidesEtcd {
			in.Etcd = append(in.Etcd, plan.EtcdMember{Node: m.Name, Healthy: m.Ready})
		}
	}
	return in
}

// failsForGood reports whether a machine has failed a test that runs once. Those of every other bad
// image do.
func (w *world) failsForGood(m *machine) bool { return w.bad[m.CurrentImage] && w.targets%2 == 0 }

// members are the machines that belong to the pool.
func (w *world) members() (members []*machine) {
	for _, m := range w.machines {
		if nodes.PoolOf(m.selecting) == w.pool.Name {
			members = append(members, m)
		}
	}
	return members
}

func (w *world) machine(name string) *machine {
	return w.machines[slices.IndexFunc(w.machines, func(m *machine) bool { return m.Name == name })]
}

// apply makes the moves of a plan. The image of a rollout that halts is in quarantine from then on.
func (w *world) apply(p *plan.Plan) {
	if p.Halt != "" && !w.quarantined[w.target.Image] {
		w.quarantined[w.target.Image] = true
		w.say("quarantine: %s", p.Halt)
	}
	for _, move := range p.Moves {
		m := w.machine(move.Node)
		w.say("%s %s %s: %s", move.Action, move.Node, move.Image+move.Target.Config, move.Reason)
		switch move.Action {
		case plan.Stage:
			m.StageImage, m.StageError = move.Image, ""
		case plan.Unstage:
			m.StageImage = ""
		case plan.Update:
			if !m.IsOnItsWay(move.Target) {
				m.Previous, m.FailedTarget = m.has(), nodes.Target{}
			}
			m.DesiredConfig, m.DesiredImage, m.LiveOnly = move.Target.Config, move.Target.Image, move.Live
			if w.started.IsZero() {
				w.started = w.now()
			}
			m.RolloutStarted = w.started
		case plan.Repeat:
			m.DesiredConfig, m.DesiredImage = move.Target.Config, move.Target.Image
		case plan.Rollback:
			m.FailedTarget, m.FailedReason, m.StageImage, m.LiveOnly = move.Failed, move.Reason, "", false
			m.DesiredConfig, m.DesiredImage = move.Target.Config, move.Target.Image
		}
	}
	w.soakEnd = p.SoakEnd
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.tick)+fmt.Sprintf(format, args...))
}
