package worldtest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder"
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
	"github.com/layerwright/layerwright/trials"
)

const (
	patience = 2 * time.Minute
	tick     = 20 * time.Millisecond
	// ControllerUser has the rights of deploy/base, and no others.
	ControllerUser = "layerwright-under-test"
)

// Cluster is a real API server with Layerwright's kinds, policies and rights, and a registry.
type Cluster struct {
	client.Client
	T         *testing.T
	Config    *rest.Config
	Namespace string
	Registry  *RegistryServer
	Base      string
	cacheDir  string

	Mu    sync.Mutex
	calls []string // of the controllers but for watches: method and path
	// Everything are calls that read all secrets or pods of a namespace or of the cluster, watches
	// too.
	Everything []string
	Stop       func()
}

// NewCluster has the rights of deploy/base, and of more files of deploy/.
func NewCluster(t *testing.T, rights ...string) *Cluster {
	t.Helper()
	c := &Cluster{
		T: t, Config: clustertest.ControlPlane(t), Namespace: clustertest.Namespace(t), Registry: NewRegistry(t), cacheDir: t.TempDir(), Stop: func() {},
	}
	c.Base = c.Registry.PushBase(t, "stream/os", "one")
	install.Kinds(t, c.Config)
	install.Policies(t, c.Config)
	var err error
	c.Client, err = client.New(c.Config, client.Options{Scheme: apitest.Scheme(t)})
	require.NoError(t, err)
	install.ControllerRights(t, c.Config, c.Namespace, ControllerUser, rights...)
	t.Cleanup(func() { c.Stop() })
	return c
}

// Start runs the reconcilers of pools and images as a process of its own would; an earlier one is
// ended first.
func (c *Cluster) Start() {
	c.T.Helper()
	c.Stop()
	limited := clustertest.As(c.Config, ControllerUser)
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return c.Counting(next) })
	manager := clustertest.Manager(c.T, limited, apitest.Scheme(c.T), cache.Options{
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{c.Namespace: {}}}},
	})
	require.NoError(c.T, pools.New(pools.Options{ControllerVersion: "v1", RenderedConfigLimit: 3, Settle: tick}).SetupWithManager(manager))
	connect := func(keychain authn.Keychain) *registry.Client {
		return registry.New(registry.Options{Keychain: keychain, Backoff: ggcr.Backoff{Duration: time.Millisecond, Steps: 2}})
	}
	publisher := events.NewPublisher(manager.GetEventRecorder("layerwright-builder"))
	keeper := images.New(images.Options{
		Client: manager.GetClient(), Reader: manager.GetAPIReader(), Clock: clock.RealClock{}, Events: publisher,
		Credentials: &credentials.Source{Reader: manager.GetAPIReader(), Namespace: c.Namespace, Connect: connect},
	})
	options := builder.Options{
		Namespace: c.Namespace, Base: baseimage.New(baseimage.Options{CacheDir: c.cacheDir}), Fetcher: remote.New(remote.Options{}),
		Connect: connect, Images: keeper,
	}
	made := builder.New(options)
	require.NoError(c.T, made.SetupWithManager(manager))
	require.NoError(c.T, trials.New(tries(made, options, trials.Options{
		Client: manager.GetClient(), Reader: manager.GetAPIReader(), Clock: clock.RealClock{}, Events: publisher,
	})).SetupWithManager(manager))
	require.NoError(c.T, keeper.SetupWithManager(manager))
	c.Stop = clustertest.Run(c.T, manager.Start)
	require.True(c.T, manager.GetCache().WaitForCacheSync(c.T.Context()))
}

// Counting notes each request before it is made.
func (c *Cluster) Counting(next http.RoundTripper) http.RoundTripper { return counting{c, next} }

// counting notes what the controllers ask the API server for. Watches, and the lists that they
// begin with, are once per process.
type counting struct {
	c    *Cluster
	next http.RoundTripper
}

// RoundTrip notes a request and makes it.
func (r counting) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/secrets") || strings.HasSuffix(request.URL.Path, "/pods") {
		r.c.Mu.Lock()
		r.c.Everything = append(r.c.Everything, request.Method+" "+request.URL.String())
		r.c.Mu.Unlock()
	}
	if query := request.URL.Query(); query.Get("watch") == "" && !query.Has("limit") && query.Get("resourceVersion") == "" {
		r.c.Mu.Lock()
		r.c.calls = append(r.c.calls, request.Method+" "+request.URL.Path)
		r.c.Mu.Unlock()
	}
	return r.next.RoundTrip(request)
}

// Called are the calls since the last time.
func (c *Cluster) Called() []string {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// Add makes objects.
func (c *Cluster) Add(objects ...client.Object) {
	c.T.Helper()
	for _, o := range objects {
		require.NoError(c.T, c.Create(c.T.Context(), o))
	}
}

// Eventually waits until the cluster is as a test wants it.
func (c *Cluster) Eventually(condition func(t *assert.CollectT)) {
	c.T.Helper()
	require.EventuallyWithT(c.T, condition, patience, tick)
}

// MachineConfig is one of a pool that writes /etc/motd.
func (c *Cluster) MachineConfig(pool, name, content string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: pool}},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: c.Base, Config: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,%s"}}]}}`, content)}},
	}
}

// RolePool is a pool that selects the MachineConfigs and nodes of its role.
func RolePool(name string) *mcfgv1.MachineConfigPool {
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

// OSConfig is a MachineOSConfig of a pool.
func (c *Cluster) OSConfig(pool string) *mcfgv1.MachineOSConfig {
	w := &World{Registry: c.Registry}
	return w.Config(pool)
}

// Secret has the credentials of the registry.
func (c *Cluster) Secret(name string) *corev1.Secret {
	w := &World{T: c.T, Registry: c.Registry}
	s := w.Secret(name, "hunter2")
	s.Namespace = c.Namespace
	return s
}

// Ready waits until a MachineOSConfig has another image than the one before, and is done.
func (c *Cluster) Ready(pool string, before mcfgv1.ImageDigestFormat) *mcfgv1.MachineOSConfig {
	c.T.Helper()
	found := &mcfgv1.MachineOSConfig{}
	c.Eventually(func(t *assert.CollectT) {
		if assert.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: pool}, found)) {
			assert.NotEqual(t, before, found.Status.CurrentImagePullSpec)
			assert.True(t, status.IsTrue(found.Status.Conditions, status.Ready), "%+v", found.Status)
		}
	})
	statustest.RequireConsistent(c.T, found)
	return found
}

// Saying waits until a condition of a MachineOSConfig begins so.
func (c *Cluster) Saying(pool, conditionType, says string) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		found := &mcfgv1.MachineOSConfig{}
		if assert.NoError(t, c.Get(c.T.Context(), client.ObjectKey{Name: pool}, found)) {
			assert.True(t, strings.HasPrefix(Text(found.Status.Conditions, conditionType), says), Text(found.Status.Conditions, conditionType))
		}
	})
}

// Settled waits until the controllers have been quiet for a while, and gives what they did until
// then since the last time.
func (c *Cluster) Settled() (calls, requests []string) {
	c.T.Helper()
	quiet := time.Now()
	c.Eventually(func(t *assert.CollectT) {
		more, asked := c.Called(), c.Registry.Forget()
		calls, requests = append(calls, more...), append(requests, asked...)
		if len(more)+len(asked) > 0 {
			quiet = time.Now()
		}
		assert.Greater(t, time.Since(quiet), 2*time.Second)
	})
	return calls, requests
}
