package jobs

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/buildertest"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// cluster is a real API server with the Job controller and no kubelet: the test writes what one
// would.
type cluster struct {
	*Backend
	client.Client // with all rights
	t             *testing.T
	namespace     string
	spec          *backend.Spec
	clock         *clocktesting.FakePassiveClock
}

// newCluster has a Backend with a cache of its own and the rights of deploy/base.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, namespace: clustertest.Namespace(t), clock: clocktesting.NewFakePassiveClock(time.Now())}
	config := clustertest.ControlPlane(t)
	install.Kinds(t, config)
	scheme := apitest.Scheme(t)
	var err error
	c.Client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	user := "jobs-" + c.namespace
	install.ControllerRights(t, config, c.namespace, user)
	limited := clustertest.As(config, user)

	known, err := cache.New(limited, cache.Options{Scheme: scheme, ByObject: CacheOptions(c.namespace)})
	require.NoError(t, err)
	t.Cleanup(clustertest.Run(t, known.Start))
	cached, err := client.New(limited, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: known}})
	require.NoError(t, err)
	reader, err := client.New(limited, client.Options{Scheme: scheme})
	require.NoError(t, err)
	c.Backend, err = New(Options{Namespace: c.namespace, Image: image, Clock: c.clock}, cached, reader)
	require.NoError(t, err)
	for _, watched := range c.Watches() {
		_, err := known.GetInformer(t.Context(), watched)
		require.NoError(t, err)
	}

	require.NoError(t, c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pods.DefaultAccount}}))
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Spec: mcfgv1.MachineOSBuildSpec{
		MachineConfig: mcfgv1.MachineConfigReference{Name: "rendered-worker-1"}, MachineOSConfig: mcfgv1.MachineOSConfigReference{Name: "worker"},
		RenderedImagePushSpec: "registry.example.com/os/worker:1",
	}}
	require.NoError(t, c.Create(t.Context(), build))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), build)) })
	c.spec = plainSpec(mcfgv1.ArchitectureAMD64)
	c.spec.Key, c.spec.Retries = backend.Key{Build: build.Name, UID: string(build.UID)}, 0
	return c
}

func (c *cluster) ensure() {
	c.t.Helper()
	require.NoError(c.t, c.Ensure(c.t.Context(), *c.spec))
}

// eventually waits until something holds.
func (c *cluster) eventually(holds func(*assert.CollectT)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, holds, 2*time.Minute, 20*time.Millisecond)
}

// until observes until the build is as wanted.
func (c *cluster) until(wanted func(backend.State) bool) backend.State {
	c.t.Helper()
	var state backend.State
	c.eventually(func(collect *assert.CollectT) {
		var err error
		state, err = c.Observe(c.t.Context(), c.spec.Key)
		require.NoError(collect, err)
		require.True(collect, wanted(state), "%+v %+v", state, state.Failure)
	})
	return state
}

// quota makes a ResourceQuota, and waits until it is counted.
func (c *cluster) quota(name string, of corev1.ResourceName, hard string) *corev1.ResourceQuota {
	c.t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	quota.Spec.Hard = corev1.ResourceList{of: resource.MustParse(hard)}
	require.NoError(c.t, c.Create(c.t.Context(), quota))
	c.eventually(func(collect *assert.CollectT) {
		require.NoError(collect, c.Get(c.t.Context(), client.ObjectKeyFromObject(quota), quota))
		assert.NotEmpty(collect, quota.Status.Hard)
	})
	return quota
}

func (c *cluster) job() *batchv1.Job {
	c.t.Helper()
	job := &batchv1.Job{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "build-" + c.spec.Key.Build}, job))
	return job
}

func (c *cluster) pods() []corev1.Pod {
	c.t.Helper()
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, client.InNamespace(c.namespace)))
	return pods.Items
}

