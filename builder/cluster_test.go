package builder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/worldtest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

func change[T client.Object](c *worldtest.Cluster, object T, name string, change func(T)) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		if assert.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: name}, object)) {
			change(object)
			assert.NoError(t, c.Update(c.T.Context(), object))
		}
	})
}

// TestOnARealAPIServer tells one story, because there is one cluster: everything in it is
// cluster-wide.
func TestOnARealAPIServer(t *testing.T) {
	c := worldtest.NewCluster(t)
	c.Start()
	for _, part := range []struct {
		name string
		run  func(t *testing.T, c *worldtest.Cluster)
	}{
		{"what is missing is waited for", testMissing},
		{"a changed file is another image", testChangedFile},
		{"calls", testCalls},
		{"a rebuild", testRebuildOnCluster},
		{"restarts", testRestarts},
		{"a Containerfile in a ConfigMap is followed", testConfigMap},
		{"many at once", testMany},
		{"a trial of a stream", testTrial},
		{"deletion", testDeletion},
		{"no one reads all secrets or all pods", testReadsByName},
	} {
		require.True(t, t.Run(part.name, func(t *testing.T) {
			outer := c.T
			c.T = t
			defer func() { c.T = outer }()
			part.run(t, c)
		}))
	}
}

func testMissing(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	config := c.OSConfig("worker")
	c.Add(config)
	c.Saying("worker", status.Reconciling, "True WaitingForPool the pool does not exist")
	c.Add(c.MachineConfig("worker", "50-motd", "one"), worldtest.RolePool("worker"))
	c.Saying("worker", status.Reconciling, "True WaitingForSecret ")
	c.Add(c.Secret("push"), c.Secret("pull"))
	found := c.Ready("worker", "")
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: found.Status.MachineOSBuild.Name}, build))
	statustest.RequireConsistent(t, build, statustest.Max(status.MaxBuildConditions))
	assert.True(t, status.IsTrue(build.Status.Conditions, status.BuildSucceeded))
	assert.Equal(t, found.Status.CurrentImagePullSpec, build.Status.DigestedImagePushSpec)
	assert.True(t, build.Status.BuildEnd.After(build.Status.BuildStart.Time))
	w := &worldtest.World{T: t, Registry: c.Registry}
	assert.Equal(t, "one", w.Unpacked(string(found.Status.CurrentImagePullSpec), "amd64", "etc/motd"))
	var images mcfgv1alpha1.MachineOSImageList
	require.NoError(t, c.List(t.Context(), &images))
	require.Len(t, images.Items, 1)
	c.Eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: "worker"}, pool))
		assert.Equal(t, "True BuildSuccess Build succeeded for pool worker", worldtest.Text(pool.GetConditions(), "BuildSuccess"))
		assert.Equal(t, "False AsExpected", worldtest.Text(pool.GetConditions(), "RenderDegraded"), "the pool's own conditions stay")
	})
	c.Eventually(func(t *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(t, c.List(c.T.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		assert.True(t, slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "BuildCompleted" && e.Regarding.Name == build.Name
		}))
	})
}

func testChangedFile(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	before := c.Ready("worker", "").Status.CurrentImagePullSpec
	begin := time.Now()
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.MachineConfig("worker", "", "two").Spec })
	after := c.Ready("worker", before)
	t.Logf("from a changed MachineConfig to the digest in status: %s", time.Since(begin).Round(time.Millisecond))
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: after.Status.MachineOSBuild.Name}, build))
	assert.Equal(t, "file /etc/motd changed", build.Status.Why)
	w := &worldtest.World{T: t, Registry: c.Registry}
	assert.Equal(t, "two", w.Unpacked(string(after.Status.CurrentImagePullSpec), "amd64", "etc/motd"))
}

// testCalls counts what one image costs the API server and the registry, all reconciles that follow
// included.
func testCalls(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	before := c.Ready("worker", "").Status.CurrentImagePullSpec
	c.Settled()
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.MachineConfig("worker", "", "three").Spec })
	c.Ready("worker", before)
	calls, requests := c.Settled()
	counts := map[string]int{}
	for _, call := range calls {
		counts[call]++
	}
	t.Logf("calls of the API server: %d, requests to the registry: %d\n%s", len(calls), len(requests), strings.Join(calls, "\n"))
	assert.LessOrEqual(t, len(calls), 40, "%v", counts)
}

func testRebuildOnCluster(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	before := c.Ready("worker", "")
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: before.Status.MachineOSBuild.Name}, build))
	change(c, &mcfgv1.MachineOSConfig{}, "worker", func(config *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, mcfgv1.AnnotationRebuildImage, "")
	})
	c.Eventually(func(t *assert.CollectT) {
		again, config := &mcfgv1.MachineOSBuild{}, &mcfgv1.MachineOSConfig{}
		require.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: build.Name}, again))
		require.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: "worker"}, config))
		assert.NotEqual(t, build.UID, again.UID)
		assert.True(t, status.IsTrue(again.Status.Conditions, status.BuildSucceeded))
		assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested}, again.Status.ChangedInputs)
		assert.NotContains(t, config.Annotations, mcfgv1.AnnotationRebuildImage)
		assert.NotContains(t, again.Annotations, mcfgv1.AnnotationRebuild)
	})
	assert.Equal(t, before.Status.CurrentImagePullSpec, c.Ready("worker", "").Status.CurrentImagePullSpec, "the same inputs, the same digest")
}

