package agent

import (
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
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
	// actionLock keeps an image that is staged from booting before the node's turn.
	actionLock action = "Lock"
	// actionReport says what is staged.
	actionReport action = "Report"
	// actionDrain asks for a drain.
	actionDrain action = "Drain"
	// actionPrepare does what comes just before the reboot, and writes it down.
	actionPrepare action = "Prepare"
	// actionReboot reboots.
	actionReboot action = "Reboot"
	// actionUndo takes back what was prepared for a target that is no longer wanted.
	actionUndo action = "Undo"
	// actionLive brings the node to its target while it runs.
	actionLive action = "Live"
	// actionApply gives the host what no image carries.
	actionApply action = "Apply"
	// actionArrive says that the node has a target.
	actionArrive action = "Arrive"
	// actionFail says that the node could not get there, and stays where it is.
	actionFail action = "Fail"
	// actionForget forgets what the journal has of a target.
	actionForget action = "Forget"
)

// step is an action with what it is about.
type step struct {
	action action
	// image is what is staged, unstaged or reported.
	image mcfgv1.ImageDigestFormat
	// target is what the node has; of Arrive only.
	target nodes.Target
	// reason is why, for people.
	reason string
}

// next decides what the agent does.
func next(s *state) step {
	j := &s.journal
	switch {
	case s.state == "" || !s.hasStaged:
		return step{action: actionIntroduce, reason: "the agent has started on a node that does not know it"}
	case s.bootImage != "" && s.bootImage != s.reportedBootImage:
		return step{action: actionIntroduce, reason: "the node does not say which boot image it was installed from"}
	case s.isPrepared() && j.Target != s.desired:
		return step{action: actionUndo, image: j.Image, reason: "the target changed after the node was prepared"}
	case s.isUnlocked():
		return step{action: actionLock, reason: "a reboot would boot the staged image before the node's turn"}
	case s.hasRebooted(j.Target) && j.Target != s.desired && j.Target != s.current:
		return landed(s)
	case s.desired.Config == "":
		return stageAhead(s)
	case s.desired == s.current:
		return settled(s)
	default:
		return changing(s)
	}
}

// landed is about a host that has rebooted for a target that is no longer wanted: what it has now
// is where the next change begins.
func landed(s *state) step {
	if j := &s.journal; j.Image == "" || s.runs(j.Image) {
		return step{action: actionArrive, target: j.Target, reason: "the node runs a target that is no longer wanted"}
	}
	return step{action: actionForget, reason: "the node did not reach its old target, which is no longer wanted"}
}

// settled is what is left to do on a node that should have what it has.
func settled(s *state) step {
	drifted := driftReason(s)
	switch {
	case s.hasRebooted(s.journal.Target):
		return step{action: actionForget, reason: "the node has arrived"}
	case s.journal.Failed != "" && s.isThere(): // the same target may be tried again
		return step{action: actionForget, reason: "the node is back at what it had"}
	case !s.isThere() && s.liveFiles != nil, s.mayReturn && s.isAstray(): // what it has was changed as it ran, or by a reboot
		return changing(s)
	case !s.isThere() && !hasSaid(s, s.wrongImageReason()):
		return step{action: actionFail, reason: s.wrongImageReason()}
	case !s.isThere():
		return stageAhead(s)
	case len(s.changes) > 0 || s.policy:
		return apply(s)
	case !s.bootsNext(s.goal()) && s.liveFiles != nil && (s.stage == "" || s.stage == s.current.Image):
		return step{action: actionStage, image: s.goal(), reason: "the node has its files, but its next boot would use another image"}
	case drifted != "" && !hasSaid(s, drifted):
		return step{action: actionFail, reason: drifted}
	case drifted != "":
		return stageAhead(s)
	case s.state != mcfgv1.NodeStateDone:
		return step{action: actionArrive, target: s.current, reason: "the node has what it should have"}
	default:
		return stageAhead(s)
	}
}

func apply(s *state) step {
	if len(s.changes) == 0 {
		return step{action: actionApply, reason: "the temporary signature policy is no longer needed"}
	}
	return step{action: actionApply, reason: fmt.Sprintf("the host lacks configuration that is not in the image: %s", s.changes)}
}

// stageAhead stages what the controller asks for while the node runs its workload. That the node
// runs it already the controller can't know where currentImage does not say so: on a new node, and
// on one that follows the OS image of its configuration.
func stageAhead(s *state) step {
	wanted := mcfgv1.ImageDigestFormat(s.stage)
	if s.stage == s.current.Image {
		wanted = ""
	}
	switch {
	case wanted == "" && s.leftOver() != "":
		return step{action: actionUnstage, image: s.leftOver(), reason: "the image was withdrawn while the host pulled it"}
	case wanted == "" && s.staged == "":
		return step{action: actionNone, reason: "nothing is asked for"}
	case wanted == "":
		return step{action: actionUnstage, image: mcfgv1.ImageDigestFormat(s.staged), reason: "the image is no longer asked for"}
	case !s.holds(wanted) && !s.runs(wanted):
		return step{action: actionStage, image: wanted, reason: "the controller asks for it"}
	case s.staged != "" && s.staged != s.stage && !s.host.Staged.IsOf(wanted):
		return step{action: actionUnstage, image: mcfgv1.ImageDigestFormat(s.staged), reason: "the host has booted the wanted image before"}
	case s.staged != s.stage || s.stagedChange == "" && s.change() != "":
		return step{action: actionReport, image: wanted, reason: "the image is on the host"}
	default:
		return step{action: actionNone, reason: "the image is on the host"}
	}
}

