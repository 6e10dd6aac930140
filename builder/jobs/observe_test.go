package jobs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// scene is a build as the API server has it.
type scene struct {
	t *testing.T
	facts
}

// newScene is a build of the architectures just after its Jobs were made.
func newScene(t *testing.T, architectures ...mcfgv1.Architecture) *scene {
	t.Helper()
	if len(architectures) == 0 {
		architectures = []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64}
	}
	isolations := make([]pods.Isolation, len(architectures))
	for i := range isolations {
		isolations[i] = pods.Isolation{Kind: backend.IsolationUserNamespace}
	}
	made, err := newObjects(testOptions(), plainSpec(architectures...), isolations)
	require.NoError(t, err)
	s := &scene{t: t, facts: facts{Facts: pods.Facts{Now: t0, Warnings: map[types.UID]string{}, Missing: map[types.UID][]pods.Object{}}}}
	for _, job := range made.jobs {
		job.UID, job.CreationTimestamp = types.UID(job.Name), metav1.NewTime(t0)
		s.jobs = append(s.jobs, *job)
	}
	return s
}

// at moves to a time after the Job was made.
func (s *scene) at(after time.Duration) *scene {
	s.Now = t0.Add(after)
	return s
}

func (s *scene) job(change func(*batchv1.Job)) *scene {
	change(&s.jobs[0])
	return s
}

func (s *scene) end(kind batchv1.JobConditionType, reason, message string) *scene {
	return s.job(func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(s.Now),
		})
	})
}

// pod adds a pod to the first Job.
func (s *scene) pod(changes ...func(*corev1.Pod)) *scene { return s.podOf(0, changes...) }

func (s *scene) podOf(job int, changes ...func(*corev1.Pod)) *scene {
	owner := &s.jobs[job]
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", owner.Name, len(s.Pods)), Namespace: namespace, CreationTimestamp: metav1.NewTime(s.Now),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   owner.Spec.Template.Spec,
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	pod.UID, pod.Spec.NodeName = types.UID(pod.Name), "node-1"
	for _, name := range []string{"fetch", "build"} {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, Image: image, State: buildertest.WaitingFor("PodInitializing", "")})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "push", Image: image, State: buildertest.WaitingFor("PodInitializing", "")}}
	for _, change := range changes {
		change(&pod)
	}
	s.Pods = append(s.Pods, pod)
	return s
}

func report(t *testing.T, r *backend.Report) string {
	t.Helper()
	text, err := r.Encode()
	require.NoError(t, err)
	return string(text)
}

func (s *scene) reports(step backend.Step, code int32, f *backend.StepFailure) func(*corev1.Pod) {
	return buildertest.Ends(step, code, "Error", report(s.t, &backend.Report{Step: step, Failure: f}))
}

// silence is a node that does not answer.
func (s *scene) silence() *scene {
	s.Silent = map[string]bool{"node-1": true}
	return s
}

