package wire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// longestPause is how long a request waits for a registry that asked for a pause. A longer one
	// ends the call with an error that has the time.
	longestPause = 30 * time.Second
	// longestTrusted is the longest pause that is believed: whoever still has to wait is told so
	// again.
	longestTrusted = 5 * time.Minute
)

// longestError is how many bytes of an error's text are read. go-containerregistry forgets the
// status of an error with more.
const longestError = 60 << 10

// cutBody is the begin of a body.
type cutBody struct {
	io.Reader
	io.Closer
}

// RateLimits remember which registries answered 429 (or 503) with a Retry-After, and hold requests
// to them back until then, of the account that was meant. The zero value is ready; it may be used
// by several goroutines.
type RateLimits struct {
	mu    sync.Mutex
	until map[limitKey]time.Time
}

// limitKey is whom a pause is for: registries count the requests of each account.
type limitKey struct{ host, account string }

// PauseError says that a registry asked for a longer pause than a request waits.
type PauseError struct {
	host  string
	pause time.Duration
}

// Error says how long.
func (e *PauseError) Error() string {
	return fmt.Sprintf("the registry %q asked for a pause, of which %s are left", e.host, e.pause.Round(time.Second))
}

// Wrap is a transport that waits where a registry has asked for it.
func (l *RateLimits) Wrap(next http.RoundTripper, clk clock.Clock) http.RoundTripper {
	return &limited{limits: l, next: next, clock: clk}
}

type limited struct {
	limits *RateLimits
	next   http.RoundTripper
	clock  clock.Clock
}

// RoundTrip waits until the host takes requests again, and notes when it asks for a pause. Whether
// the request is tried again is not decided here but by the client, whose tries are counted.
func (t *limited) RoundTrip(request *http.Request) (*http.Response, error) {
	key := limitKey{host: request.URL.Host, account: askingOf(request).Account}
	if err := t.wait(request.Context(), key); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // a transport's duty
		}
		return nil, err
	}
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		response.Body = &cutBody{Reader: io.LimitReader(response.Body, longestError), Closer: response.Body}
	}
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		if pause := retryAfter(response.Header, t.clock.Now()); pause > 0 {
			t.limits.note(key, t.clock.Now().Add(min(pause, longestTrusted)))
		}
	}
	return response, nil
}

func (t *limited) wait(ctx context.Context, key limitKey) error {
	pause := t.limits.left(key, t.clock.Now())
	switch {
	case pause <= 0:
		return nil
	case pause > longestPause:
		return &PauseError{host: key.host, pause: pause}
	}
	timer := t.clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note never shortens a pause: two answers may overtake each other.
func (l *RateLimits) note(key limitKey, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = map[limitKey]time.Time{}
	}
	if until.After(l.until[key]) {
		l.until[key] = until
	}
}

// left is how long a pause still is.
func (l *RateLimits) left(key limitKey, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, ok := l.until[key]
	if !ok {
		return 0
	}
	if !until.After(now) {
		delete(l.until, key)
		return 0
	}
	return until.Sub(now)
}

// retryAfter reads the header of that name: seconds, or a date (RFC 9110, 10.2.3). It is zero where
// there is none that makes sense.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), int(longestTrusted/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}
