package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/attempts"
	"github.com/layerwright/layerwright/internal/fault"
)

// facts are everything that is known of a build.
type facts struct {
	pods.Facts
	jobs []batchv1.Job
}

// architectureJob is the build of one architecture, by a Job.
type architectureJob struct {
	pods.ArchitectureState
	job *batchv1.Job
}

// observe says how far a build is.
func observe(f *facts) backend.State {
	jobs := present(f.jobs)
	if len(jobs) == 0 {
		return backend.State{Phase: backend.Absent}
	}
	ones := make([]pods.ArchitectureState, len(jobs))
	for i := range jobs {
		ones[i] = observeJob(f, jobs[i]).ArchitectureState
	}
	first := jobs[0]
	state := pods.Join(ones, pods.ArchitecturesOf(first))
	if state.Phase == backend.Absent {
		return state
	}
	state.Object = &corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: first.Namespace, Name: first.Name, UID: first.UID,
	}
	state.Namespace, state.Settings = first.Namespace, first.Annotations[mcfgv1.AnnotationBuildSettings]
	return state
}

// present are the Jobs that are not being deleted, in the order of their architectures.
func present(all []batchv1.Job) []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range all {
		if all[i].DeletionTimestamp.IsZero() {
			jobs = append(jobs, &all[i])
		}
	}
	order := func(job *batchv1.Job) int {
		return slices.Index(pods.ArchitecturesOf(job), architectureOf(job))
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(a.Name, b.Name))
	})
	return jobs
}

func architectureOf(job *batchv1.Job) mcfgv1.Architecture {
	return mcfgv1.Architecture(job.Annotations[mcfgv1.AnnotationBuildArchitecture])
}

// observeJob says how far one architecture is. What containers have left behind is believed before
// what the Job says, which follows later, and does not know why.
func observeJob(f *facts, job *batchv1.Job) architectureJob {
	o := architectureJob{job: job, ArchitectureState: pods.ArchitectureState{
		Architecture: architectureOf(job), Phase: backend.Pending, Isolation: job.Annotations[mcfgv1.AnnotationBuildIsolation],
		Related: pods.Related(job.Spec.Template.Spec.Volumes, job.Annotations[mcfgv1.AnnotationMachineOSBuild], architectureOf(job)),
	}}
	all := podsOf(f.Pods, job)
	for _, pod := range all {
		o.Started = pods.Earliest(o.Started, pods.StartOf(pod))
	}
	var newest *corev1.Pod
	if len(all) > 0 {
		newest = all[len(all)-1]
		o.Reports = pods.ReportsOf(newest)
	}
	if o.succeed(all) || o.fail(all) {
		return o
	}
	if spec := job.Spec.Suspend; spec != nil && *spec {
		o.Wait(mcfgv1.ReasonWaiting, "the Job %q is suspended: a queueing system resumes it when there is capacity; to resume it now: "+
			"kubectl patch job %s --type=merge -p '{\"spec\":{\"suspend\":false}}'",
			job.Name, job.Name)
		return o
	}
	if newest == nil || pods.IsOver(newest) {
		o.betweenPods(f, newest)
		return o
	}
	o.Follow(&f.Facts, newest, o.count().String(), o.count().Failed > 0)
	if o.Failure == nil {
		o.Failure = before(job, all[:len(all)-1])
	}
	return o
}

// betweenPods says why nothing runs: a pod is about to be made, perhaps after a pause, or something
// refuses it.
func (o *architectureJob) betweenPods(f *facts, last *corev1.Pod) {
	o.After = pods.WhileWaiting
	switch {
	case last != nil && last.Status.Phase == corev1.PodSucceeded:
		o.Phase, o.Message = backend.Running, "the image has been pushed"
	case last != nil:
		o.Phase, o.Message, o.Failure = backend.Running, o.count().String()+" follows", before(o.job, []*corev1.Pod{last})
	case o.job.Status.Failed > 0:
		o.Phase, o.Message, o.Failure = backend.Running, o.count().String()+" follows", before(o.job, nil)
	default:
		o.Message = "its pod is being made"
		if f.Now.Sub(o.job.CreationTimestamp.Time) < pods.Settling {
			o.After = pods.Settling
		}
	}
	if warning := f.Warnings[o.job.UID]; warning != "" {
		o.Phase = backend.Pending
		o.Wait(mcfgv1.ReasonWaiting, "the cluster refuses to create the pod: %s", f.Refused(o.job.Namespace, warning))
	}
}

