package plan

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/words"
)

// isOnlyDegraded reports whether the node is degraded and serves pods all the same: an update of it
// would take it away.
func (n *Node) isOnlyDegraded() bool {
	return n.IsDegraded() && (!n.IsMoving() || n.LiveOnly) && n.IsHealthy()
}

// takesSlot reports whether the node counts against maxUnavailable.
func (n *Node) takesSlot(v verdict) bool {
	isLive := n.LiveOnly && n.IsMoving()
	return n.IsUnavailable() || v.pending != "" && !isLive
}

// occupy gives a node a slot.
func (d *decision) occupy(n *Node) {
	d.room--
	if !n.isOnlyDegraded() {
		d.spare--
	}
}

// goAway takes the slot of a node that is told to go away. A degraded node has one already.
func (d *decision) goAway(n *Node) {
	d.spare--
	if !n.isOnlyDegraded() {
		d.room--
	}
}

// hasSlot reports whether a node may go away. One that is only degraded uses its own slot, but many
// of them go no faster than others.
func (d *decision) hasSlot(n *Node) bool {
	if n.isOnlyDegraded() {
		return d.spare > 0
	}
	return d.room > 0
}

// lend frees the slots of nodes that are only degraded while they wait for others: these would wait
// for the slot. One whose update failed waits for no other, and needs its own.
func (d *decision) lend() {
	for i, n := range d.Nodes {
		isWaiting := d.waits[i] != "" || d.soaking != "" && !slices.Contains(d.first, n.Name)
		if isWaiting && n.isOnlyDegraded() && !n.IsMoving() && n.isUntouched(d.Target) {
			d.room++
		}
	}
}

// noSlot is what a node waits for that has no slot, and who has them.
func (d *decision) noSlot() string {
	if d.slotHolders == "" {
		d.slotHolders = d.holders()
	}
	return fmt.Sprintf(words.WaitsForSlot+"maxUnavailable allows %d unavailable at a time: %s", maxUnavailable(d.Pool, len(d.Nodes)), d.slotHolders)
}

// holders are the nodes that have slots, first those that may have them until a person acts.
func (d *decision) holders() string {
	const named = 3
	var stuck, busy []string
	for i, n := range d.Nodes {
		switch {
		case d.told[n.Name]:
			busy = append(busy, n.Name+" is told to change")
		case !n.takesSlot(d.verdicts[i]):
		case n.IsDegraded() || !n.IsHealthy() && !n.IsMoving():
			stuck = append(stuck, n.Name+" "+n.occupies())
		default:
			busy = append(busy, n.Name+" "+n.occupies())
		}
	}
	all := slices.Concat(stuck, busy)
	if more := len(all) - named; more > 0 {
		all = append(all[:named], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

// occupies is why a node has a slot, in few words.
func (n *Node) occupies() string {
	switch {
	case n.IsMoving() && !n.IsDegraded() && n.State == mcfgv1.NodeStateRebooting:
		return words.Rebooting
	case n.IsMoving() && !n.IsDegraded() && n.isDraining():
		return words.Draining
	case n.IsMoving() && !n.IsDegraded() || n.IsAtWork():
		return words.Changing
	case !n.IsHealthy():
		return n.unhealthy()
	case n.IsDegraded():
		return "is degraded"
	default:
		return "is not healthy yet"
	}
}

// needsStaging reports whether the node has to hold the image before it may go away.
func (d *decision) needsStaging(n *Node) bool {
	return d.background && n.Stages && !n.waitsForTurn() && d.Image != "" && n.CurrentImage != d.Image && n.StagedImage != d.Image
}

func (d *decision) stage(n *Node) {
	switch {
	case n.StageImage == d.Image:
		d.hold(n, n.staging())
	case d.slots <= 0 && !n.isStaging():
		d.hold(n, words.WaitsToStage+"spec.rollout.staging.maxParallel nodes are staging already")
	default:
		if !n.isStaging() {
			d.slots--
		}
		d.move(Move{Node: n.Name, Action: Stage, Image: d.Image, Reason: "it does not hold the image yet"})
	}
}

// withdraw takes back a request to stage an image that no node may get.
func (d *decision) withdraw(n *Node) {
	if n.StageImage != "" && n.StageImage == d.Image {
		d.move(Move{Node: n.Name, Action: Unstage, Reason: "no node may get the image"})
	}
}

// unstage takes back a request for another image than the node runs. One for the image that it runs
// asks for nothing, and stays: that saves a write for every update.
func (d *decision) unstage(n *Node) {
	if n.StageImage != "" && n.StageImage != n.CurrentImage {
		d.move(Move{Node: n.Name, Action: Unstage, Reason: "it has what it should have"})
	}
}

// isStaging reports whether the node is pulling. One that failed waits before it tries again, and
// takes no slot from nodes that could pull; neither does one that is not Ready or has no agent.
func (n *Node) isStaging() bool {
	isAsked := n.StageImage != "" && n.StageImage != n.StagedImage && n.StageImage != n.CurrentImage
	return isAsked && n.StageError == "" && n.AgentDown == "" && n.Ready
}

// mayStay reports whether a node that runs the image is asked to change as it runs: what else a
// policy wants, only its agent knows, and it asks for a turn then.
func (d *decision) mayStay(n *Node) bool {
	runsImage := d.Target.Image != "" && n.CurrentImage == d.Target.Image && n.DesiredImage == d.Target.Image
	return runsImage && n.Stages && n.SameArguments && n.StagedImage == "" && !n.IsMoving() && !IsControlPlane(d.Pool)
}

// waitsForTurn reports whether the node was to change as it runs, and its agent says that it can't:
// then it has begun nothing. One that holds no image has not answered yet.
func (n *Node) waitsForTurn() bool {
	return n.IsMoving() && n.LiveOnly && n.StagedImage != "" && n.StagedChange != mcfgv1.NodeChangeLive
}
