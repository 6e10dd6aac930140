package builder

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/pools"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	patience = 2 * time.Minute
	tick     = 20 * time.Millisecond
	// controllerUser has the rights of deploy/base, and no others.
	controllerUser = "layerwright-under-test"
)

// cluster is a real API server with Layerwright's kinds, policies and rights, and a registry.
type cluster struct {
	client.Client
	t         *testing.T
	config    *rest.Config
	namespace string
	registry  *registryServer
	base      string
	cacheDir  string

	mu    sync.Mutex
	calls []string // of the controllers but for watches: method and path
	// everything are calls that read all secrets or pods of a namespace or of the cluster, watches
	// too.
	everything []string
	stop       func()
}

// newCluster has the rights of deploy/base, and of more files of deploy/.
func newCluster(t *testing.T, rights ...string) *cluster {
	t.Helper()
	c := &cluster{
		t: t, config: clustertest.ControlPlane(t), namespace: clustertest.Namespace(t), registry: newRegistry(t), cacheDir: t.TempDir(), stop: func() {},
	}
	c.base = c.registry.pushBase(t, "stream/os", "one")
	install.Kinds(t, c.config)
	install.Policies(t, c.config)
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: apitest.Scheme(t)})
	require.NoError(t, err)
	install.ControllerRights(t, c.config, c.namespace, controllerUser, rights...)
	t.Cleanup(func() { c.stop() })
	return c
}

// start runs the reconcilers of pools and images as a process of its own would; an earlier one is
// ended first.
func (c *cluster) start() {
	c.t.Helper()
	c.stop()
	limited := clustertest.As(c.config, controllerUser)
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{c, next} })
	manager := clustertest.Manager(c.t, limited, apitest.Scheme(c.t), cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{c.namespace: {}}}},
	})
	require.NoError(c.t, pools.New(pools.Options{ControllerVersion: "v1", RenderedConfigLimit: 3, Settle: tick}).SetupWithManager(manager))
	connect := func(keychain authn.Keychain) *registry.Client {
		return registry.New(registry.Options{Keychain: keychain, Backoff: ggcr.Backoff{Duration: time.Millisecond, Steps: 2}})
	}
	publisher := events.NewPublisher(manager.GetEventRecorder("layerwright-builder"))
	keeper := images.New(images.Options{
		Client: manager.GetClient(), Reader: manager.GetAPIReader(), Clock: clock.RealClock{}, Events: publisher,
		Credentials: &credentials.Source{Reader: manager.GetAPIReader(), Namespace: c.namespace, Connect: connect},
	})
	made := New(Options{
		Namespace: c.namespace, Base: baseimage.New(baseimage.Options{CacheDir: c.cacheDir}), Fetcher: remote.New(remote.Options{}),
		Connect: connect, Images: keeper,
	})
	require.NoError(c.t, made.SetupWithManager(manager))
	require.NoError(c.t, made.tries(manager.GetClient(), manager.GetAPIReader(), clock.RealClock{}, publisher).SetupWithManager(manager))
	require.NoError(c.t, keeper.SetupWithManager(manager))
	c.stop = clustertest.Run(c.t, manager.Start)
	require.True(c.t, manager.GetCache().WaitForCacheSync(c.t.Context()))
}

// counting notes what the controllers ask the API server for. Watches, and the lists that they
// begin with, are once per process.
type counting struct {
	c    *cluster
	next http.RoundTripper
}

func (r counting) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/secrets") || strings.HasSuffix(request.URL.Path, "/pods") {
		r.c.mu.Lock()
		r.c.everything = append(r.c.everything, request.Method+" "+request.URL.String())
		r.c.mu.Unlock()
	}
	if query := request.URL.Query(); query.Get("watch") == "" && !query.Has("limit") && query.Get("resourceVersion") == "" {
		r.c.mu.Lock()
		r.c.calls = append(r.c.calls, request.Method+" "+request.URL.Path)
		r.c.mu.Unlock()
	}
	return r.next.RoundTrip(request)
}

// called are the calls since the last time.
func (c *cluster) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		require.NoError(c.t, c.Create(c.t.Context(), o))
	}
}

