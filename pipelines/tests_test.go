package pipelines

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/testjobs"
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

func (w *world) tests(c client.Client) *Tests {
	return NewTests(TestOptions{Namespace: namespace, Component: component, Client: c, Reader: w.Client, Presence: w, Ends: ends{}})
}

// ends has every container say the same in the end.
type ends struct{}

func (ends) End(_ context.Context, pod types.NamespacedName, container string) (string, error) {
	return "no /etc/motd in " + pod.Name + " " + container, nil
}

// taskOf is a TaskRun of a run that tests an image, whose UID the API server would have given.
func (w *world) taskOf(run *tektonv1.PipelineRun) *tektonv1.TaskRun {
	w.t.Helper()
	task := &tektonv1.TaskRun{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: run.Name + "-check", UID: types.UID("task of " + run.UID), OwnerReferences: []metav1.OwnerReference{ownedBy(run)},
		Labels: map[string]string{pods.ComponentLabel: component, labelPipelineRun: run.Name, labelPipelineTask: "check"},
	}}
	require.NoError(w.t, w.Create(w.t.Context(), task))
	return task
}

func (w *world) podOf(task *tektonv1.TaskRun, statuses ...corev1.ContainerStatus) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: task.Name + "-pod", OwnerReferences: []metav1.OwnerReference{ownedBy(task)},
			Labels: map[string]string{pods.ComponentLabel: component, labelPipelineRun: task.Labels[labelPipelineRun], labelTaskRun: task.Name},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: statuses},
	}
	require.NoError(w.t, w.Create(w.t.Context(), pod))
	return pod
}

func TestTestsRunPipelines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &tektonv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Name: "ours", Namespace: namespace}})
	tests := w.tests(cached{w.Client})
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
	task := w.taskOf(&run)
	w.podOf(task, corev1.ContainerStatus{Name: "step-look", State: rejected}, corev1.ContainerStatus{Name: "sidecar"})
	made, err := tests.Runs(t.Context())
	require.NoError(t, err)
	require.Len(t, made, 1)
	assert.Equal(t, map[string]string{"of": "worker-aaaa", mcfgv1.AnnotationBuildSecrets: ""}, made[0].Annotations)
	found, err := tests.Pods(t.Context(), w.Client, &made[0])
	require.NoError(t, err)
	require.Len(t, found, 1)
	rejected.Terminated.Message = "no /etc/motd in verify-worker-1-check-pod step-look"
	assert.Equal(t, []corev1.ContainerStatus{{Name: "look", State: rejected}}, found[0].Status.ContainerStatuses)
	assert.Equal(t, corev1.PodFailed, found[0].Status.Phase, "the run has failed already")

	require.NoError(t, tests.Delete(t.Context(), &made[0]))
	assert.Empty(t, w.runs())
	require.NoError(t, w.Delete(t.Context(), task))
	err = tests.Create(t.Context(), asJob(), "ours")
	require.True(t, fault.IsWaiting(err), "%v", err)
	require.ErrorContains(t, err, `pod "verify-worker-1-check-pod" on node "" of an earlier PipelineRun "verify-worker-1" is still there`)
	assert.Empty(t, w.runs())
	require.NoError(t, w.Delete(t.Context(), &found[0]))
	require.NoError(t, tests.Create(t.Context(), asJob(), "ours"))
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
			job := jobOf(run, nil)
			assert.Equal(t, tt.want, job.Status.Conditions)
			assert.Equal(t, new(int64(600)), job.Spec.ActiveDeadlineSeconds)
		})
	}
}

