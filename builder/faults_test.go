package builder_test

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
	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

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
			w := worldtest.Layered(t, "worker")
			b := w.Builder()
			if tt.code == 0 { // it hangs, until the attempt has taken too long
				b = w.Builder(func(o *worldtest.Settings) { o.Attempt = 500 * time.Millisecond })
			}
			w.Registry.Answer(worldtest.Failing(tt.method, tt.code))
			for range 3 {
				_ = w.Round(b)
			}
			build := w.Builds()[0]
			says := worldtest.Text(build.Status.Conditions, status.Reconciling)
			assert.True(t, strings.HasPrefix(says, "True Retrying "), says)
			assert.Contains(t, says, tt.want)
			assert.Contains(t, w.Says("worker", status.Reconciling), "True Retrying", "and the MachineOSConfig says so too")
			assert.Equal(t, "Building", w.States()[build.Name])
			assert.False(t, w.Registry.Has(t, string(build.Spec.RenderedImagePushSpec)), "no tag names half an image")
			w.Registry.Answer(nil)
			w.Struggle(func() *worldtest.Process { return w.Builder() })
			assert.Equal(t, build.UID, w.Builds()[0].UID, "the same build")
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Equal(t, build.Status.BuildStart, w.Builds()[0].Status.BuildStart)
		})
	}
}

// TestALostRaceForAPool is about a pool that another controller wrote between the read and the
// write of a reconcile. That says nothing about the MachineOSConfig.
func TestALostRaceForAPool(t *testing.T) {
	t.Parallel()
	races := func(w *worldtest.World) {
		w.Before = func(call string) error {
			if call == "status MachineConfigPool worker" {
				return apierrors.NewConflict(mcfgv1.GroupVersion.WithResource("machineconfigpools").GroupResource(), "worker", errors.New("modified"))
			}
			return nil
		}
	}
	t.Run("leaves a MachineOSConfig that is Ready so", func(t *testing.T) {
		t.Parallel()
		w := worldtest.Layered(t, "worker")
		b := w.Builder()
		w.Settle(b)
		w.Quietly(func() error {
			pool := w.Pool("worker")
			pool.Status.Conditions = nil
			return w.Status().Update(t.Context(), pool)
		})
		races(w)
		result, err := w.ReconcileConfig(b, "worker")
		require.NoError(t, err)
		assert.Equal(t, status.ConflictDelay, result.RequeueAfter)
		assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		w.Before = nil
		w.Settle(b)
		assert.True(t, status.IsTrue(w.Pool("worker").GetConditions(), string(mcfgv1.PoolBuildSuccess)))
	})
	t.Run("is tried again when the MachineOSConfig is gone", func(t *testing.T) {
		t.Parallel()
		w := worldtest.Layered(t, "worker")
		b := w.Builder()
		w.Settle(b)
		w.Remove(w.OSConfig("worker"))
		races(w)
		result, err := w.ReconcileConfig(b, "worker")
		require.NoError(t, err)
		assert.Equal(t, status.ConflictDelay, result.RequeueAfter)
	})
}

