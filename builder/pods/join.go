package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// ArchitectureState is the build of one architecture.
type ArchitectureState struct {
	Architecture mcfgv1.Architecture
	Phase        backend.Phase
	Image        string
	Builder      string
	Failure      *backend.Failure
	Message      string
	Reports      []backend.Report
	Started      time.Time
	Ended        time.Time
	After        time.Duration
	// Isolation is that of its pods, for people.
	Isolation string
	// Related are the names of the ConfigMaps that were made for it, and IsIncomplete reports
	// whether one of them is gone that its pod needs.
	Related      []string
	IsIncomplete bool
}

// Wait says that nothing goes on until someone acts.
func (o *ArchitectureState) Wait(reason, format string, args ...any) {
	o.Failure = backend.NewFailure(fault.Waiting, reason, fmt.Sprintf(format, args...))
	o.After = WhileWaiting
}

// Join makes one state of those of all architectures that a build is of. One that failed fails the
// build; one that is not there means that someone ended it.
func Join(ones []ArchitectureState, all []mcfgv1.Architecture) backend.State {
	state := backend.State{Phase: phaseOf(ones, len(all))}
	if state.Phase == backend.Absent {
		return state
	}
	single := len(all) == 1
	var messages []string
	for i := range ones {
		o := &ones[i]
		state.Reports = append(state.Reports, o.Reports...)
		state.Related = append(state.Related, o.Related...)
		state.IsIncomplete = state.IsIncomplete || o.IsIncomplete
		state.Started = Earliest(state.Started, o.Started)
		state.After = sooner(state.After, o.After)
		if o.Failure != nil && !single {
			o.Failure.Architecture = o.Architecture
		}
		if note := named("isolation: "+o.Isolation, o.Architecture, single); !slices.Contains(state.Notes, note) {
			state.Notes = append(state.Notes, note)
		}
		if o.Message != "" {
			messages = append(messages, named(o.Message, o.Architecture, single))
		}
		if !single {
			state.Architectures = append(state.Architectures, o.result())
		}
	}
	slices.Sort(state.Related)
	state.Related = slices.Compact(state.Related)
	state.Message = strings.Join(messages, "; ")
	state.Failure = failureOf(state.Phase, ones)
	switch state.Phase {
	case backend.Succeeded:
		if single {
			state.Image = ones[0].Image
		}
		state.BuilderImage = ones[0].Builder
		for i := range ones {
			pulled, missing := ones[i].pulled()
			state.Pulled = append(state.Pulled, pulled...)
			state.PulledMissing += missing
		}
		state.Ended, state.After, state.Message = latest(ones), 0, ""
	case backend.Failed:
		state.Ended, state.After, state.Message = latest(ones), 0, ""
		for i := range state.Architectures {
			if a := &state.Architectures[i]; a.State == mcfgv1.ArchitectureBuilding || a.State == mcfgv1.ArchitecturePending { // they are stopped
				a.State, a.Message = mcfgv1.ArchitectureFailed, "it was ended because the build for another architecture failed"
			}
		}
	case backend.Absent, backend.Pending, backend.Running:
	}
	return state
}

func phaseOf(ones []ArchitectureState, all int) backend.Phase {
	count := map[backend.Phase]int{}
	for i := range ones {
		count[ones[i].Phase]++
	}
	switch {
	case count[backend.Failed] > 0:
		return backend.Failed
	case len(ones) == 0, len(ones) < all:
		return backend.Absent
	case count[backend.Succeeded] == len(ones):
		return backend.Succeeded
	case count[backend.Running]+count[backend.Succeeded] > 0:
		return backend.Running
	}
	return backend.Pending
}

// failureOf is the failure that matters in a phase: the one that ended the build, and otherwise
// what someone has to act on.
func failureOf(phase backend.Phase, ones []ArchitectureState) *backend.Failure {
	if phase == backend.Succeeded {
		return nil
	}
	var found *backend.Failure
	for i := range ones {
		switch failure := ones[i].Failure; {
		case failure == nil, phase == backend.Failed && ones[i].Phase != backend.Failed:
		case found == nil, found.Class != fault.Waiting && failure.Class == fault.Waiting && phase != backend.Failed:
			found = failure
		}
	}
	return found
}

func (o *ArchitectureState) result() mcfgv1.ArchitectureBuild {
	r := mcfgv1.ArchitectureBuild{Architecture: o.Architecture, DigestedImagePushSpec: mcfgv1.ImageDigestFormat(o.Image), Message: o.Message}
	if o.Failure != nil {
		r.Message = o.Failure.Message
	}
	switch o.Phase {
	case backend.Succeeded:
		r.State, r.Message = mcfgv1.ArchitectureSucceeded, ""
	case backend.Failed:
		r.State = mcfgv1.ArchitectureFailed
	case backend.Running:
		r.State = mcfgv1.ArchitectureBuilding
	case backend.Pending, backend.Absent:
		r.State = mcfgv1.ArchitecturePending
	}
	return r
}

// pulled are the images that were pulled, as Fetch alone says: lines of other people's had not run
// yet. Missing is how many more there were.
func (o *ArchitectureState) pulled() (out []mcfgv1.PulledImage, missing int) {
	for i := range o.Reports {
		if o.Reports[i].Step != backend.Fetch {
			continue
		}
		missing += o.Reports[i].PulledMissing
		for _, p := range o.Reports[i].Pulled {
			out = append(out, mcfgv1.PulledImage{
				Name: p.Name, Image: cmp.Or(p.Image, p.Name), Architecture: o.Architecture, ManifestDigest: p.Manifest,
			})
		}
	}
	return out, missing
}

func named(text string, architecture mcfgv1.Architecture, single bool) string {
	if single {
		return text
	}
	return architecture.OCI() + ": " + text
}

func latest(ones []ArchitectureState) time.Time {
	var at time.Time
	for i := range ones {
		if ones[i].Ended.After(at) {
			at = ones[i].Ended
		}
	}
	return at
}
