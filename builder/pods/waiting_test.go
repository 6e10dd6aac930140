package pods

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestWaits has everything that keeps a pod from starting, and what people are told.
func TestWaits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		facts   Facts
		reason  string
		message string
	}{
		"a node": {
			newPod(without("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")),
			Facts{},
			mcfgv1.ReasonWaiting,
			"no node can run the build: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector; " +
				"change spec.buildPlacement or spec.buildResources of the MachineOSConfig, or add a node with the labels kubernetes.io/arch=amd64,kubernetes.io/os=linux",
		},
		"a secret": {
			newPod(waits(backend.Fetch, "ContainerCreating", "")), Facts{
				Missing:  map[types.UID][]Object{"pod": {{KindSecret, "push"}}},
				Warnings: map[types.UID]string{"pod": `MountVolume.SetUp failed for volume "push-secret"`},
			}, mcfgv1.ReasonWaitingForSecret, `secret "push" is not in namespace "layerwright"`,
		},
		"a ConfigMap": {
			newPod(),
			Facts{Missing: map[types.UID][]Object{"pod": {{KindConfigMap, "etc-yum-repos-d"}}}},
			mcfgv1.ReasonWaitingForConfigMap, `ConfigMap "etc-yum-repos-d" is not in namespace "layerwright"`,
		},
		"the image of the builder": {
			newPod(waits(backend.Fetch, "ImagePullBackOff", `Back-off pulling image "x": not found`)),
			Facts{},
			mcfgv1.ReasonWaiting,
			"node node-1 cannot pull the builder image " + builderImage + `: Back-off pulling image "x": not found (ImagePullBackOff)`,
		},
		"an image that the node may not run": {
			newPod(waits(backend.Push, "SignatureValidationFailed", "no signature")),
			Facts{},
			mcfgv1.ReasonWaiting,
			"node node-1 cannot pull the builder image " + builderImage + ": no signature (SignatureValidationFailed)",
		},
		"the image of a sidecar": {
			newPod(sidecar(buildertest.WaitingFor("ErrImagePull", "not found"))),
			Facts{},
			mcfgv1.ReasonWaiting,
			"node node-1 cannot pull the builder image proxy:1: not found (ErrImagePull)",
		},
		"a container's configuration": {
			newPod(buildertest.Ends(backend.Fetch, 0, "", ""), waits(backend.Build, "CreateContainerConfigError", `secret "x" not found`)),
			Facts{},
			mcfgv1.ReasonWaiting,
			`node node-1 cannot start step build: secret "x" not found (CreateContainerConfigError)`,
		},
		"a node that cannot make the pod": {
			newPod(),
			Facts{Warnings: map[types.UID]string{"pod": "Failed to create pod sandbox: user namespaces are not supported"}},
			mcfgv1.ReasonWaiting,
			"node node-1 cannot start the pod: Failed to create pod sandbox: user namespaces are not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &ArchitectureState{Phase: backend.Pending}
			o.Follow(&tt.facts, tt.pod, "attempt 1 of 4", false)
			assert.Equal(t, &backend.Failure{Class: fault.Waiting, Reason: tt.reason, Message: tt.message}, o.Failure)
			assert.Equal(t, backend.Pending, o.Phase, "it is no attempt")
			assert.Equal(t, WhileWaiting, o.After, "no watch tells when it ends")
		})
	}
}

