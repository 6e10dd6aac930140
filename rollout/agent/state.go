package agent

import (
	"crypto/sha256"
	"encoding/hex"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/disruption"
	"github.com/layerwright/layerwright/rollout/host"
)

// state is everything that a step follows from.
type state struct {
	nodeAnnotations
	// host is what the host has, and bootID what Linux calls this boot.
	host   host.Status
	bootID string
	// bootImage is the version of the image that the host was installed from; empty where the host
	// does not say it.
	bootImage string
	// base is the OS image of the desired configuration; empty where it names none.
	base mcfgv1.ImageDigestFormat
	// refused is why the host can't have the desired configuration; empty where it can.
	refused string
	// arguments are the changes of kernel arguments that what boots next still needs.
	arguments host.ArgumentChange
	// changes are what the host lacks of its node state, and left, in words, what it can't get.
	changes []nodestate.Change
	left    []string
	// drift is what of the configuration's files is not as the booted image has it, in words.
	drift []string
	// policy reports whether the host has a temporary signature policy that it no longer needs.
	policy  bool
	journal Journal
	// canLock and isLocked are about what is staged: whether the host can keep it from booting, and
	// whether it does.
	canLock, isLocked bool
	// whyNotBooted is why the host came back with what it had, as its units say it; empty where it
	// did not, or they say nothing.
	whyNotBooted string
	// mayReturn reports whether the pool lets its nodes go back by themselves from an image that is
	// not wanted.
	mayReturn bool
	// liveFiles are the files of /etc, while the booted image has others; nil where it has not.
	liveFiles *nodestate.Live
	// verdict is what the change does to the node, of an image that the host holds; nil where that
	// is not known.
	verdict *disruption.Verdict
}

// nodeAnnotations is what the annotations of the Node say.
type nodeAnnotations struct {
	current, desired        nodes.Target
	stage, staged           string
	hasStaged               bool // there is an annotation of what is staged
	state, reason           string
	desiredDrain, lastDrain string
	reportedBootImage       string
	stagedChange            string
	liveOnly                bool
}

// readWire reads the annotations of a Node.
func readWire(a map[string]string) nodeAnnotations {
	staged, hasStaged := a[mcfgv1.AnnotationStagedImage]
	return nodeAnnotations{
		current: nodes.Target{Config: a[mcfgv1.AnnotationCurrentConfig], Image: a[mcfgv1.AnnotationCurrentImage]},
		desired: nodes.Target{Config: a[mcfgv1.AnnotationDesiredConfig], Image: a[mcfgv1.AnnotationDesiredImage]},
		stage:   a[mcfgv1.AnnotationStageImage], staged: staged, hasStaged: hasStaged,
		state: a[mcfgv1.AnnotationState], reason: a[mcfgv1.AnnotationReason],
		desiredDrain: a[mcfgv1.AnnotationDesiredDrain], lastDrain: a[mcfgv1.AnnotationLastAppliedDrain],
		reportedBootImage: a[mcfgv1.AnnotationBootImageVersion],
		stagedChange:      a[mcfgv1.AnnotationStagedChange], liveOnly: a[mcfgv1.AnnotationLiveOnly] == "true",
	}
}

// Journal is what the agent has to know after a reboot, or after it was killed.
type Journal struct {
	// Target is what the host is made ready for; empty where it is for nothing.
	Target nodes.Target `json:"target"`
	// Image is what the host boots next for it; empty where any will do.
	Image mcfgv1.ImageDigestFormat `json:"image,omitempty"`
	// BootID is the boot in which that was begun, and Booted the checkout of what ran: a soft
	// reboot is no other boot. An earlier version of the agent wrote no Booted.
	BootID string `json:"bootID,omitempty"`
	Booted string `json:"booted,omitempty"`
	// Ready reports whether the host may reboot: all that comes before it is done.
	Ready bool `json:"ready,omitempty"`
	// RebootAsked is the time in seconds since 1970 at which the host was first told to reboot.
	RebootAsked int64 `json:"rebootAsked,omitempty"`
	// Soft reports whether the reboot that the host was told to make for the target was a soft one.
	Soft bool `json:"soft,omitempty"`
	// Staging is the image that the agent had the host stage last, whether or not that was
	// reported: when no one asks for it any more, it must not boot.
	Staging mcfgv1.ImageDigestFormat `json:"staging,omitempty"`
	// Failed is why the host did not get to the target; empty where it did, or is on its way.
	Failed string `json:"failed,omitempty"`
}

// leftOver is an image that the agent had the host stage, and that is neither reported nor what the
// host should boot; empty where there is none.
func (s *state) leftOver() mcfgv1.ImageDigestFormat {
	image := s.journal.Staging
	if image == "" || s.staged != "" || !s.host.Staged.IsOf(image) || s.host.Staged.IsOf(s.goal()) {
		return ""
	}
	return image
}

