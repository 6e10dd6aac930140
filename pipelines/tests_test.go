package pipelines

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

const component = "verification"

// asJob is the Job that a test with a Pipeline stands for.
func asJob() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "verify-worker-1", Labels: map[string]string{pods.ComponentLabel: component}, Annotations: map[string]string{"of": "worker-aaaa"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "MachineOSImage", Name: "worker-aaaa", UID: "1", Controller: new(true)}},
		},
		Spec: batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(600)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false), SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true)},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
			Containers:       []corev1.Container{{Env: []corev1.EnvVar{{Name: "IMAGE", Value: pushed}, {Name: "POOL", Value: "worker"}}}},
		}}},
	}
}

// cached is a client that reads from a cache, which may not watch Pipelines.
type cached struct{ client.Client }

func (cached) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("it would wait for ever")
}

func TestTestsRunPipelines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &tektonv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Name: "ours", Namespace: namespace}})
	tests := NewTests(namespace, component, cached{w.Client}, w.Client, w)
	err := tests.Create(t.Context(), asJob(), "theirs")
	require.True(t, fault.IsWaiting(err))
	require.EqualError(t, err, `spec.verification.pipeline: Pipeline "theirs" does not exist in namespace "layerwright"; create it, or correct the name`)

	require.NoError(t, tests.Create(t.Context(), asJob(), "ours"))
	run := w.runs()[0]
	require.NoError(t, asError(run.Validate(t.Context())))
	assert.Equal(t, "ours", run.Spec.PipelineRef.Name)
	assert.Equal(t, pushed, param(&run, "IMAGE"))
	assert.Equal(t, 10*time.Minute, run.Spec.Timeouts.Pipeline.Duration)
	template := run.Spec.TaskRunTemplate.PodTemplate
	assert.Equal(t, new(false), template.AutomountServiceAccountToken)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, template.ImagePullSecrets)
	assert.Equal(t, new(true), template.SecurityContext.RunAsNonRoot)

	rejected := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	require.NoError(t, w.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: map[string]string{pods.ComponentLabel: component, labelPipelineRun: run.Name}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "step-look", State: rejected}, {Name: "sidecar"}}},
	}))
	made, err := tests.Runs(t.Context())
	require.NoError(t, err)
	require.Len(t, made, 1)
	assert.Equal(t, map[string]string{"of": "worker-aaaa", mcfgv1.AnnotationBuildSecrets: ""}, made[0].Annotations)
	found, err := tests.Pods(t.Context(), w.Client, &made[0])
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, []corev1.ContainerStatus{{Name: "look", State: rejected}}, found[0].Status.ContainerStatuses)
	assert.Equal(t, corev1.PodFailed, found[0].Status.Phase, "the run has failed already")

	require.NoError(t, tests.Delete(t.Context(), &made[0]))
	assert.Empty(t, w.runs())
	w.missing = errors.New("Tekton is not installed")
	_, err = tests.Runs(t.Context())
	require.True(t, fault.IsWaiting(err))
	require.True(t, fault.IsWaiting(tests.Create(t.Context(), asJob(), "ours")))
}

func TestJobOf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status corev1.ConditionStatus
		reason string
		spec   tektonv1.PipelineRunSpecStatus
		want   []batchv1.JobCondition
	}{
		"not taken up": {},
		"runs":         {status: corev1.ConditionUnknown, reason: "Running"},
		"succeeded":    {status: corev1.ConditionTrue, reason: "Completed", want: []batchv1.JobCondition{{Type: batchv1.JobComplete, Reason: "Completed", Message: "it says"}}},
		"failed":       {status: corev1.ConditionFalse, reason: "Failed", want: []batchv1.JobCondition{{Type: batchv1.JobFailed, Reason: "Failed", Message: "it says"}}},
		"took too long": {
			status: corev1.ConditionFalse, reason: "PipelineRunTimeout",
			want: []batchv1.JobCondition{{Type: batchv1.JobFailed, Reason: batchv1.JobReasonDeadlineExceeded, Message: "it says"}},
		},
		"cancelled": {
			status: corev1.ConditionFalse, reason: "Cancelled", spec: tektonv1.PipelineRunSpecStatusCancelled,
			want: []batchv1.JobCondition{{Type: batchv1.JobFailed, Reason: "Cancelled", Message: "someone cancelled it"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := testRun(asJob(), "ours")
			run.Spec.Status = tt.spec
			if tt.status != "" {
				run.Status.Conditions = conditions(tt.status, tt.reason, "it says", t0)
			}
			for i := range tt.want {
				tt.want[i].Status, tt.want[i].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(t0)
			}
			job := jobOf(run)
			assert.Equal(t, tt.want, job.Status.Conditions)
			assert.Equal(t, new(int64(600)), job.Spec.ActiveDeadlineSeconds)
		})
	}
}