func unschedulable(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

func (s *scene) failed(count int32) *scene {
	return s.job(func(j *batchv1.Job) { j.Status.Failed = count })
}

func (s *scene) limit() *scene {
	return s.end(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
}

// TestEveryEnd has every way that a Job can end. How pods end is in builder/pods.
func TestEveryEnd(t *testing.T) {
	const lost = "done, and the digest is not known"
	admin := &backend.StepFailure{
		Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "Containerfile line 7: RUN dnf install foo: exit status 1",
		Output: []string{"Last metadata expiration check: 0:00:01 ago.", "No match for argument: foo"},
	}
	slow := &backend.StepFailure{Class: fault.Transient, Reason: "RegistryUnavailable", Message: `pulling "quay.io/x/y": the registry answers 503`}
	oom := buildertest.Ends(backend.Build, 137, "OOMKilled", "")
	for name, test := range map[string]struct {
		scene   func(*scene) *scene
		class   fault.Class
		reason  string
		message string
	}{
		"an administrator's error, before the Job knows": {
			func(s *scene) *scene { return s.pod(s.reports(backend.Build, 42, admin)) },
			fault.Terminal, mcfgv1.ReasonBuildFailed,
			"Containerfile line 7: RUN dnf install foo: exit status 1\nLast metadata expiration check: 0:00:01 ago.\nNo match for argument: foo",
		},
		"an administrator's error after others": {
			func(s *scene) *scene {
				return s.pod(oom).at(time.Minute).pod(s.reports(backend.Fetch, 42, &backend.StepFailure{Reason: mcfgv1.ReasonImageNotFound, Message: "no such image"})).
					end(batchv1.JobFailureTarget, batchv1.JobReasonPodFailurePolicy, "Container fetch failed with exit code 42")
			},
			fault.Terminal, mcfgv1.ReasonImageNotFound, "no such image",
		},
		"an administrator's error whose pod is gone": {
			func(s *scene) *scene {
				return s.failed(1).end(batchv1.JobFailed, batchv1.JobReasonPodFailurePolicy, "Container build for pod layerwright/build-worker-x failed with exit code 42 matching FailJob rule at index 0")
			},
			fault.Terminal, mcfgv1.ReasonBuildFailed,
			"a step failed, and its pod, which had the cause, was deleted: Container build for pod layerwright/build-worker-x failed with exit code 42 matching FailJob rule at index 0",
		},
		"retries used up": {
			func(s *scene) *scene {
				return s.failed(4).pod(oom).at(time.Minute).pod(s.reports(backend.Fetch, 43, slow)).limit()
			},
			fault.Transient, mcfgv1.ReasonRetryLimitReached, `4 attempts failed; the last: pulling "quay.io/x/y": the registry answers 503`,
		},
		"retries used up, before the Job knows": {
			func(s *scene) *scene {
				return s.failed(3).pod(oom).at(time.Minute).pod(oom).at(2 * time.Minute).pod(oom).at(3 * time.Minute).pod(s.reports(backend.Fetch, 43, slow))
			},
			fault.Transient, mcfgv1.ReasonRetryLimitReached, `4 attempts failed; the last: pulling "quay.io/x/y": the registry answers 503`,
		},
		"out of memory": {
			func(s *scene) *scene { return s.failed(1).pod(oom).limit() },
			fault.Transient, mcfgv1.ReasonRetryLimitReached,
			"step build used more than 4Gi of memory and was killed: raise memory in spec.buildResources.limits of the MachineOSConfig",
		},
		"an attempt took too long": {
			func(s *scene) *scene {
				return s.failed(4).pod(buildertest.Ends(backend.Build, 137, "Error", ""), buildertest.Fails("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")).limit()
			},
			fault.Transient, mcfgv1.ReasonTimedOut, "4 attempts failed; the last: step build took longer than 2h0m0s, which is spec.buildTimeout of the MachineOSConfig: raise it, or find out what takes so long",
		},
		"the Job's deadline, with no pod ever": {
			func(s *scene) *scene {
				return s.end(batchv1.JobFailureTarget, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			},
			fault.Transient, mcfgv1.ReasonTimedOut, "it did not finish within 32h0m0s, including all attempts and waiting",
		},
		"the Job's deadline after attempts": {
			func(s *scene) *scene {
				return s.failed(1).pod(oom).end(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			},
			fault.Transient, mcfgv1.ReasonTimedOut,
			"it did not finish within 32h0m0s, including all attempts and waiting; the last attempt: step build used more than 4Gi of memory and was killed: raise memory in spec.buildResources.limits of the MachineOSConfig",
		},
		"retries used up, and the pods are gone": {
			func(s *scene) *scene { return s.failed(4).limit() },
			fault.Transient, mcfgv1.ReasonRetryLimitReached,
			"the last of 4 attempts lost its pod, for example by a deletion, an eviction or a drain",
		},
		"a reason that no one knows yet": {
			func(s *scene) *scene { return s.end(batchv1.JobFailed, "Moonphase", "the moon is full") },
			fault.Transient, mcfgv1.ReasonRetryLimitReached, "the Job failed: the moon is full (Moonphase); its pods are gone",
		},
		lost: {
			func(s *scene) *scene {
				return s.pod(buildertest.Ends(backend.Push, 0, "Completed", "garbage")).end(batchv1.JobSuccessCriteriaMet, batchv1.JobReasonCompletionsReached, "")
			},
			fault.Transient, mcfgv1.ReasonRetryLimitReached,
			"the image was pushed, but its digest is unknown: the pod was deleted before its report was read, or left no report",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			state := observe(&test.scene(s).facts)
			require.Equal(t, backend.Failed, state.Phase)
			assert.Equal(t, &backend.Failure{Class: test.class, Reason: test.reason, Message: test.message, IsLost: name == lost}, state.Failure)
			assert.False(t, state.Ended.IsZero(), "the end has a time")
			assert.Zero(t, state.After)
			assert.Empty(t, state.Image)
		})
	}
}

func TestSuccessIsKnownFromThePod(t *testing.T) {
	s := newScene(t)
	s.pod(buildertest.Ends(backend.Build, 137, "OOMKilled", "")).at(time.Minute).pod(
		buildertest.Ends(backend.Fetch, 0, "Completed", report(t, &backend.Report{Step: backend.Fetch, Bytes: 60e6, Layers: 3})),
		buildertest.Ends(backend.Build, 0, "Completed", report(t, &backend.Report{Step: backend.Build, Layers: 2, Notes: []string{"chroot"}})),
		buildertest.Ends(backend.Push, 0, "Completed", report(t, &backend.Report{Step: backend.Push, Image: digest, Bytes: 2e6})),
	)
	state := observe(&s.facts)
	assert.Equal(t, backend.Succeeded, state.Phase, "the Job follows")
	assert.Equal(t, digest, state.Image)
	assert.Nil(t, state.Failure)
	assert.Equal(t, t0.Add(10*time.Second), state.Started)
	assert.Equal(t, t0.Add(time.Minute), state.Ended)
	assert.Equal(t, []string{"isolation: UserNamespace"}, state.Notes)
	require.Len(t, state.Reports, 3)
	assert.Equal(t, int64(60e6), state.Reports[0].Bytes)
	assert.Equal(t, &corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace, Name: "build-" + buildName, UID: s.jobs[0].UID}, state.Object)
}

// TestPulledImagesAreReportedByFetch has other steps, which lines of other people's ran in or
// before, say something else.
func TestPulledImagesAreReportedByFetch(t *testing.T) {
	t.Parallel()
	sha := func(c string) string { return "sha256:" + strings.Repeat(c, 64) }
	good := []backend.PulledImage{
		{Name: "registry.example.com/base@" + sha("a"), Manifest: sha("b")},
		{Name: "registry.example.com/tools:1", Image: "registry.example.com/tools@" + sha("c")},
	}
	forged := []backend.PulledImage{{Name: "registry.example.com/forged:1", Image: "registry.example.com/forged@" + sha("f"), Manifest: sha("f")}}
	want := func(architecture mcfgv1.Architecture) []mcfgv1.PulledImage {
		return []mcfgv1.PulledImage{
			{Name: good[0].Name, Image: good[0].Name, Architecture: architecture, ManifestDigest: sha("b")},
			{Name: good[1].Name, Image: good[1].Image, Architecture: architecture},
		}
	}
	fetch := report(t, &backend.Report{Step: backend.Fetch, Pulled: good, PulledMissing: 2})
	tests := map[string]struct {
		fetch, build, push string
		want               []mcfgv1.PulledImage
	}{
		"fetch alone says it":   {fetch, report(t, &backend.Report{Step: backend.Build}), report(t, &backend.Report{Step: backend.Push, Image: digest}), want("AMD64")},
		"the build step says":   {fetch, report(t, &backend.Report{Step: backend.Build, Pulled: forged}), report(t, &backend.Report{Step: backend.Push, Image: digest}), want("AMD64")},
		"in the name of fetch":  {fetch, report(t, &backend.Report{Step: backend.Fetch, Pulled: forged}), report(t, &backend.Report{Step: backend.Push, Image: digest}), want("AMD64")},
		"the push step says":    {fetch, "", report(t, &backend.Report{Step: backend.Push, Image: digest, Pulled: forged, PulledMissing: 9}), want("AMD64")},
		"a builder from before": {`{"step":"fetch","bytes":1}`, "", report(t, &backend.Report{Step: backend.Push, Image: digest}), nil},
		"no report of fetch":    {"", "", report(t, &backend.Report{Step: backend.Push, Image: digest}), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t).pod(buildertest.Ends(backend.Fetch, 0, "Completed", tt.fetch), buildertest.Ends(backend.Build, 0, "Completed", tt.build), buildertest.Ends(backend.Push, 0, "Completed", tt.push))
			state := observe(&s.facts)
			assert.Equal(t, backend.Succeeded, state.Phase)
			assert.Equal(t, tt.want, state.Pulled)
			assert.Equal(t, tt.want != nil, state.PulledMissing == 2)
		})
	}
	t.Run("several architectures", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64)
		for i := range 2 {
			s.podOf(i, buildertest.Ends(backend.Fetch, 0, "Completed", fetch), buildertest.Ends(backend.Push, 0, "Completed", tests["fetch alone says it"].push))
		}
		state := observe(&s.facts)
		assert.Equal(t, append(want("AMD64"), want("ARM64")...), state.Pulled)
		assert.Equal(t, 4, state.PulledMissing)
	})
	t.Run("nothing before it has succeeded", func(t *testing.T) {
		t.Parallel()
		assert.Empty(t, observe(&newScene(t).pod(buildertest.Ends(backend.Fetch, 0, "Completed", fetch), buildertest.Runs(backend.Build)).facts).Pulled)
	})
}

