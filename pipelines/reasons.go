package pipelines

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"knative.dev/pkg/apis"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// failureOf is why a run failed: what its pods say first, then what Tekton says of its tasks, then
// what it says of the run.
func failureOf(f *facts, run *tektonv1.PipelineRun) *backend.Failure {
	condition := conditionOf(run)
	var found *pods.Ending
	for i := range f.tasks {
		if ending := f.endingOf(run, &f.tasks[i]); ending != nil && (found == nil || ending.At.Before(found.At)) {
			found = ending
		}
	}
	switch {
	case isCancelled(run, condition):
		failure := backend.NewFailure(fault.Terminal, mcfgv1.ReasonInterrupted, fmt.Sprintf("someone cancelled PipelineRun %q", run.Name))
		failure.IsCancelled = true
		return failure
	case found != nil:
		return found.Failure
	case condition == nil:
		return backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, fmt.Sprintf("PipelineRun %q has no condition", run.Name))
	}
	text := fmt.Sprintf("PipelineRun %q: %s", run.Name, saidBy(condition))
	if slices.Contains(timedOut, tektonv1.PipelineRunReason(condition.Reason)) && f.taskOf(run, taskBuild, "") != nil && !f.hasBegun(run) { // for want of a quota, for example
		return backend.NewFailure(fault.Waiting, mcfgv1.ReasonWaiting, text+"; no pod was made in that time, so that it is tried again")
	}
	return meaningOf(condition.Reason, text)
}

// meaningOf is what a reason of Tekton's means that ended a run or a task. All have their class
// here but a timeout without a pod (failureOf) and a pod that was refused (denial); a reason that
// no one knows may pass by itself.
func meaningOf(reason, text string) *backend.Failure {
	switch {
	case slices.Contains(timedOut, tektonv1.PipelineRunReason(reason)):
		return backend.NewFailure(fault.Transient, mcfgv1.ReasonTimedOut, text+"; raise spec.buildTimeout of the MachineOSConfig, or find out what takes so long")
	case slices.Contains(ofPipeline, tektonv1.PipelineRunReason(reason)):
		return backend.NewFailure(fault.Terminal, mcfgv1.ReasonInvalid, text+"; correct the Pipeline or its Tasks")
	}
	return backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, text)
}

// saidBy is what Tekton says of a run or a task.
func saidBy(c *apis.Condition) string {
	return fmt.Sprintf("%s (%s)", cmp.Or(c.Message, "no reason is given"), c.Reason)
}

// timedOut are the reasons of what took too long.
var timedOut = []tektonv1.PipelineRunReason{
	tektonv1.PipelineRunReasonTimedOut, tektonv1.PipelineRunReasonTimedOutRunningFinally, tektonv1.PipelineRunReason(tektonv1.TaskRunReasonTimedOut),
}

// ofPipeline are reasons that the same Pipeline meets again.
var ofPipeline = []tektonv1.PipelineRunReason{
	tektonv1.PipelineRunReasonCouldntGetPipeline, tektonv1.PipelineRunReasonCouldntGetTask, tektonv1.PipelineRunReasonInvalidBindings,
	tektonv1.PipelineRunReasonInvalidWorkspaceBinding, tektonv1.PipelineRunReasonInvalidTaskRunSpec, tektonv1.PipelineRunReasonParameterTypeMismatch,
	tektonv1.PipelineRunReasonObjectParameterMissKeys, tektonv1.PipelineRunReasonParamArrayIndexingInvalid, tektonv1.PipelineRunReasonParameterMissing,
	tektonv1.PipelineRunReasonFailedValidation, tektonv1.PipelineRunReasonCouldntGetPipelineResult, tektonv1.PipelineRunReasonInvalidGraph,
	tektonv1.PipelineRunReasonInvalidMatrixParameterTypes, tektonv1.PipelineRunReasonInvalidTaskResultReference,
	tektonv1.PipelineRunReasonInvalidPipelineResultReference, tektonv1.PipelineRunReasonRequiredWorkspaceMarkedOptional,
	tektonv1.PipelineRunReasonResourceVerificationFailed, tektonv1.PipelineRunReasonCELEvaluationFailed, tektonv1.PipelineRunReasonInvalidParamValue,
	tektonv1.PipelineRunReason(tektonv1.TaskRunReasonFailedValidation), tektonv1.PipelineRunReason(tektonv1.TaskRunReasonTaskFailedValidation),
	tektonv1.PipelineRunReason(tektonv1.TaskRunReasonFailedResolution),
}

// isCancelled reports whether a person ended a run.
func isCancelled(run *tektonv1.PipelineRun, condition *apis.Condition) bool {
	switch run.Spec.Status {
	case tektonv1.PipelineRunSpecStatusCancelled, tektonv1.PipelineRunSpecStatusCancelledRunFinally, tektonv1.PipelineRunSpecStatusStoppedRunFinally:
		return true
	case tektonv1.PipelineRunSpecStatusPending:
	}
	return condition != nil && strings.HasPrefix(condition.Reason, string(tektonv1.PipelineRunReasonCancelled))
}

// isRefused reports whether Tekton says that a pod was refused. Tekton tries again.
func isRefused(reason string) bool {
	return reason == tektonv1.TaskRunReasonPodCreationFailed.String() || reason == "ExceededResourceQuota" || reason == tektonv1.TaskRunReasonPending.String()
}

// isDenied reports whether Tekton says that the API server refused a pod for what is in it. Other
// errors of that kind pass.
func isDenied(message string) bool {
	return strings.Contains(message, " is forbidden: ") || strings.Contains(message, " is invalid: ") || strings.Contains(message, " denied the request: ")
}

// refused says why the cluster refuses to create the pod of a task.
func (f *facts) refused(task *tektonv1.TaskRun, message string) string {
	return fmt.Sprintf("the cluster refuses to create the pod of task %s: %s", task.Labels[labelPipelineTask], f.Refused(task.Namespace, fault.Clean(message)))
}

// denial is the failure of a task whose pod was refused, of which Tekton ends the run. It waits
// like a Job, unless something was built already: that would be built again each time.
func (f *facts) denial(run *tektonv1.PipelineRun, task *tektonv1.TaskRun, message string) *backend.Failure {
	if f.hasBegun(run) {
		return backend.NewFailure(fault.Terminal, mcfgv1.ReasonInvalid, f.refused(task, message))
	}
	return backend.NewFailure(fault.Waiting, mcfgv1.ReasonWaiting, f.refused(task, message))
}
