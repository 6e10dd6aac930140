package pipelines

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tektoncd/pipeline/pkg/apis/pipeline/pod"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// recheck is when to look again for a Pipeline, which no one watches.
const recheck = time.Minute

// Tests runs administrators' Pipelines that test images. Its runs are shown as Jobs, and their pods
// as those of Jobs.
type Tests struct {
	namespace, component string
	client               client.Client
	reader               client.Reader
	presence             Presence
}

// NewTests runs Pipelines of a namespace. What it makes has the label app.kubernetes.io/component.
// The client writes, and the reader asks the API server.
func NewTests(namespace, component string, c client.Client, reader client.Reader, presence Presence) *Tests {
	return &Tests{namespace: namespace, component: component, client: c, reader: reader, presence: presence}
}

// Notify has a function called with every object of Tekton's that changes, and with nil when Tekton
// has come or gone.
func (t *Tests) Notify(changed func(object client.Object)) { t.presence.Notify(changed) }

// Runs are those of all images. They wait, in the sense of fault.Waiting, while Tekton is not
// there.
func (t *Tests) Runs(ctx context.Context) ([]batchv1.Job, error) {
	reader, err := t.presence.Reader(ctx)
	if err != nil {
		return nil, err
	}
	var list tektonv1.PipelineRunList
	if err := reader.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{pods.ComponentLabel: t.component}); err != nil {
		return nil, fmt.Errorf("listing the PipelineRuns that verify images: %w", err)
	}
	jobs := make([]batchv1.Job, len(list.Items))
	for i := range list.Items {
		jobs[i] = *jobOf(&list.Items[i])
	}
	return jobs, nil
}

// Create makes a run of a Pipeline. The variables of the Job's container are its parameters, and
// its pods have what the Job's has.
func (t *Tests) Create(ctx context.Context, job *batchv1.Job, pipeline string) error {
	if _, err := t.presence.Reader(ctx); err != nil {
		return err
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(tektonv1.SchemeGroupVersion.WithKind("Pipeline"))
	err := t.reader.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: pipeline}, there)
	if apierrors.IsNotFound(err) {
		return fault.NewWaiting(mcfgv1alpha1.ReasonVerificationPending, recheck, fmt.Errorf(
			"spec.verification.pipeline: Pipeline %q does not exist in namespace %q; create it, or correct the name", pipeline, t.namespace))
	}
	if err != nil {
		return fmt.Errorf("looking for Pipeline %q: %w", pipeline, err)
	}
	run := testRun(job, pipeline)
	if err := t.client.Create(ctx, run); err != nil {
		return err
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
func jobOf(run *tektonv1.PipelineRun) *batchv1.Job {
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
	}
	job.Status.Conditions = []batchv1.JobCondition{end}
	return job
}

// Delete removes a run.
func (t *Tests) Delete(ctx context.Context, job *batchv1.Job, options ...client.DeleteOption) error {
	return t.client.Delete(ctx, &tektonv1.PipelineRun{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}, options...)
}

// Pods are those of a run, with containers called like its steps. A run has failed when a step has,
// before the kubelet says so of the pod.
func (t *Tests) Pods(ctx context.Context, reader client.Reader, job *batchv1.Job) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := reader.List(ctx, &list, client.InNamespace(t.namespace), client.MatchingLabels{pods.ComponentLabel: t.component, labelPipelineRun: job.Name})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		view := viewOf(&list.Items[i])
		if slices.ContainsFunc(view.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
		}) {
			view.Status.Phase = corev1.PodFailed
		}
		list.Items[i] = *view
	}
	return list.Items, nil
}
