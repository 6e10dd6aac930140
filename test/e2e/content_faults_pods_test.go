//go:build e2e

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// testContentSurvives has everything that goes wrong while content is built in pods happen at once,
// each to a pool of its own.
func testContentSurvives(t *testing.T) {
	t.Parallel()
	b := newPodBuilds(t, newBuilds(t))
	for name, test := range map[string]func(*testing.T, *podBuilds){
		"a pod that is evicted":                 testPodEvicted,
		"a Job that is deleted":                 testJobDeleted,
		"a MachineOSBuild that is deleted":      testBuildDeleted,
		"another Containerfile meanwhile":       testContentChanged,
		"a MachineOSConfig that is deleted":     testContentUnwanted,
		"a registry that fails while it pulls":  testPullsFail,
		"a registry that fails while it pushes": testPushesFail,
		"a push that is denied":                 testPushDenied,
		"a volume that is full":                 testVolumeFull,
		"a RUN line that takes too much memory": testOutOfMemory,
		"a RUN line that takes too long":        testTooLong,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// endedOutside is what is said of a pod that ended without a word.
const endedOutside = "it lost its pod, for example by a deletion, an eviction or a drain"

// testPodEvicted is what a drain does. The next attempt has everything anew.
func testPodEvicted(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.atGate(t, "evicted", "")
	pod := p.newest()
	require.NoError(t, b.clients.CoreV1().Pods(pod.Namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}))
	p.arrive()
	p.buildSays(status.Reconciling, "True RetryingBuild step build, instruction ")
	p.retries(endedOutside)
	assert.Contains(t, conditionText(p.only().Status.Conditions, status.Reconciling), "(attempt 2 of 4); the previous attempt: ")
	p.gate.open()
	p.requireBuilt(2)
	assert.Empty(t, p.gate.arrivals)
}

// testJobDeleted is how an administrator stops a build.
func testJobDeleted(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.atGate(t, "job-deleted", "")
	build := p.only()
	require.NoError(t, b.clients.BatchV1().Jobs(stack.Namespace).Delete(t.Context(), p.job().Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}))
	const said = "the Job or PipelineRun that built the image was deleted; annotate the MachineOSConfig with machineconfiguration.openshift.io/rebuild to build it"
	p.says(status.Stalled, "True BuilderDeleted build \""+build.Name+"\" was ended: "+said)
	assert.Equal(t, "True BuilderDeleted "+said, conditionText(p.only().Status.Conditions, status.BuildInterrupted))
	p.toldOf(build.Name, "BuildInterrupted", said)
	p.requireNothingRuns(build)
	assert.Len(t, p.seen.of("Job", build), 1, "no one builds against the administrator's will")

	p.gate.open()
	p.requireRebuilt()
	assert.NotEqual(t, build.UID, p.only().UID)
}

// testBuildDeleted is no way to stop a build: the image is still wanted.
func testBuildDeleted(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.atGate(t, "build-deleted", "")
	build, job := p.only(), p.job()
	require.NoError(t, b.Delete(t.Context(), build))
	p.arrive()
	again := p.only()
	assert.Equal(t, build.Name, again.Name)
	assert.NotEqual(t, build.UID, again.UID)
	assert.NotEqual(t, job.UID, p.job().UID, "what built it before is gone")
	p.gate.open()
	p.requireBuilt(1)
}

// testContentChanged has someone mend a Containerfile while it is built.
func testContentChanged(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.atGate(t, "content-changed", "; echo first > /usr/share/which")
	first := p.only()
	p.changeConfig(containing(p.containerfile("; echo second > /usr/share/which")))
	p.eventually(func(t *assert.CollectT) {
		build := &mcfgv1.MachineOSBuild{}
		require.NoError(t, b.Get(p.t.Context(), client.ObjectKeyFromObject(first), build))
		assert.True(t, strings.HasPrefix(conditionText(build.Status.Conditions, status.BuildInterrupted), "True Superseded build \"content-changed-"))
	})
	p.toldOf(first.Name, "BuildInterrupted", "build \"content-changed-")
	p.requireNothingRuns(first)
	p.arrive()
	p.gate.open()
	p.requireReady("one")
	pinned := string(p.config(t).Status.CurrentImagePullSpec)
	assert.Equal(t, "second\n", p.inLayers(pinned, "usr/share/which"))
	require.Len(t, p.machineOSImages(t.Context(), t), 1)
	assert.Len(t, p.seen.of("Job", first), 1)
	for tag := range p.tags() {
		assert.NotContains(t, tag, first.Status.BuildKey)
		assert.NotContains(t, tag, first.Status.ContentKey)
	}
}

