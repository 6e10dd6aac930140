package plan

import (
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// Summary is the plan in a few words, for status.rollout.summary.
func (p *Plan) Summary() string { return p.progress().Summary() }

// WaitingFor are the lines of status.rollout.waitingFor: each reason with the nodes that it holds.
func (p *Plan) WaitingFor() []string { return p.progress().WaitingFor() }

func (p *Plan) progress() *words.Progress {
	return &words.Progress{Hold: p.Hold, Halted: p.Halted, Updated: p.Updated, Total: p.Total, Holds: p.Holds}
}

const (
	// maxReason is how much of what a node says is read, and of the reason of a failure kept on it,
	// in bytes.
	maxReason = 1024
	// maxEvidence is the limit of the API for the message of a quarantine.
	maxEvidence = 4096
)

// Evidence is why the rollout is halted, for the quarantine of its image.
func (p *Plan) Evidence() string { return words.Shorten(p.Halt, maxEvidence) }

// ShortReason is the reason of the move as it is kept on the node.
func (m Move) ShortReason() string { return words.Shorten(m.Reason, maxReason) }

// OwnReason is why the node does not run the target, as far as Node and MachineConfigNode say it;
// empty where it does, or waits for others. image is what nodes stage for the target.
func (n *Node) OwnReason(t nodes.Target, image string) string {
	switch {
	case n.FailedTarget == t && t.Config != "" && n.isUntouched(t):
		return n.goneBack(n.FailedReason)
	case n.IsAt(t) && !n.Ready:
		return words.NotReadyYet
	case n.IsAt(t):
		return ""
	case !n.HasAgent():
		return n.noAgent()
	case n.Deleting:
		return words.Deleting
	case n.IsOnItsWay(t) && !n.waitsForTurn(), n.IsDegraded():
		return n.progress()
	case n.IsMoving() && !n.waitsForTurn() || n.IsAtWork():
		return n.finishesFirst()
	case !n.IsHealthy():
		return n.isLeft()
	case image == "" || n.StageImage != image || n.StagedImage == image:
		return ""
	default:
		return n.staging()
	}
}

// finishesFirst is about a node that changes to something else.
func (n *Node) finishesFirst() string { return words.Finishes + describe(n.target()) + " first" }

// isLeft is about a node that no pods can be scheduled to.
func (n *Node) isLeft() string { return n.unhealthy() + ", and is not moved" }

// staging is how far a node is with the image that it was asked to stage.
func (n *Node) staging() string {
	switch {
	case n.HostError != "":
		return n.hostProblem()
	case n.StageError != "":
		return words.StageFailed + n.StageError
	default:
		return words.Stages + n.unanswered()
	}
}

// hostProblem is what the node's host can't do, or can't do yet.
func (n *Node) hostProblem() string {
	if n.HostWaits {
		return words.HostWaits + n.HostError
	}
	return words.HostCannot + n.HostError
}

// noAgent is about a node whose agent has not introduced itself: on a host that nothing manages it
// says why.
func (n *Node) noAgent() string {
	if n.HostError != "" {
		return n.hostProblem()
	}
	return words.NoAgent
}

// bootsStaged adds to why a node waits that any reboot of it boots what it holds.
func (n *Node) bootsStaged(reason, image string) string {
	if !n.BootsStaged || n.IsMoving() || image == "" || n.StagedImage != image {
		return reason
	}
	return reason + words.BootsStaged
}

// progress is how far a node is that has been asked to change to the target.
func (n *Node) progress() string {
	switch {
	case n.hasStaleFailure():
		return words.Told + n.unanswered()
	case n.IsDegraded() && n.has() == n.target():
		return words.Degraded + n.Reason
	case n.IsDegraded():
		return words.UpdateFailed + ": " + n.Reason
	case n.State == mcfgv1.NodeStateRebooting:
		return words.Rebooting + n.failing()
	case n.isDraining():
		return n.draining()
	case !n.Ready:
		return words.Changing + ", and is not Ready"
	case n.HostError != "" && n.ReportedDesired == n.target():
		return n.hostProblem()
	default:
		return words.Changing + n.unanswered() + n.failing()
	}
}

// draining is how far the drain of the node is. A kubelet that is dead ends no pod.
func (n *Node) draining() string {
	text := words.Draining
	if !n.Ready {
		text += ", and is not Ready: look at its kubelet"
	}
	if n.DrainBlocked != "" {
		text += ": " + n.DrainBlocked
	}
	return text
}

// unanswered is why the node may never do what it was asked for; empty where nothing speaks for it.
func (n *Node) unanswered() string {
	if n.AgentDown == "" {
		return ""
	}
	return words.Unanswered + n.AgentDown
}

// failing is why the node does not get further with what it was asked for; empty where it does.
func (n *Node) failing() string {
	if n.StepError == "" || n.AgentDown != "" || n.ReportedDesired != n.target() {
		return ""
	}
	return words.CannotGoOn + n.StepError
}

func (n *Node) isDraining() bool {
	return strings.HasPrefix(n.DesiredDrain, mcfgv1.DrainPrefix) && n.DesiredDrain != n.LastAppliedDrain
}

// unhealthy is why no pods can be scheduled to the node.
func (n *Node) unhealthy() string {
	switch {
	case !n.Ready:
		return words.NotReady
	case n.DiskPressure:
		return words.DiskPressure
	default:
		return words.Cordoned
	}
}

// describe names a target.
func describe(t nodes.Target) string {
	if short := mcfgv1.ImageDigestFormat(t.Image).Short(); short != "" {
		return t.Config + " and image " + short
	}
	return t.Config
}
