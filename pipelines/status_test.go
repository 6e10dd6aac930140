package pipelines

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// scene is a build as the API server has it.
type scene struct {
	t *testing.T
	facts
}

func newScene(t *testing.T, architectures ...mcfgv1.Architecture) *scene {
	t.Helper()
	if len(architectures) == 0 {
		architectures = []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64}
	}
	run := runOf(t, plainSpec(architectures...))
	run.UID, run.CreationTimestamp = types.UID(run.Name), metav1.NewTime(t0)
	return &scene{t: t, facts: facts{
		Facts: pods.Facts{Now: t0, Warnings: map[types.UID]string{}, Missing: map[types.UID][]pods.Object{}}, runs: []tektonv1.PipelineRun{*run},
	}}
}

func (s *scene) at(after time.Duration) *scene {
	s.Now = t0.Add(after)
	return s
}

func conditions(status corev1.ConditionStatus, reason, message string, at time.Time) []apis.Condition {
	return []apis.Condition{{
		Type: apis.ConditionSucceeded, Status: status, Reason: reason, Message: message,
		LastTransitionTime: apis.VolatileTime{Inner: metav1.NewTime(at)},
	}}
}

// says has Tekton say something of the newest run.
func (s *scene) says(status corev1.ConditionStatus, reason, message string) *scene {
	run := s.newest()
	run.Status.Conditions = conditions(status, reason, message, s.Now)
	if status != corev1.ConditionUnknown {
		run.Status.CompletionTime = &metav1.Time{Time: s.Now}
	}
	return s
}

func (s *scene) run(change func(*tektonv1.PipelineRun)) *scene {
	change(s.newest())
	return s
}

func ownedBy(o metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "tekton.dev/v1", Kind: "Run", Name: o.GetName(), UID: o.GetUID(), Controller: new(true)}
}

// task adds a TaskRun of the newest run.
func (s *scene) task(name, architecture string, status corev1.ConditionStatus, reason, message string) *scene {
	run := s.newest()
	task := tektonv1.TaskRun{ObjectMeta: metav1.ObjectMeta{
		Name: run.Name + "-" + name + architecture, Namespace: namespace, UID: types.UID(run.Name + "-" + name + architecture),
		OwnerReferences: []metav1.OwnerReference{ownedBy(run)},
		Labels:          map[string]string{labelPipelineRun: run.Name, labelPipelineTask: name},
	}}
	if architecture != "" {
		task.Spec.Params = tektonv1.Params{{Name: paramArchitecture, Value: *tektonv1.NewStructuredValues(architecture)}}
	}
	task.Status.Conditions = conditions(status, reason, message, s.Now)
	if name == taskBuild {
		for _, step := range backend.Steps() {
			task.Status.Steps = append(task.Status.Steps, tektonv1.StepState{Name: string(step)})
		}
	}
	s.tasks = append(s.tasks, task)
	return s
}

// pod adds the pod of the last TaskRun, with its steps in the order in which the kubelet lists
// containers.
func (s *scene) pod(changes ...func(*corev1.Pod)) *scene {
	task := &s.tasks[len(s.tasks)-1]
	task.Status.PodName = task.Name + "-pod"
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: task.Status.PodName, UID: types.UID(task.Status.PodName), Namespace: namespace, Labels: map[string]string{labelTaskRun: task.Name}, CreationTimestamp: metav1.NewTime(t0),
			OwnerReferences: []metav1.OwnerReference{ownedBy(task)},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	steps := []string{"step-fetch", "step-build", "step-export", "step-push"}
	if task.Labels[labelPipelineTask] != taskBuild {
		steps = []string{"step-" + task.Labels[labelPipelineTask]}
	}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "prepare", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	for _, name := range steps {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{{ // not in their order
			Name: name, ImageID: "ghcr.io/layerwright/builder@" + digest, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0.Add(10 * time.Second))}},
		}}, pod.Status.ContainerStatuses...)
	}
	for _, change := range changes {
		change(&pod)
	}
	s.Pods = append(s.Pods, pod)
	return s
}

func terminates(step backend.Step, code int32, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[i]; s.Name == stepPrefix+string(step) {
				s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: code, Message: message, StartedAt: metav1.NewTime(t0.Add(10 * time.Second)), FinishedAt: metav1.NewTime(t0.Add(time.Minute)),
				}}
			}
		}
	}
}

