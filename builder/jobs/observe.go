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
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// facts are everything that is known of a build.
type facts struct {
	jobs []batchv1.Job
	pods []corev1.Pod
	// warnings are the newest Warning events about Jobs and pods that don't get on, by UID.
	warnings map[types.UID]string
	// missing are the objects that pods which don't get on want to mount and that are not there, by the pod's UID.
	missing map[types.UID][]object
	// progress is how far running steps are, by the pod's UID.
	progress map[types.UID]backend.Progress
	// silent are the nodes that don't answer.
	silent map[string]bool
	now    time.Time
}

// object is one that a pod mounts.
type object struct{ kind, name string }

const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
)

// When to look again at what no watch tells about.
const (
	whileWaiting = 10 * time.Second // for secrets and events
	whileRunning = 5 * time.Second  // for progress in a log
	// whileAsking is how long a node may take to give the end of a log.
	whileAsking = 5 * time.Second
	// settling is how long the cluster may take to make a pod, or to start a container, before it is asked what is in the way.
	settling = 5 * time.Second
	// lost is how long after its last moment a pod may still be there on a node that answers, before it is given up.
	lost = time.Minute
)

// one is the build of one architecture.
type one struct {
	job          *batchv1.Job
	architecture mcfgv1.Architecture
	phase        backend.Phase
	image        string
	builder      string
	failure      *backend.Failure
	message      string
	reports      []backend.Report
	started      time.Time
	ended        time.Time
	after        time.Duration
}

// observe says how far a build is.
func observe(f *facts) backend.State {
	jobs := present(f.jobs)
	ones := make([]one, len(jobs))
	for i := range jobs {
		ones[i] = observeJob(f, jobs[i])
	}
	return join(ones)
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
		return slices.Index(architecturesOf(job), architectureOf(job))
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(a.Name, b.Name))
	})
	return jobs
}

func architectureOf(job *batchv1.Job) mcfgv1.Architecture {
	return mcfgv1.Architecture(job.Annotations[mcfgv1.AnnotationBuildArchitecture])
}

func architecturesOf(job *batchv1.Job) []mcfgv1.Architecture {
	var all []mcfgv1.Architecture
	for name := range strings.SplitSeq(job.Annotations[mcfgv1.AnnotationBuildArchitectures], ",") {
		all = append(all, mcfgv1.Architecture(name))
	}
	return all
}

// observeJob says how far one architecture is. What containers have left behind is believed before what the Job says, which follows later, and
// does not know why.
func observeJob(f *facts, job *batchv1.Job) one {
	o := one{job: job, architecture: architectureOf(job), phase: backend.Pending}
	pods := podsOf(f.pods, job)
	for _, pod := range pods {
		o.started = earliest(o.started, startOf(pod))
	}
	var newest *corev1.Pod
	if len(pods) > 0 {
		newest = pods[len(pods)-1]
		o.reports = reportsOf(newest)
	}
	if o.succeed(pods) || o.fail(pods) {
		return o
	}
	if spec := job.Spec.Suspend; spec != nil && *spec {
		o.wait(mcfgv1.ReasonWaiting, "the Job %q is suspended: a queueing system lets it go when it is its turn; "+
			"kubectl patch job %s --type=merge -p '{\"spec\":{\"suspend\":false}}' does so now",
			job.Name, job.Name)
		return o
	}
	if newest == nil || isOver(newest) {
		o.betweenPods(f, newest)
		return o
	}
	o.follow(f, newest)
	if o.failure == nil {
		o.failure = before(job, pods[:len(pods)-1])
	}
	return o
}

// succeed takes the image of a pod that has pushed it.
func (o *one) succeed(pods []*corev1.Pod) bool {
	for _, pod := range pods {
		push := terminated(pod, backend.Push)
		if push == nil || push.ExitCode != 0 {
			continue
		}
		if report, err := readReport(backend.Push, push.Message); err == nil && report.Image != "" {
			o.phase, o.image, o.ended, o.reports = backend.Succeeded, report.Image, push.FinishedAt.Time, reportsOf(pod)
			o.builder = imageOf(pod, backend.Push)
			return true
		}
	}
	end := ended(o.job)
	if end == nil || !isSuccess(end) {
		return false
	}
	o.phase, o.ended = backend.Failed, end.LastTransitionTime.Time
	o.failure = infrastructure(mcfgv1.ReasonRetryLimitReached, "the image was pushed, and its digest is not known: "+
		"the pod that did so was deleted, or left no report, before that was read")
	o.failure.IsLost = true
	return true
}

