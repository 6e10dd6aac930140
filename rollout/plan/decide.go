package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// Decide says which nodes move now. Nodes are asked to stage first, at most as many at once as the
// pool allows; of those that hold the image, as many change as maxUnavailable leaves room for,
// canaries first, then batch by batch, and only while a maintenance window is open. A node that has
// begun to change finishes, unless its update failed: then it goes to a new target at once, or back
// to what it had. As many failures as the pool's threshold says halt the rollout.
func Decide(in Input) Plan {
	if in.Target.Config == "" {
		return Plan{Hold: in.Hold, Total: len(in.Nodes)}
	}
	d := newDecision(&in)
	for i := range d.Nodes {
		d.node(i)
	}
	d.plan.Cost, d.plan.Away = d.cost(), d.away()
	return d.plan
}

// newDecision judges the nodes, and finds out how many more may move.
func newDecision(in *Input) *decision {
	most := maxUnavailable(in.Pool, len(in.Nodes))
	d := &decision{
		Input: *in, Nodes: order(in), plan: Plan{Total: len(in.Nodes)}, verdicts: make([]verdict, len(in.Nodes)), told: map[string]bool{},
		room: most, spare: most, rebootTimeout: in.Pool.Spec.RebootPatience(),
	}
	d.background, d.slots = staging(in.Pool)
	var windows []mcfgv1.RolloutWindow
	if r := in.Pool.Spec.Rollout; r != nil {
		windows = r.Windows
	}
	d.plan.Window = Windows(windows, in.Now)
	unproven := 0
	for i, n := range d.Nodes {
		v := d.judge(n)
		d.verdicts[i] = v
		if n.takesSlot(v) {
			d.occupy(n)
		}
		if n.isStaging() {
			d.slots--
		}
		if v.pending != "" && !n.waitsForTurn() {
			unproven++
		}
	}
	d.first = d.canaries()
	d.soaking = d.soak()
	d.waits = d.batches()
	d.lend()
	d.most = d.threshold()
	d.plan.Halt = d.halt()
	d.plan.Halted = d.plan.Halt != "" || d.Quarantined
	d.halted = words.Halted + d.plan.Halt
	d.unprovenRoom = d.most - d.plan.Failed - unproven
	return d
}

// order sorts nodes as they go: by zone, those without one last, then the oldest first, or the
// newest where the pool says so. The node that the controller runs on goes last of all, so that the
// controller moves once.
func order(in *Input) []*Node {
	sorted := make([]*Node, len(in.Nodes)) // a Node is large to move about
	for i := range in.Nodes {
		sorted[i] = &in.Nodes[i]
	}
	age := 1
	if in.Pool.Annotations[mcfgv1.AnnotationUpdateOrder] == mcfgv1.UpdateOrderNewestFirst {
		age = -1
	}
	own := in.OwnNode
	slices.SortFunc(sorted, func(a, b *Node) int {
		return cmp.Or(
			compareBools(a.Name == own && own != "", b.Name == own && own != ""),
			compareBools(a.Zone == "", b.Zone == ""), cmp.Compare(a.Zone, b.Zone),
			age*a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name),
		)
	})
	return sorted
}

// compareBools sorts false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// decision is a plan in the making.
type decision struct {
	Input
	// Nodes are those of the Input, in the order in which they go.
	Nodes []*Node
	plan  Plan
	// verdicts are what the nodes prove about the target, in the order of Nodes.
	verdicts []verdict
	// room is how many nodes may still become unavailable, and spare how many if nodes that are
	// only degraded are not counted. slots is how many may still begin to stage, and unprovenRoom
	// how many may still try the target before others have proven it.
	room, spare, slots, unprovenRoom int
	background                       bool
	// first are the canaries; soaking is why the others have to wait for them, empty where they may
	// go.
	first   []string
	soaking string
	// waits are why nodes have to wait for the batch before theirs, in the order of Nodes; lost is
	// which batch, or which canary, can't succeed any more.
	waits []string
	lost  string
	// told are the nodes that are told to change, and slotHolders, in words, those that have slots.
	told        map[string]bool
	slotHolders string
	// halted is what each node is held with when the rollout is halted.
	halted string
	// most is how many failed nodes halt the rollout.
	most          int
	rebootTimeout time.Duration
}