// leaves has Tekton keep what a step of the last TaskRun has said of its failure, now.
func (s *scene) leaves(step backend.Step, failure *backend.StepFailure) *scene {
	task := &s.tasks[len(s.tasks)-1]
	task.Status.StartTime = &metav1.Time{Time: t0}
	code := int32(backend.ExitInfrastructure)
	if failure.Class == fault.Terminal {
		code = backend.ExitAdmin
	}
	text, err := (&backend.Report{Step: step, Failure: failure}).EncodeForTekton()
	require.NoError(s.t, err)
	for i := range task.Status.Steps {
		if task.Status.Steps[i].Name == string(step) {
			task.Status.Steps[i].Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Message: string(text), FinishedAt: metav1.NewTime(s.Now)}
		}
	}
	return s
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// reports is what Tekton's program leaves with the report of a step in it.
func reports(t *testing.T, r *backend.Report) string {
	t.Helper()
	text, err := r.EncodeForTekton()
	require.NoError(t, err)
	var entries []json.RawMessage
	require.NoError(t, json.Unmarshal(text, &entries))
	entries = append(entries, json.RawMessage(`{"key":"StartedAt","value":"2026-11-21T12:00:10.000Z","type":3}`))
	text, err = json.Marshal(entries)
	require.NoError(t, err)
	return string(text)
}

func allPushed(t *testing.T, image string) []func(*corev1.Pod) {
	t.Helper()
	return []func(*corev1.Pod){
		terminates(backend.Fetch, 0, reports(t, &backend.Report{Step: backend.Fetch, Pulled: []backend.PulledImage{{Name: "base", Image: pushed}}})),
		terminates(backend.Build, 0, reports(t, &backend.Report{Step: backend.Build})), terminates(backend.Export, 0, reports(t, &backend.Report{Step: backend.Export})),
		terminates(backend.Push, 0, reports(t, &backend.Report{Step: backend.Push, Image: image})), phase(corev1.PodSucceeded),
	}
}

func results(pairs ...string) func(*tektonv1.PipelineRun) {
	return func(run *tektonv1.PipelineRun) {
		for i := 0; i < len(pairs); i += 2 {
			run.Status.Results = append(run.Status.Results, tektonv1.PipelineRunResult{Name: pairs[i], Value: *tektonv1.NewStructuredValues(pairs[i+1])})
		}
	}
}

const (
	unknown = corev1.ConditionUnknown
	no      = corev1.ConditionFalse
	yes     = corev1.ConditionTrue
)

