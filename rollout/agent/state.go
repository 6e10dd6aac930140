package agent

import (
	"crypto/sha256"
	"encoding/hex"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/host"
)

// state is everything that a step follows from.
type state struct {
	wire
	// host is what the host has, and bootID what Linux calls this boot.
	host   host.Status
	bootID string
	// base is the OS image of the desired configuration; empty where it names none.
	base mcfgv1.ImageDigestFormat
	// arguments is that the desired configuration has other kernel arguments than the current one.
	arguments bool
	journal   Journal
}

// wire is what the annotations of the Node say.
type wire struct {
	current, desired        nodes.Target
	stage, staged           string
	hasStaged               bool // there is an annotation of what is staged
	state, reason           string
	desiredDrain, lastDrain string
}

// readWire reads the annotations of a Node.
func readWire(a map[string]string) wire {
	staged, hasStaged := a[mcfgv1.AnnotationStagedImage]
	return wire{
		current: nodes.Target{Config: a[mcfgv1.AnnotationCurrentConfig], Image: a[mcfgv1.AnnotationCurrentImage]},
		desired: nodes.Target{Config: a[mcfgv1.AnnotationDesiredConfig], Image: a[mcfgv1.AnnotationDesiredImage]},
		stage:   a[mcfgv1.AnnotationStageImage], staged: staged, hasStaged: hasStaged,
		state: a[mcfgv1.AnnotationState], reason: a[mcfgv1.AnnotationReason],
		desiredDrain: a[mcfgv1.AnnotationDesiredDrain], lastDrain: a[mcfgv1.AnnotationLastAppliedDrain],
	}
}

// Journal is what the agent has to know after a reboot, or after it was killed.
type Journal struct {
	// Target is what the host was rebooted for; empty where it was not.
	Target nodes.Target `json:"target"`
	// BootID is the boot before it.
	BootID string `json:"bootID,omitempty"`
	// Failed is why the host did not get to the target; empty where it did, or is on its way.
	Failed string `json:"failed,omitempty"`
}

// goal is the image that the host should boot; empty where any will do.
func (s *state) goal() mcfgv1.ImageDigestFormat {
	if s.desired.Image != "" {
		return mcfgv1.ImageDigestFormat(s.desired.Image)
	}
	return s.base
}

// runs reports whether the host has booted an image.
func (s *state) runs(image mcfgv1.ImageDigestFormat) bool {
	return s.host.Booted != nil && s.host.Booted.Digest != "" && s.host.Booted.Digest == image.Digest()
}

// holds reports whether an image is what the host boots next.
func (s *state) holds(image mcfgv1.ImageDigestFormat) bool {
	return s.host.Staged != nil && s.host.Staged.Digest != "" && s.host.Staged.Digest == image.Digest()
}

// isThere reports whether the host runs what it should; any image will do where there is no goal.
func (s *state) isThere() bool { return s.goal() == "" || s.runs(s.goal()) }

// hasRebooted reports whether the host has been rebooted for the target.
func (s *state) hasRebooted() bool {
	return s.journal.Target == s.desired && s.journal.BootID != "" && s.journal.BootID != s.bootID
}

// drainID names the change to the target in the annotations of drains.
func (s *state) drainID() string {
	sum := sha256.Sum256([]byte(s.desired.Config + "\n" + s.desired.Image))
	return hex.EncodeToString(sum[:8])
}
