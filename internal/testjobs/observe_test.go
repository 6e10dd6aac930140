package testjobs

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/internal/fault"
)

var t0 = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func at(seconds int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second)) }

// ended is a Job with the condition that it ends with.
func endedJob(kind batchv1.JobConditionType, reason string) *batchv1.Job {
	job := &batchv1.Job{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(90))}}
	job.Status.Conditions = []batchv1.JobCondition{
		{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse},
		{Type: kind, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: at(60)},
	}
	return job
}

func exited(name string, code int32, second int, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: at(1), FinishedAt: at(second),
	}}}
}

func podWith(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1"}, Status: corev1.PodStatus{Phase: phase, ContainerStatuses: statuses}}
}

func with(p corev1.Pod, change func(*corev1.Pod)) corev1.Pod {
	change(&p)
	return p
}

func withJob(job *batchv1.Job, change func(*batchv1.Job)) *batchv1.Job {
	job = job.DeepCopy()
	change(job)
	return job
}

func disrupted(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "why"}}
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	waits := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "test", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	failedJob := endedJob(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded)
	late := endedJob(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)
	started, ended := at(1), at(60)
	for name, tt := range map[string]struct {
		job   *batchv1.Job
		pods  []corev1.Pod
		begun *metav1.Time
		want  Observation
	}{
		"a run that no container ended": {
			job: withJob(failedJob, func(j *batchv1.Job) {
				j.Kind, j.Status.Conditions[1].Message = KindPipelineRun, "someone cancelled it"
			}),
			want: Observation{Phase: Failed, Class: fault.Terminal, Ended: &ended, Text: "someone cancelled it"},
		},
		"a run whose pod was disrupted": {
			job: withJob(failedJob, func(j *batchv1.Job) { j.Kind = KindPipelineRun }), pods: []corev1.Pod{with(podWith(corev1.PodFailed), disrupted("EvictionByEvictionAPI"))},
			want: Observation{Phase: Failed, Class: fault.Transient, Ended: &ended, Text: `its pod was disrupted on node "node1": EvictionByEvictionAPI: why`},
		},
		"no pod yet": {job: &batchv1.Job{}, want: Observation{}},
		"a pod that runs": {
			job:  &batchv1.Job{},
			pods: []corev1.Pod{podWith(corev1.PodRunning, corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}})},
			want: Observation{Started: &started},
		},
		"a pod whose image can't be pulled": {
			job: &batchv1.Job{}, pods: []corev1.Pod{podWith(corev1.PodPending, waits("ImagePullBackOff", "the registry\nis down"))},
			want: Observation{Text: `container "test" can't start on node "node1": ImagePullBackOff: the registry; is down`},
		},
		"a pod that begins": {job: &batchv1.Job{}, pods: []corev1.Pod{podWith(corev1.PodPending, waits("ContainerCreating", ""))}, want: Observation{}},
		"a pod that no node takes": {
			job: &batchv1.Job{},
			pods: []corev1.Pod{with(podWith(corev1.PodPending), func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}
			})},
			want: Observation{Text: "no node takes the pod: 0/1 nodes are available"},
		},
		"passed": {
			job: endedJob(batchv1.JobComplete, ""), pods: []corev1.Pod{podWith(corev1.PodSucceeded, exited("a", 0, 9, "Completed", ""), exited("b", 0, 9, "Completed", "all fine\n"))},
			want: Observation{Phase: Passed, Container: "b", ExitCode: new(int32(0)), Message: "all fine", Started: &started, Ended: &ended},
		},
		"failed": {
			job: failedJob, pods: []corev1.Pod{podWith(corev1.PodFailed, exited("a", 0, 2, "Completed", "x"), exited("late", 1, 9, "Error", ""), exited("early", 3, 5, "Error", "no os-release"))},
			want: Observation{
				Phase: Failed, Class: fault.Terminal, Container: "early", ExitCode: new(int32(3)), Message: "no os-release", Started: &started, Ended: &ended,
				Text: `container "early" ended with exit code 3: no os-release`,
			},
		},
		"a sidecar that is ended in the same second": {
			job: failedJob,
			pods: []corev1.Pod{with(podWith(corev1.PodFailed, exited("test", 3, 9, "Error", "")), func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{exited("sidecar", 143, 9, "Error", "")}
			})},
			want: Observation{
				Phase: Failed, Class: fault.Terminal, Container: "test", ExitCode: new(int32(3)), Started: &started, Ended: &ended, Text: `container "test" ended with exit code 3`,
			},
		},
		"a pod that Kubernetes has removed": {
			job: withJob(failedJob, func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }),
			want: Observation{
				Phase: Failed, Class: fault.Transient, Ended: &ended, Text: "its pod is gone: Kubernetes deletes failed pods with restartPolicy OnFailure; use Never to see how the test ended",
			},
		},
		"a limit that someone took away meanwhile": {
			job:   withJob(late, func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = nil }),
			begun: &started, want: Observation{Phase: Failed, Class: fault.Terminal, Started: &started, Ended: &ended, Text: "it did not end in time"},
		},
		"failed for lack of memory": {
			job: failedJob, pods: []corev1.Pod{podWith(corev1.PodFailed, exited("a", 137, 2, "OOMKilled", ""))},
			want: Observation{Phase: Failed, Class: fault.Terminal, Container: "a", ExitCode: new(int32(137)), Started: &started, Ended: &ended, Text: `container "a" ended with exit code 137 (OOMKilled)`},
		},
		"an evicted pod says nothing of what it tests": {
			job: failedJob, pods: []corev1.Pod{with(podWith(corev1.PodFailed, exited("a", 137, 2, "Error", "")), disrupted("EvictionByEvictionAPI"))},
			want: Observation{Phase: Failed, Class: fault.Transient, Started: &started, Ended: &ended, Text: `its pod was disrupted on node "node1": EvictionByEvictionAPI: why`},
		},
		"of two pods the one that was not evicted counts": {
			job: failedJob,
			pods: []corev1.Pod{
				with(podWith(corev1.PodFailed, exited("a", 137, 2, "Error", "")), disrupted("EvictionByEvictionAPI")), podWith(corev1.PodFailed, exited("a", 4, 9, "Error", "")),
			},
			want: Observation{Phase: Failed, Class: fault.Terminal, Container: "a", ExitCode: new(int32(4)), Started: &started, Ended: &ended, Text: `container "a" ended with exit code 4`},
		},
		"a node that is gone": {
			job: failedJob, pods: []corev1.Pod{podWith(corev1.PodFailed, exited("a", 137, 2, statusUnknown, ""))},
			want: Observation{Phase: Failed, Class: fault.Transient, Started: &started, Ended: &ended, Text: `its pod failed on node "node1": the cause is unknown`},
		},
		"a node that refused the pod": {
			job: failedJob,
			pods: []corev1.Pod{with(podWith(corev1.PodFailed), func(p *corev1.Pod) {
				p.Status.Reason, p.Status.Message = "OutOfmemory", "Node didn't have enough resource: memory"
			})},
			want: Observation{Phase: Failed, Class: fault.Transient, Ended: &ended, Text: `its pod failed on node "node1": OutOfmemory: Node didn't have enough resource: memory`},
		},
		"a pod that is gone": {job: failedJob, want: Observation{Phase: Failed, Class: fault.Transient, Ended: &ended, Text: "its pod is gone"}},
		"too long, as was seen": {
			job: late, begun: &started, want: Observation{Phase: Failed, Class: fault.Terminal, Started: &started, Ended: &ended, Text: "it did not end within 90s"},
		},
		"too long, and never begun": {job: late, want: Observation{Phase: Failed, Class: fault.Transient, Ended: &ended, Text: "none of its containers was started within 90s"}},
		"too long for the pod's own limit": {
			job: failedJob, pods: []corev1.Pod{with(podWith(corev1.PodFailed, exited("a", 137, 2, "Error", "")), func(p *corev1.Pod) { p.Status.Reason = podDeadline })},
			want: Observation{Phase: Failed, Class: fault.Terminal, Started: &started, Ended: &ended, Text: "a pod took longer than its activeDeadlineSeconds"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Observe(tt.job, tt.pods, tt.begun)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestMessagesFitStatus(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "one; two three", Clean("\n one\r\n\x1b\ntwo\tthree\x00\n\n"))
	assert.Equal(t, "a\uFFFD", Clean("a\xff"))
	long := Clean(strings.Repeat("é", MaxMessage) + "end")
	assert.Len(t, []rune(long), MaxMessage)
	require.True(t, strings.HasSuffix(long, "end"), "programs say at the end what failed")
}

func TestShortText(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{"2h": 2 * time.Hour, "90m": 90 * time.Minute, "61s": 61 * time.Second} {
		assert.Equal(t, want, shortText(d))
	}
}
