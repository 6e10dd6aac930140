package pipelines

import (
	"cmp"
	"fmt"
	"slices"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// endingOf is how a task of a run failed; nil where it did not. Its pod is asked first, and where
// that is gone or has not ended yet, what Tekton has kept of its steps.
func (f *facts) endingOf(run *tektonv1.PipelineRun, task *tektonv1.TaskRun) *pods.Ending {
	if !isTaskOf(task, run) {
		return nil
	}
	left := leftBy(task)
	if left != nil && !hasCause(left) {
		left = nil
	}
	for _, pod := range []*corev1.Pod{f.podOf(task), left} {
		if pod == nil {
			continue
		}
		if timeout := timeoutOf(run); timeout > 0 {
			pod.Spec.ActiveDeadlineSeconds = pods.Seconds(timeout)
		}
		if ending := pods.EndingOf(pod); ending != nil {
			return ending
		}
	}
	condition := task.Status.GetCondition(apis.ConditionSucceeded)
	if !condition.IsFalse() {
		return nil
	}
	if failure := f.saidOf(run, task, condition); failure != nil {
		return &pods.Ending{At: condition.LastTransitionTime.Inner.Time, Failure: failure}
	}
	return nil
}

// saidOf is why a task failed as Tekton says; nil where a person has cancelled it, or the failure
// of another task.
func (f *facts) saidOf(run *tektonv1.PipelineRun, task *tektonv1.TaskRun, condition *apis.Condition) *backend.Failure {
	name := task.Labels[labelPipelineTask]
	for i := range task.Status.Steps {
		step := &task.Status.Steps[i]
		switch end := step.Terminated; {
		case end == nil:
		case pods.IsForgotten(end): // the kubelet found it no more
			return backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild,
				fmt.Sprintf("the node of task %s lost step %s, for example by a restart, and the pod was deleted", name, step.Name))
		case end.ExitCode == backend.ExitAdmin:
			return pods.WithoutCause("step "+step.Name, condition.Message)
		}
	}
	switch reason := condition.Reason; {
	case reason == tektonv1.TaskRunReasonCancelled.String():
		return nil
	case slices.Contains([]string{tektonv1.TaskRunReasonPodCreationFailed.String(), "PodAdmissionFailed"}, reason) && isDenied(condition.Message):
		return f.denial(run, task, condition.Message)
	}
	return meaningOf(condition.Reason, fmt.Sprintf("task %s: %s", name, saidBy(condition)))
}

// lastOf is the pod of a task, and where that is gone, what Tekton has kept of it; nil where there
// is neither.
func (f *facts) lastOf(task *tektonv1.TaskRun) (last *corev1.Pod, isGone bool) {
	if pod := f.podOf(task); pod != nil {
		return pod, false
	}
	return leftBy(task), true
}

// taskOf is what Tekton has made of a task of a run, for an architecture where there is one for
// each; nil where it has made nothing.
func (f *facts) taskOf(run *tektonv1.PipelineRun, name string, architecture mcfgv1.Architecture) *tektonv1.TaskRun {
	for i := range f.tasks {
		task := &f.tasks[i]
		if isTaskOf(task, run) && task.Labels[labelPipelineTask] == name && (name != taskBuild || architecture == "" || architectureOf(task) == architecture.OCI()) {
			return task
		}
	}
	return nil
}

// architectureOf is the parameter architecture of a task; empty for one that has none.
func architectureOf(task *tektonv1.TaskRun) string {
	for _, p := range task.Spec.Params {
		if p.Name == paramArchitecture {
			return p.Value.StringVal
		}
	}
	return ""
}

// podOf is the pod of a task, as Jobs would have it; nil where there is none.
func (f *facts) podOf(task *tektonv1.TaskRun) *corev1.Pod {
	if task == nil {
		return nil
	}
	for i := range f.Pods {
		if metav1.IsControlledBy(&f.Pods[i], task) && f.Pods[i].Name == cmp.Or(task.Status.PodName, f.Pods[i].Name) {
			return viewOf(&f.Pods[i])
		}
	}
	return nil
}

// isTaskOf reports whether a task is of a run, and not of an earlier one of its name.
func isTaskOf(task *tektonv1.TaskRun, run metav1.Object) bool {
	return metav1.IsControlledBy(task, run)
}

// hasCause reports whether a step of a pod has left why it failed.
func hasCause(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pods.ReportsOf(pod), func(r backend.Report) bool { return r.Failure != nil })
}
