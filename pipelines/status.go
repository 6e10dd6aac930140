package pipelines

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"knative.dev/pkg/apis"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// Pauses before an attempt is repeated, as Jobs make them, and how long Tekton's controller may
// take before it is said not to answer.
const (
	firstPause = 10 * time.Second
	lastPause  = 6 * time.Minute
	silence    = 30 * time.Second
	// whileRefused is the pause before a run is made again that had no pod. It uses no attempt.
	whileRefused = 30 * time.Second
)

// facts are everything that is known of a build.
type facts struct {
	pods.Facts
	// runs are those of the build, oldest first, and tasks what Tekton has made for them. There is
	// one for each attempt: replaced are those that had no pod and were made again.
	runs, replaced []tektonv1.PipelineRun
	tasks          []tektonv1.TaskRun
}

// newest is the run of the last attempt; nil where there is none.
func (f *facts) newest() *tektonv1.PipelineRun {
	if len(f.runs) == 0 {
		return nil
	}
	return &f.runs[len(f.runs)-1]
}

// observe says how far a build is.
func observe(f *facts) backend.State {
	run := f.newest()
	if run == nil {
		return backend.State{Phase: backend.Absent}
	}
	wanted := pods.ArchitecturesOf(run)
	ones := make([]pods.ArchitectureState, len(wanted))
	for i, architecture := range wanted {
		ones[i] = observeOne(f, run, architecture)
	}
	settle(f, run, ones)
	state := pods.Join(ones, wanted)
	state.Object = &corev1.ObjectReference{
		APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "PipelineRun", Namespace: run.Namespace, Name: run.Name, UID: run.UID,
	}
	state.Namespace, state.Settings = run.Namespace, run.Annotations[mcfgv1.AnnotationBuildSettings]
	return state
}

// observeOne says how far one architecture is, as its pod has it.
func observeOne(f *facts, run *tektonv1.PipelineRun, architecture mcfgv1.Architecture) pods.ArchitectureState {
	o := pods.ArchitectureState{
		Architecture: architecture, Phase: backend.Pending,
		Isolation: run.Annotations[mcfgv1.AnnotationBuildIsolation], Related: relatedTo(run, architecture),
	}
	task := f.taskOf(run, taskBuild, architecture)
	pod, _ := f.lastOf(task)
	if pod == nil {
		o.Message = describe(f, run, task)
		if condition := conditionOf(run); condition != nil {
			o.Phase = backend.Running
		}
		return o
	}
	o.Started, o.Reports = pods.StartOf(pod), pods.ReportsOf(pod)
	if pods.IsOver(pod) {
		o.Phase, o.Message = backend.Running, "the step push has ended; Tekton goes on with the run"
		return o
	}
	count := countOf(run)
	o.Follow(&f.Facts, pod, count.String(), count.Failed > 0)
	return o
}

// describe says what a run does that has no pod that builds.
func describe(f *facts, run *tektonv1.PipelineRun, task *tektonv1.TaskRun) string {
	if task != nil {
		if c := task.Status.GetCondition(apis.ConditionSucceeded); c != nil && c.Message != "" {
			return "Tekton says: " + fault.Clean(c.Message)
		}
	}
	if preflight := f.taskOf(run, taskPreflight, ""); preflight != nil && !preflight.IsDone() {
		return "preflight asks the registries"
	}
	return fmt.Sprintf("PipelineRun %q has been made", run.Name)
}

// settle applies what the run as a whole says to its architectures.
func settle(f *facts, run *tektonv1.PipelineRun, ones []pods.ArchitectureState) {
	condition := conditionOf(run)
	switch {
	case condition != nil && condition.IsTrue():
		succeed(f, run, ones)
	case failEarly(f, run, ones):
	case condition != nil && condition.IsFalse():
		fail(f, run, ones, condition)
	default:
		wait(f, run, ones, condition)
	}
	if countOf(run).Failed > 0 && len(f.runs) > 1 {
		for i := range ones {
			if ones[i].Failure == nil && ones[i].Phase != backend.Succeeded {
				ones[i].Failure = failureOf(f, &f.runs[len(f.runs)-2])
			}
		}
	}
}

func conditionOf(run *tektonv1.PipelineRun) *apis.Condition {
	return run.Status.GetCondition(apis.ConditionSucceeded)
}

