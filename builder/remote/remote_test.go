package remote_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/internal/fault"
)

// serve runs a server for one test.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestFetchAllKeepsOrder(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path) //nolint:gosec // no one renders it
	})
	var sources []remote.Source
	for i := range 20 {
		sources = append(sources, remote.Source{URL: url + "/" + strconv.Itoa(i)})
	}
	contents, err := remote.New(remote.Options{}).FetchAll(t.Context(), sources)
	require.NoError(t, err)
	for i, content := range contents {
		assert.Equal(t, "/"+strconv.Itoa(i), string(content))
	}
}

func TestFetchAllSendsHeaders(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "identity", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")        // says so of a file that is one
		_, _ = io.WriteString(w, r.Header.Get("X-Token")) //nolint:gosec // no one renders it
	})
	contents, err := remote.New(remote.Options{}).FetchAll(t.Context(),
		[]remote.Source{{URL: url, Header: http.Header{"x-token": {"open sesame"}}}})
	require.NoError(t, err)
	assert.Equal(t, "open sesame", string(contents[0]))
}

func TestFetchAllFailures(t *testing.T) {
	t.Parallel()
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	tests := map[string]struct {
		handler    http.HandlerFunc
		url        string // instead of the server's
		wantClass  fault.Class
		wantReason string
		wantText   string
	}{
		"not there":             {handler: status(404), wantClass: fault.Waiting, wantReason: mcfgv1.ReasonWaitingForRemoteFile, wantText: "404 Not Found"},
		"not allowed":           {handler: status(403), wantClass: fault.Waiting, wantReason: mcfgv1.ReasonWaitingForRemoteFile, wantText: "403 Forbidden"},
		"nothing new":           {handler: status(304), wantClass: fault.Waiting, wantReason: mcfgv1.ReasonWaitingForRemoteFile, wantText: "304"},
		"a part":                {handler: status(206), wantClass: fault.Waiting, wantReason: mcfgv1.ReasonWaitingForRemoteFile, wantText: "206"},
		"busy":                  {handler: status(429), wantClass: fault.Transient, wantText: "429"},
		"broken":                {handler: status(502), wantClass: fault.Transient, wantText: "502"},
		"too large":             {handler: text(strings.Repeat("x", 101)), wantClass: fault.Terminal, wantReason: mcfgv1.ReasonInvalidMachineConfig, wantText: "larger than 100 bytes"},
		"redirected for ever":   {handler: redirect("/"), wantClass: fault.Transient, wantText: "more than 10 redirects"},
		"redirected to a file":  {handler: redirect("file:///etc/passwd"), wantClass: fault.Transient, wantText: "not http or https"},
		"no web address":        {url: "file:///etc/passwd", wantClass: fault.Terminal, wantReason: mcfgv1.ReasonInvalidMachineConfig, wantText: `scheme "file"`},
		"no address at all":     {url: "http://", wantClass: fault.Terminal, wantReason: mcfgv1.ReasonInvalidMachineConfig},
		"an address that can't": {url: "http://a b/", wantClass: fault.Terminal, wantReason: mcfgv1.ReasonInvalidMachineConfig},
		"no one listens":        {url: "http://127.0.0.1:1/", wantClass: fault.Transient},
		"ends in the middle": {wantClass: fault.Transient, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "50")
			_, _ = io.WriteString(w, "short")
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := tt.url
			if url == "" {
				url = serve(t, tt.handler) + "/x?token=secret"
			}
			_, err := remote.New(remote.Options{MaxBytes: 100}).FetchAll(t.Context(), []remote.Source{{URL: url}})
			require.Error(t, err)
			assert.Equal(t, tt.wantClass, fault.ClassOf(err), err)
			assert.Equal(t, tt.wantReason, fault.Reason(err))
			assert.Contains(t, err.Error(), tt.wantText)
			assert.NotContains(t, fault.Message(err), "secret")
		})
	}
}

func TestFetchAllTakesAFileOfExactlyTheLimit(t *testing.T) {
	t.Parallel()
	url := serve(t, text(strings.Repeat("x", 100)))
	contents, err := remote.New(remote.Options{MaxBytes: 100}).FetchAll(t.Context(), []remote.Source{{URL: url}})
	require.NoError(t, err)
	assert.Len(t, contents[0], 100)
}

func TestRedirectsKeepSecretsFromOtherHosts(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[http.Header]
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(&r.Header) })
	here := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/end":
			got.Store(&r.Header)
		default:
			http.Redirect(w, r, other, http.StatusFound)
		}
	})
	fetch := func(path string) {
		_, err := remote.New(remote.Options{}).FetchAll(t.Context(),
			[]remote.Source{{URL: here + path, Header: http.Header{"X-Token": {"secret"}, "Authorization": {"secret"}}}})
		require.NoError(t, err)
	}
	fetch("/other")
	assert.Empty(t, got.Load().Get("X-Token"))
	assert.Empty(t, got.Load().Get("Authorization"))
	fetch("/same")
	assert.Equal(t, "secret", got.Load().Get("X-Token"))
}

func TestRedirectsDoNotLeaveTLS(t *testing.T) {
	t.Parallel()
	plain := serve(t, text("plain"))
	server := httptest.NewTLSServer(http.RedirectHandler(plain, http.StatusFound))
	t.Cleanup(server.Close)
	_, err := remote.New(remote.Options{Transport: server.Client().Transport}).FetchAll(t.Context(), []remote.Source{{URL: server.URL}})
	require.ErrorContains(t, err, "from https to http")
}

func TestFetchAllEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := remote.New(remote.Options{}).FetchAll(ctx, []remote.Source{{URL: url}, {URL: url}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFetchAllEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := remote.New(remote.Options{Timeout: time.Millisecond}).FetchAll(t.Context(), []remote.Source{{URL: url}})
	require.Error(t, err)
	assert.True(t, fault.IsTransient(err), err)
}
