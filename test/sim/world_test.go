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

// t0 is when the first node joined.
var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// world is one pool and everything around it.
type world struct {
	random *rand.Rand
	tick   int
	calm   bool // nothing breaks any more

	pool     *mcfgv1.MachineConfigPool
	machines []*machine
	target   nodes.Target
	targets  int
	joined   int
	// verified are the images that were ever allowed to reach nodes; hold is why the target is not.
	verified map[string]bool
	hold     string

	// Until when a component is away.
	controllerDown, serverDown, registryDown int

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
	// bootsOld is that the next reboot brings back what was there.
	bootsOld bool
	// agentDown is until when the agent does nothing.
	agentDown int
	// cordoned is that a person has cordoned the node.
	cordoned bool
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
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), verified: map[string]bool{}} //nolint:gosec // a simulation is to be repeatable
	name := mcfgv1.PoolWorker
	if w.chance(4) {
		name = mcfgv1.PoolMaster
	}
	w.pool = &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.setMaxUnavailable()
	for range 1 + w.random.IntN(9) {
		w.join()
	}
	w.newTarget()
	return w
}

func (w *world) chance(of int) bool { return w.random.IntN(of) == 0 }

// until is a time soon.
func (w *world) until(most int) int { return w.tick + 1 + w.random.IntN(most) }

func (w *world) join() {
	name := fmt.Sprintf("node-%d", w.joined)
	w.joined++
	w.machines = append(w.machines, &machine{Node: plan.Node{
		Node:    nodes.Observe(nodestest.New(name, []string{w.pool.Name}, nodestest.Having("c0"), nodestest.HavingImage("0"))),
		Created: t0.Add(time.Duration(w.random.IntN(100)) * time.Minute),
		Zone:    []string{"", "a", "b"}[w.random.IntN(3)],
		Stages:  !w.chance(5), // else an agent of the previous version
	}})
}

func (w *world) setMaxUnavailable() {
	w.pool.Spec.MaxUnavailable = new([]intstr.IntOrString{
		intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("10%"), intstr.FromString("50%"),
	}[w.random.IntN(4)])
}

func (w *world) newTarget() {
	w.targets++
	w.target = nodes.Target{Config: fmt.Sprintf("c%d", w.targets), Image: nodestest.Pinned(fmt.Sprint(w.targets))}
	w.hold = ""
	if !w.calm && w.chance(3) {
		w.hold = "MachineOSImage is not ready: NotVerified"
	} else {
		w.verified[w.target.Image] = true
	}
}

// input is what the controller sees now.
func (w *world) input() plan.Input {
	in := plan.Input{Pool: w.pool.DeepCopy(), Target: w.target, Image: w.target.Image, Hold: w.hold, OwnNode: "node-0"}
	for _, m := range w.machines {
		in.Nodes = append(in.Nodes, m.Node)
		if w.pool.Name == mcfgv1.PoolMaster {
			in.Etcd = append(in.Etcd, plan.EtcdMember{Node: m.Name, Healthy: m.Ready})
		}
	}
	return in
}

func (w *world) machine(name string) *machine {
	return w.machines[slices.IndexFunc(w.machines, func(m *machine) bool { return m.Name == name })]
}

// apply makes the moves of a plan.
func (w *world) apply(p *plan.Plan) {
	for _, move := range p.Moves {
		m := w.machine(move.Node)
		w.say("%s %s %s: %s", move.Action, move.Node, move.Image+move.Target.Config, move.Reason)
		switch move.Action {
		case plan.Stage:
			m.StageImage, m.StageError = move.Image, ""
		case plan.Unstage:
			m.StageImage = ""
		case plan.Update:
			m.DesiredConfig, m.DesiredImage = move.Target.Config, move.Target.Image
		}
	}
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%d: ", w.tick)+fmt.Sprintf(format, args...))
}
