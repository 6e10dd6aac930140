package pools

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	patience = 2 * time.Minute
	tick     = 50 * time.Millisecond
	// controllerUser has the rights of deploy/base, and no others.
	controllerUser = "layerwright-under-test"
)

// cluster is a real API server with Layerwright's kinds, policies and rights. There is one for all
// tests, which use it in turn.
type cluster struct {
	client.Client
	t      *testing.T
	config *rest.Config

	mu     sync.Mutex
	writes []string // of the reconciler: method and path
	stop   func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, config: clustertest.ControlPlane(t), stop: func() {}}
	install.Kinds(t, c.config)
	install.Policies(t, c.config)
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: apitest.Scheme(t)})
	require.NoError(t, err)
	install.ControllerRights(t, c.config, clustertest.Namespace(t), controllerUser)
	for _, object := range []client.Object{&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfig{}, &corev1.Node{}} { // of the test before
		require.NoError(t, c.DeleteAllOf(t.Context(), object))
	}
	t.Cleanup(func() { c.stop() })
	return c
}

// offer has the OSImageStream list streams. A policy keeps it from being deleted, so it may be
// there already.
func (c *cluster) offer(stream *mcfgv1.OSImageStream) {
	c.t.Helper()
	wanted := stream.Status
	if err := c.Create(c.t.Context(), stream); err != nil {
		require.NoError(c.t, client.IgnoreAlreadyExists(err))
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: mcfgv1.OSImageStreamName}, stream))
	}
	stream.Status = wanted
	require.NoError(c.t, c.Status().Update(c.t.Context(), stream))
}

// start runs the reconciler as a process of its own would; an earlier one is ended first.
func (c *cluster) start(options Options) {
	c.t.Helper()
	c.stop()
	limited := clustertest.As(c.config, controllerUser)
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return recording{c, next} })
	manager := clustertest.Manager(c.t, limited, apitest.Scheme(c.t), cache.Options{})
	for _, add := range []func(ctrl.Manager) error{
		New(options).SetupWithManager, NewUpgrades(options.ControllerVersion).SetupWithManager, NewNodeLabels().SetupWithManager,
	} {
		require.NoError(c.t, add(manager))
	}
	c.stop = clustertest.Run(c.t, manager.Start)
}

// recording keeps what the reconciler writes, except for events.
type recording struct {
	c    *cluster
	next http.RoundTripper
}

func (r recording) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events") {
		r.c.mu.Lock()
		r.c.writes = append(r.c.writes, request.Method+" "+request.URL.Path)
		r.c.mu.Unlock()
	}
	return r.next.RoundTrip(request)
}

// written are the reconciler's writes since the last call.
func (c *cluster) written() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := c.writes
	c.writes = nil
	return writes
}

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		o.SetUID("")
		o.SetGeneration(0)
		require.NoError(c.t, c.Create(c.t.Context(), o))
	}
}

func (c *cluster) delete(object client.Object) {
	c.t.Helper()
	require.NoError(c.t, c.Delete(c.t.Context(), object))
}

// change edits an object as a person does, again if someone else was faster.
func change[T client.Object](c *cluster, name string, object T, edit func(T)) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, object)) {
			edit(object)
			assert.NoError(t, c.Update(c.t.Context(), object))
		}
	})
}

func (c *cluster) changePool(name string, edit func(*mcfgv1.MachineConfigPool)) {
	c.t.Helper()
	change(c, name, &mcfgv1.MachineConfigPool{}, edit)
}

func (c *cluster) changeConfig(name string, edit func(*mcfgv1.MachineConfig)) {
	c.t.Helper()
	change(c, name, &mcfgv1.MachineConfig{}, edit)
}

func (c *cluster) changeNode(name string, edit func(*corev1.Node)) {
	c.t.Helper()
	change(c, name, &corev1.Node{}, edit)
}

func (c *cluster) eventually(check func(t *assert.CollectT)) {
	c.t.Helper()
	require.EventuallyWithT(c.t, check, patience, tick)
}

func (c *cluster) pool(name string) *mcfgv1.MachineConfigPool {
	c.t.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, pool))
	statustest.RequireConsistent(c.t, pool)
	return pool
}

// settled waits until the status of a pool speaks of its spec as it is, and the pool is as wanted.
func (c *cluster) settled(name string, check func(t *assert.CollectT, pool *mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		if assert.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: name}, pool)) {
			assert.Equal(t, pool.Generation, pool.Status.ObservedGeneration)
			assert.NotEmpty(t, pool.Spec.Configuration.Name)
			check(t, pool)
		}
	})
	return c.pool(name)
}

// saying checks what a pool says about a type.
func saying(conditionType, want string) func(*assert.CollectT, *mcfgv1.MachineConfigPool) {
	return func(t *assert.CollectT, pool *mcfgv1.MachineConfigPool) {
		is := "nothing"
		if c := status.Find(pool.GetConditions(), conditionType); c != nil {
			is = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
		assert.Contains(t, is, want, conditionType)
	}
}

// joining checks what a pool's configuration was joined from, and gives its name.
func joining(sources ...string) func(*assert.CollectT, *mcfgv1.MachineConfigPool) {
	return func(t *assert.CollectT, pool *mcfgv1.MachineConfigPool) {
		var is []string
		for _, source := range pool.Spec.Configuration.Source {
			is = append(is, source.Name)
		}
		assert.Equal(t, sources, is)
	}
}

func (c *cluster) renderedOf(pool string) []string {
	c.t.Helper()
	var list mcfgv1.MachineConfigList
	require.NoError(c.t, c.List(c.t.Context(), &list))
	var names []string
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == pool {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}