// node decides about one node, after those that go before it.
func (d *decision) node(i int) {
	n, v := d.Nodes[i], d.verdicts[i]
	if n.FailedTarget == d.Target {
		d.plan.RolledBack++
	}
	switch {
	case v.failed != "" && !n.isUntouched(d.Target):
		d.failed(n, v.failed)
	case n.IsAt(d.Target) && v.pending != "":
		d.hold(n, v.pending)
		d.unstage(n)
	case n.IsAt(d.Target):
		d.plan.Updated++
		d.unstage(n)
	case !n.HasAgent():
		d.hold(n, n.noAgent())
	case n.Deleting:
		d.hold(n, words.Deleting)
	case n.IsOnItsWay(d.Target) && n.waitsForTurn():
		d.goesAway(n)
	case n.IsOnItsWay(d.Target):
		d.hold(n, n.progress())
	case n.lostTarget():
		d.move(Move{Node: n.Name, Action: Repeat, Target: n.has(), Reason: "an annotation of what it should have was removed"})
	case n.waitsForTurn() && n.has() == d.Target:
		d.move(Move{Node: n.Name, Action: Repeat, Target: n.has(), Reason: "it has what it should, and has begun nothing else"})
	default:
		d.behind(i)
	}
}

// behind decides about a node that has not been told to take the target.
func (d *decision) behind(i int) {
	n, v := d.Nodes[i], d.verdicts[i]
	if d.plan.Halt != "" || d.Quarantined {
		d.withdraw(n)
	}
	switch {
	case d.Pool.Spec.Paused:
		d.hold(n, words.Paused)
	case v.failed != "":
		d.hold(n, n.goneBack(v.failed))
	case d.plan.Halt != "":
		d.hold(n, d.halted)
	case d.Hold != "":
		d.hold(n, d.Hold)
	case n.IsDegraded() && n.IsMoving():
		d.retry(n)
	case n.IsMoving() && !n.waitsForTurn() || n.IsAtWork():
		d.hold(n, n.finishesFirst())
	case !n.IsHealthy():
		d.hold(n, n.isLeft())
	default:
		d.candidate(n, d.waits[i])
	}
}

// retry sends a node whose update failed to a new target at once. Only one that was to change as it
// runs, and still serves pods, needs a slot.
func (d *decision) retry(n *Node) {
	switch {
	case n.isOnlyDegraded() && !d.hasSlot(n):
		d.hold(n, d.noSlot())
	case d.update(n, "its update failed, and there is a new target") && n.isOnlyDegraded():
		d.goAway(n)
	}
}

// failed decides about a node that failed with the target, and has it or is on its way.
func (d *decision) failed(n *Node, reason string) {
	back := n.Previous
	if back.Config == "" && !n.IsAt(d.Target) {
		back = n.has() // it never got further
	}
	switch {
	case !d.Pool.Spec.RollsBack():
		d.hold(n, words.UpdateFailed+", and automaticRollback is Disabled: "+reason)
	case d.Pool.Spec.Paused:
		d.hold(n, words.UpdateFailed+", and the pool is paused: "+reason)
	case back.Config == "" || back == d.Target:
		d.hold(n, words.UpdateFailed+": "+reason)
	case n.Deleting:
		d.hold(n, words.Deleting)
	case d.canGo(n, reason):
		d.plan.RolledBack++
		d.move(Move{Node: n.Name, Action: Rollback, Target: back, Failed: d.Target, Reason: reason})
	}
}

// canGo reports whether a node that failed may go back now. One that still serves pods needs room
// for it.
func (d *decision) canGo(n *Node, reason string) bool {
	if !n.Ready || n.IsUnavailable() && !IsControlPlane(d.Pool) {
		return true
	}
	if d.room <= 0 && !n.IsUnavailable() {
		d.hold(n, words.Failed+d.noSlot()+": "+reason)
		return false
	}
	if why := d.controlPlaneHold(n); why != "" {
		d.hold(n, words.Failed+"can't go back: "+why)
		return false
	}
	if !n.IsUnavailable() {
		d.occupy(n)
	}
	return true
}

// controlPlaneHold returns why the control plane can't lose a node now; empty if it can. If etcd is
// not visible, only one node at a time is taken away.
func (d *decision) controlPlaneHold(n *Node) string {
	if !IsControlPlane(d.Pool) {
		return ""
	}
	if other := losesQuorum(d.Etcd, n.Name); other != "" {
		return words.EtcdMajority + "the member on node " + other + " is not healthy"
	}
	if !n.Ready {
		return ""
	}
	for _, other := range d.Nodes {
		isChanging := other.IsAtWork() || other.IsMoving() && !other.IsDegraded() || other.hasStaleFailure()
		if other != n && (!other.Ready || isChanging || d.plan.moves(other.Name)) {
			return words.OneAtATime + other.Name + " is unavailable or about to update"
		}
	}
	return ""
}

// goneBack says how far a node is that went back because it failed.
func (n *Node) goneBack(failed string) string {
	switch {
	case n.IsDegraded() && n.Reason != failed:
		return words.StuckBack + n.Reason
	case n.IsMoving() || n.IsAtWork() || n.IsDegraded(): // its agent has not answered yet
		return words.GoesBack + failed
	default:
		return words.WentBack + failed
	}
}

