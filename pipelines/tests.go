package pipelines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"knative.dev/pkg/apis"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// recheck is when to look again for a Pipeline, which no one watches.
const recheck = time.Minute

// TestOptions are what Tests work with.
type TestOptions struct {
	// Namespace has the Pipelines, and what is made there has the Component as its label
	// app.kubernetes.io/component.
	Namespace, Component string
	// Client writes, and Reader asks the API server.
	Client client.Client
	Reader client.Reader
	// Presence reads what runs.
	Presence Presence
	// Ends reads why a step failed; nil where no one needs to know.
	Ends pods.Ends
}

// Tests runs administrators' Pipelines that test images. Its runs are shown as Jobs, and their pods
// as those of Jobs.
type Tests struct{ options TestOptions }

// NewTests runs Pipelines of a namespace.
func NewTests(options TestOptions) *Tests { return &Tests{options} }

// Notify has a function called with every object of Tekton's that changes, and with nil when Tekton
// has come or gone.
func (t *Tests) Notify(changed func(object client.Object)) { t.options.Presence.Notify(changed) }

// Runs are those of all images. They wait, in the sense of fault.Waiting, while Tekton is not
// there.
func (t *Tests) Runs(ctx context.Context) ([]batchv1.Job, error) {
	reader, err := t.options.Presence.Reader(ctx)
	if err != nil {
		return nil, err
	}
	var list tektonv1.PipelineRunList
	if err := reader.List(ctx, &list, client.InNamespace(t.options.Namespace), client.MatchingLabels{pods.ComponentLabel: t.options.Component}); err != nil {
		return nil, fmt.Errorf("listing the PipelineRuns that verify images: %w", err)
	}
	var tasks tektonv1.TaskRunList
	if err := reader.List(ctx, &tasks, client.InNamespace(t.options.Namespace), client.MatchingLabels{pods.ComponentLabel: t.options.Component}); err != nil {
		return nil, fmt.Errorf("listing the TaskRuns that verify images: %w", err)
	}
	jobs := make([]batchv1.Job, len(list.Items))
	for i := range list.Items {
		jobs[i] = *jobOf(&list.Items[i], tasks.Items)
	}
	return jobs, nil
}

// Create makes a run of a Pipeline. The variables of the Job's container are its parameters, and
// its pods have what the Job's has.
func (t *Tests) Create(ctx context.Context, job *batchv1.Job, pipeline string) error {
	if _, err := t.options.Presence.Reader(ctx); err != nil {
		return err
	}
	is, err := hasPipeline(ctx, t.options.Reader, t.options.Namespace, pipeline)
	if err != nil {
		return err
	}
	if !is {
		return fault.NewWaiting(mcfgv1alpha1.ReasonVerificationPending, recheck, fmt.Errorf(
			"spec.verification.pipeline: Pipeline %q does not exist in namespace %q; create it, or correct the name", pipeline, t.options.Namespace))
	}
	run := testRun(job, pipeline)
	if err := requireNoneLeft(ctx, t.options.Reader, run, mcfgv1alpha1.ReasonVerificationPending); err != nil {
		return err
	}
	if err := t.options.Client.Create(ctx, run); err != nil {
		return whileAway(err, mcfgv1alpha1.ReasonVerificationPending)
	}
	job.UID, job.CreationTimestamp = run.UID, run.CreationTimestamp
	return nil
}

// testRun is the run that a Job stands for.
func testRun(job *batchv1.Job, pipeline string) *tektonv1.PipelineRun {
	of := &job.Spec.Template.Spec
	run := &tektonv1.PipelineRun{
		TypeMeta: metav1.TypeMeta{APIVersion: tektonv1.SchemeGroupVersion.String(), Kind: "PipelineRun"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name, Labels: job.Labels, Annotations: maps.Clone(job.Annotations), OwnerReferences: job.OwnerReferences,
		},
		Spec: tektonv1.PipelineRunSpec{
			PipelineRef: &tektonv1.PipelineRef{Name: pipeline},
			Timeouts:    &tektonv1.TimeoutFields{Pipeline: &metav1.Duration{Duration: time.Duration(*job.Spec.ActiveDeadlineSeconds) * time.Second}},
			TaskRunTemplate: tektonv1.PipelineTaskRunTemplate{PodTemplate: &pod.PodTemplate{
				AutomountServiceAccountToken: of.AutomountServiceAccountToken, EnableServiceLinks: of.EnableServiceLinks,
				SecurityContext: of.SecurityContext, ImagePullSecrets: of.ImagePullSecrets,
			}},
		},
	}
	// An annotation that is missing would be the Pipeline's to give: Tekton adds those to its runs.
	metav1.SetMetaDataAnnotation(&run.ObjectMeta, mcfgv1.AnnotationBuildSecrets, "")
	for _, v := range of.Containers[0].Env {
		run.Spec.Params = append(run.Spec.Params, tektonv1.Param{Name: v.Name, Value: *tektonv1.NewStructuredValues(v.Value)})
	}
	return run
}

