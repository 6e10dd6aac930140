package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/builder/backend"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const builderImage = "registry.example.com/builder@sha256:b"

// newPod is one as a node has just got it, with some changes.
func newPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "build-x-1", Namespace: "layerwright", UID: "pod", CreationTimestamp: metav1.NewTime(t0)},
		Spec: corev1.PodSpec{
			NodeName: "node-1", ActiveDeadlineSeconds: new(int64(2 * 60 * 60)),
			NodeSelector: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, step := range backend.Steps() {
		container := corev1.Container{Name: string(step), Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")},
		}}
		status := corev1.ContainerStatus{Name: string(step), Image: builderImage, State: waitingFor("PodInitializing", "")}
		if step == backend.Push {
			pod.Spec.Containers, pod.Status.ContainerStatuses = []corev1.Container{container}, []corev1.ContainerStatus{status}
			continue
		}
		pod.Spec.InitContainers, pod.Status.InitContainerStatuses = append(pod.Spec.InitContainers, container), append(pod.Status.InitContainerStatuses, status)
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// sidecar is one that an admission webhook puts before the steps.
func sidecar(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append([]corev1.Container{{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}, p.Spec.InitContainers...)
		p.Status.InitContainerStatuses = append([]corev1.ContainerStatus{{Name: "proxy", Image: "proxy:1", State: state}}, p.Status.InitContainerStatuses...)
	}
}

func waitingFor(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func ended(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message, StartedAt: metav1.NewTime(t0.Add(10 * time.Second)), FinishedAt: metav1.NewTime(t0.Add(time.Minute)),
	}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0.Add(10 * time.Second))}}
}

func sets(step backend.Step, state corev1.ContainerState) func(*corev1.Pod) {
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

func runs(step backend.Step) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		sets(step, running())(p)
	}
}

func waits(step backend.Step, reason, message string) func(*corev1.Pod) {
	return sets(step, waitingFor(reason, message))
}

// ends is how the kubelet writes down that a step has ended.
func ends(step backend.Step, code int32, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		sets(step, ended(code, reason, message))(p)
		if code != 0 {
			p.Status.Phase = corev1.PodFailed
		}
	}
}

func reports(t *testing.T, step backend.Step, code int32, f *backend.StepFailure) func(*corev1.Pod) {
	t.Helper()
	text, err := (&backend.Report{Step: step, Failure: f}).Encode()
	require.NoError(t, err)
	return ends(step, code, "Error", string(text))
}

// fails is a pod as it is when the cluster has given up on it.
func fails(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

func disrupted(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	}
}

func beganAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = new(metav1.NewTime(at)) }
}

func deleted(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(at)) }
}

func without(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		if node != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: node}}
		}
	}
}
