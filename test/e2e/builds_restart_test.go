//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// phases are the moments of a build at which the controller dies, one pool for each. Between the
// creation of a build and its begin nothing can be held: that moment is one of TestCrashesAnywhere
// in builder.
var phases = []struct {
	name string
	// at is the request at which the pool is held, the first but skip of them.
	at   moment
	skip int
	hold func() (faultproxy.Fault, *faultproxy.Held)
}{
	{name: "not-yet-a-build", at: askForImage, hold: faultproxy.HoldRequest},
	{name: "nothing-pushed", at: beginUpload, skip: 1, hold: faultproxy.HoldRequest}, // the first is preflight's
	{name: "uploading", at: sendLayer, hold: faultproxy.HoldAnswer},
	{name: "manifest-without-tag", at: writeTags, hold: faultproxy.HoldRequest},
	{name: "tagged", at: writeTags, skip: 1, hold: faultproxy.HoldAnswer},
	{name: "not-attested", at: attach, hold: faultproxy.HoldRequest},
	{name: "attested", at: attach, hold: faultproxy.HoldAnswer},
}

// testTheControllerDies in every phase of a build, and comes back.
func testTheControllerDies(t *testing.T) {
	b := newBuilds(t)
	for name, tt := range map[string]struct {
		// every is 1 for all phases, 3 for each third.
		every int
		kill  func(t *testing.T, pod *corev1.Pod)
	}{
		"its process is killed": {1, func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			signal(t, pod, syscall.SIGKILL)
		}},
		"its pod is deleted": {3, func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			require.NoError(t, clients(t).CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var pools []*layered
			var holds []*faultproxy.Held
			for i := 0; i < len(phases); i += tt.every {
				phase := phases[i]
				p := b.unasked(t, slug(name)+"-"+phase.name)
				pools = append(pools, p)
				fault, held := phase.hold()
				p.breaking(faultproxy.Rule{Method: phase.at.method, Path: p.path(phase.at.path), Skip: phase.skip, Fault: fault})
				p.ask()
				<-held.Arrived
				holds = append(holds, held)
			}
			uids := map[string]any{}
			for _, p := range pools[1:] {
				uids[p.name] = p.machineOSBuilds(t.Context(), t)[0].UID
			}
			require.Empty(t, pools[0].machineOSBuilds(t.Context(), t))

			pod := controllerPod(t)
			holder := leaseHolder(t)
			process := controllerProcess(t, pod)
			require.NotZero(t, process)
			tt.kill(t, pod)
			// Otherwise it goes on with what was held, and loses the events that it has not sent
			// yet.
			require.Eventually(t, func() bool { return controllerProcess(t, pod) != process }, buildPatience, buildTick)
			for _, held := range holds {
				held.Release()
			}
			for _, p := range pools {
				p.requireOneImage("one")
				assert.Len(t, p.told("BuildStarted"), 1)
				if uid, had := uids[p.name]; had {
					assert.Equal(t, uid, p.machineOSBuilds(t.Context(), t)[0].UID, "the same build is continued")
				}
			}
			assert.NotEqual(t, holder, leaseHolder(t))
		})
	}
}

// leaseHolder is who holds the Lease.
func leaseHolder(t *testing.T) string {
	t.Helper()
	lease, err := clients(t).CoordinationV1().Leases(stack.Namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, lease.Spec.HolderIdentity)
	return *lease.Spec.HolderIdentity
}

// heldByOther waits until another process than the one before holds the Lease.
func heldByOther(t *testing.T, before string) {
	t.Helper()
	err := await.Object(within(t), await.Target{Client: clients(t).CoordinationV1().RESTClient(), Resource: "leases", Namespace: stack.Namespace, Name: leaseName},
		&coordinationv1.Lease{}, func(lease *coordinationv1.Lease) (bool, string) {
			holder := ""
			if lease.Spec.HolderIdentity != nil {
				holder = *lease.Spec.HolderIdentity
			}
			return holder != "" && holder != before, "held by " + holder
		})
	require.NoError(t, err)
}

