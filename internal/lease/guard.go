package lease

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Guard refuses writes once this process's Lease may have expired. Leader election alone does not:
// a process that was paused continues before it learns that it lost the Lease.
//
// A request that is checked just before the expiry may still arrive after it.
type Guard struct {
	suffix   string
	duration time.Duration
	clock    clock.PassiveClock
	renewed  atomic.Pointer[time.Time]
}

// NewGuard is one for the Lease of this name, which lasts for duration after each renewal.
func NewGuard(name string, duration time.Duration, c clock.PassiveClock) *Guard {
	return &Guard{suffix: "/leases/" + name, duration: duration, clock: c}
}

// ExpiredError is why a request was not sent.
type ExpiredError struct {
	// Since is how long ago the Lease was renewed.
	Since time.Duration
}

// Error says what the process can't do, and why.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("writing has stopped: the Lease was last renewed %s ago, and another process may hold it", e.Since.Round(time.Second))
}

// Check is an *ExpiredError when the Lease has been this process's and may not be any more. A
// process that does not take part in an election never has one.
func (g *Guard) Check() error {
	renewed := g.renewed.Load()
	if renewed == nil {
		return nil
	}
	now := g.clock.Now()
	// The monotonic clock stands still while a machine is suspended; the wall clock can be set. The
	// larger one of both is the safe one.
	since := max(now.Sub(*renewed), now.Round(0).Sub(renewed.Round(0)))
	if since < g.duration {
		return nil
	}
	return &ExpiredError{Since: since}
}

// Registry wraps what requests to registries go through: it refuses those that write.
func (g *Guard) Registry(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if err := g.checkRequest(req); err != nil {
			return nil, err
		}
		return next.RoundTrip(req)
	})
}

// API wraps what requests to the API server go through: it notices renewals of the Lease, and
// refuses all others that write.
func (g *Guard) API(next http.RoundTripper) http.RoundTripper {
	guarded := g.Registry(next)
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method != http.MethodPut || !strings.HasSuffix(req.URL.Path, g.suffix) {
			return guarded.RoundTrip(req)
		}
		begin := g.clock.Now() // others count from when they see it, which is later
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusOK {
			g.renewed.Store(&begin)
		}
		return resp, err
	})
}

func (g *Guard) checkRequest(req *http.Request) error {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return nil
	}
	err := g.Check()
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // a RoundTripper has to, and nothing was read
	}
	return err
}

// roundTripper is a function that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls it.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
