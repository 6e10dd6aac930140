package builder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
)

// failing answers every request of a method with a status, or holds it until the client gives up
// where that is 0.
func failing(method string, code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != method {
			return false
		}
		if code == 0 {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(code)
		return true
	}
}

// TestARegistryThatFailsIsTriedAgain with one build, which goes on when the registry does.
func TestARegistryThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method string
		code   int
		want   string
	}{
		"uploads fail":                 {http.MethodPatch, http.StatusInternalServerError, "500 Internal Server Error"},
		"manifests fail":               {http.MethodPut, http.StatusServiceUnavailable, "503 Service Unavailable"},
		"the storage is full":          {http.MethodPut, http.StatusInsufficientStorage, "507 Insufficient Storage"},
		"too many requests":            {http.MethodPut, http.StatusTooManyRequests, "429 Too Many Requests"},
		"it takes uploads and no more": {http.MethodPut, 0, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			b := w.builder()
			if tt.code == 0 { // it hangs, until the attempt has taken too long
				b = w.builder(func(o *settings) { o.Attempt = 500 * time.Millisecond })
			}
			w.registry.answering(failing(tt.method, tt.code))
			for range 3 {
				_ = w.round(b)
			}
			build := w.builds()[0]
			says := text(build.Status.Conditions, status.Reconciling)
			assert.True(t, strings.HasPrefix(says, "True Retrying "), says)
			assert.Contains(t, says, tt.want)
			assert.Contains(t, w.says("worker", status.Reconciling), "True Retrying", "and the MachineOSConfig says so too")
			assert.Equal(t, "Building", w.states()[build.Name])
			assert.False(t, w.registry.has(t, string(build.Spec.RenderedImagePushSpec)), "no tag names half an image")
			w.registry.answering(nil)
			w.struggle(func() *process { return w.builder() })
			assert.Equal(t, build.UID, w.builds()[0].UID, "the same build")
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			assert.Equal(t, build.Status.BuildStart, w.builds()[0].Status.BuildStart)
		})
	}
}

// TestALostRaceForAPool is about a pool that another controller wrote between the read and the
// write of a reconcile. That says nothing about the MachineOSConfig.
func TestALostRaceForAPool(t *testing.T) {
	t.Parallel()
	races := func(w *world) {
		w.before = func(call string) error {
			if call == "status MachineConfigPool worker" {
				return apierrors.NewConflict(mcfgv1.GroupVersion.WithResource("machineconfigpools").GroupResource(), "worker", errors.New("modified"))
			}
			return nil
		}
	}
	t.Run("leaves a MachineOSConfig that is Ready so", func(t *testing.T) {
		t.Parallel()
		w := layered(t, "worker")
		b := w.builder()
		w.settle(b)
		w.quietly(func() error {
			pool := w.pool("worker")
			pool.Status.Conditions = nil
			return w.Status().Update(t.Context(), pool)
		})
		races(w)
		result, err := w.reconcileConfig(b, "worker")
		require.NoError(t, err)
		assert.Equal(t, status.ConflictDelay, result.RequeueAfter)
		assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
		w.before = nil
		w.settle(b)
		assert.True(t, status.IsTrue(w.pool("worker").GetConditions(), string(mcfgv1.PoolBuildSuccess)))
	})
	t.Run("is tried again when the MachineOSConfig is gone", func(t *testing.T) {
		t.Parallel()
		w := layered(t, "worker")
		b := w.builder()
		w.settle(b)
		w.remove(w.osConfig("worker"))
		races(w)
		result, err := w.reconcileConfig(b, "worker")
		require.NoError(t, err)
		assert.Equal(t, status.ConflictDelay, result.RequeueAfter)
	})
}

// TestClockSkew continues a build with the clock of another machine, which is behind.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	require.NoError(t, w.round(w.builder()))
	build := w.builds()[0]
	require.NotNil(t, build.Status.BuildStart)
	w.clock.SetTime(t0.Add(-time.Hour))
	_, err := w.reconcileBuild(w.builder(), build.Name)
	require.NoError(t, err)
	ended := w.builds()[0].Status
	assert.True(t, ended.BuildEnd.After(ended.BuildStart.Time))
	assert.Equal(t, "1s", ended.Duration)
	w.settle(w.builder())
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