// TestWhatATestByTektonSaid has the verifier look at what Tekton shows of a test that failed.
func TestWhatATestByTektonSaid(t *testing.T) {
	t.Parallel()
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	fails := func(reason, message string, state corev1.ContainerState) func(*tektonv1.TaskRun) {
		return func(task *tektonv1.TaskRun) {
			task.Status.Conditions = conditions(no, reason, message, t0)
			if state.Terminated != nil {
				task.Status.Steps = []tektonv1.StepState{{Name: "look", ContainerState: state}}
			}
		}
	}
	gone := func(*corev1.Pod) bool { return false }
	kept := func(state corev1.ContainerState) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "step-look", State: state}}
			return true
		}
	}
	for name, tt := range map[string]struct {
		task  func(*tektonv1.TaskRun)
		pod   func(*corev1.Pod) bool
		class fault.Class
		says  string
	}{
		"its step failed": {
			fails("Failed", "", ended(1, "Error")), kept(ended(1, "Error")), fault.Terminal, `container "look" ended with exit code 1: no /etc/motd in `,
		},
		"its step failed, and its pod was deleted later": {
			fails("Failed", "", ended(1, "Error")), gone, fault.Terminal, `container "look" ended with exit code 1`,
		},
		"its pod was deleted": {
			fails("Failed", "", ended(143, "Error")), gone, fault.Transient, "PodDeleted: step look was ended with exit code 143, and the pod was deleted",
		},
		"its pod is being deleted": {
			fails("Failed", "", ended(255, "Error")), func(pod *corev1.Pod) bool {
				pod.Finalizers = []string{"test/it-stays"}
				return kept(ended(255, "Error"))(pod)
			}, fault.Transient, "PodDeleted: step look was ended with exit code 255",
		},
		"its step had too little memory": {
			fails("Failed", "", ended(137, "OOMKilled")), gone, fault.Terminal, `container "look" ended with exit code 137 (OOMKilled)`,
		},
		"what Tekton starts the pod with failed": {
			fails("Failed", "", corev1.ContainerState{}), func(pod *corev1.Pod) bool {
				pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "prepare", State: ended(1, "Error")}}
				return kept(corev1.ContainerState{})(pod)
			}, fault.Terminal, `container "prepare" ended with exit code 1: no /etc/motd in `,
		},
		"a policy refuses its pod": {
			fails("PodAdmissionFailed", "pods are forbidden", corev1.ContainerState{}), gone, fault.Terminal, "Tasks Completed: 1; task check: pods are forbidden (PodAdmissionFailed)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, &tektonv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Name: "ours", Namespace: namespace}})
			tests := w.tests(w.Client)
			require.NoError(t, tests.Create(t.Context(), asJob(), "ours"))
			w.says(no, "Failed", func(run *tektonv1.PipelineRun) { run.Status.Conditions[0].Message = "Tasks Completed: 1" })
			task := w.taskOf(&w.runs()[0])
			tt.task(task)
			require.NoError(t, w.Update(t.Context(), task))
			pod := w.podOf(task)
			if isThere := tt.pod(pod); isThere {
				require.NoError(t, w.Update(t.Context(), pod.DeepCopy()))
				require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(pod), pod.DeepCopy()))
				status := pod.Status
				require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
				pod.Status = status
				require.NoError(t, w.Status().Update(t.Context(), pod))
			}
			if len(pod.Finalizers) > 0 || len(pod.Status.ContainerStatuses) == 0 {
				require.NoError(t, w.Delete(t.Context(), pod))
			}
			// What is left of an earlier run of that name says nothing.
			alien := w.runs()[0].DeepCopy()
			alien.UID = "earlier"
			other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "earlier", Labels: map[string]string{pods.ComponentLabel: component, labelPipelineRun: alien.Name, labelTaskRun: task.Name},
				OwnerReferences: []metav1.OwnerReference{ownedBy(alien)},
			}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "step-look", State: ended(9, "Error")}}}}
			require.NoError(t, w.Create(t.Context(), other))

			made, err := tests.Runs(t.Context())
			require.NoError(t, err)
			require.Len(t, made, 1)
			found, err := tests.Pods(t.Context(), w.Client, &made[0])
			require.NoError(t, err)
			o := testjobs.Observe(&made[0], found, nil)
			assert.Equal(t, testjobs.Failed, o.Phase)
			assert.Equal(t, tt.class, o.Class, o.Text)
			assert.Contains(t, o.Text, tt.says)
		})
	}
}

// webhookIsAway is what the API server says when it can't reach Tekton's webhook.
func webhookIsAway() error {
	return apierrors.NewInternalError(errors.New(`failed calling webhook "webhook.pipeline.tekton.dev": failed to call webhook: no endpoints available`))
}

// away is a cluster in which nothing of Tekton's can be written.
func (w *world) away() client.Client {
	inner, is := w.Client.(client.WithWatch)
	require.True(w.t, is)
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, isRun := o.(*tektonv1.PipelineRun); isRun {
				return webhookIsAway()
			}
			return c.Create(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "PipelineRun" || fmt.Sprintf("%T", o) == "*v1.PipelineRun" {
				return webhookIsAway()
			}
			return c.Delete(ctx, o, options...)
		},
	})
}

func TestTestsWaitForTheWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &tektonv1.Pipeline{ObjectMeta: metav1.ObjectMeta{Name: "ours", Namespace: namespace}})
	tests := w.tests(w.away())
	for _, err := range []error{tests.Create(t.Context(), asJob(), "ours"), tests.Delete(t.Context(), asJob())} {
		require.True(t, fault.IsWaiting(err), "%v", err)
		assert.Equal(t, "VerificationPending", fault.Reason(err))
		assert.ErrorContains(t, err, "see that the Deployment tekton-pipelines-webhook runs")
	}
}