func TestStateOfARun(t *testing.T) {
	t.Parallel()
	failing := `RUN false: exit code 1 (Containerfile line 3)`
	fails := func(t *testing.T) func(*corev1.Pod) { //nolint:thelper // a case, not a helper
		return terminates(backend.Build, backend.ExitAdmin, reports(t, &backend.Report{Step: backend.Build, Failure: &backend.StepFailure{
			Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: failing,
		}}))
	}
	const none = fault.Class(-1)
	for name, test := range map[string]struct {
		scene func(t *testing.T, s *scene)
		phase backend.Phase
		// class and reason are those of the failure; none where there is none.
		class   fault.Class
		reason  string
		message string
	}{
		"nothing was made":           {func(_ *testing.T, s *scene) { s.runs = nil }, backend.Absent, none, "", ""},
		"Tekton has not seen it yet": {func(*testing.T, *scene) {}, backend.Pending, none, "", "has been made"},
		"Tekton does not take it up": {func(_ *testing.T, s *scene) { s.at(time.Minute) }, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "tekton-pipelines-controller"},
		"a queueing system holds it": {func(_ *testing.T, s *scene) {
			s.run(func(r *tektonv1.PipelineRun) { r.Spec.Status = tektonv1.PipelineRunSpecStatusPending })
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "is pending"},
		"preflight runs": {func(_ *testing.T, s *scene) {
			s.says(unknown, "Running", "").task("preflight", "", unknown, "Running", "").pod()
		}, backend.Running, none, "", "preflight asks"},
		"a step runs": {func(_ *testing.T, s *scene) {
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "Running", "").pod(terminates(backend.Fetch, 0, ""))
		}, backend.Running, none, "", "step build"},
		"the pod is refused": {func(_ *testing.T, s *scene) {
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "ExceededResourceQuota", "no quota")
		}, backend.Running, fault.Waiting, mcfgv1.ReasonWaiting, "no quota"},
		"a policy refuses the pod": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("inspect", "", no, "PodCreationFailed", `failed to create task run pod "x": pods "x-pod" is forbidden: ValidatingAdmissionPolicy 'layerwright-pipeline-secrets' denied request: not: key. Maybe invalid TaskSpec`)
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "refuses to create the pod of task inspect: failed to create"},
		"a policy refuses a pod after the build": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.says(no, "Failed", "").task("build", "amd64", yes, "Succeeded", "").pod(allPushed(t, pushed)...)
			s.task("inspect", "", no, "PodCreationFailed", `pods "x-pod" is forbidden: ValidatingAdmissionPolicy 'p' denied request`)
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonInvalid, "the pod of task inspect"},
		"a webhook refuses the pod": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "PodCreationFailed", `failed to create task run pod "x": admission webhook "p.example.com" denied the request: no`)
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "denied the request"},
		"a quota wants limits": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "PodCreationFailed", `pods "x-pod" is forbidden: failed quota: compute: must specify limits.cpu for: step-build. Maybe missing or invalid Task os/t`)
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, `ResourceQuota "compute" of namespace "layerwright" counts limits.cpu, which not every container has: set spec.buildResources.limits.cpu`},
		"a LimitRange refuses the pod": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "PodCreationFailed", `pods "x-pod" is forbidden: maximum memory usage per Container is 1Gi, but limit is 4Gi`)
			s.LimitRanges = []string{"sizes"}
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, `LimitRange "sizes" of namespace "layerwright": maximum memory per Container is 1Gi`},
		"a quota was used up until the time was over": {func(_ *testing.T, s *scene) {
			s.says(no, "PipelineRunTimeout", "failed to finish").task("build", "amd64", no, "TaskRunCancelled", "")
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "no pod was made in that time"},
		"OpenShift refuses the pod": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "PodAdmissionFailed", `pods "x-pod" is forbidden: unable to validate against any security context constraint`)
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "security context constraint"},
		"the pod could not be made": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "PodCreationFailed", `failed to create task run pod "x": etcdserver: request timed out. Maybe invalid TaskSpec`)
		}, backend.Running, fault.Transient, mcfgv1.ReasonRetryingBuild, "attempt 2 of 4"},
		"Tekton stops after the pod ends": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "Running", "").pod(allPushed(t, pushed)...).at(time.Hour)
		}, backend.Running, fault.Waiting, mcfgv1.ReasonWaiting, "Tekton does not continue"},
		"its image can't be pulled": {func(_ *testing.T, s *scene) {
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "TaskRunImagePullFailed", "").pod(phase(corev1.PodPending), func(p *corev1.Pod) {
				p.Status.ContainerStatuses = nil
				p.Status.InitContainerStatuses[0] = corev1.ContainerStatus{Name: "prepare", Image: "tekton/entrypoint", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off"},
				}}
			})
		}, backend.Pending, fault.Waiting, mcfgv1.ReasonWaiting, "tekton/entrypoint"},
		"a RUN line failed": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.says(no, "Failed", "").task("build", "amd64", no, "StepFailed", "").pod(fails(t), terminates(backend.Export, 1, ""), phase(corev1.PodFailed))
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, failing},
		"a RUN line failed, and Tekton has not said so": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "Running", "").pod(fails(t))
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, failing},
		"a RUN line failed, and the pod is gone": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "StepFailed", "exited with code 42")
			s.tasks[0].Status.Steps = []tektonv1.StepState{{Name: "build", ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 42}}}}
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, "step build failed"},
		"a node lost a step, and the pod is gone": {func(_ *testing.T, s *scene) {
			s.run(func(r *tektonv1.PipelineRun) { r.Annotations[mcfgv1.AnnotationBuildAttempt] = "4" })
			s.says(no, "Failed", "").task("build", "amd64", no, "StepFailed", "exited with code 255: Unknown")
			s.tasks[0].Status.Steps = []tektonv1.StepState{
				{Name: "fetch", ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}},
				{Name: "build", ContainerState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 255, Reason: "Unknown"}}},
			}
		}, backend.Failed, fault.Transient, mcfgv1.ReasonRetryLimitReached, "the last: the node of task build lost step build, for example by a restart"},
		"preflight may not push": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.says(no, "Failed", "").task("preflight", "", no, "StepFailed", "").pod(phase(corev1.PodFailed), terminates(backend.Preflight, backend.ExitAdmin, reports(t, &backend.Report{
				Step: backend.Preflight, Failure: &backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonPushDenied, Message: "denied"},
			})))
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonPushDenied, "denied"},
		"a node was lost": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "Failed", "").pod(phase(corev1.PodFailed), func(p *corev1.Pod) { p.Status.Reason = pods.ReasonNodeLost })
		}, backend.Running, fault.Transient, mcfgv1.ReasonRetryingBuild, "attempt 2 of 4 follows"},
		"its pod was deleted": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "Failed", `"step-build" exited with code 43`).leaves(backend.Build, &backend.StepFailure{
				Class: fault.Transient, Reason: mcfgv1.ReasonInterrupted, At: "RUN dnf install x (Containerfile line 3)",
			})
		}, backend.Running, fault.Transient, mcfgv1.ReasonRetryingBuild, "attempt 2 of 4"},
		"its time was over, and its pod is gone": {func(_ *testing.T, s *scene) {
			s.at(2*time.Hour).says(no, "Failed", "").task("build", "amd64", no, "Failed", "").leaves(backend.Build, &backend.StepFailure{
				Class: fault.Transient, Reason: mcfgv1.ReasonInterrupted, At: "RUN dnf install x (Containerfile line 3)",
			})
		}, backend.Running, fault.Transient, mcfgv1.ReasonTimedOut, "attempt 2 of 4"},
		"its time was over, and its pod has not ended yet": {func(_ *testing.T, s *scene) {
			s.at(2*time.Hour).says(no, "Failed", "").task("build", "amd64", no, "Failed", "").leaves(backend.Build, &backend.StepFailure{
				Class: fault.Transient, Reason: mcfgv1.ReasonInterrupted, At: "RUN dnf install x (Containerfile line 3)",
			}).pod(phase(corev1.PodRunning))
		}, backend.Running, fault.Transient, mcfgv1.ReasonTimedOut, "attempt 2 of 4"},
		"a RUN line failed, and what it said is kept": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "Failed", "").leaves(backend.Build, &backend.StepFailure{
				Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: failing,
			})
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, failing},
		"Tekton's webhook takes no tasks": {func(_ *testing.T, s *scene) {
			s.says(unknown, "Running", "").Warnings[s.newest().UID] = webhookIsAway().Error()
		}, backend.Running, fault.Waiting, mcfgv1.ReasonWaiting, "see that the Deployment tekton-pipelines-webhook runs"},
		"it took too long": {func(_ *testing.T, s *scene) { s.says(no, "PipelineRunTimeout", "too long") }, backend.Running, fault.Transient, mcfgv1.ReasonTimedOut, "attempt 2 of 4"},
		"a task took too long": {func(_ *testing.T, s *scene) {
			s.says(no, "Failed", "").task("build", "amd64", no, "TaskRunTimeout", "too long")
		}, backend.Running, fault.Transient, mcfgv1.ReasonTimedOut, "attempt 2 of 4"},
		"the last attempt failed": {func(_ *testing.T, s *scene) {
			s.run(func(r *tektonv1.PipelineRun) { r.Annotations[mcfgv1.AnnotationBuildAttempt] = "4" }).says(no, "Failed", "who knows")
		}, backend.Failed, fault.Transient, mcfgv1.ReasonRetryLimitReached, "4 attempts failed"},
		"someone cancelled it": {func(_ *testing.T, s *scene) {
			s.run(func(r *tektonv1.PipelineRun) { r.Spec.Status = tektonv1.PipelineRunSpecStatusCancelled }).says(no, "Cancelled", "").task("build", "amd64", no, "TaskRunCancelled", "")
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonInterrupted, "someone cancelled"},
		"the Pipeline is gone":     {func(_ *testing.T, s *scene) { s.says(no, "CouldntGetPipeline", "not found") }, backend.Failed, fault.Terminal, mcfgv1.ReasonInvalid, "correct the Pipeline"},
		"a workspace is not bound": {func(_ *testing.T, s *scene) { s.says(no, "InvalidWorkspaceBindings", "") }, backend.Failed, fault.Terminal, mcfgv1.ReasonInvalid, "InvalidWorkspaceBindings"},
		"it succeeded": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.task("build", "amd64", yes, "Succeeded", "").pod(allPushed(t, pushed)...).run(results(resultDigest, digest)).says(yes, "Succeeded", "")
		}, backend.Succeeded, none, "", ""},
		"it succeeded, without pod": {func(_ *testing.T, s *scene) {
			s.task("build", "amd64", yes, "Succeeded", "").run(results(resultDigest, digest)).says(yes, "Succeeded", "")
		}, backend.Succeeded, none, "", ""},
		"it succeeded, without result": {func(_ *testing.T, s *scene) {
			s.task("build", "amd64", yes, "Succeeded", "").says(yes, "Succeeded", "")
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, "name no image of"},
		"it succeeded, with a result that is no digest": {func(_ *testing.T, s *scene) {
			s.task("build", "amd64", yes, "Succeeded", "").run(results(resultDigest, "sha256:other")).says(yes, "Succeeded", "")
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, "name no image of"},
		"it succeeded, and nothing was built": {func(_ *testing.T, s *scene) {
			s.run(results(resultDigest, digest)).says(yes, "Succeeded", "")
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, "without a task build for AMD64 that has the step push"},
		"it succeeded, and no step pushed": {func(_ *testing.T, s *scene) {
			s.task("build", "amd64", yes, "Succeeded", "").run(results(resultDigest, digest)).says(yes, "Succeeded", "")
			s.tasks[0].Status.Steps = s.tasks[0].Status.Steps[:3]
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, "has to keep the contract"},
		"the push is denied while the build runs": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "Running", "").pod()
			s.task("preflight", "", unknown, "Running", "").pod(terminates(backend.Preflight, backend.ExitAdmin, reports(t, &backend.Report{
				Step: backend.Preflight, Failure: &backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonPushDenied, Message: "denied"},
			})))
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonPushDenied, "denied"},
		"preflight could not ask, while the build runs": {func(_ *testing.T, s *scene) {
			s.says(unknown, "Running", "").task("build", "amd64", unknown, "Running", "").pod()
			s.task("preflight", "", no, "StepFailed", "").pod(phase(corev1.PodFailed), terminates(backend.Preflight, backend.ExitInfrastructure, ""))
		}, backend.Running, none, "", "step fetch"},
		"it names what was not pushed": {func(t *testing.T, s *scene) { //nolint:thelper // a case, not a helper
			s.task("build", "amd64", yes, "Succeeded", "").pod(allPushed(t, "registry.example.com/os/worker@sha256:other")...).run(results(resultDigest, digest)).says(yes, "Succeeded", "")
		}, backend.Failed, fault.Terminal, mcfgv1.ReasonBuildFailed, "someone else writes the same tag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			test.scene(t, s)
			state := observe(&s.facts)
			assert.Equal(t, test.phase, state.Phase)
			text := state.Message
			if test.class == none {
				assert.Nil(t, state.Failure)
			} else if assert.NotNil(t, state.Failure) {
				assert.Equal(t, test.class, state.Failure.Class)
				assert.Equal(t, test.reason, state.Failure.Reason)
				assert.Equal(t, name == "someone cancelled it", state.Failure.IsCancelled)
				text += state.Failure.Message
			}
			assert.Contains(t, text, test.message)
			if state.Phase == backend.Succeeded {
				assert.Equal(t, pushed, state.Image)
				assert.Equal(t, "PipelineRun", state.Object.Kind)
				assert.NotEmpty(t, state.Related)
			}
		})
	}
}

func TestStateOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	other := "registry.example.com/os/worker@sha256:" + "f" + digest[len("sha256:")+1:]
	s := newScene(t, mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64)
	s.task("build", "amd64", yes, "Succeeded", "").task("build", "arm64", yes, "Succeeded", "")
	s.run(results(resultImages, pushed+","+other, resultDigest, "sha256:index")).says(yes, "Succeeded", "")
	state := observe(&s.facts)
	require.Equal(t, backend.Succeeded, state.Phase)
	assert.Empty(t, state.Image)
	require.Len(t, state.Architectures, 2)
	assert.EqualValues(t, pushed, state.Architectures[0].DigestedImagePushSpec)
	assert.EqualValues(t, other, state.Architectures[1].DigestedImagePushSpec)

	s = newScene(t, mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64)
	s.says(unknown, "Running", "").task("build", "amd64", unknown, "Running", "").pod()
	s.task("build", "arm64", no, "StepFailed", "").pod(phase(corev1.PodFailed), terminates(backend.Build, backend.ExitAdmin, ""))
	state = observe(&s.facts)
	assert.Equal(t, backend.Failed, state.Phase, "one that failed fails the build")
	assert.Equal(t, mcfgv1.ArchitectureARM64, state.Failure.Architecture)
}

// TestForgedReportsAreIgnored has what RUN lines can write where they run: it is the step build's,
// whatever it says.
func TestForgedReportsAreIgnored(t *testing.T) {
	t.Parallel()
	forged := reports(t, &backend.Report{Step: backend.Push, Image: "registry.example.com/os/worker@sha256:forged"})
	s := newScene(t).task("build", "amd64", yes, "Succeeded", "").pod(append(allPushed(t, pushed), terminates(backend.Build, 0, forged))...).
		run(results(resultDigest, digest)).says(yes, "Succeeded", "")
	state := observe(&s.facts)
	require.Equal(t, backend.Succeeded, state.Phase)
	assert.Equal(t, pushed, state.Image)
	for _, r := range state.Reports {
		assert.NotContains(t, r.Image, "forged")
	}
	// A result of a Task with the same content is none of ours either: its key can't be that of a
	// report.
	assert.Empty(t, backend.FromTekton(`[{"key":"IMAGE_DIGEST","value":"{\"step\":\"push\"}","type":1}]`))
}