// TestFollow has what a pod does that nothing keeps from it.
func TestFollow(t *testing.T) {
	t.Parallel()
	silent := Facts{Silent: map[string]bool{"node-1": true}, Now: t0}
	far := Facts{Progress: map[types.UID]backend.Progress{"pod": {Step: backend.Build, Done: 3, Total: 7, Now: "line 5: RUN dnf install foo\nand more"}}}
	fetched := buildertest.Ends(backend.Fetch, 0, "Completed", "")
	for name, tt := range map[string]struct {
		pod        *corev1.Pod
		facts      Facts
		isRepeated bool
		phase      backend.Phase
		message    string
		after      time.Duration
	}{
		"being scheduled":     {newPod(without("")), Facts{}, false, backend.Pending, "attempt 2 of 4 is being scheduled", Settling},
		"being started":       {newPod(), Facts{}, false, backend.Pending, "attempt 2 of 4 is being started on node node-1", Settling},
		"only a sidecar runs": {newPod(sidecar(buildertest.Running())), Facts{}, false, backend.Pending, "attempt 2 of 4 is being started on node node-1", Settling},
		"being fetched":       {newPod(buildertest.Runs(backend.Fetch)), Facts{}, false, backend.Running, "step fetch", 0},
		"between steps":       {newPod(fetched), Facts{}, false, backend.Running, "step build", 0},
		"being pushed": {
			newPod(fetched, buildertest.Ends(backend.Build, 0, "", ""), buildertest.Ends(backend.Export, 0, "", ""), buildertest.Runs(backend.Push)), Facts{}, false, backend.Running, "step push", 0,
		},
		"a sidecar runs beside": {newPod(fetched, buildertest.Runs(backend.Build), sidecar(buildertest.Running())), Facts{}, false, backend.Running, "step build", 0},
		"with progress":         {newPod(fetched, buildertest.Runs(backend.Build)), far, false, backend.Running, "step build, instruction 3 of 7: line 5: RUN dnf install foo", whileRunning},
		"progress of the step before": {
			newPod(fetched, buildertest.Ends(backend.Build, 0, "", ""), buildertest.Runs(backend.Export)), far, false, backend.Running, "step export", whileRunning,
		},
		"another attempt": {newPod(buildertest.Runs(backend.Fetch)), Facts{}, true, backend.Running, "step fetch (attempt 2 of 4)", 0},
		"being evicted": {
			newPod(buildertest.Runs(backend.Build), buildertest.Disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), buildertest.Deleted(t0)),
			Facts{},
			false, backend.Running,
			"a pod is being ended on node node-1: Eviction API: evicting; another attempt follows", WhileWaiting,
		},
		"being deleted": {newPod(buildertest.Runs(backend.Build), buildertest.Deleted(t0)), Facts{}, false, backend.Running, "a pod is being ended on node node-1; another attempt follows", WhileWaiting},
		"on a node that does not answer": {
			newPod(fetched, buildertest.Runs(backend.Build)), silent, false, backend.Running,
			"step build runs on node node-1, which does not answer; if that lasts, another attempt follows", whileRunning,
		},
		"being deleted on a node that does not answer": {
			newPod(buildertest.Runs(backend.Build), buildertest.Deleted(t0.Add(30*time.Second))), silent, false, backend.Running,
			"node node-1 does not answer; another attempt follows at 12:00:30 UTC, elsewhere", 30 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := &ArchitectureState{Phase: backend.Pending}
			o.Follow(&tt.facts, tt.pod, "attempt 2 of 4", tt.isRepeated)
			assert.Equal(t, &ArchitectureState{Phase: tt.phase, Message: tt.message, After: tt.after}, o)
		})
	}
}

func TestDeletedConfigMapIsMadeAgain(t *testing.T) {
	t.Parallel()
	o := &ArchitectureState{Related: []string{"instructions-x"}}
	o.Follow(&Facts{Missing: map[types.UID][]Object{"pod": {{KindConfigMap, "instructions-x"}}}}, newPod(), "attempt 1 of 4", false)
	assert.True(t, o.IsIncomplete)
	assert.Nil(t, o.Failure, "no person has to act")
	assert.Equal(t, `ConfigMap "instructions-x" was deleted; the controller creates it again`, o.Message)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ message, want string }{
		"a policy": {
			`pods "build-x" is forbidden: violates PodSecurity "restricted:latest".`,
			`pods "build-x" is forbidden: violates PodSecurity "restricted:latest"; check quotas, policies and the security level of namespace "layerwright"`,
		},
		"a quota": {
			`pods "build-x" is forbidden: failed quota: compute: must specify limits.cpu for: fetch`,
			`ResourceQuota "compute" of namespace "layerwright" counts limits.cpu, which not every container has: set spec.buildResources.limits.cpu of the MachineOSConfig`,
		},
		"nothing is said": {"", `no reason is given; check quotas, policies and the security level of namespace "layerwright"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, (&Facts{}).Refused("layerwright", tt.message))
		})
	}
}
