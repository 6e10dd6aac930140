package jobs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/names"
)

// join makes one state of those of all architectures. One that failed fails the build; one whose Job is gone means that somebody ended it.
func join(ones []one) backend.State {
	state := backend.State{Phase: phaseOf(ones)}
	if state.Phase == backend.Absent {
		return state
	}
	first := ones[0].job
	state.Object = &corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: first.Namespace, Name: first.Name, UID: first.UID,
	}
	state.Namespace, state.Settings = first.Namespace, first.Annotations[mcfgv1.AnnotationBuildSettings]
	single := len(architecturesOf(first)) == 1
	var messages []string
	for i := range ones {
		o := &ones[i]
		state.Reports = append(state.Reports, o.reports...)
		state.Related = append(state.Related, related(o.job)...)
		state.Started = earliest(state.Started, o.started)
		state.After = sooner(state.After, o.after)
		if o.failure != nil && !single {
			o.failure.Architecture = o.architecture
		}
		if note := noteOf(o.job, single); !slices.Contains(state.Notes, note) {
			state.Notes = append(state.Notes, note)
		}
		if o.message != "" {
			messages = append(messages, named(o.message, o.architecture, single))
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
			state.Image = ones[0].image
		}
		state.BuilderImage = ones[0].builder
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

// related are the ConfigMaps that were made for a Job, among those that its pods mount.
func related(job *batchv1.Job) (configMaps []string) {
	build := job.Annotations[mcfgv1.AnnotationMachineOSBuild]
	isOurs := func(name string) bool {
		return slices.ContainsFunc([]string{kindInstructions, kindContext, kindRegistries, kindPolicy, kindTrust}, func(kind string) bool {
			return name == names.BuildObject(kind, build, "") || name == names.BuildObject(kind, build, architectureOf(job).OCI())
		})
	}
	for _, v := range job.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil && isOurs(v.ConfigMap.Name) {
			configMaps = append(configMaps, v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil && isOurs(source.ConfigMap.Name) {
				configMaps = append(configMaps, source.ConfigMap.Name)
			}
		}
	}
	return configMaps
}

func phaseOf(ones []one) backend.Phase {
	count := map[backend.Phase]int{}
	for i := range ones {
		count[ones[i].phase]++
	}
	switch {
	case count[backend.Failed] > 0:
		return backend.Failed
	case len(ones) == 0, len(ones) < len(architecturesOf(ones[0].job)):
		return backend.Absent
	case count[backend.Succeeded] == len(ones):
		return backend.Succeeded
	case count[backend.Running]+count[backend.Succeeded] > 0:
		return backend.Running
	}
	return backend.Pending
}

// failureOf is the failure that matters in a phase: the one that ended the build, and otherwise what somebody has to act on.
func failureOf(phase backend.Phase, ones []one) *backend.Failure {
	if phase == backend.Succeeded {
		return nil
	}
	var found *backend.Failure
	for i := range ones {
		switch failure := ones[i].failure; {
		case failure == nil, phase == backend.Failed && ones[i].phase != backend.Failed:
		case found == nil, found.Class != backend.Waiting && failure.Class == backend.Waiting && phase != backend.Failed:
			found = failure
		}
	}
	return found
}

func (o *one) result() mcfgv1.ArchitectureBuild {
	r := mcfgv1.ArchitectureBuild{Architecture: o.architecture, DigestedImagePushSpec: mcfgv1.ImageDigestFormat(o.image), Message: o.message}
	if o.failure != nil {
		r.Message = o.failure.Message
	}
	switch o.phase {
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

// pulled are the images that were pulled, as Fetch alone says: lines of other people's had not run yet. Missing is how many more there were.
func (o *one) pulled() (out []mcfgv1.PulledImage, missing int) {
	for i := range o.reports {
		if o.reports[i].Step != backend.Fetch {
			continue
		}
		missing += o.reports[i].PulledMissing
		for _, p := range o.reports[i].Pulled {
			out = append(out, mcfgv1.PulledImage{
				Name: p.Name, Image: cmp.Or(p.Image, p.Name), Architecture: o.architecture, ManifestDigest: p.Manifest,
			})
		}
	}
	return out, missing
}

func noteOf(job *batchv1.Job, single bool) string {
	return named("isolation: "+job.Annotations[mcfgv1.AnnotationBuildIsolation], architectureOf(job), single)
}

func named(text string, architecture mcfgv1.Architecture, single bool) string {
	if single {
		return text
	}
	return architecture.OCI() + ": " + text
}

func latest(ones []one) time.Time {
	var at time.Time
	for i := range ones {
		if ones[i].ended.After(at) {
			at = ones[i].ended
		}
	}
	return at
}
