package pods

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestEndings has every way that a pod can fail, what it means, and what people are told.
func TestEndings(t *testing.T) {
	t.Parallel()
	const lines = "Containerfile line 7: RUN dnf install foo: exit status 1\nLast metadata expiration check: 0:00:01 ago.\nNo match for argument: foo"
	const at = "; it was at Containerfile line 7: RUN sleep 1d"
	const tooLong = "step build took longer than 2h0m0s, which is spec.buildTimeout of the MachineOSConfig: raise it, or find out what takes so long"
	const tooLarge = "step build used more than 4Gi of memory and was killed: raise memory in spec.buildResources.limits of the MachineOSConfig"
	admin := &backend.StepFailure{
		Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "Containerfile line 7: RUN dnf install foo: exit status 1",
		Output: []string{"Last metadata expiration check: 0:00:01 ago.", "No match for argument: foo"},
	}
	forged := func(reason string) *backend.StepFailure {
		return &backend.StepFailure{Reason: reason, Message: "forged"}
	}
	told := &backend.StepFailure{Class: fault.Transient, Reason: mcfgv1.ReasonInterrupted, Message: "it was told to end", At: "Containerfile line 7: RUN sleep 1d"}
	killed := buildertest.Ends(backend.Build, 137, "Error", "")
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		class   fault.Class
		reason  string
		message string
	}{
		"an administrator's error": {newPod(reports(t, backend.Build, 42, admin)), fault.Terminal, mcfgv1.ReasonBuildFailed, lines},
		"an administrator's error, before the pod has ended": {
			newPod(reports(t, backend.Build, 42, admin), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), fault.Terminal, mcfgv1.ReasonBuildFailed, lines,
		},
		"an image that does not exist": {newPod(reports(t, backend.Fetch, 42, forged(mcfgv1.ReasonImageNotFound))), fault.Terminal, mcfgv1.ReasonImageNotFound, "forged"},
		"a push that is denied":        {newPod(reports(t, backend.Push, 42, forged(mcfgv1.ReasonPushDenied))), fault.Terminal, mcfgv1.ReasonPushDenied, "forged"},
		"a reason that its step cannot have": {
			newPod(reports(t, backend.Build, 42, forged(mcfgv1.ReasonBuilderDeleted))), fault.Terminal, mcfgv1.ReasonBuildFailed, "forged",
		},
		"the reason of another step": {newPod(reports(t, backend.Build, 42, forged(mcfgv1.ReasonPushDenied))), fault.Terminal, mcfgv1.ReasonBuildFailed, "forged"},
		"a reason that is no reason": {newPod(reports(t, backend.Fetch, 42, forged("not one word"))), fault.Terminal, mcfgv1.ReasonBuildFailed, "forged"},
		"an administrator's error without a report": {
			newPod(buildertest.Ends(backend.Push, 42, "Error", "")), fault.Terminal, mcfgv1.ReasonBuildFailed, "step push ended with exit code 42 and no report",
		},
		"the exit code counts, not the report's class": {newPod(reports(t, backend.Build, 43, admin)), fault.Transient, mcfgv1.ReasonRetryingBuild, lines},
		"out of memory": {newPod(buildertest.Ends(backend.Build, 137, "OOMKilled", "")), fault.Transient, mcfgv1.ReasonRetryingBuild, tooLarge},
		"out of memory in a RUN line": {
			newPod(reports(t, backend.Build, 42, admin), func(p *corev1.Pod) { p.Status.InitContainerStatuses[1].State.Terminated.Reason = OOMKilled }),
			fault.Terminal, mcfgv1.ReasonBuildFailed, tooLarge + "; " + lines,
		},
		"out of memory, as the step itself has seen": {
			newPod(reports(t, backend.Build, 43, &backend.StepFailure{
				Message: "Containerfile line 7: RUN make: exit status 137: the build ran out of memory: " + backend.MoreMemory,
			}), func(p *corev1.Pod) { p.Status.InitContainerStatuses[1].State.Terminated.Reason = OOMKilled }), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"Containerfile line 7: RUN make: exit status 137: the build ran out of memory: raise memory in spec.buildResources.limits of the MachineOSConfig",
		},
		"told to end": {
			newPod(reports(t, backend.Build, 43, told)), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"step build was stopped, for example by a deletion, an eviction or a drain" + at,
		},
		"told to end in time": {
			newPod(reports(t, backend.Build, 43, told), beganAt(t0)), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"step build was stopped, for example by a deletion, an eviction or a drain" + at,
		},
		"its time was over, and the kubelet says nothing": {
			newPod(reports(t, backend.Build, 43, told), beganAt(t0.Add(-2*time.Hour))), fault.Transient, mcfgv1.ReasonTimedOut, tooLong + at,
		},
		"its time was over, and it said where it was": {
			newPod(reports(t, backend.Build, 43, told), buildertest.Fails("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")),
			fault.Transient, mcfgv1.ReasonTimedOut, tooLong + at,
		},
		"its time was over":                     {newPod(killed, buildertest.Fails("DeadlineExceeded", "")), fault.Transient, mcfgv1.ReasonTimedOut, tooLong},
		"its time was over before a step ended": {newPod(buildertest.Fails("DeadlineExceeded", "")), fault.Transient, mcfgv1.ReasonTimedOut, strings.Replace(tooLong, "step build", "the attempt", 1)},
		"killed by something else":              {newPod(killed), fault.Transient, mcfgv1.ReasonRetryingBuild, "step build was killed"},
		"ended from outside":                    {newPod(buildertest.Ends(backend.Build, 143, "Error", "")), fault.Transient, mcfgv1.ReasonRetryingBuild, "step build was ended by SIGTERM"},
		"a crash without a report": {
			newPod(buildertest.Ends(backend.Push, 2, "Error", `##layerwright {"step":"push","done":1}`+"\npanic: runtime error\n\ngoroutine 1 [running]:\n")),
			fault.Transient, mcfgv1.ReasonRetryingBuild, "step push ended with exit code 2 and no report:\npanic: runtime error\ngoroutine 1 [running]:",
		},
		"a report of another step is none": {
			newPod(buildertest.Ends(backend.Push, 43, "Error", `{"step":"build","failure":{"message":"lie"}}`)), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"step push ended with exit code 43 and no report:\n" + `{"step":"build","failure":{"message":"lie"}}`,
		},
		"a program that cannot be started": {
			newPod(buildertest.Ends(backend.Fetch, 128, "StartError", `exec: "/usr/bin/layerwright-builder": exec format error`)), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"step fetch ended with exit code 128 (StartError):\n" + `exec: "/usr/bin/layerwright-builder": exec format error`,
		},
		"a node that restarted": {
			newPod(buildertest.Ends(backend.Build, 137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")),
			fault.Transient, mcfgv1.ReasonRetryingBuild, "node node-1 lost step build, for example by a restart",
		},
		"a runtime that was killed": {
			newPod(buildertest.Ends(backend.Build, 255, "Unknown", "[1/2] FROM somewhere")), fault.Transient, mcfgv1.ReasonRetryingBuild, "node node-1 lost step build, for example by a restart",
		},
		"the disk is full": {
			newPod(killed, buildertest.Fails("Evicted", `Usage of EmptyDir volume "store" exceeds the limit "40Gi". `)), fault.Transient, mcfgv1.ReasonRetryingBuild,
			`the pod was evicted from node node-1: Usage of EmptyDir volume "store" exceeds the limit "40Gi"; ` +
				"if the build needs that much, raise ephemeral-storage or memory in spec.buildResources of the MachineOSConfig",
		},
		"evicted by a drain": {
			newPod(buildertest.Ends(backend.Build, 143, "Error", ""), buildertest.Disrupted("EvictionByEvictionAPI", "Eviction API: evicting")), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"the pod was ended on node node-1: Eviction API: evicting (EvictionByEvictionAPI)",
		},
		"the node stopped answering": {
			newPod(buildertest.Runs(backend.Build), buildertest.Deleted(t0), buildertest.Fails(ReasonNodeLost, ""), buildertest.Disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")),
			fault.Transient, mcfgv1.ReasonRetryingBuild, "node node-1 stopped answering while the build ran there",
		},
		"the node was deleted": {
			newPod(buildertest.Runs(backend.Build), buildertest.Fails("", ""), buildertest.Disrupted("DeletionByPodGC", "PodGC: node no longer exists")), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"the pod was ended on node node-1: PodGC: node no longer exists (DeletionByPodGC)",
		},
		"a node that refused the pod": {
			newPod(buildertest.Fails("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed")), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"node node-1 did not run the pod: Pod was rejected: Predicate NodeAffinity failed (NodeAffinity)",
		},
		"a node without room for the pod": {
			newPod(buildertest.Fails("OutOfmemory", "Node didn't have enough resource: memory")), fault.Transient, mcfgv1.ReasonRetryingBuild,
			"node node-1 did not run the pod: Node didn't have enough resource: memory (OutOfmemory)",
		},
		"a node that says nothing": {newPod(buildertest.Fails("Weird", "")), fault.Transient, mcfgv1.ReasonRetryingBuild, "node node-1 did not run the pod: no reason is given (Weird)"},
		"what a cluster puts before the steps failed": {
			newPod(buildertest.Fails("", ""), func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = append([]corev1.ContainerStatus{{Name: "vault-agent-init", State: buildertest.Ended(1, "Error", "no token")}}, p.Status.InitContainerStatuses...)
			}), fault.Transient, mcfgv1.ReasonRetryingBuild, "step vault-agent-init ended with exit code 1 and no report:\nno token",
		},
		"a sidecar was ended after the step": {
			newPod(reports(t, backend.Build, 42, admin), sidecar(buildertest.Ended(143, "Error", ""))), fault.Terminal, mcfgv1.ReasonBuildFailed, lines,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := EndingOf(tt.pod)
			require.NotNil(t, e)
			assert.Equal(t, &backend.Failure{Class: tt.class, Reason: tt.reason, Message: tt.message}, e.Failure)
		})
	}
}

