package lease_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/layerwright/layerwright/internal/lease"
)

const (
	duration = 15 * time.Second
	leases   = "/apis/coordination.k8s.io/v1/namespaces/layerwright/leases/"
)

// world is a server, a guard in front of it, and the time.
type world struct {
	t        *testing.T
	clock    *clocktesting.FakePassiveClock
	guard    *lease.Guard
	server   *httptest.Server
	status   int
	onAnswer func()
	seen     []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), status: http.StatusOK, onAnswer: func() {}}
	w.guard = lease.NewGuard("one", duration, w.clock)
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.seen = append(w.seen, req.Method+" "+req.URL.Path)
		w.onAnswer()
		rw.WriteHeader(w.status)
	}))
	t.Cleanup(w.server.Close)
	return w
}

// send is whether a request was sent, and why it was not.
func (w *world) send(wrap func(http.RoundTripper) http.RoundTripper, method, path string) error {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.server.URL+path, strings.NewReader("body"))
	require.NoError(w.t, err)
	before := len(w.seen)
	resp, err := wrap(w.server.Client().Transport).RoundTrip(req)
	if err != nil {
		assert.Len(w.t, w.seen, before, "it was refused and not sent")
		return err
	}
	assert.Len(w.t, w.seen, before+1)
	return resp.Body.Close()
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func TestGuard(t *testing.T) {
	t.Parallel()
	writes := []string{http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete}

	t.Run("a process that never had the Lease writes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.pass(time.Hour)
		for _, method := range writes {
			require.NoError(t, w.send(w.guard.API, method, "/api/v1/namespaces/x/events"))
			require.NoError(t, w.send(w.guard.Registry, method, "/v2/os/manifests/latest"))
		}
	})
	t.Run("until the Lease ends, and again when it was renewed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for range 2 {
			require.NoError(t, w.send(w.guard.API, http.MethodPut, leases+"one"))
			w.pass(duration - 1)
			for _, method := range writes {
				require.NoError(t, w.send(w.guard.Registry, method, "/v2/os/manifests/latest"))
			}
			w.pass(1)
			for _, method := range writes {
				for _, wrap := range []func(http.RoundTripper) http.RoundTripper{w.guard.API, w.guard.Registry} {
					var expired *lease.ExpiredError
					require.ErrorAs(t, w.send(wrap, method, "/v2/os/manifests/latest"), &expired)
					assert.Equal(t, "writing has stopped: the Lease was last renewed 15s ago, and another process may hold it", expired.Error())
				}
			}
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				require.NoError(t, w.send(w.guard.API, method, "/api/v1/pods"), "reading harms no one")
				require.NoError(t, w.send(w.guard.Registry, method, "/v2/os/manifests/latest"))
			}
		}
	})
	t.Run("the Lease counts from when it was asked for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.onAnswer = func() { w.pass(duration) }
		require.NoError(t, w.send(w.guard.API, http.MethodPut, leases+"one"))
		w.onAnswer = func() {}
		require.Error(t, w.send(w.guard.API, http.MethodPost, "/api/v1/pods"))
		require.NoError(t, w.send(w.guard.API, http.MethodPut, leases+"one"), "the Lease itself may be asked for")
	})
	t.Run("no other answer and no other Lease is a renewal", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.NoError(t, w.send(w.guard.API, http.MethodPut, leases+"one"))
		w.pass(duration)
		require.Error(t, w.send(w.guard.API, http.MethodPut, leases+"another-one"))
		require.NoError(t, w.send(w.guard.API, http.MethodGet, leases+"one"))
		w.status = http.StatusConflict
		require.NoError(t, w.send(w.guard.API, http.MethodPut, leases+"one"))
		require.Error(t, w.guard.Check())
	})
}