// kubelet writes the status of the Job's newest pod, as soon as there is one that has not ended.
func (c *cluster) kubelet(changes ...func(*corev1.Pod)) {
	c.t.Helper()
	var pod *corev1.Pod
	c.eventually(func(collect *assert.CollectT) {
		all := c.pods()
		at := slices.IndexFunc(all, func(p corev1.Pod) bool { return !pods.IsOver(&p) })
		require.GreaterOrEqual(collect, at, 0)
		pod = &all[at]
	})
	s := &scene{t: c.t, facts: facts{Facts: pods.Facts{Now: t0}, jobs: []batchv1.Job{*c.job()}}}
	pod.Status = s.pod(changes...).Pods[0].Status
	require.NoError(c.t, c.Status().Update(c.t.Context(), pod))
}

func (c *cluster) patchJob(patch string) {
	c.t.Helper()
	require.NoError(c.t, c.Patch(c.t.Context(), c.job(), client.RawPatch(types.MergePatchType, []byte(patch))))
}

func hasEnded(s backend.State) bool { return s.Phase == backend.Failed || s.Phase == backend.Succeeded }

func TestTheJobControllerKeepsThePolicy(t *testing.T) {
	t.Parallel()
	t.Run("an administrator's error ends the Job, whatever the limit", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.spec.Retries = 3
		c.ensure()
		c.kubelet(buildertest.Ends(backend.Build, 42, "Error", ""))
		state := c.until(hasEnded)
		assert.Equal(t, fault.Terminal, state.Failure.Class)
		c.eventually(func(collect *assert.CollectT) {
			end := ended(c.job())
			require.NotNil(collect, end)
			assert.Equal(collect, batchv1.JobReasonPodFailurePolicy, end.Reason)
		})
		assert.Len(t, c.pods(), 1)
		require.NoError(t, c.Delete(t.Context(), &c.pods()[0]))
		c.eventually(func(collect *assert.CollectT) { assert.Empty(collect, c.pods()) })
		state = c.until(func(s backend.State) bool { return s.Failure.Message != state.Failure.Message })
		assert.Equal(t, fault.Terminal, state.Failure.Class, "the Job remembers why, after its pod is gone")
	})
	t.Run("any other error counts", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.spec.Retries = 1
		c.ensure()
		c.kubelet(buildertest.Ends(backend.Fetch, 43, "Error", ""))
		state := c.until(func(s backend.State) bool { return s.Failure != nil && s.Message == "attempt 2 of 2 follows" })
		assert.Equal(t, backend.Running, state.Phase)
		c.kubelet(buildertest.Ends(backend.Fetch, 43, "Error", ""))
		assert.Equal(t, &backend.Failure{
			Class: fault.Transient, Reason: mcfgv1.ReasonRetryLimitReached, Message: "2 attempts failed; the last: step fetch ended with exit code 43 and no report",
		}, c.until(hasEnded).Failure)
	})
	t.Run("a disruption counts", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.ensure()
		c.kubelet(buildertest.Fails("", ""), buildertest.Disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"))
		assert.Contains(t, c.until(hasEnded).Failure.Message, "Taint manager: deleting due to NoExecute taint (DeletionByTaintManager)")
	})
	t.Run("success", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.ensure()
		c.kubelet(buildertest.Ends(backend.Push, 0, "Completed", report(t, &backend.Report{Step: backend.Push, Image: digest})), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		state := c.until(hasEnded)
		assert.Equal(t, digest, state.Image)
		require.NoError(t, c.Remove(t.Context(), c.spec.Key))
		c.eventually(func(collect *assert.CollectT) { assert.Empty(collect, c.pods(), "pods go with their Job") })
		state = c.until(func(s backend.State) bool { return s.Phase == backend.Absent })
		assert.Nil(t, state.Object)
	})
}