// candidate decides about a node that could move. wait is why it may not before others.
func (d *decision) candidate(n *Node, wait string) {
	if d.needsStaging(n) {
		d.stage(n)
		return
	}
	isCanary, isLive := slices.Contains(d.first, n.Name), false
	if n.StagedImage == d.Image && d.Image != "" {
		d.plan.Staged++
		// Nodes of the control plane go one at a time all the same.
		isLive = n.StagedChange == mcfgv1.NodeChangeLive && !IsControlPlane(d.Pool)
	}
	isLive = isLive || d.mayStay(n)
	if isLive {
		d.plan.Live++
	}
	switch {
	case d.Wait.Reason != "":
		d.wake(d.Wait.Until)
		d.hold(n, d.Wait.Reason)
		return
	case d.soaking != "" && !isCanary:
		d.hold(n, d.soaking)
		return
	case wait != "":
		d.hold(n, wait)
		return
	case d.isOutsideWindows(n):
		return
	case !isLive && !d.hasSlot(n):
		d.hold(n, d.noSlot())
		return
	case d.isUnproven(n):
		return
	}
	switch {
	case isLive:
		d.move(Move{Node: n.Name, Action: Update, Target: d.Target, Live: true, Reason: "it changes without drain or reboot"})
		d.unprovenRoom--
	case d.update(n, "it has a slot"):
		d.goAway(n)
		d.unprovenRoom--
	}
}

// goesAway decides about a node that was to change as it runs, and whose agent says that it can't.
func (d *decision) goesAway(n *Node) {
	switch {
	case d.Pool.Spec.Paused:
		d.hold(n, words.Paused)
	case d.Hold != "":
		d.hold(n, d.Hold)
	case d.plan.Halt != "":
		d.hold(n, d.halted)
	case d.Wait.Reason != "":
		d.wake(d.Wait.Until)
		d.hold(n, d.Wait.Reason)
	case d.isOutsideWindows(n):
	case !d.hasSlot(n):
		d.hold(n, d.noSlot())
	case d.isUnproven(n):
	case d.update(n, "it needs a drain or reboot, and has a slot"):
		d.goAway(n)
		d.unprovenRoom--
	}
}

// isUnproven reports whether as many nodes try the target as may before others are healthy with it,
// which holds the node. Canaries are there to try.
func (d *decision) isUnproven(n *Node) bool {
	if d.unprovenRoom > 0 || !d.isCareful() || slices.Contains(d.first, n.Name) {
		return false
	}
	d.hold(n, fmt.Sprintf(words.WaitsForProof+"haltThreshold allows %d nodes to try at a time", d.most))
	return true
}

// isOutsideWindows reports whether the pool's maintenance windows hold the node.
func (d *decision) isOutsideWindows(n *Node) bool {
	if d.plan.Window.Open || d.Pool.Annotations[mcfgv1.AnnotationIgnoreWindows] != "" {
		return false
	}
	d.wake(d.plan.Window.Changes)
	d.hold(n, d.plan.Window.waits())
	return true
}

// isCareful reports whether the pool limits how many nodes try a target that is not proven. Without
// that the published maxUnavailable alone says how many.
func (d *decision) isCareful() bool {
	r := d.Pool.Spec.Rollout
	return d.canary() != nil || r != nil && r.HaltThreshold != nil
}

// update lets a node change, unless the control plane needs it. It reports whether it does.
func (d *decision) update(n *Node, reason string) bool {
	if why := d.controlPlaneHold(n); why != "" {
		d.hold(n, why)
		return false
	}
	d.move(Move{Node: n.Name, Action: Update, Target: d.Target, Reason: reason})
	return true
}

func (d *decision) move(m Move) {
	d.plan.Moves = append(d.plan.Moves, m)
	if m.isChange() {
		d.told[m.Node], d.slotHolders = !m.Live, ""
	}
}

func (d *decision) hold(n *Node, reason string) {
	d.plan.Holds = append(d.plan.Holds, words.Hold{Node: n.Name, Reason: n.bootsStaged(reason, d.Image)})
}

// hasStaleFailure reports whether the node is Degraded because of an earlier target. If its agent
// does not report a target, the failure is that of the current one.
func (n *Node) hasStaleFailure() bool {
	return n.IsDegraded() && n.ReportedDesired.Config != "" && n.ReportedDesired != n.target() && n.has() != n.target()
}

// IsOnItsWay reports whether the node has been asked to change to the target.
func (n *Node) IsOnItsWay(t nodes.Target) bool { return n.target() == t }

// target is what the node has been asked to have.
func (n *Node) target() nodes.Target {
	return nodes.Target{Config: n.DesiredConfig, Image: n.DesiredImage}
}
