package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Action is what has to be done for the image of a MachineOSConfig.
type Action string

const (
	// Nothing means: the image is there, and a build stands for it.
	Nothing Action = "Nothing"
	// Reuse means: the registry has the image, and only a build that says so is missing.
	Reuse Action = "Reuse"
	// Append means: a configuration layer is put on an image that is there. No pod, no pull.
	Append Action = "Append"
	// Build means: a backend has to build the content first.
	Build Action = "Build"
	// Wait means: someone else acts, and the next reconcile sees what became of it.
	Wait Action = "Wait"
	// Stop means: nothing happens until a person acts.
	Stop Action = "Stop"
)

// Existing is a MachineOSBuild of the MachineOSConfig.
type Existing struct {
	Name    string
	Stage   mcfgv1.BuildStage
	Created time.Time
	// Ended is when it ended; zero before.
	Ended time.Time
	// Reason and Message are those of its stage.
	Reason, Message string
	// Image is what it made, by digest; empty where it made none.
	Image string
	// Access identifies the credentials that it worked with, see State.Access.
	Access string
	// Content identifies what it has to build; empty where that is nothing, or where it shares with
	// no other build.
	Content string
	// Timeout is how long an attempt had, of a build that timed out; zero where that is not known.
	Timeout time.Duration
	// Rebuild reports whether it was made because someone asked for a rebuild, and the request has
	// not been taken down yet.
	Rebuild bool
	// Deleting reports whether it is on its way out.
	Deleting bool
}

// PoolFacts are what matters of the pool.
type PoolFacts struct {
	// Exists and Config: there is a pool of the name, and the rendered MachineConfig that it asks
	// for.
	Exists bool
	Config string
	// Degraded is why its configuration is not what it should be; empty where it is.
	Degraded string
}

// Problem is why the wanted image can't be described, or can't be made.
type Problem struct {
	Reason, Message string
	// Waits reports whether someone is expected to act, or that it is tried again; else a person
	// has to change something.
	Waits bool
}

// Wanted is the image that the inputs mean.
type Wanted struct {
	// Build is the name of the build that makes it: it has the build key in it.
	Build string
	// HasContent reports whether anything is built beside the configuration (Inputs.HasContent).
	HasContent bool
}

// State is everything that Decide looks at. All of it can be observed again at any time.
type State struct {
	Now time.Time
	// Deleting reports whether the MachineOSConfig is being deleted.
	Deleting bool
	Pool     PoolFacts
	// Wanted is nil where the Problem is that no one can tell.
	Wanted  *Wanted
	Problem *Problem
	Builds  []Existing
	// InRegistry reports whether the registry has the wanted image: under its tag, or the one that
	// the wanted build made by its digest.
	InRegistry bool
	// HasContentImage reports whether the registry has the content image of the wanted image, so
	// that configuration can be appended to it.
	HasContentImage bool
	// PreBuilt is an image, by digest, that the installer says is the wanted one; empty where it
	// says nothing.
	PreBuilt string
	// Rebuild reports whether someone asked for a build although nothing has changed.
	Rebuild bool
	// HadImage reports whether the wanted image was in the registry once.
	HadImage bool
	// ContentBuild is the build that makes the content of the wanted image now, maybe one of
	// another MachineOSConfig. A change of configuration leaves it alone.
	ContentBuild string
	// Access identifies the credentials in hand. A build that was denied something is tried again
	// with others.
	Access string
	// Timeout is how long an attempt to build may take.
	Timeout time.Duration
	// Retries is how often the wanted build was made again in a row since it failed.
	Retries int
	// Backend reports whether there is one that builds content.
	Backend bool
}

// RetryAfter is when a build that failed for a reason outside of its inputs is made again without
// anybody asking: what a registry denied can be put right there, and nothing tells.
const RetryAfter = 15 * time.Minute

// maxDoublings is how often that time doubles, to 16 hours, where RUN lines may have made the build
// fail: they may do so for ever.
const maxDoublings = 6

// Decision is what to do, and why.
type Decision struct {
	Action Action
	// Reason is one of a condition, Message is for people.
	Reason, Message string
	// Build is the build that it is about: the one to make, or the one that has the image, makes
	// it, or failed to.
	Build string
	// Cause is why a build is made though no input differs: RebuildRequested, ImageMissing, or
	// nothing.
	Cause mcfgv1.BuildInput
	// Interrupt are active builds that no one wants any more, and Remove those that make room for a
	// new one of their name.
	Interrupt, Remove []string
	// Acknowledge reports whether the request for a rebuild has been followed, and can be taken
	// down.
	Acknowledge bool
	// Retries reports whether a build is made again that failed, without anybody asking.
	Retries bool
	// After is when to look again; zero leaves it to the caller.
	After time.Duration
}