func (c *cluster) eventually(condition func(t *assert.CollectT)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, condition, patience, tick)
}

func (c *cluster) machineConfig(pool, name, content string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: pool}},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: c.base, Config: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,%s"}}]}}`, content)}},
	}
}

func rolePool(name string) *mcfgv1.MachineConfigPool {
	roles := []string{name}
	if name != mcfgv1.PoolWorker {
		roles = append(roles, mcfgv1.PoolWorker)
	}
	return &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: roles},
		}},
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
	}}
}

func (c *cluster) osConfig(pool string) *mcfgv1.MachineOSConfig {
	w := &world{registry: c.registry}
	return w.config(pool)
}

func (c *cluster) secret(name string) *corev1.Secret {
	w := &world{t: c.t, registry: c.registry}
	s := w.secret(name, "hunter2")
	s.Namespace = c.namespace
	return s
}

// ready waits until a MachineOSConfig has another image than the one before, and is done.
func (c *cluster) ready(pool string, before mcfgv1.ImageDigestFormat) *mcfgv1.MachineOSConfig {
	c.t.Helper()
	found := &mcfgv1.MachineOSConfig{}
	c.eventually(func(t *assert.CollectT) {
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: pool}, found)) {
			assert.NotEqual(t, before, found.Status.CurrentImagePullSpec)
			assert.True(t, status.IsTrue(found.Status.Conditions, status.Ready), "%+v", found.Status)
		}
	})
	statustest.RequireConsistent(c.t, found)
	return found
}

// saying waits until a condition of a MachineOSConfig begins so.
func (c *cluster) saying(pool, conditionType, says string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		found := &mcfgv1.MachineOSConfig{}
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: pool}, found)) {
			assert.True(t, strings.HasPrefix(text(found.Status.Conditions, conditionType), says), text(found.Status.Conditions, conditionType))
		}
	})
}

func change[T client.Object](c *cluster, object T, name string, change func(T)) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, object)) {
			change(object)
			assert.NoError(t, c.Update(c.t.Context(), object))
		}
	})
}

// TestOnARealAPIServer tells one story, because there is one cluster: everything in it is
// cluster-wide.
func TestOnARealAPIServer(t *testing.T) {
	c := newCluster(t)
	c.start()
	for _, part := range []struct {
		name string
		run  func(t *testing.T, c *cluster)
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
			outer := c.t
			c.t = t
			defer func() { c.t = outer }()
			part.run(t, c)
		}))
	}
}

func testMissing(t *testing.T, c *cluster) {
	t.Helper()
	config := c.osConfig("worker")
	c.create(config)
	c.saying("worker", status.Reconciling, "True WaitingForPool the pool does not exist")
	c.create(c.machineConfig("worker", "50-motd", "one"), rolePool("worker"))
	c.saying("worker", status.Reconciling, "True WaitingForSecret ")
	c.create(c.secret("push"), c.secret("pull"))
	found := c.ready("worker", "")
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: found.Status.MachineOSBuild.Name}, build))
	statustest.RequireConsistent(t, build, statustest.Max(status.MaxBuildConditions))
	assert.True(t, status.IsTrue(build.Status.Conditions, status.BuildSucceeded))
	assert.Equal(t, found.Status.CurrentImagePullSpec, build.Status.DigestedImagePushSpec)
	assert.True(t, build.Status.BuildEnd.After(build.Status.BuildStart.Time))
	w := &world{t: t, registry: c.registry}
	assert.Equal(t, "one", w.unpacked(string(found.Status.CurrentImagePullSpec), "amd64", "etc/motd"))
	var images mcfgv1alpha1.MachineOSImageList
	require.NoError(t, c.List(t.Context(), &images))
	require.Len(t, images.Items, 1)
	c.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: "worker"}, pool))
		assert.Equal(t, "True BuildSuccess Build succeeded for pool worker", text(pool.GetConditions(), "BuildSuccess"))
		assert.Equal(t, "False AsExpected", text(pool.GetConditions(), "RenderDegraded"), "the pool's own conditions stay")
	})
	c.eventually(func(t *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(t, c.List(c.t.Context(), &list, client.InNamespace(metav1.NamespaceDefault)))
		assert.True(t, slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == "BuildCompleted" && e.Regarding.Name == build.Name
		}))
	})
}

