package testjobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/internal/fault"
)

// MaxMessage is how long what a container says may be, in characters.
const MaxMessage = 4096

// Phase is how far a Job is.
type Phase int

const (
	// Running is every phase before an end, also that in which no pod has started.
	Running Phase = iota
	// Passed means that the test succeeded.
	Passed
	// Failed means that it did not, or that something else ended it.
	Failed
)

// Observation is what became of a Job.
type Observation struct {
	// Phase is how far the Job is.
	Phase Phase
	// Class is that of a failure: Terminal where the test itself failed, and Transient where
	// something else ended it, so that it has said nothing about what it tests.
	Class fault.Class
	// Container decided, with its exit code and what it left as a message.
	Container string
	ExitCode  *int32
	Message   string
	// Started is when the first container did, and Ended when the Job did.
	Started, Ended *metav1.Time
	// Text is for people: what it waits for, or why it ended.
	Text string
}

// Observe says what became of a Job. Pods are its own, and begun is that some container of it had
// run before, which only those know that have seen it: pods of a Job that took too long are
// deleted.
func Observe(job *batchv1.Job, pods []corev1.Pod, begun *metav1.Time) Observation {
	o := Observation{Started: begun}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i := range pods {
		for _, status := range statuses(&pods[i]) {
			o.Started = earlier(o.Started, startOf(&status))
		}
	}
	if c := conditionOf(job, batchv1.JobComplete); c != nil {
		o.Ended = &c.LastTransitionTime
		o.pass(pods)
		return o
	}
	if c := conditionOf(job, batchv1.JobFailed); c != nil {
		o.Ended = &c.LastTransitionTime
		o.fail(job, c, pods)
		return o
	}
	o.Text = waiting(pods)
	return o
}

// IsInterrupted reports whether something else than the test has ended it, so that it is run again.
func (o *Observation) IsInterrupted() bool { return o.Phase == Failed && o.Class == fault.Transient }

// pass notes what the first container that left a message said.
func (o *Observation) pass(pods []corev1.Pod) {
	o.Phase, o.ExitCode = Passed, new(int32(0))
	for i := range pods {
		for _, status := range pods[i].Status.ContainerStatuses {
			if ended := status.State.Terminated; ended != nil && ended.ExitCode == 0 && (o.Container == "" || o.Message == "") {
				o.Container, o.Message = cmp.Or(o.Container, status.Name), Clean(ended.Message)
				if o.Message != "" {
					o.Container = status.Name
				}
			}
		}
	}
}

// overrun is about a test that took longer than its limit, which may have been taken away since.
func (o *Observation) overrun(seconds *int64) {
	limit := "in time"
	if seconds != nil {
		limit = "within " + shortText(time.Duration(*seconds)*time.Second)
	}
	o.Phase, o.Class, o.Text = Failed, fault.Terminal, "it did not end "+limit
	if o.Started == nil {
		o.Class, o.Text = fault.Transient, "none of its containers was started "+limit
	}
}

// fail tells a test that failed from one that something else ended.
func (o *Observation) fail(job *batchv1.Job, c *batchv1.JobCondition, pods []corev1.Pod) {
	if c.Reason == batchv1.JobReasonDeadlineExceeded {
		o.overrun(job.Spec.ActiveDeadlineSeconds)
		return
	}
	o.Phase, o.Class, o.Text = Failed, fault.Transient, "its pod is gone"
	if job.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		o.Text += ": Kubernetes deletes failed pods with restartPolicy OnFailure; use Never to see how the test ended"
	}
	var first *corev1.ContainerStatus
	isDisrupted := false
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase != corev1.PodFailed {
			continue
		}
		if why := disruption(pod); why != "" {
			o.Text, isDisrupted = why, true
			continue
		}
		if pod.Status.Reason == podDeadline {
			o.Class, o.Text = fault.Terminal, "a pod took longer than its activeDeadlineSeconds"
			return
		}
		// Sidecars are ended when the others have, so that of the same second the others come
		// first.
		for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
			ended := status.State.Terminated
			if ended == nil || ended.ExitCode == 0 || ended.Reason == statusUnknown {
				continue
			}
			if first == nil || ended.FinishedAt.Time.Before(first.State.Terminated.FinishedAt.Time) {
				first = &status
			}
		}
	}
	if first == nil && job.Kind == KindPipelineRun && !isDisrupted {
		o.Class, o.Text = fault.Terminal, Clean(c.Message) // by what is no container's: a Task that is not there, a person
	}
	if first == nil {
		return
	}
	ended := first.State.Terminated
	o.Class, o.Container, o.ExitCode, o.Message = fault.Terminal, first.Name, &ended.ExitCode, Clean(ended.Message)
	o.Text = fmt.Sprintf("container %q ended with exit code %d", first.Name, ended.ExitCode)
	if ended.Reason != "" && ended.Reason != "Error" {
		o.Text += " (" + ended.Reason + ")"
	}
	if o.Message != "" {
		o.Text += ": " + o.Message
	}
}

// Reasons that kubelet gives.
const (
	podDeadline   = "DeadlineExceeded"
	statusUnknown = "ContainerStatusUnknown"
)

// disruption is what ended a pod that did not end by itself; empty for one that did.
func disruption(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("its pod was disrupted on node %q: %s: %s", pod.Spec.NodeName, c.Reason, Clean(c.Message))
		}
	}
	ran := slices.ContainsFunc(statuses(pod), func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.Reason != statusUnknown
	})
	if !ran && pod.Status.Reason != podDeadline {
		why := cmp.Or(Clean(strings.Trim(pod.Status.Reason+": "+pod.Status.Message, ": ")), "the cause is unknown")
		return fmt.Sprintf("its pod failed on node %q: %s", pod.Spec.NodeName, why)
	}
	return ""
}

// waiting is what a Job that has not ended does.
func waiting(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return ""
	}
	pod := &pods[len(pods)-1]
	for _, status := range statuses(pod) {
		if w := status.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return Clean(fmt.Sprintf("container %q can't start on node %q: %s: %s", status.Name, pod.Spec.NodeName, w.Reason, w.Message))
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node takes the pod: " + Clean(c.Message)
		}
	}
	return ""
}

// statuses are those of all containers, in the order in which they start.
func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func startOf(s *corev1.ContainerStatus) *metav1.Time {
	var at *metav1.Time
	for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
		if state.Running != nil {
			at = earlier(at, &state.Running.StartedAt)
		}
		if state.Terminated != nil {
			at = earlier(at, &state.Terminated.StartedAt)
		}
	}
	return at
}

// earlier is the earlier time of two, where a time that is not known is none.
func earlier(a, b *metav1.Time) *metav1.Time {
	switch {
	case b.IsZero():
		return a
	case a.IsZero() || b.Time.Before(a.Time):
		return b
	}
	return a
}

// Clean makes what a container wrote one line that status can hold: without control characters, and
// with the end where it is too long, since that is where programs say what failed.
func Clean(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.Map(func(r rune) rune {
			switch {
			case r == '\t':
				return ' '
			case unicode.IsControl(r):
				return -1
			}
			return r
		}, line))
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	runes := []rune(strings.Join(lines, "; "))
	return string(runes[max(0, len(runes)-MaxMessage):])
}

// shortText is a duration as people write it: 1h, 30m, 90s.
func shortText(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