// signal sends a signal to the controller's process in a pod.
func signal(t *testing.T, pod *corev1.Pod, s syscall.Signal) {
	t.Helper()
	pid := controllerProcess(t, pod)
	require.NotZero(t, pid, "no process of the controller in %s", pod.Name)
	require.NoError(t, syscall.Kill(pid, s))
}

// controllerProcess is the controller's process in a pod; 0 where there is none.
func controllerProcess(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	for _, group := range groups {
		text, err := os.ReadFile(group)
		if err != nil || !strings.Contains(string(text), "pod"+string(pod.UID)) {
			continue
		}
		program, err := os.ReadFile(filepath.Join(filepath.Dir(group), "cmdline"))
		if err != nil || !strings.Contains(string(program), "layerwright\x00controller") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(group)))
		require.NoError(t, err)
		return pid
	}
	return 0
}

// scale runs so many controllers, and waits for them.
func scale(t *testing.T, replicas int32) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // it is cleaning up, too
	deployments := clients(t).AppsV1().Deployments(stack.Namespace)
	_, err := deployments.Patch(ctx, stack.ControllerName, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{}, "scale")
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		// A controller that is asked to end still writes, until its pod is gone.
		pods := controllerPods(t)
		assert.Len(c, pods, int(replicas))
		assert.Len(c, running(pods), int(replicas))
	}, buildPatience, buildTick)
}

// controllerPods are the pods of controllers, those that are ending too.
func controllerPods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := clients(t).CoreV1().Pods(stack.Namespace).List(context.WithoutCancel(t.Context()), metav1.ListOptions{LabelSelector: selector})
	require.NoError(t, err)
	return pods.Items
}

// running are those of pods that are ready, and stay.
func running(pods []corev1.Pod) []corev1.Pod {
	var running []corev1.Pod
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				running = append(running, pod)
			}
		}
	}
	return running
}

// two are two controllers of which one holds the Lease.
func two(t *testing.T) (holder, other corev1.Pod) {
	t.Helper()
	scale(t, 2)
	t.Cleanup(func() { scale(t, 1) })
	require.EventuallyWithT(t, func(c *assert.CollectT) { // a test before may have taken the holder away
		holder, other = corev1.Pod{}, corev1.Pod{}
		name := leaseHolder(t)
		for _, pod := range running(controllerPods(t)) {
			if strings.HasPrefix(name, pod.Name) {
				holder = pod
			} else {
				other = pod
			}
		}
		assert.NotEmpty(c, holder.Name)
		assert.NotEmpty(c, other.Name)
	}, buildPatience, buildTick)
	return holder, other
}

// testTheHolderOfTheLeaseGoes in the middle of an upload, and the other controller continues.
func testTheHolderOfTheLeaseGoes(t *testing.T) {
	b := newBuilds(t)
	holder, _ := two(t)
	before := leaseHolder(t)
	p := b.unasked(t, "handed-over")
	hold, held := faultproxy.HoldAnswer()
	p.breaking(p.rule(sendLayer, 1, hold))
	p.ask()
	<-held.Arrived
	require.NoError(t, clients(t).CoreV1().Pods(stack.Namespace).Delete(t.Context(), holder.Name, metav1.DeleteOptions{}))
	heldByOther(t, before)
	p.requireOneImage("one")
	held.Release()
	assert.Len(t, p.told("BuildStarted"), 1)
}