// succeed takes the images that the run says it has pushed. Results come from tasks beside which
// no one's lines ran; what the step push says of itself has to be the same where it is still known.
func succeed(f *facts, run *tektonv1.PipelineRun, ones []pods.ArchitectureState) {
	images := strings.Split(result(run, resultImages), ",")
	image, target := "", param(run, paramImage)
	if digest := result(run, resultDigest); digest != "" && len(ones) == 1 {
		image = repositoryOf(target) + "@" + digest
		images = []string{image}
	}
	for i := range ones {
		o := &ones[i]
		o.Phase, o.Message, o.After = backend.Failed, "", 0
		if run.Status.CompletionTime != nil {
			o.Ended = run.Status.CompletionTime.Time
		}
		task := f.taskOf(run, taskBuild, o.Architecture)
		pod, _ := f.lastOf(task)
		problem := ""
		switch {
		case !hasStep(task, backend.Push):
			problem = fmt.Sprintf("PipelineRun %q succeeded without a task %s for %s that has the step %s: the Pipeline has to keep the contract of docs/pipelines.md",
				run.Name, taskBuild, o.Architecture, backend.Push)
		case len(images) != len(ones) || !isIn(repositoryOf(target), images[i]):
			problem = fmt.Sprintf("PipelineRun %q succeeded, and its results %s and %s name no image of %q: the Pipeline has to keep the contract of docs/pipelines.md",
				run.Name, resultDigest, resultImages, repositoryOf(target))
		case pod != nil && pushedBy(pod) != "" && mcfgv1.ImageDigestFormat(pushedBy(pod)).Digest() != mcfgv1.ImageDigestFormat(images[i]).Digest():
			problem = fmt.Sprintf("PipelineRun %q pushed %s, and its results name %s: someone else writes the same tag, or the Pipeline gives the result of another step",
				run.Name, pushedBy(pod), images[i])
		}
		if problem != "" {
			o.Failure = backend.NewFailure(fault.Terminal, mcfgv1.ReasonBuildFailed, problem)
			continue
		}
		o.Phase, o.Image, o.Failure = backend.Succeeded, images[i], nil
		if pod != nil {
			o.Builder = pods.ImageOf(pod, backend.Push)
		}
	}
}

// hasStep reports whether Tekton has run a step in a task.
func hasStep(task *tektonv1.TaskRun, step backend.Step) bool {
	return task != nil && slices.ContainsFunc(task.Status.Steps, func(s tektonv1.StepState) bool { return s.Name == string(step) })
}

// isIn reports whether an image is one of a repository, by digest.
func isIn(repository, image string) bool {
	_, err := name.NewDigest(image)
	return err == nil && repositoryOf(image) == repository
}

// pushedBy is the image that the step push of a pod says it has pushed.
func pushedBy(pod *corev1.Pod) string {
	for _, report := range pods.ReportsOf(pod) {
		if report.Step == backend.Push && report.Failure == nil {
			return report.Image
		}
	}
	return ""
}

// failEarly is for an administrator's error, which counts as soon as its container has ended: the
// same inputs fail again.
func failEarly(f *facts, run *tektonv1.PipelineRun, ones []pods.ArchitectureState) bool {
	hasFailed := false
	for i := range f.tasks {
		task := &f.tasks[i]
		ending := f.endingOf(run, task)
		if ending == nil || ending.Failure.Class != fault.Terminal {
			continue
		}
		for j := range ones {
			if architecture := architectureOf(task); architecture == "" || ones[j].Architecture.OCI() == architecture {
				ones[j].Phase, ones[j].Failure, ones[j].Ended, hasFailed = backend.Failed, ending.Failure, ending.At, true
			}
		}
	}
	return hasFailed
}

// fail says why a run has ended without the image, and whether another attempt follows.
func fail(f *facts, run *tektonv1.PipelineRun, ones []pods.ArchitectureState, condition *apis.Condition) {
	failure := failureOf(f, run)
	count := countOf(run).AndOne()
	phase, message, after := backend.Failed, "", time.Duration(0)
	switch {
	case failure.Class == fault.Terminal:
	case failure.Class == fault.Waiting:
		phase, after = backend.Pending, max(againAt(run).Sub(f.Now), time.Second)
	case !count.IsSpent():
		phase, after = backend.Running, max(dueAt(run).Sub(f.Now), time.Second)
		message = count.String() + " follows"
	default:
		failure = pods.AfterAll(failure, count.Failed)
	}
	for i := range ones {
		own := *failure
		ones[i].Phase, ones[i].Failure, ones[i].Message, ones[i].After = phase, &own, message, after
		if phase == backend.Failed {
			ones[i].Ended = endOf(run, condition)
		}
	}
}

func endOf(run *tektonv1.PipelineRun, condition *apis.Condition) time.Time {
	if run.Status.CompletionTime != nil {
		return run.Status.CompletionTime.Time
	}
	return condition.LastTransitionTime.Inner.Time
}

// dueAt is when the attempt after a run that failed begins.
func dueAt(run *tektonv1.PipelineRun) time.Time {
	return lastMoment(run).Add(countOf(run).AndOne().Pause(firstPause, lastPause))
}

// againAt is when an attempt is made again whose pod was refused.
func againAt(run *tektonv1.PipelineRun) time.Time { return lastMoment(run).Add(whileRefused) }

func lastMoment(run *tektonv1.PipelineRun) time.Time {
	if c := conditionOf(run); c != nil {
		return endOf(run, c)
	}
	return run.CreationTimestamp.Time
}