// succeed takes the image of a pod that has pushed it.
func (o *architectureJob) succeed(all []*corev1.Pod) bool {
	for _, pod := range all {
		push := pods.Terminated(pod, backend.Push)
		if push == nil || push.ExitCode != 0 {
			continue
		}
		if report, err := pods.ReadReport(backend.Push, push.Message); err == nil && report.Image != "" {
			o.Phase, o.Image, o.Ended, o.Reports = backend.Succeeded, report.Image, push.FinishedAt.Time, pods.ReportsOf(pod)
			o.Builder = pods.ImageOf(pod, backend.Push)
			return true
		}
	}
	end := ended(o.job)
	if end == nil || !isSuccess(end) {
		return false
	}
	o.Phase, o.Ended = backend.Failed, end.LastTransitionTime.Time
	o.Failure = backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryLimitReached, "the image was pushed, but its digest is unknown: "+
		"the pod was deleted before its report was read, or left no report")
	o.Failure.IsLost = true
	return true
}

// fail says why the build has failed, if it has.
func (o *architectureJob) fail(all []*corev1.Pod) bool {
	var last *pods.Ending
	failed := int(o.job.Status.Failed)
	for i, pod := range all {
		if e := pods.EndingOf(pod); e != nil {
			last, failed = e, max(failed, i+1)
			if e.Failure.Class == fault.Terminal {
				o.Phase, o.Failure, o.Ended = backend.Failed, e.Failure, e.At
				return true
			}
		}
	}
	end := ended(o.job)
	switch {
	case end != nil:
		o.Phase, o.Failure, o.Ended = backend.Failed, jobFailure(o.job, end, last, failed), end.LastTransitionTime.Time
	case last != nil && attempts.Count{Failed: failed, Retries: o.count().Retries}.IsSpent(): // its Job is about to say so
		o.Phase, o.Failure, o.Ended = backend.Failed, pods.AfterAll(last.Failure, failed), last.At
	}
	return o.Phase == backend.Failed
}

// jobFailure is why a Job has ended without the image.
func jobFailure(job *batchv1.Job, end *batchv1.JobCondition, last *pods.Ending, failed int) *backend.Failure {
	switch {
	case end.Reason == batchv1.JobReasonDeadlineExceeded:
		text := fmt.Sprintf("it did not finish within %s, including all attempts and waiting", time.Duration(*job.Spec.ActiveDeadlineSeconds)*time.Second)
		if last != nil {
			text += "; the last attempt: " + last.Failure.Message
		}
		return backend.NewFailure(fault.Transient, mcfgv1.ReasonTimedOut, text)
	case end.Reason == batchv1.JobReasonPodFailurePolicy:
		return pods.WithoutCause("a step", end.Message)
	case last == nil && end.Reason == batchv1.JobReasonBackoffLimitExceeded:
		return backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryLimitReached, fmt.Sprintf("the last of %d attempts %s", failed, podGone))
	case last == nil:
		return backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryLimitReached, fmt.Sprintf("the Job failed: %s (%s); its pods are gone", end.Message, end.Reason))
	}
	return pods.AfterAll(last.Failure, failed)
}

// ended is the condition that ends a Job: also the one that says that it will end, since pods on
// dead nodes can keep that for ever.
func ended(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobSuccessCriteriaMet, batchv1.JobFailed, batchv1.JobFailureTarget:
			return c
		case batchv1.JobSuspended:
		}
	}
	return nil
}

func isSuccess(c *batchv1.JobCondition) bool {
	return c.Type == batchv1.JobComplete || c.Type == batchv1.JobSuccessCriteriaMet
}

// before is the failure of the attempt before the one that runs; nil for the first one.
func before(job *batchv1.Job, all []*corev1.Pod) *backend.Failure {
	for _, pod := range slices.Backward(all) {
		if e := pods.EndingOf(pod); e != nil {
			return e.Failure
		}
	}
	if job.Status.Failed == 0 {
		return nil
	}
	return backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, "it "+podGone)
}

// podGone is all that is known of an attempt without a pod: the API server deletes those that are
// evicted, too.
const podGone = "lost its pod, for example by a deletion, an eviction or a drain"

// count is how many attempts have failed, as the Job counts them, and how often there may be
// another.
func (o *architectureJob) count() attempts.Count {
	return attempts.Count{Failed: int(o.job.Status.Failed), Retries: int(ptr.Deref(o.job.Spec.BackoffLimit, 0))}
}

// podsOf are the pods of a Job, oldest first.
func podsOf(all []corev1.Pod, job *batchv1.Job) []*corev1.Pod {
	var own []*corev1.Pod
	for i := range all {
		if metav1.IsControlledBy(&all[i], job) {
			own = append(own, &all[i])
		}
	}
	slices.SortFunc(own, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return own
}
