package registry_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// limitedRegistry answers 429 until a time has come, and notes when it was asked for a manifest.
type limitedRegistry struct {
	status int
	header string
	until  time.Time
	asked  []int
	begin  time.Time
}

// RoundTrip is the registry.
func (l *limitedRegistry) RoundTrip(r *http.Request) (*http.Response, error) {
	if isPing(r.URL) {
		return answer(r, http.StatusOK, ""), nil
	}
	l.asked = append(l.asked, int(time.Since(l.begin).Round(time.Second).Seconds()))
	if time.Now().Before(l.until) {
		response := answer(r, l.status, "")
		response.Header.Set("Retry-After", l.header)
		return response, nil
	}
	response := answer(r, http.StatusOK, "")
	response.Header.Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
	return response, nil
}

// inEarnest are the waits that hold in earnest, without their randomness.
var inEarnest = remote.Backoff{Duration: time.Second, Factor: 3, Steps: 3}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		header string
		closed time.Duration
		asked  []int  // seconds since the begin
		left   string // how much of the pause the error tells, where it ends for one
		fails  bool
	}{
		"seconds":                            {status: 429, header: "10", closed: 10 * time.Second, asked: []int{0, 10}},
		"503 too":                            {status: 503, header: "10", closed: 10 * time.Second, asked: []int{0, 10}},
		"a date":                             {status: 429, header: "Sat, 01 Jan 2000 00:00:20 GMT", closed: 20 * time.Second, asked: []int{0, 20}},
		"less than the own wait":             {status: 429, header: "0", closed: 2 * time.Second, asked: []int{0, 1, 4}},
		"nothing that makes sense":           {status: 429, header: "soon", closed: 2 * time.Second, asked: []int{0, 1, 4}},
		"a negative number":                  {status: 429, header: "-5", closed: 2 * time.Second, asked: []int{0, 1, 4}},
		"500 has no such header":             {status: 500, header: "10", closed: 2 * time.Second, asked: []int{0, 1, 4}},
		"longer than a call may wait":        {status: 429, header: "600", closed: time.Hour, asked: []int{0}, fails: true, left: ", of which 4m59s are left"},
		"longer than anybody believes":       {status: 429, header: "99999999999", closed: time.Hour, asked: []int{0}, fails: true, left: ", of which 4m59s are left"},
		"it goes on after what it asked for": {status: 429, header: "2", closed: time.Hour, asked: []int{0, 2, 5}, fails: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limited := &limitedRegistry{status: tt.status, header: tt.header, until: time.Now().Add(tt.closed), begin: time.Now()}
				c := registry.New(registry.Options{Transport: limited, Backoff: inEarnest})
				_, err := c.Resolve(t.Context(), "quay.io/os:x")
				assert.Equal(t, tt.asked, limited.asked)
				if !tt.fails {
					require.NoError(t, err)
					return
				}
				require.Error(t, err)
				assert.Equal(t, fault.Transient, fault.ClassOf(err))
				require.ErrorContains(t, err, tt.left)
				assert.Equal(t, tt.left != "", strings.Contains(err.Error(), "asked for a pause"), err)
			})
		})
	}
}

func TestClientsShareTheirLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := &registry.RateLimits{}
		limited := &limitedRegistry{status: 429, header: "3600", until: time.Now().Add(time.Hour), begin: time.Now()}
		one := registry.New(registry.Options{Transport: limited, Backoff: inEarnest, Limits: limits})
		two := registry.New(registry.Options{Transport: limited, Backoff: inEarnest, Limits: limits})
		_, err := one.Resolve(t.Context(), "quay.io/os:x")
		require.ErrorContains(t, err, `the registry "quay.io" asked for a pause, of which 4m59s are left`)
		assert.Len(t, limited.asked, 1)

		_, err = two.Resolve(t.Context(), "quay.io/os:x")
		require.Error(t, err)
		require.Error(t, two.CanPush(t.Context(), "quay.io/os"))
		assert.Len(t, limited.asked, 1, "no one asks again")
		other := registry.New(registry.Options{
			Transport: limited, Backoff: inEarnest, Limits: limits, Keychain: logins{"quay.io": {Name: "other", Password: "other"}},
		})
		_, err = other.Resolve(t.Context(), "quay.io/os:x")
		require.Error(t, err, "other accounts go on")
		assert.Len(t, limited.asked, 2)
		_, err = two.Resolve(t.Context(), "ghcr.io/os:x")
		require.Error(t, err, "other registries are asked")
		assert.Len(t, limited.asked, 3)

		time.Sleep(5 * time.Minute)
		_, err = two.Resolve(t.Context(), "quay.io/os:x")
		require.ErrorContains(t, err, "asked for a pause", "it says so again")
		assert.Len(t, limited.asked, 4)

		time.Sleep(time.Hour)
		_, err = two.Resolve(t.Context(), "quay.io/os:x")
		require.NoError(t, err)
	})
}

func TestAPauseEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		limited := &limitedRegistry{status: 429, header: "20", until: time.Now().Add(time.Hour), begin: time.Now()}
		_, err := registry.New(registry.Options{Transport: limited, Backoff: inEarnest}).Resolve(ctx, "quay.io/os:x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(limited.begin))
	})
}