func testRestarts(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	before := c.Ready("worker", "")
	c.Settled()
	c.Start()
	c.Settled()
	after := c.Ready("worker", "")
	assert.Equal(t, before.ResourceVersion, after.ResourceVersion, "another process finds nothing to do")

	c.Stop() // what changes while no one looks is found afterwards
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.MachineConfig("worker", "", "four").Spec })
	c.Start()
	c.Ready("worker", before.Status.CurrentImagePullSpec)
}

func testConfigMap(_ *testing.T, c *worldtest.Cluster) {
	change(c, &mcfgv1.MachineOSConfig{}, "worker", func(config *mcfgv1.MachineOSConfig) {
		config.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: "files"}}}
	})
	c.Saying("worker", status.Reconciling, "True WaitingForConfigMap ")
	files := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "files"}, Data: map[string]string{"Containerfile": "FROM os-base-image\nRUNN true\n"}}
	c.Add(files)
	c.Saying("worker", status.Stalled, "True InvalidContainerfile ")
	files.Data["Containerfile"] = "FROM os-base-image\nRUN true\n"
	require.NoError(c.T, c.Update(c.T.Context(), files))
	c.Saying("worker", status.Stalled, "True BuilderNotAvailable ")
	files.Data["Containerfile"] = "# nothing yet\n"
	require.NoError(c.T, c.Update(c.T.Context(), files))
	c.Saying("worker", status.Ready, "True Succeeded")
}

// testMany creates MachineOSConfigs of many pools at once.
func testMany(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	const many = 30
	name := func(i int) string { return fmt.Sprintf("pool-%02d", i) }
	for i := range many {
		c.Add(worldtest.RolePool(name(i)))
	}
	c.Eventually(func(t *assert.CollectT) {
		var list mcfgv1.MachineConfigPoolList
		require.NoError(t, c.List(c.T.Context(), &list))
		for _, pool := range list.Items {
			assert.NotEmpty(t, pool.Spec.Configuration.Name)
		}
	})
	c.Settled()
	begin := time.Now()
	for i := range many {
		c.Add(c.OSConfig(name(i)))
	}
	created := time.Since(begin)
	var begun, done time.Duration
	c.Eventually(func(t *assert.CollectT) {
		var list mcfgv1.MachineOSBuildList
		require.NoError(t, c.List(c.T.Context(), &list))
		started := 0
		for _, build := range list.Items {
			if strings.HasPrefix(build.Name, "pool-") && build.Status.BuildStart != nil {
				started++
			}
		}
		if started == many && begun == 0 {
			begun = time.Since(begin)
		}
		assert.Equal(t, many, started)
	})
	for i := range many {
		c.Ready(name(i), "")
	}
	done = time.Since(begin)
	t.Logf("%d MachineOSConfigs: created after %s, the last build begun after %s, the last digest after %s",
		many, created.Round(time.Millisecond), begun.Round(time.Millisecond), done.Round(time.Millisecond))
	calls, requests := c.Settled()
	t.Logf("calls of the API server for each: %d, requests to the registry for each: %d", len(calls)/many, len(requests)/many)
	assert.LessOrEqual(t, len(calls)/many, 40)
}

// testReadsByName looks back at all that the controllers have asked for, and tries what they must
// not be able to do.
func testReadsByName(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	c.Mu.Lock()
	assert.Empty(t, c.Everything)
	c.Mu.Unlock()
	limited := clustertest.As(c.Config, worldtest.ControllerUser)
	as, err := client.NewWithWatch(limited, client.Options{Scheme: c.Scheme()})
	require.NoError(t, err)
	require.NoError(t, as.Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: "push"}, &corev1.Secret{}), "by its name")
	require.NoError(t, as.List(t.Context(), &corev1.PodList{}, client.InNamespace(c.Namespace)), "builds are pods there")
	for _, refused := range []struct {
		list  client.ObjectList
		where string
	}{
		{&corev1.SecretList{}, c.Namespace},
		{&corev1.SecretList{}, metav1.NamespaceAll},
		{&corev1.PodList{}, metav1.NamespaceDefault},
		{&corev1.PodList{}, metav1.NamespaceAll},
	} {
		where := client.InNamespace(refused.where)
		assert.True(t, apierrors.IsForbidden(as.List(t.Context(), refused.list, where)), "%T %q", refused.list, refused.where)
		_, err := as.Watch(t.Context(), refused.list, where)
		assert.True(t, apierrors.IsForbidden(err), "%T %q", refused.list, refused.where)
	}
}

func testDeletion(t *testing.T, c *worldtest.Cluster) {
	t.Helper()
	config := c.Ready("worker", "")
	image := string(config.Status.CurrentImagePullSpec)
	require.True(t, c.Registry.Has(t, image))
	require.NoError(t, c.Delete(t.Context(), config))
	c.Eventually(func(t *assert.CollectT) {
		assert.True(t, apierrors.IsNotFound(c.Get(c.T.Context(), client.ObjectKeyFromObject(config), config)))
		var builds mcfgv1.MachineOSBuildList
		var images mcfgv1alpha1.MachineOSImageList
		require.NoError(t, c.List(c.T.Context(), &builds))
		require.NoError(t, c.List(c.T.Context(), &images))
		assert.False(t, slices.ContainsFunc(builds.Items, func(b mcfgv1.MachineOSBuild) bool { return b.Spec.MachineOSConfig.Name == "worker" }))
		assert.False(t, slices.ContainsFunc(images.Items, func(i mcfgv1alpha1.MachineOSImage) bool { return i.Spec.MachineConfigPool == "worker" }))
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: "worker"}, pool))
		assert.Equal(t, "False NoLayeredObjects", worldtest.Text(pool.GetConditions(), "ImageBuildDegraded"))
	})
	assert.False(t, c.Registry.Has(t, image))
}
