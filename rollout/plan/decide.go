package plan

import (
	"cmp"
	"fmt"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
)

// Decide says which nodes move now. Nodes are asked to stage first, at most as many at once as the
// pool allows; of those that hold the image, as many change as maxUnavailable leaves room for. A node
// that has begun to change finishes, unless its update failed: then it goes to the new target at once.
func Decide(in Input) Plan {
	if in.Target.Config == "" {
		return Plan{Hold: in.Hold, Total: len(in.Nodes)}
	}
	in.Nodes = order(in.Nodes, in.OwnNode)
	d := decision{
		Input: in, plan: Plan{Total: len(in.Nodes)},
		room: maxUnavailable(in.Pool, len(in.Nodes)),
	}
	d.background, d.slots = staging(in.Pool)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.IsUnavailable() {
			d.room--
		}
		if n.isStaging() {
			d.slots--
		}
	}
	for i := range in.Nodes {
		d.node(&in.Nodes[i])
	}
	return d.plan
}

// order sorts nodes as they go: by zone, those without one last, then the oldest first. The node that
// the controller runs on goes last of all, so that the controller moves once.
func order(list []Node, own string) []Node {
	return slices.SortedFunc(slices.Values(list), func(a, b Node) int {
		return cmp.Or(
			compareBools(a.Name == own && own != "", b.Name == own && own != ""),
			compareBools(a.Zone == "", b.Zone == ""), cmp.Compare(a.Zone, b.Zone),
			a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name),
		)
	})
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
	plan Plan
	// room is how many nodes may still become unavailable, slots how many may still begin to stage.
	room, slots int
	background  bool
}

// node decides about one node, after those that go before it.
func (d *decision) node(n *Node) {
	if n.IsDegraded() {
		d.plan.Failed++
	}
	switch {
	case n.IsAt(d.Target):
		d.plan.Updated++
		d.unstage(n)
	case !n.HasAgent():
		d.hold(n, "no node agent has reported from it")
	case n.Deleting:
		d.hold(n, "the node is being deleted")
	case n.IsOnItsWay(d.Target):
		d.hold(n, n.progress())
	case d.Pool.Spec.Paused:
		d.hold(n, "the pool is paused")
	case d.Hold != "":
		d.hold(n, d.Hold)
	case n.IsDegraded():
		d.update(n, "its update failed, and there is a new target")
	case n.IsMoving() || isAtWork(n):
		d.hold(n, "finishes the change to "+describe(n.target())+" first")
	case !n.IsHealthy():
		d.hold(n, n.unhealthy()+", and is not moved")
	default:
		d.candidate(n)
	}
}

// candidate decides about a node that could move.
func (d *decision) candidate(n *Node) {
	if d.needsStaging(n) {
		d.stage(n)
		return
	}
	if n.StagedImage == d.Image && d.Image != "" {
		d.plan.Staged++
	}
	if d.room <= 0 {
		d.hold(n, fmt.Sprintf("waits for its turn: maxUnavailable allows %d unavailable at a time",
			maxUnavailable(d.Pool, len(d.Nodes))))
		return
	}
	if d.update(n, "its turn has come") {
		d.room--
	}
}

// needsStaging reports whether the node has to hold the image before it may go away.
func (d *decision) needsStaging(n *Node) bool {
	return d.background && n.Stages && d.Image != "" && n.CurrentImage != d.Image && n.StagedImage != d.Image
}

func (d *decision) stage(n *Node) {
	switch {
	case n.StageImage == d.Image && n.StageError != "":
		d.hold(n, "can't stage the image: "+n.StageError)
	case n.StageImage == d.Image:
		d.hold(n, "stages the image")
	case d.slots <= 0 && !n.isStaging():
		d.hold(n, "waits to stage the image: spec.rollout.staging.maxParallel nodes are at it")
	default:
		if !n.isStaging() {
			d.slots--
		}
		d.move(Move{Node: n.Name, Action: Stage, Image: d.Image, Reason: "it does not hold the image yet"})
	}
}

// unstage takes back a request for another image than the node runs. One for the image that it runs
// asks for nothing, and stays: that saves a write for every update.
func (d *decision) unstage(n *Node) {
	if n.StageImage != "" && n.StageImage != n.CurrentImage {
		d.move(Move{Node: n.Name, Action: Unstage, Reason: "it has what it should have"})
	}
}

// update lets a node change, unless etcd would lose its majority. It reports whether it does.
func (d *decision) update(n *Node, reason string) bool {
	if IsControlPlane(d.Pool) {
		if other := losesQuorum(d.Etcd, n.Name); other != "" {
			d.hold(n, "etcd would lose its majority: the member on node "+other+" is not healthy")
			return false
		}
	}
	d.move(Move{Node: n.Name, Action: Update, Target: d.Target, Reason: reason})
	return true
}

func (d *decision) move(m Move) { d.plan.Moves = append(d.plan.Moves, m) }

func (d *decision) hold(n *Node, reason string) {
	d.plan.Holds = append(d.plan.Holds, Hold{Node: n.Name, Reason: reason})
}

// isAtWork reports whether the node agent is changing the node.
func isAtWork(n *Node) bool {
	return n.State == mcfgv1.NodeStateWorking || n.State == mcfgv1.NodeStateRebooting
}

// isStaging reports whether the node is pulling. One that failed waits before it tries again, and
// takes no slot from nodes that could pull.
func (n *Node) isStaging() bool {
	return n.StageImage != "" && n.StageImage != n.StagedImage && n.StageImage != n.CurrentImage && n.StageError == ""
}

// IsOnItsWay reports whether the node has been asked to change to the target.
func (n *Node) IsOnItsWay(t nodes.Target) bool { return n.target() == t }

// target is what the node has been asked to have.
func (n *Node) target() nodes.Target {
	return nodes.Target{Config: n.DesiredConfig, Image: n.DesiredImage}
}
