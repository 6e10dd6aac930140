package wire

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Traffic is what went over the wire: requests, with those that were repeated, and the bytes of
// bodies, without headers.
type Traffic struct {
	Requests, BytesUp, BytesDown int64
}

// Meter counts the traffic of the transports that it wraps. The zero value is ready; it may be used
// by several goroutines.
type Meter struct {
	requests, up, down atomic.Int64
}

// Traffic is what has been counted so far.
func (m *Meter) Traffic() Traffic {
	return Traffic{Requests: m.requests.Load(), BytesUp: m.up.Load(), BytesDown: m.down.Load()}
}

// Wrap returns a transport that counts what goes through next.
func (m *Meter) Wrap(next http.RoundTripper) http.RoundTripper { return &metered{meter: m, next: next} }

type metered struct {
	meter *Meter
	next  http.RoundTripper
}

// RoundTrip counts the request, and both bodies while they are read.
func (t *metered) RoundTrip(request *http.Request) (*http.Response, error) {
	t.meter.requests.Add(1)
	if request.Body != nil && request.Body != http.NoBody {
		request = t.countUp(request)
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && response != nil && response.Body != nil {
		response.Body = &countedBody{response.Body, &t.meter.down}
	}
	return response, err
}

// countUp is the request with counted bodies: net/http takes another one from GetBody when it has
// to begin anew.
func (t *metered) countUp(request *http.Request) *http.Request {
	counted := *request
	counted.Body = &countedBody{request.Body, &t.meter.up}
	if request.GetBody != nil {
		counted.GetBody = func() (io.ReadCloser, error) {
			body, err := request.GetBody()
			if err != nil {
				return nil, err
			}
			return &countedBody{body, &t.meter.up}, nil
		}
	}
	return &counted
}

type countedBody struct {
	io.ReadCloser
	total *atomic.Int64
}

// Read counts what it reads.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.total.Add(int64(n))
	return n, err
}