func testChangedFile(t *testing.T, c *cluster) {
	t.Helper()
	before := c.ready("worker", "").Status.CurrentImagePullSpec
	begin := time.Now()
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.machineConfig("worker", "", "two").Spec })
	after := c.ready("worker", before)
	t.Logf("from a changed MachineConfig to the digest in status: %s", time.Since(begin).Round(time.Millisecond))
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: after.Status.MachineOSBuild.Name}, build))
	assert.Equal(t, "file /etc/motd changed", build.Status.Why)
	w := &world{t: t, registry: c.registry}
	assert.Equal(t, "two", w.unpacked(string(after.Status.CurrentImagePullSpec), "amd64", "etc/motd"))
}

// testCalls counts what one image costs the API server and the registry, all reconciles that follow
// included.
func testCalls(t *testing.T, c *cluster) {
	t.Helper()
	before := c.ready("worker", "").Status.CurrentImagePullSpec
	c.settled()
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.machineConfig("worker", "", "three").Spec })
	c.ready("worker", before)
	calls, requests := c.settled()
	counts := map[string]int{}
	for _, call := range calls {
		counts[call]++
	}
	t.Logf("calls of the API server: %d, requests to the registry: %d\n%s", len(calls), len(requests), strings.Join(calls, "\n"))
	assert.LessOrEqual(t, len(calls), 40, "%v", counts)
}

// settled waits until the controllers have been quiet for a while, and gives what they did until
// then since the last time.
func (c *cluster) settled() (calls, requests []string) {
	c.t.Helper()
	quiet := time.Now()
	c.eventually(func(t *assert.CollectT) {
		more, asked := c.called(), c.registry.requests()
		calls, requests = append(calls, more...), append(requests, asked...)
		if len(more)+len(asked) > 0 {
			quiet = time.Now()
		}
		assert.Greater(t, time.Since(quiet), 2*time.Second)
	})
	return calls, requests
}

func testRebuildOnCluster(t *testing.T, c *cluster) {
	t.Helper()
	before := c.ready("worker", "")
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: before.Status.MachineOSBuild.Name}, build))
	change(c, &mcfgv1.MachineOSConfig{}, "worker", func(config *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, mcfgv1.AnnotationRebuildImage, "")
	})
	c.eventually(func(t *assert.CollectT) {
		again, config := &mcfgv1.MachineOSBuild{}, &mcfgv1.MachineOSConfig{}
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: build.Name}, again))
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: "worker"}, config))
		assert.NotEqual(t, build.UID, again.UID)
		assert.True(t, status.IsTrue(again.Status.Conditions, status.BuildSucceeded))
		assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested}, again.Status.ChangedInputs)
		assert.NotContains(t, config.Annotations, mcfgv1.AnnotationRebuildImage)
		assert.NotContains(t, again.Annotations, mcfgv1.AnnotationRebuild)
	})
	assert.Equal(t, before.Status.CurrentImagePullSpec, c.ready("worker", "").Status.CurrentImagePullSpec, "the same inputs, the same digest")
}

func testRestarts(t *testing.T, c *cluster) {
	t.Helper()
	before := c.ready("worker", "")
	c.settled()
	c.start()
	c.settled()
	after := c.ready("worker", "")
	assert.Equal(t, before.ResourceVersion, after.ResourceVersion, "another process finds nothing to do")

	c.stop() // what changes while no one looks is found afterwards
	change(c, &mcfgv1.MachineConfig{}, "50-motd", func(mc *mcfgv1.MachineConfig) { mc.Spec = c.machineConfig("worker", "", "four").Spec })
	c.start()
	c.ready("worker", before.Status.CurrentImagePullSpec)
}