// fail says why the build has failed, if it has.
func (o *one) fail(pods []*corev1.Pod) bool {
	var last *ending
	failed := int(o.job.Status.Failed)
	for i, pod := range pods {
		if e := endingOf(pod); e != nil {
			last, failed = e, max(failed, i+1)
			if e.failure.Class == backend.Admin {
				o.phase, o.failure, o.ended = backend.Failed, e.failure, e.at
				return true
			}
		}
	}
	end := ended(o.job)
	switch {
	case end != nil:
		o.phase, o.failure, o.ended = backend.Failed, jobFailure(o.job, end, last, failed), end.LastTransitionTime.Time
	case last != nil && failed >= o.attempts(): // its Job is about to say so
		o.phase, o.failure, o.ended = backend.Failed, lastFailure(last, failed), last.at
	}
	return o.phase == backend.Failed
}

// jobFailure is why a Job has ended without the image.
func jobFailure(job *batchv1.Job, end *batchv1.JobCondition, last *ending, failed int) *backend.Failure {
	switch {
	case end.Reason == batchv1.JobReasonDeadlineExceeded:
		text := fmt.Sprintf("it was not done after %s, with all attempts and all waiting", duration(job.Spec.ActiveDeadlineSeconds))
		if last != nil {
			text += "; the last attempt: " + last.failure.Message
		}
		return infrastructure(mcfgv1.ReasonTimedOut, text)
	case end.Reason == batchv1.JobReasonPodFailurePolicy:
		text := fault.Clean("a step failed, and the pod that knows why is gone: " + end.Message)
		return &backend.Failure{Class: backend.Admin, Reason: mcfgv1.ReasonBuildFailed, Message: text}
	case last == nil && end.Reason == batchv1.JobReasonBackoffLimitExceeded:
		return infrastructure(mcfgv1.ReasonRetryLimitReached, fmt.Sprintf("the last of %d attempts %s", failed, podGone))
	case last == nil:
		return infrastructure(mcfgv1.ReasonRetryLimitReached, fmt.Sprintf("the Job failed: %s (%s); its pods are gone", end.Message, end.Reason))
	}
	return lastFailure(last, failed)
}

// lastFailure is why the last attempt failed, made that of the build.
func lastFailure(last *ending, failed int) *backend.Failure {
	reason := mcfgv1.ReasonRetryLimitReached
	if last.failure.Reason == mcfgv1.ReasonTimedOut {
		reason = mcfgv1.ReasonTimedOut
	}
	text := last.failure.Message
	if failed > 1 {
		text = fmt.Sprintf("%d attempts failed; the last: %s", failed, text)
	}
	return infrastructure(reason, text)
}

// ended is the condition that ends a Job: also the one that says that it will end, since pods on dead nodes can keep that for ever.
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
func before(job *batchv1.Job, pods []*corev1.Pod) *backend.Failure {
	for _, pod := range slices.Backward(pods) {
		if e := endingOf(pod); e != nil {
			return e.failure
		}
	}
	if job.Status.Failed == 0 {
		return nil
	}
	return infrastructure(mcfgv1.ReasonRetryingBuild, "it "+podGone)
}

// podGone is all that is known of an attempt without a pod: the API server deletes those that are evicted, too.
const podGone = "was ended from outside and its pod is gone, as after a deletion, an eviction or a drain"

// attempt is which attempt a new pod is, and of how many.
func (o *one) attempt() string {
	return fmt.Sprintf("attempt %d of %d", min(int(o.job.Status.Failed)+1, o.attempts()), o.attempts())
}

// attempts is how many there may be.
func (o *one) attempts() int {
	if o.job.Spec.BackoffLimit == nil {
		return 1
	}
	return int(*o.job.Spec.BackoffLimit) + 1
}

func (o *one) wait(reason, format string, args ...any) {
	o.failure = &backend.Failure{Class: backend.Waiting, Reason: reason, Message: fault.Clean(fmt.Sprintf(format, args...))}
	o.after = whileWaiting
}

func infrastructure(reason, message string) *backend.Failure {
	return &backend.Failure{Class: backend.Infrastructure, Reason: reason, Message: fault.Clean(message)}
}

// podsOf are the pods of a Job, oldest first.
func podsOf(all []corev1.Pod, job *batchv1.Job) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range all {
		if metav1.IsControlledBy(&all[i], job) {
			pods = append(pods, &all[i])
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return pods
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sooner is the shorter of two times of which zero means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func duration(seconds *int64) time.Duration {
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}
