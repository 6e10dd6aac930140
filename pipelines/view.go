package pipelines

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/layerwright/layerwright/builder/backend"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

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
