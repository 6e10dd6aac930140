package wire_test

import (
	"cmp"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/internal/registry/wire"
)

// pace is how bytes go: so many, and then a wait, so many times.
type pace struct {
	bytes int
	wait  time.Duration
	times int
	// hangs reports whether it never ends.
	hangs bool
}

// move takes or gives bytes in its pace, as long as there is someone on the other side.
func (p pace) move(some func([]byte) (int, error), gone <-chan struct{}) {
	for range p.times {
		if _, err := some(make([]byte, p.bytes)); err != nil {
			return
		}
		select {
		case <-time.After(p.wait):
		case <-gone:
			return
		}
	}
	if p.hangs {
		<-gone
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// download reads an answer that comes in the pace.
func (p pace) download(t *testing.T) error {
	t.Helper()
	body, sender := io.Pipe()
	server := &wire.Progress{Clock: clock.RealClock{}, Next: tripper(func(r *http.Request) (*http.Response, error) {
		go func() {
			p.move(sender.Write, r.Context().Done())
			_ = sender.Close()
		}()
		return &http.Response{StatusCode: http.StatusOK, Body: body, Request: r}, nil
	})}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.example/blob", http.NoBody)
	require.NoError(t, err)
	response, err := server.RoundTrip(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	_, again := response.Body.Read(make([]byte, 1))
	require.Error(t, again, "it remains so")
	require.NoError(t, response.Body.Close())
	return err
}

// upload sends more than enough, which is taken in the pace.
func (p pace) upload(t *testing.T) error {
	t.Helper()
	server := &wire.Progress{Clock: clock.RealClock{}, Next: tripper(func(r *http.Request) (*http.Response, error) {
		var failed error
		p.move(func(some []byte) (n int, err error) {
			n, err = io.ReadFull(r.Body, some)
			failed = err
			return n, err
		}, r.Context().Done())
		if err := cmp.Or(failed, r.Context().Err()); err != nil { // as net/http does
			return nil, err
		}
		return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: r}, nil
	})}
	endless, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://registry.example/blob", zeros{})
	response, err := server.RoundTrip(endless)
	if err == nil {
		require.NoError(t, response.Body.Close())
	}
	return err
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestBodiesWithoutProgressAreGivenUp(t *testing.T) {
	t.Parallel()
	const never = time.Duration(0)
	tests := map[string]struct {
		pace   pace
		gaveUp time.Duration
	}{
		"silent in the middle":             {pace{bytes: 1 << 20, times: 1, hangs: true}, 30 * time.Second},
		"silent near the end":              {pace{bytes: 1 << 20, wait: time.Minute / 3, times: 6, hangs: true}, 130 * time.Second},
		"some bytes now and then":          {pace{bytes: 1, wait: time.Second, times: 3600}, 30 * time.Second},
		"slow, and it comes through":       {pace{bytes: 4 << 10, wait: time.Second, times: 600}, never},
		"little, and then it is complete":  {pace{bytes: 10, wait: 2 * time.Second, times: 10}, never},
		"it pauses for less than the time": {pace{bytes: 64 << 10, wait: 29 * time.Second, times: 5}, never},
	}
	ways := map[string]struct {
		move func(pace, *testing.T) error
		says string
	}{
		"answer":  {pace.download, `"registry.example" sent less than 32 kB of its answer within 30s, and was given up`},
		"request": {pace.upload, `"registry.example" took less than 32 kB of what was sent within 30s, and was given up`},
	}
	for name, tt := range tests {
		for which, way := range ways {
			t.Run(which+", "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					err := way.move(tt.pace, t)
					if tt.gaveUp == never {
						require.NoError(t, err)
						return
					}
					var silent *wire.SilentError
					require.ErrorAs(t, err, &silent)
					require.EqualError(t, err, way.says)
					assert.Equal(t, tt.gaveUp, time.Since(begin).Round(time.Second))
				})
			})
		}
	}
}

func TestOwnWorkIsNoSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &wire.Progress{Clock: clock.RealClock{}, Next: tripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.LimitReader(zeros{}, 100)), Request: r}, nil
		})}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry.example/blob", http.NoBody)
		require.NoError(t, err)
		response, err := server.RoundTrip(request)
		require.NoError(t, err)
		for range 100 {
			time.Sleep(time.Hour)
			_, err = io.ReadFull(response.Body, make([]byte, 1))
			require.NoError(t, err)
		}
		require.NoError(t, response.Body.Close())
	})
}