// TestUnfinishedJobs has what a Job does that has not ended. What its pod does is in builder/pods.
func TestUnfinishedJobs(t *testing.T) {
	for name, test := range map[string]struct {
		scene   func(*scene) *scene
		phase   backend.Phase
		reason  string
		message string
		looks   bool
	}{
		"no pod yet":     {func(s *scene) *scene { return s }, backend.Pending, "", "its pod is being made", true},
		"pushed already": {func(s *scene) *scene { return s.pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }) }, backend.Running, "", "the image has been pushed", true},
		"the second attempt": {
			func(s *scene) *scene {
				return s.failed(1).pod(buildertest.Ends(backend.Build, 137, "Error", "")).at(time.Minute).pod(buildertest.Runs(backend.Fetch))
			},
			backend.Running, mcfgv1.ReasonRetryingBuild, "step fetch (attempt 2 of 4)", false,
		},
		"between attempts": {
			func(s *scene) *scene { return s.failed(1).pod(buildertest.Ends(backend.Build, 137, "Error", "")) },
			backend.Running, mcfgv1.ReasonRetryingBuild, "attempt 2 of 4 follows", true,
		},
		"between attempts, and the pod is gone": {func(s *scene) *scene { return s.failed(1) }, backend.Running, mcfgv1.ReasonRetryingBuild, "attempt 2 of 4 follows", true},
		"an attempt after one whose pod is gone": {
			func(s *scene) *scene { return s.failed(1).pod(buildertest.Runs(backend.Fetch)) }, backend.Running, mcfgv1.ReasonRetryingBuild, "step fetch (attempt 2 of 4)", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := observe(&test.scene(newScene(t)).facts)
			assert.Equal(t, test.phase, state.Phase)
			assert.Equal(t, test.message, state.Message)
			assert.Equal(t, test.looks, state.After > 0)
			assert.True(t, state.Ended.IsZero())
			if test.reason == "" {
				assert.Nil(t, state.Failure)
			} else if assert.NotNil(t, state.Failure) {
				assert.Equal(t, test.reason, state.Failure.Reason)
				assert.Equal(t, fault.Transient, state.Failure.Class)
			}
		})
	}
}