// wait says what keeps a run from going on, of what someone can do something about.
func wait(f *facts, run *tektonv1.PipelineRun, ones []pods.ArchitectureState, condition *apis.Condition) {
	for i := range ones {
		o := &ones[i]
		switch {
		case run.Spec.Status == tektonv1.PipelineRunSpecStatusPending:
			o.Wait(mcfgv1.ReasonWaiting, "PipelineRun %q is pending: a queueing system starts it when there is capacity", run.Name)
		case condition == nil && f.Now.Sub(run.CreationTimestamp.Time) > silence:
			o.Wait(mcfgv1.ReasonWaiting, "Tekton has not started PipelineRun %q: check that the Deployment tekton-pipelines-controller runs", run.Name)
		case condition == nil:
			o.After = silence
		case f.Warnings[run.UID] != "":
			o.Wait(mcfgv1.ReasonWaiting, "Tekton can't create the tasks of PipelineRun %q: %s", run.Name, because(f.Warnings[run.UID]))
		default:
			f.waitForTasks(run, o)
			if o.After == 0 && !f.hasTasks(run) {
				o.After = pods.Settling
			}
		}
	}
}

// hasTasks reports whether Tekton has made a task of a run that has not ended.
func (f *facts) hasTasks(run *tektonv1.PipelineRun) bool {
	return slices.ContainsFunc(f.tasks, func(task tektonv1.TaskRun) bool { return isTaskOf(&task, run) && !task.IsDone() })
}

// isSlow reports whether Tekton has taken up a run, and makes no task of it.
func (f *facts) isSlow(run *tektonv1.PipelineRun) bool {
	return conditionOf(run) != nil && !f.hasTasks(run) && f.Now.Sub(run.CreationTimestamp.Time) >= pods.Settling
}

// because is what Tekton says, with what to do where its own webhook is the cause.
func because(message string) string {
	if isAway(message) {
		return away + ": " + message
	}
	return message
}

// waitForTasks says which task of a run does not get on: those around the build too have pods that
// wait.
func (f *facts) waitForTasks(run *tektonv1.PipelineRun, o *pods.ArchitectureState) {
	for i := range f.tasks {
		task := &f.tasks[i]
		if o.Failure != nil || !isTaskOf(task, run) || task.IsDone() {
			continue
		}
		pod, c := f.podOf(task), task.Status.GetCondition(apis.ConditionSucceeded)
		switch {
		case pod == nil && c != nil && isRefused(c.Reason):
			o.Wait(mcfgv1.ReasonWaiting, "%s", f.refused(task, c.Message))
		case pod != nil && pods.IsOver(pod) && f.Now.Sub(lastEnd(pod)) > silence:
			o.Wait(mcfgv1.ReasonWaiting, "pod %q has ended, but Tekton does not continue: check that the Deployment tekton-pipelines-controller runs", pod.Name)
		case pod != nil && !pods.HasStarted(pod) && task.Labels[labelPipelineTask] != taskBuild:
			other := *o
			if other.Follow(&f.Facts, pod, "task "+task.Labels[labelPipelineTask], false); other.Failure != nil {
				o.Failure, o.After = other.Failure, other.After
			}
		}
	}
}

// hasBegun reports whether a task that builds has had a pod.
func (f *facts) hasBegun(run *tektonv1.PipelineRun) bool {
	return slices.ContainsFunc(f.tasks, func(task tektonv1.TaskRun) bool {
		return isTaskOf(&task, run) && task.Labels[labelPipelineTask] == taskBuild && task.Status.PodName != ""
	})
}

// lastEnd is when the last container of a pod ended.
func lastEnd(pod *corev1.Pod) (at time.Time) {
	for _, s := range pod.Status.ContainerStatuses {
		if end := s.State.Terminated; end != nil && end.FinishedAt.After(at) {
			at = end.FinishedAt.Time
		}
	}
	return at
}

func param(run *tektonv1.PipelineRun, name string) string {
	for _, p := range run.Spec.Params {
		if p.Name == name {
			return p.Value.StringVal
		}
	}
	return ""
}

func result(run *tektonv1.PipelineRun, name string) string {
	for _, r := range run.Status.Results {
		if r.Name == name {
			return strings.TrimSpace(r.Value.StringVal)
		}
	}
	return ""
}

// relatedTo are the ConfigMaps that were made for an architecture.
func relatedTo(run *tektonv1.PipelineRun, architecture mcfgv1.Architecture) []string {
	var volumes []corev1.Volume
	for _, w := range run.Spec.Workspaces {
		volumes = append(volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{ConfigMap: w.ConfigMap, Projected: w.Projected}})
	}
	related := pods.Related(volumes, run.Annotations[mcfgv1.AnnotationMachineOSBuild], architecture)
	slices.Sort(related)
	return slices.Compact(related)
}
