package pipelines

import (
	"slices"
	"strings"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/builder/backend"
)

// tagOf is the tag of an image; empty where it has none.
func tagOf(image string) string {
	name, tag := image, ""
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		tag = name[i+1:]
	}
	return tag
}

// repositoryOf is an image without its tag and digest.
func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i]
	}
	return image
}

// stepPrefix begins the names of the containers that are steps.
const stepPrefix = "step-"

// containerOf is the container of a step in the pod that a view is of. What Tekton starts the pod
// with has its own name.
func containerOf(view *corev1.Pod, step backend.Step) string {
	if slices.ContainsFunc(view.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == string(step) }) {
		return string(step)
	}
	return stepPrefix + string(step)
}

// leftBy is the pod of a task as viewOf has it, with what Tekton has kept of its steps: the pod
// itself may be gone. It is nil while the task has not ended.
func leftBy(task *tektonv1.TaskRun) *corev1.Pod {
	if task == nil || !task.IsDone() || len(task.Status.Steps) == 0 {
		return nil
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: task.Status.PodName, Namespace: task.Namespace},
		Status:     corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: task.Status.StartTime},
	}
	if task.IsFailure() {
		pod.Status.Phase = corev1.PodFailed
	}
	for i := range task.Status.Steps {
		step := &task.Status.Steps[i]
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: stepPrefix + step.Name})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: stepPrefix + step.Name, ImageID: step.ImageID, State: step.ContainerState})
	}
	return viewOf(pod)
}

// viewOf is a pod of Tekton's as a Job would have it: the containers are called like the steps and
// are in their order, and a termination message is the report that the step left. The steps that
// Tekton skips, since one before has failed, end with an error too, and after it. What Tekton
// starts the pod with stays, since it can be what does not start.
func viewOf(pod *corev1.Pod) *corev1.Pod {
	view := pod.DeepCopy()
	order := map[string]int{}
	for i, container := range view.Spec.Containers {
		order[container.Name] = i
		view.Spec.Containers[i].Name = strings.TrimPrefix(container.Name, stepPrefix)
	}
	view.Status.ContainerStatuses = slices.DeleteFunc(view.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return !strings.HasPrefix(s.Name, stepPrefix)
	})
	slices.SortFunc(view.Status.ContainerStatuses, func(a, b corev1.ContainerStatus) int { return order[a.Name] - order[b.Name] })
	for i := range view.Status.ContainerStatuses {
		status := &view.Status.ContainerStatuses[i]
		status.Name = strings.TrimPrefix(status.Name, stepPrefix)
		if end := status.State.Terminated; end != nil {
			end.Message = backend.FromTekton(end.Message)
		}
	}
	// What started the pod well says nothing more; it has no report, and is no step.
	view.Status.InitContainerStatuses = slices.DeleteFunc(view.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	})
	return view
}
