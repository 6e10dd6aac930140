package agent

import (
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// action is what the agent does in one step.
type action string

const (
	// actionNone: there is nothing to do, or others have to act.
	actionNone action = "None"
	// actionIntroduce says for the first time that the node has an agent, which can stage.
	actionIntroduce action = "Introduce"
	// actionStage pulls and stages an image.
	actionStage action = "Stage"
	// actionUnstage removes an image that is no longer wanted.
	actionUnstage action = "Unstage"
	// actionReport says what is staged.
	actionReport action = "Report"
	// actionDrain asks for a drain.
	actionDrain action = "Drain"
	// actionPrepare does what comes just before the reboot, and writes it down.
	actionPrepare action = "Prepare"
	// actionReboot reboots.
	actionReboot action = "Reboot"
	// actionArrive says that the node has what it should have.
	actionArrive action = "Arrive"
	// actionFail says that the node could not get there, and stays where it is.
	actionFail action = "Fail"
	// actionRetry forgets a failure because a person asked for another try.
	actionRetry action = "Retry"
)

// step is an action with what it is about.
type step struct {
	action action
	// image is what is staged, unstaged or reported.
	image mcfgv1.ImageDigestFormat
	// reason is why, for people.
	reason string
}

// next decides what the agent does.
func next(s *state) step {
	switch {
	case s.state == "" || !s.hasStaged:
		return step{action: actionIntroduce, reason: "the agent has started on a node that does not know it"}
	case s.desired.Config == "":
		return stageAhead(s)
	case s.desired == s.current:
		return settled(s)
	default:
		return changing(s)
	}
}

// settled is what is left to do on a node that should have what it has.
func settled(s *state) step {
	switch {
	case !s.isThere():
		return failOnce(s, fmt.Sprintf("the node has booted %s, and should have %s", s.booted(), s.goal()))
	case s.state != mcfgv1.NodeStateDone:
		return step{action: actionArrive, reason: "the node has what it should have"}
	default:
		return stageAhead(s)
	}
}

// stageAhead stages what the controller asks for while the node runs its workload.
func stageAhead(s *state) step {
	wanted := mcfgv1.ImageDigestFormat(s.stage)
	if wanted != "" && s.runs(wanted) {
		wanted = ""
	}
	switch {
	case wanted == "" && s.staged == "":
		return step{action: actionNone, reason: "nothing is asked for"}
	case wanted == "":
		return step{action: actionUnstage, image: mcfgv1.ImageDigestFormat(s.staged), reason: "the image is no longer asked for"}
	case !s.holds(wanted):
		return step{action: actionStage, image: wanted, reason: "the controller asks for it"}
	case s.staged != s.stage:
		return step{action: actionReport, image: wanted, reason: "the image is staged"}
	default:
		return step{action: actionNone, reason: "the image is staged"}
	}
}

// changing is the next step from what the node has to what it should have.
func changing(s *state) step {
	hasFailed := s.journal.Failed != "" && s.journal.Target == s.desired
	drain := mcfgv1.DrainPrefix + s.drainID()
	switch {
	case s.isThere() && (!s.arguments || s.hasRebooted()):
		return step{action: actionArrive, reason: "the node runs what it should"}
	case hasFailed && s.state == mcfgv1.NodeStateDone:
		return step{action: actionRetry, reason: "the state of a failed update was set to Done"}
	case hasFailed:
		return failOnce(s, s.journal.Failed)
	case s.hasRebooted():
		return failOnce(s, fmt.Sprintf("the node came back with %s instead of %s", s.booted(), s.goal()))
	case !s.isThere() && !s.holds(s.goal()):
		return step{action: actionStage, image: s.goal(), reason: "the node's turn has come"}
	case s.desiredDrain != drain || !isAtWork(s.state):
		return step{action: actionDrain, image: s.goal(), reason: "the image is staged"}
	case s.lastDrain != drain:
		return step{action: actionNone, reason: "the controller drains the node"}
	case s.state != mcfgv1.NodeStateRebooting || s.journal.Target != s.desired:
		return step{action: actionPrepare, reason: "the node is drained"}
	default:
		return step{action: actionReboot, reason: "to boot " + string(s.goal()) + " with " + s.desired.Config}
	}
}

// failOnce says that the node is degraded, unless it has said so.
func failOnce(s *state, reason string) step {
	if s.state == mcfgv1.NodeStateDegraded && s.reason == reason {
		return step{action: actionNone, reason: reason}
	}
	return step{action: actionFail, reason: reason}
}

func isAtWork(state string) bool {
	return state == mcfgv1.NodeStateWorking || state == mcfgv1.NodeStateRebooting
}

// booted names what the host has booted.
func (s *state) booted() string {
	switch {
	case s.host.Booted == nil || s.host.Booted.Image == "" && s.host.Booted.Digest == "":
		return "no image"
	case s.host.Booted.Image == "":
		return s.host.Booted.Digest
	default:
		return s.host.Booted.Image
	}
}