func testConfigMap(_ *testing.T, c *cluster) {
	change(c, &mcfgv1.MachineOSConfig{}, "worker", func(config *mcfgv1.MachineOSConfig) {
		config.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: "files"}}}
	})
	c.saying("worker", status.Reconciling, "True WaitingForConfigMap ")
	files := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "files"}, Data: map[string]string{"Containerfile": "FROM os-base-image\nRUNN true\n"}}
	c.create(files)
	c.saying("worker", status.Stalled, "True InvalidContainerfile ")
	files.Data["Containerfile"] = "FROM os-base-image\nRUN true\n"
	require.NoError(c.t, c.Update(c.t.Context(), files))
	c.saying("worker", status.Stalled, "True BuilderNotAvailable ")
	files.Data["Containerfile"] = "# nothing yet\n"
	require.NoError(c.t, c.Update(c.t.Context(), files))
	c.saying("worker", status.Ready, "True Succeeded")
}

// testMany creates MachineOSConfigs of many pools at once.
func testMany(t *testing.T, c *cluster) {
	t.Helper()
	const many = 30
	name := func(i int) string { return fmt.Sprintf("pool-%02d", i) }
	for i := range many {
		c.create(rolePool(name(i)))
	}
	c.eventually(func(t *assert.CollectT) {
		var list mcfgv1.MachineConfigPoolList
		require.NoError(t, c.List(c.t.Context(), &list))
		for _, pool := range list.Items {
			assert.NotEmpty(t, pool.Spec.Configuration.Name)
		}
	})
	c.settled()
	begin := time.Now()
	for i := range many {
		c.create(c.osConfig(name(i)))
	}
	created := time.Since(begin)
	var begun, done time.Duration
	c.eventually(func(t *assert.CollectT) {
		var list mcfgv1.MachineOSBuildList
		require.NoError(t, c.List(c.t.Context(), &list))
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
		c.ready(name(i), "")
	}
	done = time.Since(begin)
	t.Logf("%d MachineOSConfigs: created after %s, the last build begun after %s, the last digest after %s",
		many, created.Round(time.Millisecond), begun.Round(time.Millisecond), done.Round(time.Millisecond))
	calls, requests := c.settled()
	t.Logf("calls of the API server for each: %d, requests to the registry for each: %d", len(calls)/many, len(requests)/many)
	assert.LessOrEqual(t, len(calls)/many, 40)
}

// testReadsByName looks back at all that the controllers have asked for, and tries what they must
// not be able to do.
func testReadsByName(t *testing.T, c *cluster) {
	t.Helper()
	c.mu.Lock()
	assert.Empty(t, c.everything)
	c.mu.Unlock()
	limited := clustertest.As(c.config, controllerUser)
	as, err := client.NewWithWatch(limited, client.Options{Scheme: c.Scheme()})
	require.NoError(t, err)
	require.NoError(t, as.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "push"}, &corev1.Secret{}), "by its name")
	require.NoError(t, as.List(t.Context(), &corev1.PodList{}, client.InNamespace(c.namespace)), "builds are pods there")
	for _, refused := range []struct {
		list  client.ObjectList
		where string
	}{
		{&corev1.SecretList{}, c.namespace},
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

func testDeletion(t *testing.T, c *cluster) {
	t.Helper()
	config := c.ready("worker", "")
	image := string(config.Status.CurrentImagePullSpec)
	require.True(t, c.registry.has(t, image))
	require.NoError(t, c.Delete(t.Context(), config))
	c.eventually(func(t *assert.CollectT) {
		assert.True(t, apierrors.IsNotFound(c.Get(c.t.Context(), client.ObjectKeyFromObject(config), config)))
		var builds mcfgv1.MachineOSBuildList
		var images mcfgv1alpha1.MachineOSImageList
		require.NoError(t, c.List(c.t.Context(), &builds))
		require.NoError(t, c.List(c.t.Context(), &images))
		assert.False(t, slices.ContainsFunc(builds.Items, func(b mcfgv1.MachineOSBuild) bool { return b.Spec.MachineOSConfig.Name == "worker" }))
		assert.False(t, slices.ContainsFunc(images.Items, func(i mcfgv1alpha1.MachineOSImage) bool { return i.Spec.MachineConfigPool == "worker" }))
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: "worker"}, pool))
		assert.Equal(t, "False NoLayeredObjects", text(pool.GetConditions(), "ImageBuildDegraded"))
	})
	assert.False(t, c.registry.has(t, image))
}