// goal is the image that the host should boot; empty where any will do.
func (s *state) goal() mcfgv1.ImageDigestFormat {
	if s.desired.Image != "" {
		return mcfgv1.ImageDigestFormat(s.desired.Image)
	}
	return s.base
}

// runs reports whether the host has booted an image.
func (s *state) runs(image mcfgv1.ImageDigestFormat) bool { return s.host.Booted.IsOf(image) }

// holds reports whether the host can boot an image without pulling it.
func (s *state) holds(image mcfgv1.ImageDigestFormat) bool {
	return s.host.Staged.IsOf(image) || s.host.Rollback.IsOf(image)
}

// bootsNext reports whether an image is what the host boots next; any will do where it is empty.
func (s *state) bootsNext(image mcfgv1.ImageDigestFormat) bool {
	switch {
	case image == "":
		return true
	case s.host.Staged != nil:
		return s.host.Staged.IsOf(image)
	case s.host.RollbackQueued:
		return s.host.Rollback.IsOf(image)
	default:
		return s.runs(image)
	}
}

// isThere reports whether the host runs what it should, or has the files of it; any image will do
// where there is no goal.
func (s *state) isThere() bool {
	switch {
	case s.goal() == "":
		return true
	case s.liveFiles == nil:
		return s.runs(s.goal())
	default:
		return s.liveFiles.Image == string(s.goal()) && s.liveFiles.IsWhole()
	}
}

// nextImage is what the host boots next, if that is staged, or a rollback that is queued.
func (s *state) nextImage() mcfgv1.ImageDigestFormat {
	next := s.host.Staged
	if next == nil && s.host.RollbackQueued {
		next = s.host.Rollback
	}
	switch {
	case next == nil:
		return ""
	case mcfgv1.ImageDigestFormat(next.Image).Digest() != "":
		return mcfgv1.ImageDigestFormat(next.Image)
	default:
		return mcfgv1.ImageDigestFormat("next@" + next.Digest)
	}
}

func targetWith(config string) nodes.Target { return nodes.Target{Config: config} }

// isPrepared reports whether the host is being made ready for a target, and has not rebooted since.
func (s *state) isPrepared() bool {
	j := &s.journal
	return j.Target.Config != "" && j.Failed == "" && s.isSameBoot()
}

// isSameBoot reports whether the host has not rebooted, in either way, since the journal was
// written.
func (s *state) isSameBoot() bool {
	j := &s.journal
	return j.BootID == s.bootID && (j.Booted == "" || j.Booted == s.host.Booted.Checkout)
}

// isReady reports whether the host is ready to reboot for what it should have.
func (s *state) isReady() bool {
	isHeld := s.host.Staged != nil && s.isLocked
	return s.isPrepared() && s.journal.Ready && s.journal.Target == s.desired && s.bootsNext(s.goal()) && !isHeld
}

// hasRebooted reports whether the host has been rebooted for a target, and the journal still says
// so.
func (s *state) hasRebooted(target nodes.Target) bool {
	j := &s.journal
	return j.Target == target && j.Target.Config != "" && j.Failed == "" && j.Ready && !s.isSameBoot()
}

// isChanging reports whether the node should have something else than it has.
func (s *state) isChanging() bool { return s.desired.Config != "" && s.desired != s.current }

// hasFailed reports whether the host did not get to what it should have.
func (s *state) hasFailed() bool { return s.journal.Failed != "" && s.journal.Target == s.desired }

// needsMore reports whether it takes more than node state to have what it should.
func (s *state) needsMore() bool {
	return !s.isThere() || !s.arguments.IsEmpty() || s.isPrepared() && s.journal.Target == s.desired || s.hasPolicy()
}

// hasPolicy reports whether a policy says more of a change of node state than that it is written. A
// reboot is all that any policy asks for.
func (s *state) hasPolicy() bool {
	v := s.verdict
	return v != nil && s.desired != s.current && s.isThere() && !s.hasRebooted(s.desired) && (v.Reboot != "" || v.Drain || len(v.Actions) > 0)
}

// applied is the configuration whose node state the host should have now: that of what it runs, and
// from just before a reboot on that of what it boots next.
func (s *state) applied() string {
	switch {
	case s.desired == s.current || s.hasFailed():
		return s.current.Config
	case !s.needsMore(), s.isPrepared() && s.journal.Target == s.desired, s.hasRebooted(s.desired):
		return s.desired.Config
	default:
		return s.current.Config
	}
}

// drainID names the change to the target in the annotations of drains.
func (s *state) drainID() string {
	sum := sha256.Sum256([]byte(s.desired.Config + "\n" + s.desired.Image))
	return hex.EncodeToString(sum[:8])
}
