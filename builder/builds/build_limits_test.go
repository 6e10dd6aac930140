package builds_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// TestTheRetryLimit ends a build that fails for a reason outside of it, with the attempt that is
// one too many, whatever restarts in between.
func TestTheRetryLimit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		limit  *int32
		rounds int
		state  string
		says   string
	}{
		"none is allowed":     {limit: new(int32), rounds: 3, state: "Failed", says: "True RetryLimitReached attempt 1 of 1 (spec.buildRetryLimit) failed: "},
		"two are allowed":     {limit: new(int32(2)), rounds: 5, state: "Failed", says: "True RetryLimitReached attempt 3 of 3 (spec.buildRetryLimit) failed: "},
		"not all are used up": {limit: new(int32(5)), rounds: 5, state: "Building", says: "False AsExpected"},
		"nothing limits them": {rounds: 30, state: "Building", says: "False AsExpected"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = tt.limit })
			w.Registry.Answer(worldtest.Failing(http.MethodPatch, http.StatusInternalServerError))
			for range tt.rounds {
				_ = w.Round(w.Builder()) // a process of its own each time
			}
			build := w.Builds()[0]
			assert.Equal(t, tt.state, w.States()[build.Name])
			assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildFailed), tt.says)
			w.Registry.Answer(nil)
			if tt.state == "Failed" {
				assert.Contains(t, w.Says("worker", status.Stalled), "True RetryLimitReached build \""+build.Name+"\" failed: attempt ")
				w.Clock.SetTime(w.Clock.Now().Add(plan.RetryAfter))
			}
			w.Struggle(func() *worldtest.Process { return w.Builder() })
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Len(t, w.Builds(), 1)
		})
	}
}

// TestAnEndingProcessUsesUpNoAttempt: what it breaks off is no fault of the registry's.
func TestAnEndingProcessUsesUpNoAttempt(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = new(int32) })
	require.NoError(t, w.Round(w.Builder()))
	build := w.Builds()[0]
	ctx, cancel := context.WithCancel(t.Context())
	w.Registry.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			cancel()
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		return false
	})
	_, err := w.Builder().Parts().Builds.Reconcile(ctx, worldtest.Request(build.Name))
	require.Error(t, err)
	w.Registry.Answer(nil)
	w.Struggle(func() *worldtest.Process { return w.Builder() })
	assert.Equal(t, build.UID, w.Builds()[0].UID)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

func TestBuildTimeout(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		timeout string
		state   string
		says    string
	}{
		"of the administrator":            {timeout: "300ms", state: "Failed", says: "True TimedOut it took longer than spec.buildTimeout (300ms): "},
		"longer than an attempt may take": {timeout: "1h", state: "Building", says: "False AsExpected"},
		"none":                            {state: "Building", says: "False AsExpected"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildTimeout = tt.timeout })
			require.NoError(t, w.Round(w.Builder()))
			w.Registry.Answer(worldtest.Failing(http.MethodPut, 0))
			_ = w.Round(w.Builder(func(o *worldtest.Settings) { o.Attempt = 500 * time.Millisecond }))
			build := w.Builds()[0]
			assert.Equal(t, tt.state, w.States()[build.Name])
			assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildFailed), tt.says)
			if tt.state == "Failed" {
				_, err := w.ReconcileConfig(w.Builder(), "worker")
				require.NoError(t, err)
				assert.Contains(t, w.Says("worker", status.Stalled), `True TimedOut build "`+build.Name+`" failed: it took longer than spec.buildTimeout (300ms): pushing image `)
			}
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildTimeout = "" }) // the image itself takes its time on a slow machine
			w.Registry.Answer(nil)
			if tt.state != "Failed" { // one that timed out is made again when it gets more time
				w.Clock.SetTime(w.Clock.Now().Add(plan.RetryAfter))
			}
			w.Struggle(func() *worldtest.Process { return w.Builder() })
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		})
	}
}

// TestSecretsOfRepositories: an image is removed with the secret of the repository that it is in.
func TestSecretsOfRepositories(t *testing.T) {
	t.Parallel()
	build := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcfgv1.AnnotationRenderedImagePushSecret: "old"}}}
	build.Spec.RenderedImagePushSpec = "registry.example.com/os/worker:key"
	config := func(spec string) *mcfgv1.MachineOSConfig {
		c := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		c.Spec.RenderedImagePushSpec, c.Spec.RenderedImagePushSecret.Name = mcfgv1.ImageTagFormat(spec), "new"
		return c
	}
	assert.Equal(t, "new", retention.PushSecret(build, config("registry.example.com/os/worker:latest")), "it may have been replaced")
	assert.Equal(t, "old", retention.PushSecret(build, config("elsewhere.example.com/os/worker:latest")))
	assert.Equal(t, "old", retention.PushSecret(build, &mcfgv1.MachineOSConfig{}), "the MachineOSConfig is gone")
}