// TestClockSkew continues a build with the clock of another machine, which is behind.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	require.NoError(t, w.Round(w.Builder()))
	build := w.Builds()[0]
	require.NotNil(t, build.Status.BuildStart)
	w.Clock.SetTime(worldtest.T0.Add(-time.Hour))
	_, err := w.ReconcileBuild(w.Builder(), build.Name)
	require.NoError(t, err)
	ended := w.Builds()[0].Status
	assert.True(t, ended.BuildEnd.After(ended.BuildStart.Time))
	assert.Equal(t, "1s", ended.Duration)
	w.Settle(w.Builder())
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// TestTwoControllersAtOnce work on the same objects, as two may for a moment when the Lease changes
// hands.
func TestTwoControllersAtOnce(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	one, two := w.Builder(), w.Builder()
	for range 4 {
		require.NoError(t, w.Round(one))
		require.NoError(t, w.Round(two))
	}
	assert.Len(t, w.Builds(), 1)
	assert.Len(t, w.Images(), 1)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	created := 0
	for _, write := range w.Writes {
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
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	require.NoError(t, w.Round(b))
	build := w.Builds()[0]
	_, err := w.ReconcileConfig(w.BuilderOn(behind{w}), "worker")
	require.NoError(t, err)
	require.Len(t, w.Builds(), 1)
	assert.Equal(t, build.UID, w.Builds()[0].UID)
	assert.Equal(t, build.Name, w.OSConfig("worker").Status.MachineOSBuild.Name)
}

// TestTheGlobalPullSecret is used where a MachineOSConfig names none, and there is one.
func TestTheGlobalPullSecret(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseImagePullSecret = nil })
	b := w.Builder()
	found, err := b.Parts().Checker.Credentials(t.Context(), w.OSConfig("worker"))
	require.NoError(t, err)
	assert.Empty(t, found.PullSecret)
	assert.NotNil(t, found.Pull)

	w.Add(w.Secret(names.GlobalPullSecret, "hunter2"))
	again, err := b.Parts().Checker.Credentials(t.Context(), w.OSConfig("worker"))
	require.NoError(t, err)
	assert.Equal(t, names.GlobalPullSecret, again.PullSecret)
	assert.NotEqual(t, found.Access, again.Access)

	worldtest.Edit(w, &corev1.Secret{}, names.GlobalPullSecret, func(s *corev1.Secret) { s.Data = nil })
	_, err = b.Parts().Checker.Credentials(t.Context(), w.OSConfig("worker"))
	require.ErrorContains(t, err, names.GlobalPullSecret, "one that can't be read is no reason to crash, or to go on without")
}

func TestTheOlderKindOfSecret(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	worldtest.Edit(w, &corev1.Secret{}, "push", func(s *corev1.Secret) {
		s.Type = corev1.SecretTypeDockercfg
		s.Data = map[string][]byte{corev1.DockerConfigKey: []byte(`{"` + w.Registry.Host + `":{"username":"a","password":"b"}}`)}
	})
	w.Settle(w.Builder())
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options builder.Options
		want    string
	}{
		"no namespace":    {builder.Options{}, "the namespace of secrets and ConfigMaps is not known"},
		"a bad number":    {builder.Options{Namespace: "a", MaxConcurrentBuilds: -1}, "must not be negative"},
		"something amiss": {builder.Options{Namespace: "a"}, "was left out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, builder.New(tt.options).SetupWithManager(nil), tt.want)
		})
	}
}

// TestAControllerThatWasPaused goes on with a build that another one has ended meanwhile: it gives
// no tag to the older image.
func TestAControllerThatWasPaused(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(w *worldtest.World, other *worldtest.Process){
		"the image was made, and the next": func(w *worldtest.World, other *worldtest.Process) {
			w.Settle(other)
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Settle(other)
		},
		"the next image was made": func(w *worldtest.World, other *worldtest.Process) {
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Settle(other)
		},
		"the MachineOSConfig was deleted": func(w *worldtest.World, other *worldtest.Process) {
			w.Remove(w.OSConfig("worker"))
			w.Settle(other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			paused, other := w.Builder(), w.Builder()
			require.NoError(t, w.Round(paused))
			build := w.Builds()[0]
			var seen map[string]string
			var reached atomic.Bool
			w.Registry.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch && reached.CompareAndSwap(false, true) {
					meanwhile(w, other)
					seen = w.Registry.Tags(t, "host/os")
					w.Before = func(call string) error { return fmt.Errorf("a write of the one that was paused: %s", call) }
				}
				return false
			})
			_, err := paused.Parts().Builds.Reconcile(t.Context(), worldtest.Request(build.Name))
			require.NoError(t, err)
			assert.Equal(t, seen, w.Registry.Tags(t, "host/os"))
		})
	}
}
