package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// direct are handlers that are called without a network, by host: thousands of faults take seconds
// that way.
var direct sync.Map

var hosts atomic.Int64

// serveDirect makes a handler known to transport under a host of its own, which it returns.
func serveDirect(t *testing.T, handler http.Handler) string {
	t.Helper()
	host := fmt.Sprintf("r%d.localhost:5000", hosts.Add(1)) // a name that needs no TLS
	direct.Store(host, handler)
	t.Cleanup(func() { direct.Delete(host) })
	return host
}

// transport reaches the handlers of serveDirect and serve.
func transport(t *testing.T) http.RoundTripper {
	t.Helper()
	network := &http.Transport{} // the test's own: a closed server leaves no connections to later ones on its port
	t.Cleanup(network.CloseIdleConnections)
	return tripper(func(r *http.Request) (*http.Response, error) {
		handler, ok := direct.Load(r.URL.Host)
		if !ok {
			return network.RoundTrip(r)
		}
		return call(handler.(http.Handler), r)
	})
}

// call hands a request to a handler the way a server does.
func call(handler http.Handler, r *http.Request) (response *http.Response, err error) {
	defer closeBody(r)
	if r.URL.Scheme == "https" {
		return nil, errors.New("http: server gave HTTP response to HTTPS client")
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := r.Clone(r.Context())
	in.Host, in.RequestURI = r.URL.Host, r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	whole := &watched{ReadCloser: in.Body}
	in.Body = whole
	out := httptest.NewRecorder()
	defer func() {
		if reason := recover(); reason != nil {
			response, err = nil, io.ErrUnexpectedEOF // what http.ErrAbortHandler makes of a connection
		}
	}()
	handler.ServeHTTP(out, in)
	if whole.err != nil {
		return nil, whole.err
	}
	response = out.Result()
	response.Request = r
	return response, r.Context().Err()
}

// watched remembers that a body could not be read to its end.
type watched struct {
	io.ReadCloser
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// strict is a handler that gets no halves of bodies: servers drop such requests, and the registry
// in memory would keep the half.
func strict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodPatch {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}