// TestNothingRunsForEver has Jobs that end, or never begin, without any pod that failed.
func TestNothingRunsForEver(t *testing.T) {
	t.Parallel()
	t.Run("the deadline of the Job", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.ensure()
		c.patchJob(`{"spec":{"activeDeadlineSeconds":1}}`)
		state := c.until(hasEnded)
		assert.Equal(t, mcfgv1.ReasonTimedOut, state.Failure.Reason)
		assert.Equal(t, fault.Transient, state.Failure.Class)
	})
	t.Run("a namespace that takes no such pods", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		require.NoError(t, c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`))))
		c.ensure()
		c.clock.SetTime(time.Now().Add(time.Hour))
		state := c.until(func(s backend.State) bool { return s.Failure != nil })
		assert.Equal(t, backend.Pending, state.Phase)
		assert.Equal(t, fault.Waiting, state.Failure.Class)
		assert.Contains(t, state.Failure.Message, `violates PodSecurity "baseline:latest"`)
		assert.Empty(t, c.pods())
	})
	t.Run("a quota", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		quota := c.quota("none", corev1.ResourcePods, "0")
		c.ensure()
		c.clock.SetTime(time.Now().Add(time.Hour))
		state := c.until(func(s backend.State) bool { return s.Failure != nil })
		assert.Contains(t, state.Failure.Message, `ResourceQuota "none" of namespace "`+c.namespace+`" has no room: pods=1 is needed, and 0 of 0 are used`)
		require.NoError(t, c.Delete(t.Context(), quota))
		c.until(func(s backend.State) bool { return s.Failure == nil && len(c.pods()) == 1 })
	})
	t.Run("a quota that wants limits", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.quota("compute", corev1.ResourceLimitsCPU, "64")
		c.ensure()
		c.clock.SetTime(time.Now().Add(time.Hour))
		state := c.until(func(s backend.State) bool { return s.Failure != nil })
		assert.Equal(t, fault.Waiting, state.Failure.Class)
		assert.Contains(t, state.Failure.Message, `ResourceQuota "compute" of namespace "`+c.namespace+`" counts limits.cpu, `+
			"which not every container has: set spec.buildResources.limits.cpu of the MachineOSConfig")
		// As the reconciler does when the administrator has.
		c.spec.Resources = &mcfgv1.BuildResources{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
		require.NoError(t, c.Remove(t.Context(), c.spec.Key))
		c.eventually(func(collect *assert.CollectT) { require.NoError(collect, c.Ensure(t.Context(), *c.spec)) })
		c.eventually(func(collect *assert.CollectT) { assert.Len(collect, c.pods(), 1) })
	})
	t.Run("a LimitRange", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		sizes := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "sizes"}}
		sizes.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}}
		require.NoError(t, c.Create(t.Context(), sizes))
		c.ensure()
		c.clock.SetTime(time.Now().Add(time.Hour))
		assert.Contains(t, c.until(func(s backend.State) bool { return s.Failure != nil }).Failure.Message,
			`LimitRange "sizes" of namespace "`+c.namespace+`": maximum memory per Container is 1Gi, and the limit is 4Gi; `+
				"in the MachineOSConfig, set spec.buildResources.limits.memory to at most 1Gi")
		require.NoError(t, c.Delete(t.Context(), sizes))
		c.until(func(s backend.State) bool { return s.Failure == nil && len(c.pods()) == 1 })
	})
	t.Run("a quota of Jobs", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.quota("objects", "count/jobs.batch", "0")
		c.eventually(func(collect *assert.CollectT) {
			err := c.Ensure(t.Context(), *c.spec)
			require.True(collect, fault.IsWaiting(err), "%v", err)
			assert.Contains(collect, err.Error(), `ResourceQuota "objects" of namespace "`+c.namespace+`" has no room: count/jobs.batch=1 is needed`)
		})
	})
	t.Run("a Job that was suspended", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.ensure()
		c.patchJob(`{"spec":{"suspend":true}}`)
		state := c.until(func(s backend.State) bool { return s.Failure != nil })
		assert.Contains(t, state.Failure.Message, "is suspended")
		c.patchJob(`{"spec":{"suspend":false}}`)
		c.until(func(s backend.State) bool { return s.Failure == nil })
	})
	t.Run("a Job that was deleted", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.ensure()
		require.NoError(t, c.Delete(t.Context(), c.job(), client.PropagationPolicy(metav1.DeletePropagationForeground)))
		c.until(func(s backend.State) bool { return s.Phase == backend.Absent })
		c.eventually(func(collect *assert.CollectT) { assert.NoError(collect, c.Ensure(t.Context(), *c.spec)) })
		c.until(func(s backend.State) bool { return s.Phase == backend.Pending })
	})
	t.Run("a pod that was deleted", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.spec.Retries = 1
		c.ensure()
		c.eventually(func(collect *assert.CollectT) { require.Len(collect, c.pods(), 1) })
		first := c.pods()[0]
		require.NoError(t, c.Delete(t.Context(), &first))
		c.eventually(func(collect *assert.CollectT) {
			pods := c.pods()
			require.Len(collect, pods, 1)
			assert.NotEqual(collect, first.UID, pods[0].UID)
		})
		c.until(func(s backend.State) bool { return s.Phase == backend.Pending })
	})
}

// TestADeadNode has a node that never answers again: no one confirms that its pod has ended, so the
// Job makes no other until the pod is given up.
func TestADeadNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.spec.Retries = 1
	c.ensure()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	require.NoError(t, c.Create(t.Context(), node))
	c.eventually(func(collect *assert.CollectT) { require.Len(collect, c.pods(), 1) })
	pod := c.pods()[0]
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	require.NoError(t, c.SubResource("binding").Create(t.Context(), &pod, binding))
	c.kubelet(buildertest.Runs(backend.Fetch))
	c.until(func(s backend.State) bool { return s.Message == "step fetch" })

	require.NoError(t, c.Delete(t.Context(), &pod))
	state := c.until(func(s backend.State) bool { return s.Message != "step fetch" })
	assert.Equal(t, "a pod is being ended on node "+node.Name+"; another attempt follows", state.Message)
	c.clock.SetTime(time.Now().Add(time.Hour))
	state = c.until(func(s backend.State) bool { return s.Failure != nil })
	assert.Equal(t, &backend.Failure{
		Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild, Message: "node " + node.Name + " stopped answering while the build ran there",
	}, state.Failure)
	c.eventually(func(collect *assert.CollectT) {
		pods := c.pods()
		require.NotEmpty(collect, pods)
		assert.True(collect, slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID != pod.UID }), "another attempt")
	})
	state = c.until(func(s backend.State) bool { return s.Phase == backend.Pending })
	assert.Equal(t, "attempt 2 of 2 is being scheduled", state.Message)
}

func TestTheAPIServerTakesEveryObject(t *testing.T) {
	t.Parallel()
	for _, setting := range []pods.UserNamespaces{pods.UserNamespacesAlways, pods.UserNamespacesNever} {
		c := newCluster(t)
		c.options.UserNamespaces = setting
		spec := fullSpec()
		spec.Key = c.spec.Key
		spec.Architectures = append(spec.Architectures, spec.Architectures[0])
		spec.Architectures[1].Architecture = mcfgv1.ArchitecturePPC64LE
		spec.Architectures[1].Context = map[string][]byte{"a": make([]byte, 1<<20)}
		for _, o := range inputs() {
			o.SetNamespace(c.namespace)
			require.NoError(t, c.Create(t.Context(), o))
		}
		require.NoError(t, c.Ensure(t.Context(), *spec))
		require.NoError(t, c.Ensure(t.Context(), *spec), "again")
		c.eventually(func(collect *assert.CollectT) { assert.Len(collect, c.pods(), 2) })
		for _, pod := range c.pods() {
			assert.Equal(t, setting == pods.UserNamespacesAlways, pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers, "the API server keeps it")
			for _, volume := range pod.Spec.Volumes {
				assert.True(t, volume.Projected == nil || volume.Name == "registries", "no token: %s", volume.Name)
			}
		}
		require.NoError(t, c.Remove(t.Context(), spec.Key))
	}
}
