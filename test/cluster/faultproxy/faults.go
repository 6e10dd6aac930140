package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Answer answers with a status and an error of the registry's protocol, instead of the registry.
// Headers come as name and value in turns.
func Answer(status int, code string, headers ...string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"a fault that was asked for"}]}`, code)
	}
}

// Hang takes the request and never answers, until the client gives up or the returned function is
// called: then the connection ends.
func Hang() (hang Fault, end func()) {
	ended := make(chan struct{})
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-ended:
		}
		panic(http.ErrAbortHandler)
	}, sync.OnceFunc(func() { close(ended) })
}

// CutRequest loses the connection when a share of the request's body, from 0 to 1, has reached the
// registry. At 0 the registry may not even see the headers.
func CutRequest(share float64) Fault {
	return func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			cut := r.Clone(r.Context())
			cut.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:int(share*float64(len(body)))]), brokenReader{}))
			func() {
				defer func() { _ = recover() }() // the proxy's own way to end a request
				next.ServeHTTP(httptest.NewRecorder(), cut)
			}()
		}
		panic(http.ErrAbortHandler)
	}
}

// brokenReader is where a body breaks off.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// CutAnswer lets the registry do what it was asked, and loses the connection when a share of its
// answer, from 0 to 1, has been sent: of everything that goes over the wire, the status line and
// the headers included. The last byte is never sent.
func CutAnswer(share float64) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		wire := &bytes.Buffer{}
		answer := recorder.Result()
		answer.Request, answer.ContentLength = r, int64(recorder.Body.Len())
		if err := answer.Write(wire); err != nil {
			panic(http.ErrAbortHandler)
		}
		hijacker, ok := w.(http.Hijacker)
		if !ok {
			panic(http.ErrAbortHandler)
		}
		connection, _, err := hijacker.Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		_, _ = connection.Write(wire.Bytes()[:min(int(share*float64(wire.Len())), wire.Len()-1)])
		_ = connection.Close()
	}
}

// Held is a request that waits, on its way to the registry or on its way back.
type Held struct {
	// Arrived is closed when the first request waits.
	Arrived <-chan struct{}
	// Release lets it go on, and all that follow.
	Release func()
}

// HoldRequest keeps requests from the registry until they are released. Those whose client has gone
// by then never reach it.
func HoldRequest() (Fault, *Held) {
	held, wait := hold()
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body) // only a server that has read all of it learns that the client has gone
		if err != nil || !wait(r) {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	}, held
}

// HoldAnswer lets the registry do what it was asked, and keeps its answer back until it is
// released.
func HoldAnswer() (Fault, *Held) {
	held, wait := hold()
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		if !wait(r) {
			panic(http.ErrAbortHandler)
		}
		for name, values := range recorder.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes())
	}, held
}

func hold() (held *Held, wait func(r *http.Request) bool) {
	arrived, released := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(arrived) })
	return &Held{Arrived: arrived, Release: sync.OnceFunc(func() { close(released) })}, func(r *http.Request) bool {
		arrive()
		select {
		case <-released:
			return true
		case <-r.Context().Done():
			return false
		}
	}
}