// TestTwoControllersAtOnce work on the same objects, as two may for a moment when the Lease changes
// hands.
func TestTwoControllersAtOnce(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	one, two := w.builder(), w.builder()
	for range 4 {
		require.NoError(t, w.round(one))
		require.NoError(t, w.round(two))
	}
	assert.Len(t, w.builds(), 1)
	assert.Len(t, w.images(), 1)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	created := 0
	for _, write := range w.writes {
		if strings.HasPrefix(write, "create MachineOSBuild") {
			created++
		}
	}
	assert.Equal(t, 1, created)
}

// behind is a cache that has seen no build.
type behind struct{ client.Client }

func (b behind) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, isBuilds := list.(*mcfgv1.MachineOSBuildList); isBuilds {
		return nil
	}
	return b.Client.List(ctx, list, options...)
}

// TestABuildThatTheCacheHasNotSeen is not made twice: its name says which it is.
func TestABuildThatTheCacheHasNotSeen(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder()
	require.NoError(t, w.round(b))
	build := w.builds()[0]
	_, err := w.reconcileConfig(w.builderOn(behind{w}), "worker")
	require.NoError(t, err)
	require.Len(t, w.builds(), 1)
	assert.Equal(t, build.UID, w.builds()[0].UID)
	assert.Equal(t, build.Name, w.osConfig("worker").Status.MachineOSBuild.Name)
}

// TestTheGlobalPullSecret is used where a MachineOSConfig names none, and there is one.
func TestTheGlobalPullSecret(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseImagePullSecret = nil })
	b := w.builder()
	found, err := b.parts.Checker.Credentials(t.Context(), w.osConfig("worker"))
	require.NoError(t, err)
	assert.Empty(t, found.PullSecret)
	assert.NotNil(t, found.Pull)

	w.add(w.secret(names.GlobalPullSecret, "hunter2"))
	again, err := b.parts.Checker.Credentials(t.Context(), w.osConfig("worker"))
	require.NoError(t, err)
	assert.Equal(t, names.GlobalPullSecret, again.PullSecret)
	assert.NotEqual(t, found.Access, again.Access)

	edit(w, &corev1.Secret{}, names.GlobalPullSecret, func(s *corev1.Secret) { s.Data = nil })
	_, err = b.parts.Checker.Credentials(t.Context(), w.osConfig("worker"))
	require.ErrorContains(t, err, names.GlobalPullSecret, "one that can't be read is no reason to crash, or to go on without")
}

func TestTheOlderKindOfSecret(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	edit(w, &corev1.Secret{}, "push", func(s *corev1.Secret) {
		s.Type = corev1.SecretTypeDockercfg
		s.Data = map[string][]byte{corev1.DockerConfigKey: []byte(`{"` + w.registry.host + `":{"username":"a","password":"b"}}`)}
	})
	w.settle(w.builder())
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options Options
		want    string
	}{
		"no namespace":    {Options{}, "the namespace of secrets and ConfigMaps is not known"},
		"a bad number":    {Options{Namespace: "a", MaxConcurrentBuilds: -1}, "must not be negative"},
		"something amiss": {Options{Namespace: "a"}, "was left out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, New(tt.options).SetupWithManager(nil), tt.want)
		})
	}
}

// TestAControllerThatWasPaused goes on with a build that another one has ended meanwhile: it gives
// no tag to the older image.
func TestAControllerThatWasPaused(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(w *world, other *process){
		"the image was made, and the next": func(w *world, other *process) {
			w.settle(other)
			w.rerender("worker", "2", "/etc/motd", "two")
			w.settle(other)
		},
		"the next image was made": func(w *world, other *process) {
			w.rerender("worker", "2", "/etc/motd", "two")
			w.settle(other)
		},
		"the MachineOSConfig was deleted": func(w *world, other *process) {
			w.remove(w.osConfig("worker"))
			w.settle(other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			paused, other := w.builder(), w.builder()
			require.NoError(t, w.round(paused))
			build := w.builds()[0]
			var seen map[string]string
			var reached atomic.Bool
			w.registry.answering(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch && reached.CompareAndSwap(false, true) {
					meanwhile(w, other)
					seen = w.registry.tags(t, "host/os")
					w.before = func(call string) error { return fmt.Errorf("a write of the one that was paused: %s", call) }
				}
				return false
			})
			_, err := paused.builds.Reconcile(t.Context(), request(build.Name))
			require.NoError(t, err)
			assert.Equal(t, seen, w.registry.tags(t, "host/os"))
		})
	}
}