func TestWhenTheNextAttemptIsDue(t *testing.T) {
	t.Parallel()
	s := newScene(t).at(time.Minute).says(no, "Failed", "who knows")
	assert.False(t, isDue(&s.facts))
	assert.Equal(t, firstPause, observe(&s.facts).After)
	assert.True(t, isDue(&s.at(time.Minute+firstPause).facts))
	s.run(func(r *tektonv1.PipelineRun) { r.Spec.Status = tektonv1.PipelineRunSpecStatusCancelled })
	assert.False(t, isDue(&s.facts), "what someone cancelled is not repeated")
}

// TestNoAnnotationHasARunRepeatedForEver has what someone can write who may change PipelineRuns.
func TestNoAnnotationHasARunRepeatedForEver(t *testing.T) {
	t.Parallel()
	s := newScene(t).says(no, "Failed", "who knows").run(func(r *tektonv1.PipelineRun) {
		r.Annotations[mcfgv1.AnnotationBuildAttempts] = "1000000000"
	})
	for attempt := range mostAttempts - 1 {
		assert.Positive(t, dueAt(s.newest()).Sub(s.Now), "attempt %d", attempt+2)
		require.True(t, isDue(&s.at(time.Hour).facts))
		again := next(s.newest())
		again.Status = s.newest().Status
		s.at(0)
		s.runs = append(s.runs, *again)
	}
	assert.False(t, isDue(&s.at(time.Hour).facts))
	s.newest().Annotations[mcfgv1.AnnotationBuildAttempt] = "64"
	assert.False(t, isDue(&s.facts))
}

func TestReportsInTektonsList(t *testing.T) {
	t.Parallel()
	long := &backend.Report{Step: backend.Build, Failure: &backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "it failed"}}
	for range 200 {
		long.Failure.Output = append(long.Failure.Output, `a line with "quotes" that JSON makes longer, twice`)
	}
	text, err := long.EncodeForTekton()
	require.NoError(t, err)
	assert.Less(t, len(text), 12<<10/5, "what the kubelet keeps for one of five containers")
	report, err := backend.ReadReport(backend.FromTekton(string(text)))
	require.NoError(t, err)
	assert.Equal(t, "it failed", report.Failure.Message)
	for _, other := range []string{"", "Error", `[]`, `{}`, "tknz:%%%", "tknz:AAAA"} {
		assert.Empty(t, backend.FromTekton(other))
	}
}