// testContentUnwanted leaves nothing.
func testContentUnwanted(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.atGate(t, "content-unwanted", "")
	build := p.only()
	require.NoError(t, b.Delete(t.Context(), p.config(t)))
	p.eventually(func(t *assert.CollectT) { assert.Empty(t, p.machineOSBuilds(p.t.Context(), t)) })
	p.requireNothingRuns(build)
	assert.Empty(t, p.machineOSImages(t.Context(), t))
	assert.Empty(t, p.allTags())
}

// troubles are what a registry does wrong, one request after the other and more often than a step
// tries, so that another attempt is needed.
var troubles = []faultproxy.Fault{
	faultproxy.Answer(http.StatusInternalServerError, "UNKNOWN"), faultproxy.CutAnswer(0.5),
	faultproxy.Answer(http.StatusServiceUnavailable, "UNAVAILABLE"), faultproxy.CutRequest(0.5),
	faultproxy.Answer(http.StatusTooManyRequests, "TOOMANYREQUESTS", "Retry-After", "1"),
}

func testPullsFail(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.pool(t, "pull-fails")
	p.gate.open()
	base := p.copyBase(t, p.name)
	for _, fault := range troubles {
		p.breaking(faultproxy.Rule{Method: http.MethodGet, Path: base.blobs(), Client: byPod, Times: 1, Fault: fault})
	}
	p.ask("", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(base.pinned) })
	p.requireBuiltByOneJob()
}

func testPushesFail(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.pool(t, "push-fails")
	p.gate.open()
	for i, fault := range troubles {
		p.breaking(p.byPods([]moment{sendLayer, writeContent}[i%2], 1, fault))
	}
	p.ask("")
	p.requireBuiltByOneJob()
}

// testPushDenied is told by the registry when the content is there, which preflight can't know.
func testPushDenied(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.pool(t, "content-denied")
	p.gate.open()
	heal := p.breaking(p.byPods(beginUpload, 0, faultproxy.Answer(http.StatusForbidden, "DENIED")))
	p.ask("")
	build := p.only()
	p.failed(mcfgv1.ReasonPushDenied, "pushing "+p.host+"/builds/content-denied:content-")
	said := conditionText(p.only().Status.Conditions, status.BuildFailed)
	assert.Contains(t, said, ":content-"+p.only().Status.ContentKey+": the registry denies write access (")
	assert.Contains(t, said, "; check the push secret")
	assert.Len(t, p.seen.of("Pod", build), 1, "it is not tried again")
	require.Len(t, p.pods(), 1, "what failed stays, for someone to look at")
	heal()
	p.requireRebuilt()
}

// testVolumeFull has a RUN line write more than the build may store. The node finds out by and by,
// and evicts the pod.
func testVolumeFull(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.pool(t, "volume-full")
	p.layered.ask(containing("FROM os-base-image\nRUN head -c 100000000 /dev/zero > /usr/share/zeroes && "+p.gate.line+"\n"), small, retries(0), limited(corev1.ResourceEphemeralStorage, "48Mi"))
	p.failed(mcfgv1.ReasonRetryLimitReached, "the pod was evicted from node node")
	said := conditionText(p.only().Status.Conditions, status.BuildFailed)
	assert.Contains(t, said, `exceeds the limit "48Mi"`)
	assert.Contains(t, said, "if the build needs that much, raise ephemeral-storage or memory in spec.buildResources of the MachineOSConfig")
}

// testOutOfMemory has the kernel end a process of a RUN line, by the limit of its control group.
func testOutOfMemory(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.pool(t, "out-of-memory")
	p.layered.ask(containing("FROM os-base-image\nRUN head -c 900000000 /dev/zero | tail -c 800000000 > /dev/null\n"), small, retries(0), limited(corev1.ResourceMemory, "256Mi"))
	p.failed(mcfgv1.ReasonRetryLimitReached, "Containerfile line 2: RUN head -c 900000000 /dev/zero | tail -c 800000000 > /dev/null: exit status 137: "+
		"the build ran out of memory: raise memory in spec.buildResources.limits of the MachineOSConfig\nKilled")
}

// testTooLong has a RUN line that never ends.
func testTooLong(t *testing.T, b *podBuilds) {
	t.Helper()
	p := b.pool(t, "too-long")
	p.ask("", retries(0), func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildTimeout = "1m" })
	p.failed(mcfgv1.ReasonTimedOut, "") // which step it was, the machine's load decides, and whether kubelet says so in time
	said := conditionText(p.only().Status.Conditions, status.BuildFailed)
	assert.Regexp(t, `^True TimedOut (step (fetch|build)|the attempt) took longer than 1m0s, which is spec\.buildTimeout of the MachineOSConfig: `+
		`raise it, or find out what takes so long`, said)
}