// Decide says what has to be done. It compares what the wanted image is made of with what there is,
// never with what nodes run.
func Decide(s *State) Decision {
	switch {
	case s.Deleting:
		return Decision{Action: Stop, Reason: ReasonDeleting, Message: "it is being deleted", Interrupt: s.others("")}
	case !s.Pool.Exists:
		return waitForPool("the pool does not exist")
	case s.Pool.Degraded != "":
		return waitForPool("the pool's MachineConfigs can't be rendered: " + s.Pool.Degraded)
	case s.Pool.Config == "":
		return waitForPool("the pool has no rendered MachineConfig yet")
	case s.Wanted == nil:
		return s.blocked()
	}
	d := s.decide()
	d.Interrupt = slices.DeleteFunc(s.others(s.Wanted.Build), func(name string) bool { return name == s.ContentBuild && !s.Rebuild })
	d.Build = s.Wanted.Build
	return d
}

// ReasonDeleting is the reason of a decision about a MachineOSConfig that is going.
const ReasonDeleting = "Deleting"

func waitForPool(message string) Decision {
	return Decision{Action: Wait, Reason: mcfgv1.ReasonWaitingForPool, Message: message}
}

// blocked is what the problem means.
func (s *State) blocked() Decision {
	p := s.Problem
	if p == nil {
		p = &Problem{Reason: mcfgv1.ReasonPreparing, Message: "the image is not described yet", Waits: true}
	}
	d := Decision{Action: Stop, Reason: p.Reason, Message: p.Message}
	if p.Waits {
		d.Action = Wait
	}
	return d
}

