package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
)

var t0 = buildertest.Start

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
		status := corev1.ContainerStatus{Name: string(step), Image: builderImage, State: buildertest.WaitingFor("PodInitializing", "")}
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

func waits(step backend.Step, reason, message string) func(*corev1.Pod) {
	return buildertest.Sets(step, buildertest.WaitingFor(reason, message))
}

func reports(t *testing.T, step backend.Step, code int32, f *backend.StepFailure) func(*corev1.Pod) {
	t.Helper()
	text, err := (&backend.Report{Step: step, Failure: f}).Encode()
	require.NoError(t, err)
	return buildertest.Ends(step, code, "Error", string(text))
}

func beganAt(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = new(metav1.NewTime(at)) }
}

func without(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		if node != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: node}}
		}
	}
}