// testAPausedControllerWritesNothingAfterItsLease stops the holder in the middle of an upload for
// longer than its Lease lasts. Meanwhile the other one makes this image and the next. When the
// first one goes on, its request is answered, and nothing that it does is seen any more: what it
// would write is refused by itself (internal/lease), or by the API server, since it names the
// version that it saw.
func testAPausedControllerWritesNothingAfterItsLease(t *testing.T) {
	b := newBuilds(t)
	holder, _ := two(t)
	before := leaseHolder(t)
	p := b.unasked(t, "paused")
	hold, held := faultproxy.HoldAnswer()
	p.breaking(p.rule(sendLayer, 1, hold))
	p.ask()
	<-held.Arrived
	signal(t, &holder, syscall.SIGSTOP)
	heldByOther(t, before)
	p.requireReady("one")
	p.write("two")
	p.requireReady("two")
	p.eventually(func(c *assert.CollectT) { // each is written by a reconciler of its own
		for _, image := range p.machineOSImages(t.Context(), c) {
			for _, what := range []string{mcfgv1alpha1.ImageAttested, mcfgv1alpha1.ImageSigned, mcfgv1alpha1.ImageVerified, "Ready"} {
				assert.Contains(c, conditionText(image.Status.Conditions, what), "True ", what)
			}
		}
	})
	seen := p.everything()

	held.Release()
	signal(t, &holder, syscall.SIGCONT)
	p.eventually(func(c *assert.CollectT) {
		pod, err := clients(t).CoreV1().Pods(stack.Namespace).Get(t.Context(), holder.Name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Positive(c, pod.Status.ContainerStatuses[0].RestartCount, "without its Lease a controller ends")
	})
	p.requireReady("two")
	assert.Empty(t, cmp.Diff(seen, p.everything()))
}

// everything is all that there is of a pool's images: objects as they are, what the MachineOSConfig
// says, and tags.
func (p *layered) everything() map[string]string {
	p.t.Helper()
	seen := p.tags()
	note := func(object client.Object) {
		object.SetManagedFields(nil)
		text, err := json.MarshalIndent(object, "", " ")
		require.NoError(p.t, err)
		seen[fmt.Sprintf("%T %s", object, object.GetName())] = string(text)
	}
	status, err := json.MarshalIndent(p.config(p.t).Status, "", " ") // its annotations may follow
	require.NoError(p.t, err)
	seen["MachineOSConfig"] = string(status)
	for _, build := range p.machineOSBuilds(p.t.Context(), p.t) {
		note(&build)
	}
	for _, image := range p.machineOSImages(p.t.Context(), p.t) {
		note(&image)
	}
	return seen
}

// testAClockThatWasAhead continues what a controller has begun whose clock was an hour ahead: the
// times in its objects lie in the future.
func testAClockThatWasAhead(t *testing.T) {
	b := newBuilds(t)
	p := b.unasked(t, "ahead")
	hold, held := faultproxy.HoldRequest()
	p.breaking(p.rule(writeManifest, 1, hold))
	p.ask()
	build := p.building()
	<-held.Arrived
	scale(t, 0)
	t.Cleanup(func() { scale(t, 1) })
	held.Release()

	ahead := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	again := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{
		Name: build.Name, Labels: build.Labels, Annotations: build.Annotations, Finalizers: build.Finalizers, OwnerReferences: build.OwnerReferences,
	}, Spec: build.Spec}
	state := build.Status.DeepCopy()
	state.BuildStart = &ahead
	for i := range state.Conditions {
		state.Conditions[i].LastTransitionTime = ahead
	}
	change(p, &mcfgv1.MachineOSBuild{}, build.Name, func(m *mcfgv1.MachineOSBuild) { m.Finalizers = nil })
	require.NoError(t, b.Delete(t.Context(), build))
	p.eventually(func(t *assert.CollectT) { assert.NoError(t, b.Create(p.t.Context(), again)) })
	again.Status = *state
	require.NoError(t, b.Status().Update(t.Context(), again))
	config := p.config(t)
	for i := range config.Status.Conditions {
		config.Status.Conditions[i].LastTransitionTime = ahead
	}
	require.NoError(t, b.Status().Update(t.Context(), config))

	scale(t, 1)
	p.requireOneImage("one")
	ended := p.machineOSBuilds(t.Context(), t)[0]
	assert.Equal(t, again.UID, ended.UID)
	assert.Equal(t, ahead.Unix(), ended.Status.BuildStart.Unix())
	for _, c := range append(ended.Status.Conditions, p.config(t).Status.Conditions...) {
		assert.False(t, c.LastTransitionTime.Before(&ahead), "%s goes back in time", c.Type)
	}
	p.write("two")
	p.requireReady("two")
}
