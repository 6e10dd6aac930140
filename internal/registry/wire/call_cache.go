package wire

import (
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
)

// CallCache keeps what one call has learned of a registry, so that it is not asked again: how to
// log in, which each part of go-containerregistry finds out for itself, and which digests are
// absent.
type CallCache struct {
	mu sync.Mutex
	// pings are the answers to GET /v2/ by URL, with their headers.
	pings map[string]*http.Response
	// absent are the digests of what is not looked for before it is uploaded.
	absent map[string]bool
}

// NewCallCache returns an empty cache.
func NewCallCache() *CallCache {
	return &CallCache{pings: map[string]*http.Response{}, absent: map[string]bool{}}
}

// Wrap returns a transport for one of the clients of the call.
func (t *CallCache) Wrap(next http.RoundTripper) http.RoundTripper { return &cachingTransport{t, next} }

type cachingTransport struct {
	*CallCache
	next http.RoundTripper
}

// MarkAbsent records a digest that need not be looked for before it is uploaded.
func (t *CallCache) MarkAbsent(digest string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.absent[digest] = true
}

// RoundTrip asks the registry, unless the answer is known.
func (t *cachingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	isPing := request.Method == http.MethodGet && request.URL.Path == "/v2/"
	if known, err := t.known(request, isPing); known != nil || err != nil {
		return known, err
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && isPing && (response.StatusCode == http.StatusOK || response.StatusCode == http.StatusUnauthorized) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pings[request.URL.String()] = answer(request, response.StatusCode, response.Header)
	}
	return response, err
}

// errPlain means that a host without TLS is not asked for it again.
var errPlain = errors.New("the registry has answered without TLS")

// known is the answer to a request that is not made; nil where it has to be.
func (t *CallCache) known(request *http.Request, isPing bool) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ping := t.pings[request.URL.String()]; isPing && ping != nil {
		return answer(request, ping.StatusCode, ping.Header), nil
	}
	if plain, isTLS := strings.CutPrefix(request.URL.String(), "https:"); isPing && isTLS && t.pings["http:"+plain] != nil {
		return nil, errPlain
	}
	if request.Method == http.MethodHead && t.absent[path.Base(request.URL.Path)] {
		return answer(request, http.StatusNotFound, nil), nil
	}
	return nil, nil
}

// answer is an answer without a body.
func answer(request *http.Request, code int, header http.Header) *http.Response {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Del("Content-Length")
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader("")), Request: request,
	}
}