// jobOf is a run as a Job would be that does the same.
func jobOf(run *tektonv1.PipelineRun, tasks []tektonv1.TaskRun) *batchv1.Job {
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{Kind: "PipelineRun"}, ObjectMeta: *run.ObjectMeta.DeepCopy()}
	if t := run.Spec.Timeouts; t != nil && t.Pipeline != nil && t.Pipeline.Duration > 0 {
		job.Spec.ActiveDeadlineSeconds = new(int64(t.Pipeline.Duration / time.Second))
	}
	condition := conditionOf(run)
	if condition == nil || condition.IsUnknown() {
		return job
	}
	end := batchv1.JobCondition{
		Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: condition.Reason, Message: condition.Message,
		LastTransitionTime: metav1.NewTime(endOf(run, condition)),
	}
	switch {
	case condition.IsTrue():
		end.Type = batchv1.JobComplete
	case isCancelled(run, condition):
		end.Message = "someone cancelled it"
	case condition.Reason == string(tektonv1.PipelineRunReasonTimedOut):
		end.Reason = batchv1.JobReasonDeadlineExceeded
	default:
		end.Message += failedTasks(run, tasks)
	}
	job.Status.Conditions = []batchv1.JobCondition{end}
	return job
}

// Delete removes a run.
func (t *Tests) Delete(ctx context.Context, job *batchv1.Job, options ...client.DeleteOption) error {
	err := t.options.Client.Delete(ctx, &tektonv1.PipelineRun{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}, options...)
	return whileAway(err, mcfgv1alpha1.ReasonVerificationPending)
}

// failedTasks says why tasks of a run failed, as the end of a sentence: Tekton only counts them.
func failedTasks(run *tektonv1.PipelineRun, tasks []tektonv1.TaskRun) string {
	text := ""
	for i := range tasks {
		if c := tasks[i].Status.GetCondition(apis.ConditionSucceeded); isTaskOf(&tasks[i], run) && c.IsFalse() {
			text += fmt.Sprintf("; task %s: %s (%s)", tasks[i].Labels[labelPipelineTask], cmp.Or(c.Message, "no reason is given"), c.Reason)
		}
	}
	return text
}

// Pods are those of a run, with containers called like its steps. A run has failed when a step has,
// before the kubelet says so of the pod. One that is gone is as Tekton has kept it.
func (t *Tests) Pods(ctx context.Context, reader client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	tekton, err := t.options.Presence.Reader(ctx)
	if err != nil {
		return nil, err
	}
	if len(job.Status.Conditions) > 0 { // what has ended is read as it is
		tekton = t.options.Reader
	}
	of := []client.ListOption{client.InNamespace(t.options.Namespace), client.MatchingLabels{pods.ComponentLabel: t.options.Component, labelPipelineRun: job.Name}}
	var tasks tektonv1.TaskRunList
	var list corev1.PodList
	if err := errors.Join(tekton.List(ctx, &tasks, of...), reader.List(ctx, &list, of...)); err != nil {
		return nil, err
	}
	f := &facts{Facts: pods.Facts{Pods: list.Items}}
	var out []corev1.Pod
	for i := range tasks.Items {
		task := &tasks.Items[i]
		if !isTaskOf(task, job) {
			continue
		}
		pod, isGone := f.lastOf(task)
		if pod == nil || isGone && isStopped(task) {
			continue
		}
		if step, end := pods.FailedStep(pod); end != nil {
			pod.Status.Phase = corev1.PodFailed
			if isGone || !pod.DeletionTimestamp.IsZero() {
				disrupt(pod, step, end)
			} else {
				t.explain(ctx, pod, step, end)
			}
		}
		out = append(out, *pod)
	}
	return out, nil
}

// explain adds what a step has written last: Tekton has the container's message for itself.
func (t *Tests) explain(ctx context.Context, pod *corev1.Pod, step backend.Step, end *corev1.ContainerStateTerminated) {
	if t.options.Ends == nil || end.Message != "" {
		return
	}
	said, err := t.options.Ends.End(ctx, client.ObjectKeyFromObject(pod), containerOf(pod, step))
	if err != nil {
		ctrl.LoggerFrom(ctx).V(4).Info("The log of a failed step is not known", "pod", pod.Name, "reason", err.Error())
	}
	end.Message = said
}

// isStopped reports whether Tekton has ended a task, so that its pod says nothing about the test.
func isStopped(task *tektonv1.TaskRun) bool {
	return task.IsCancelled() || task.Status.GetCondition(apis.ConditionSucceeded).Reason == string(tektonv1.TaskRunReasonTimedOut)
}

// disrupt says of a pod that was deleted that this ended its step, where a signal did: then the
// test has said nothing.
func disrupt(pod *corev1.Pod, step backend.Step, end *corev1.ContainerStateTerminated) {
	if end.Reason == pods.OOMKilled || end.ExitCode < exitSignal {
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PodDeleted",
		Message: fmt.Sprintf("step %s was ended with exit code %d, and the pod was deleted", step, end.ExitCode),
	})
}

// exitSignal is less than the exit codes of containers that a signal ends.
const exitSignal = 128