// others are the active builds but the one of the given name.
func (s *State) others(but string) []string {
	var names []string
	for _, b := range s.Builds {
		if !b.Stage.IsFinal() && !b.Deleting && b.Name != but {
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}

// decide is about the wanted build.
func (s *State) decide() Decision {
	i := slices.IndexFunc(s.Builds, func(b Existing) bool { return b.Name == s.Wanted.Build })
	if i < 0 {
		return s.make()
	}
	b := s.Builds[i]
	if b.Deleting {
		return Decision{Action: Wait, Reason: mcfgv1.ReasonPreparing, Message: fmt.Sprintf("the previous build %q is being removed", b.Name)}
	}
	isNew := s.Rebuild && !b.Rebuild // a request that the build does not answer
	asked := isNew && b.Stage.IsFinal()
	var d Decision
	switch {
	case asked:
		d = s.replace(b, "a rebuild was asked for")
	case b.Stage == mcfgv1.BuildStageSucceeded && s.InRegistry:
		d = Decision{Action: Nothing, Reason: mcfgv1.ReasonSucceeded}
	case b.Stage == mcfgv1.BuildStageSucceeded:
		d = s.replace(b, fmt.Sprintf("the registry no longer has the image %s", b.Image))
	case b.Stage == mcfgv1.BuildStageInterrupted && isByPerson(b.Reason):
		d = Decision{Action: Stop, Reason: b.Reason, Message: fmt.Sprintf("build %q was ended: %s", b.Name, b.Message)}
	case b.Stage == mcfgv1.BuildStageInterrupted:
		d = s.replace(b, "the previous build was interrupted")
	case b.Stage == mcfgv1.BuildStageFailed:
		d = s.failed(b)
	default:
		d = Decision{Action: Wait, Reason: cmp.Or(b.Reason, mcfgv1.ReasonPending), Message: b.Message}
	}
	if isNew && !asked {
		d.Message = strings.TrimPrefix(d.Message+"; the rebuild that was asked for follows when it has ended", "; ")
	}
	d.Acknowledge = s.Rebuild && !isNew
	return d
}

// isByPerson reports whether a person ended a build, so that a person has to ask for it again.
func isByPerson(reason string) bool {
	return reason == mcfgv1.ReasonBuilderDeleted || reason == mcfgv1.ReasonInterrupted
}

// replace makes room for a new build of the same image, once nothing keeps that from being made.
func (s *State) replace(b Existing, message string) Decision {
	if !s.canMake() {
		return s.cannot()
	}
	return Decision{Action: Wait, Reason: mcfgv1.ReasonPreparing, Message: message, Remove: []string{b.Name}}
}

// failed is about a build that failed: the same inputs fail alike, what is outside of them may have
// changed.
func (s *State) failed(b Existing) Decision {
	end := "; "
	if strings.Contains(b.Message, "\n") { // the last line is what a RUN line wrote
		end = "\n"
	}
	remedy := "once the cause is gone"
	if b.Reason == mcfgv1.ReasonBuildFailed {
		remedy = "correct what failed, which starts a new build; if the cause was elsewhere, fix that, then"
	}
	stop := Decision{Action: Stop, Reason: b.Reason, Message: fmt.Sprintf(
		"build %q failed: %s%s%s, annotate the MachineOSConfig with %s", b.Name, b.Message, end, remedy, mcfgv1.AnnotationRebuild)}
	if !IsOutside(b.Reason) {
		return stop
	}
	if b.Reason == mcfgv1.ReasonTimedOut && b.Timeout > 0 && s.Timeout > b.Timeout {
		return s.replace(b, fmt.Sprintf("it is tried again with spec.buildTimeout of %s after: %s", s.Timeout, b.Message))
	}
	after := s.retryAfter(b.Reason)
	passed := s.Now.Sub(b.Ended)
	if s.Access != b.Access || passed >= after {
		d := s.replace(b, fmt.Sprintf("it is tried again after: %s", b.Message))
		d.Retries = s.Access == b.Access && len(d.Remove) > 0
		return d
	}
	stop.After = after - passed
	return stop
}

// retryAfter is when a build that failed is made again without anybody asking.
func (s *State) retryAfter(reason string) time.Duration {
	if reason == mcfgv1.ReasonRetryLimitReached || reason == mcfgv1.ReasonTimedOut {
		return RetryAfter << min(s.Retries, maxDoublings)
	}
	return RetryAfter
}

// IsOutside reports whether a build failed for a reason that its inputs don't decide.
func IsOutside(reason string) bool {
	switch reason {
	case mcfgv1.ReasonPushDenied, mcfgv1.ReasonImageNotFound, mcfgv1.ReasonRetryLimitReached, mcfgv1.ReasonTimedOut:
		return true
	}
	return false
}

// ImagePlanInput is what decides how a wanted image is made.
type ImagePlanInput struct {
	// PreBuilt, InRegistry, HasContentImage, Rebuild and Backend are those of State.
	PreBuilt                                      string
	InRegistry, HasContentImage, Rebuild, Backend bool
	// HasContent reports whether of Wanted.
	HasContent bool
}

// Step is how an image is made, and why.
type Step struct {
	// Action is Reuse, Append, Build, or Stop where it can't be made.
	Action Action
	// Reason is one of a condition, Message is for people.
	Reason, Message string
}

// Choose says how a wanted image is made. No one else decides that: a MachineOSConfig asks before
// it has a build, and the build asks when it has a slot.
func Choose(m *ImagePlanInput) Step {
	switch {
	case m.PreBuilt != "" && !m.Rebuild:
		return Step{Reuse, mcfgv1.ReasonPreBuiltImageSeeded, "the image that the installer had built is taken"}
	case m.InRegistry && !m.Rebuild:
		return Step{Reuse, mcfgv1.ReasonReused, "the registry has the image already"}
	case !m.HasContent || m.HasContentImage:
		return Step{Append, mcfgv1.ReasonPreparing, "the configuration is appended"}
	case m.Backend:
		return Step{Build, mcfgv1.ReasonPreparing, "the image is built"}
	}
	return Step{
		Stop, mcfgv1.ReasonBuilderNotAvailable,
		"the image needs a build (Containerfile, extensions or kernel), and this installation has no builder for its imageBuilderType: " +
			"set spec.imageBuilder.imageBuilderType to Job, and start the controller with --builder-image; images with configuration alone need no builder",
	}
}

// anew is how the wanted image would be made if nothing of it were taken from before.
func (s *State) anew() Step {
	return Choose(&ImagePlanInput{HasContent: s.Wanted.HasContent, HasContentImage: s.HasContentImage, Backend: s.Backend})
}

// canMake reports whether the wanted image could be made now.
func (s *State) canMake() bool { return s.Problem == nil && s.anew().Action != Stop }

// cannot is why it could not.
func (s *State) cannot() Decision {
	if s.Problem != nil {
		return s.blocked()
	}
	return decisionOf(s.anew())
}

func decisionOf(step Step) Decision {
	return Decision{Action: step.Action, Reason: step.Reason, Message: step.Message}
}

// make is what to do where no build stands for the wanted image.
func (s *State) make() Decision {
	step := Choose(&ImagePlanInput{
		PreBuilt: s.PreBuilt, InRegistry: s.InRegistry, Rebuild: s.Rebuild,
		HasContent: s.Wanted.HasContent, HasContentImage: s.HasContentImage, Backend: s.Backend,
	})
	d := decisionOf(step)
	switch {
	case step.Action == Reuse:
		return d
	case s.Problem != nil:
		return s.blocked()
	case step.Action == Stop:
		return d
	case s.Rebuild:
		d.Cause = mcfgv1.BuildInputRebuildRequested
	case s.HadImage:
		d.Cause = mcfgv1.BuildInputImageMissing
	}
	return d
}