func TestWhatIsNoEnding(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]*corev1.Pod{
		"it is being started":                 newPod(),
		"a step runs":                         newPod(buildertest.Ends(backend.Fetch, 0, "Completed", ""), buildertest.Runs(backend.Build)),
		"a step failed, and the pod runs yet": newPod(buildertest.Ends(backend.Build, 43, "Error", ""), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
		"it is being deleted":                 newPod(buildertest.Runs(backend.Build), buildertest.Deleted(t0)),
		"all steps have succeeded":            newPod(buildertest.Ends(backend.Push, 0, "Completed", ""), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		"a sidecar was ended":                 newPod(buildertest.Ends(backend.Push, 0, "Completed", ""), sidecar(buildertest.Ended(143, "Error", ""))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Nil(t, EndingOf(pod))
		})
	}
}

func TestEndingHasATime(t *testing.T) {
	t.Parallel()
	assert.Equal(t, t0.Add(time.Minute), EndingOf(newPod(buildertest.Ends(backend.Build, 43, "Error", ""))).At, "that of the step")
	assert.Equal(t, t0, EndingOf(newPod(buildertest.Fails(ReasonNodeLost, ""), buildertest.Deleted(t0))).At, "that of the deletion")
}

func TestLastFailureIsThatOfTheBuild(t *testing.T) {
	t.Parallel()
	last := backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryingBuild, "step build was killed")
	assert.Equal(t, backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryLimitReached, "step build was killed"), AfterAll(last, 1))
	assert.Equal(t, backend.NewFailure(fault.Transient, mcfgv1.ReasonRetryLimitReached, "4 attempts failed; the last: step build was killed"), AfterAll(last, 4))
	last.Reason = mcfgv1.ReasonTimedOut
	assert.Equal(t, mcfgv1.ReasonTimedOut, AfterAll(last, 2).Reason, "the time is what the administrator can change")
}