// changing is the next step from what the node has to what it should have.
func changing(s *state) step {
	switch {
	case s.refused != "" && s.desired != s.current:
		return failOnce(s, s.refused)
	case !s.needsMore() && len(s.changes) > 0:
		return apply(s)
	case !s.needsMore():
		return step{action: actionArrive, target: s.desired, reason: "the node runs what it should"}
	case len(s.changes) > 0 && s.applied() != s.desired.Config: // what runs lacks something
		return apply(s)
	case s.hasFailed() && s.state == mcfgv1.NodeStateDone:
		return step{action: actionForget, reason: "the state of a failed update was set to Done"}
	case s.hasFailed():
		return failOnce(s, s.journal.Failed)
	case s.hasRebooted(s.desired) && !s.isThere() && !s.runs(s.goal()):
		return failOnce(s, s.wrongBootReason())
	case s.hasRebooted(s.desired) && s.isThere():
		return failOnce(s, "the node came back with other kernel arguments than those of "+s.desired.Config)
	default:
		return onward(s)
	}
}

// onward is the next step of a change that has not failed.
func onward(s *state) step {
	drain := mcfgv1.DrainPrefix + s.drainID()
	switch {
	case !s.isThere() && !s.holds(s.goal()) && !s.runs(s.goal()):
		return step{action: actionStage, image: s.goal(), reason: "the node's turn has come"}
	case s.liveOnly && s.desired != s.current && s.change() != mcfgv1.NodeChangeLive: // no one gives a turn for the way back
		return askForTurn(s)
	case s.change() == mcfgv1.NodeChangeLive && s.mayStay():
		return step{action: actionLive, image: s.goal(), reason: s.changeReason()}
	case s.desiredDrain != drain || !isAtWork(s.state):
		return step{action: actionDrain, image: s.goal(), reason: "the image is on the host"}
	case s.lastDrain != drain:
		return step{action: actionNone, reason: "the controller drains the node"}
	case s.mayStay():
		return step{action: actionLive, image: s.goal(), reason: s.changeReason()}
	case s.state != mcfgv1.NodeStateRebooting || !s.isReady():
		return step{action: actionPrepare, image: s.goal(), reason: "the node is drained"}
	default:
		return step{action: actionReboot, reason: "to boot " + string(s.goal()) + " with " + s.desired.Config}
	}
}

// askForTurn tells the controller that the node needs a drain or reboot.
func askForTurn(s *state) step {
	if s.stagedChange == s.change() && s.staged == string(s.goal()) {
		return step{action: actionNone, reason: "the node waits for a slot: " + s.changeReason()}
	}
	return step{action: actionReport, image: s.goal(), reason: "the node needs a drain or reboot"}
}

// failOnce says that the node is degraded, unless it has said so.
func failOnce(s *state, reason string) step {
	if hasSaid(s, reason) {
		return step{action: actionNone, reason: reason}
	}
	return step{action: actionFail, reason: reason}
}

// hasSaid reports whether the node is degraded for a reason.
func hasSaid(s *state, reason string) bool {
	return s.state == mcfgv1.NodeStateDegraded && s.reason == reason
}

// driftReason is what has drifted, in the words that users of OpenShift know; empty where nothing
// has.
func driftReason(s *state) string {
	const named = 5
	if len(s.drift) == 0 {
		return ""
	}
	list := s.drift
	if more := len(list) - named; more > 0 {
		list = append(list[:named:named], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("unexpected on-disk state validating against %s: %s", s.desired.Config, strings.Join(list, "; "))
}

func isAtWork(state string) bool {
	return state == mcfgv1.NodeStateWorking || state == mcfgv1.NodeStateRebooting
}

// wrongImageReason says which image the host has booted, and which one it should have.
func (s *state) wrongImageReason() string {
	return fmt.Sprintf("the node booted %s instead of %s", s.booted(), s.goal())
}

// wrongBootReason says what the host came back with after its reboot, and why if it is known.
func (s *state) wrongBootReason() string {
	text := "the node came back with " + short(s.booted()) + " instead of " + short(string(s.goal()))
	if s.whyNotBooted != "" {
		text += ": " + s.whyNotBooted
	}
	return text
}

// short is an image by the start of its digest, so that a text with two of them has room where it
// is shown.
func short(image string) string {
	if digest := mcfgv1.ImageDigestFormat(image).Short(); digest != "" {
		return "image " + digest
	}
	return image
}

// booted names what the host has booted.
func (s *state) booted() string {
	switch {
	case s.host.Booted != nil && s.host.Booted.HasLocalPackages:
		return "packages that rpm-ostree installed over its image (rpm-ostree reset removes them)"
	case s.host.Booted == nil || s.host.Booted.Image == "" && s.host.Booted.Digest == "":
		return "no image"
	case s.host.Booted.Image == "":
		return s.host.Booted.Digest
	default:
		return s.host.Booted.Image
	}
}
