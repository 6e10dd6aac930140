package buildertest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/builder/backend"
)

// Start is when the pods of builds are made. Steps begin ten seconds later, and end after a minute.
var Start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// WaitingFor is a container that does not run yet.
func WaitingFor(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// Running is a container that runs.
func Running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Start.Add(10 * time.Second))}}
}

// Ended is a container that has ended.
func Ended(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message,
		StartedAt: metav1.NewTime(Start.Add(10 * time.Second)), FinishedAt: metav1.NewTime(Start.Add(time.Minute)),
	}}
}

// Sets gives the container of a step its state.
func Sets(step backend.Step, state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for i := range statuses {
				if statuses[i].Name == string(step) {
					statuses[i].State = state
				}
			}
		}
	}
}

// Runs is a pod whose step runs.
func Runs(step backend.Step) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		Sets(step, Running())(p)
	}
}

// Ends is how the kubelet writes down that a step has ended.
func Ends(step backend.Step, code int32, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		Sets(step, Ended(code, reason, message))(p)
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
	}
}

// Fails is a pod as it is when the cluster has given up on it.
func Fails(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

// Disrupted is a pod that the cluster takes away.
func Disrupted(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	}
}

// Deleted is a pod that someone has deleted, and that is still there.
func Deleted(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at)) }
}