func TestWhatABuildWaitsFor(t *testing.T) {
	for name, test := range map[string]struct {
		scene   func(*scene) *scene
		phase   backend.Phase
		reason  string
		message string
	}{
		"a quota or a policy": {
			func(s *scene) *scene {
				s.Warnings[s.jobs[0].UID] = `Error creating: pods "build-x" is forbidden: violates PodSecurity "restricted:latest"`
				return s
			},
			backend.Pending, mcfgv1.ReasonWaiting,
			`the cluster refuses to create the pod: Error creating: pods "build-x" is forbidden: violates PodSecurity "restricted:latest"; check quotas, policies and the security level of namespace "layerwright"`,
		},
		"a quota after an attempt": {
			func(s *scene) *scene {
				s.failed(1).pod(buildertest.Ends(backend.Build, 137, "Error", ""))
				s.Warnings[s.jobs[0].UID] = "exceeded quota"
				return s
			},
			backend.Pending, mcfgv1.ReasonWaiting,
			`the cluster refuses to create the pod: exceeded quota; check quotas, policies and the security level of namespace "layerwright"`,
		},
		"a queueing system": {
			func(s *scene) *scene {
				return s.job(func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
			},
			backend.Pending, mcfgv1.ReasonWaiting,
			`the Job "build-` + buildName + `" is suspended: a queueing system resumes it when there is capacity; to resume it now: kubectl patch job build-` + buildName + ` --type=merge -p '{"spec":{"suspend":false}}'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := observe(&test.scene(newScene(t)).facts)
			assert.Equal(t, test.phase, state.Phase)
			assert.Equal(t, &backend.Failure{Class: fault.Waiting, Reason: test.reason, Message: test.message}, state.Failure)
			assert.Positive(t, state.After, "no watch tells when it ends")
		})
	}
}

func TestABuildIsAbsent(t *testing.T) {
	t.Run("never made", func(t *testing.T) {
		assert.Equal(t, backend.State{Phase: backend.Absent}, observe(&facts{}))
	})
	t.Run("its Job is being deleted", func(t *testing.T) {
		s := newScene(t).job(func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.NewTime(t0)) })
		assert.Equal(t, backend.Absent, observe(&s.pod(buildertest.Runs(backend.Build)).facts).Phase)
	})
	t.Run("the Job of one architecture is gone", func(t *testing.T) {
		s := newScene(t, mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64).pod(buildertest.Runs(backend.Build))
		s.jobs = s.jobs[:1]
		assert.Equal(t, backend.Absent, observe(&s.facts).Phase)
	})
}

func TestSeveralArchitectures(t *testing.T) {
	both := []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64}
	pushed := func(t *testing.T) func(*corev1.Pod) {
		t.Helper()
		return buildertest.Ends(backend.Push, 0, "Completed", report(t, &backend.Report{Step: backend.Push, Image: digest}))
	}
	t.Run("all done", func(t *testing.T) {
		s := newScene(t, both...)
		state := observe(&s.podOf(0, pushed(t)).podOf(1, pushed(t)).facts)
		assert.Equal(t, backend.Succeeded, state.Phase)
		assert.Empty(t, state.Image, "each has its own")
		assert.Equal(t, []mcfgv1.ArchitectureBuild{
			{Architecture: "AMD64", State: mcfgv1.ArchitectureSucceeded, DigestedImagePushSpec: digest},
			{Architecture: "ARM64", State: mcfgv1.ArchitectureSucceeded, DigestedImagePushSpec: digest},
		}, state.Architectures)
		assert.Equal(t, []string{"amd64: isolation: UserNamespace", "arm64: isolation: UserNamespace"}, state.Notes)
	})
	t.Run("one failed, one runs", func(t *testing.T) {
		s := newScene(t, both...)
		s.podOf(0, buildertest.Runs(backend.Build)).podOf(1, s.reports(backend.Build, 42, &backend.StepFailure{Message: "line 7"}))
		state := observe(&s.facts)
		assert.Equal(t, backend.Failed, state.Phase)
		assert.Equal(t, &backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "line 7", Architecture: mcfgv1.ArchitectureARM64}, state.Failure)
		assert.Equal(t, mcfgv1.ArchitectureBuild{
			Architecture: "AMD64", State: mcfgv1.ArchitectureFailed, Message: "it was ended because the build for another architecture failed",
		}, state.Architectures[0])
		assert.Equal(t, mcfgv1.ArchitectureBuild{Architecture: "ARM64", State: mcfgv1.ArchitectureFailed, Message: "line 7"}, state.Architectures[1])
	})
	t.Run("one failed, the other was stopped for it", func(t *testing.T) {
		s := newScene(t, both...)
		s.podOf(1, s.reports(backend.Build, 42, &backend.StepFailure{Message: "line 7"}))
		s.jobs = s.jobs[1:]
		assert.Equal(t, backend.Failed, observe(&s.facts).Phase)
	})
	t.Run("one runs, one waits", func(t *testing.T) {
		s := newScene(t, both...)
		state := observe(&s.failed(1).podOf(0, buildertest.Ends(backend.Build, 137, "Error", "")).podOf(1, unschedulable("none")).facts)
		assert.Equal(t, backend.Running, state.Phase)
		assert.Equal(t, fault.Waiting, state.Failure.Class, "someone has to act on that")
		assert.Equal(t, mcfgv1.ArchitectureARM64, state.Failure.Architecture)
		assert.Equal(t, "amd64: attempt 2 of 4 follows", state.Message)
		assert.Equal(t, mcfgv1.ArchitecturePending, state.Architectures[1].State)
	})
	t.Run("one done, one runs", func(t *testing.T) {
		state := observe(&newScene(t, both...).podOf(0, pushed(t)).podOf(1, buildertest.Runs(backend.Fetch)).facts)
		assert.Equal(t, backend.Running, state.Phase)
		assert.Equal(t, "arm64: step fetch", state.Message)
	})
}

func TestPodsOfAnEarlierJobAreNotLookedAt(t *testing.T) {
	s := newScene(t).pod(buildertest.Ends(backend.Push, 0, "Completed", report(t, &backend.Report{Step: backend.Push, Image: digest})))
	s.jobs[0].UID = "another"
	assert.Equal(t, backend.Pending, observe(&s.facts).Phase)
}

func TestMessagesAreCutAndWithoutSecrets(t *testing.T) {
	s := newScene(t)
	text := "pulling https://admin:hunter2@registry.example.com/x?token=hunter2: " + strings.Repeat("x", 3000)
	s.pod(s.reports(backend.Fetch, 42, &backend.StepFailure{Message: text[:1500], Output: []string{"https://admin:hunter2@mirror"}}))
	message := observe(&s.facts).Failure.Message
	assert.NotContains(t, message, "hunter2")
	assert.LessOrEqual(t, len([]rune(message)), 1024)
}
