package wire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// silence is how long a sender or receiver is waited for that lets nothing through.
	silence = 30 * time.Second
	// progress is how many bytes have to come through within that time, unless they are the last:
	// a sender of one byte now and then is as good as silent.
	progress = 32 << 10
)

// SilentError means that a connection was given up since nothing came through it.
type SilentError struct {
	host     string
	receives bool
}

// Error says who fell silent.
func (e *SilentError) Error() string {
	if e.receives {
		return fmt.Sprintf("%q took less than %d kB of what was sent within %s, and was given up", e.host, progress>>10, silence)
	}
	return fmt.Sprintf("%q sent less than %d kB of its answer within %s, and was given up", e.host, progress>>10, silence)
}

// Progress gives up requests whose bodies, in either direction, don't come through. The time that
// this program takes itself, such as for unpacking, is not counted.
type Progress struct {
	Next  http.RoundTripper
	Clock clock.WithDelayedExecution
}

// RoundTrip makes the request.
func (t *Progress) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	watched, sending := request.WithContext(ctx), t.patience(request, true, cancel)
	if request.Body != nil && request.Body != http.NoBody {
		watched.Body = &sentBody{ReadCloser: request.Body, patience: sending}
	}
	if request.GetBody != nil { // net/http begins anew with it
		watched.GetBody = func() (io.ReadCloser, error) {
			body, err := request.GetBody()
			return &sentBody{ReadCloser: body, patience: sending}, err
		}
	}
	response, err := t.Next.RoundTrip(watched)
	if gaveUp := sending.end(0); gaveUp != nil && err != nil {
		err = gaveUp
	}
	if err != nil {
		cancel()
		return nil, err
	}
	body := &receivedBody{ReadCloser: response.Body, cancel: cancel}
	body.patience = t.patience(request, false, func() { _ = body.Close() })
	response.Body = body
	return response, nil
}

func (t *Progress) patience(request *http.Request, receives bool, cancel func()) *patience {
	return &patience{clock: t.Clock, cancel: cancel, left: silence, silent: &SilentError{host: request.URL.Host, receives: receives}}
}

// patience is how long a connection is still waited for.
type patience struct {
	clock  clock.WithDelayedExecution
	cancel func()
	silent *SilentError

	mu sync.Mutex
	// left is what is left of the time in which came bytes have come.
	left  time.Duration
	came  int
	began time.Time
	timer clock.Timer
	// gaveUp is set once, and remains.
	gaveUp error
}

// begin begins to wait.
func (p *patience) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = p.clock.Now()
	p.timer = p.clock.AfterFunc(p.left, p.giveUp)
}

// end ends the wait, in which so many bytes came, and reports whether it was too long.
func (p *patience) end(came int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return p.gaveUp
	}
	p.timer.Stop()
	p.timer = nil
	p.left -= p.clock.Since(p.began)
	if p.came += came; p.came >= progress {
		p.left, p.came = silence, 0
	}
	return p.gaveUp
}

func (p *patience) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil { // else it came at the last moment
		p.gaveUp = p.silent
		go p.cancel() // it may take its time
	}
}

// receivedBody is the body of an answer.
type receivedBody struct {
	io.ReadCloser

	patience *patience
	cancel   func()
}

// Read fails where the sender falls silent.
func (b *receivedBody) Read(p []byte) (int, error) {
	if err := b.patience.end(0); err != nil {
		return 0, err
	}
	b.patience.begin()
	n, err := b.ReadCloser.Read(p)
	if gaveUp := b.patience.end(n); gaveUp != nil && err != io.EOF {
		return 0, gaveUp
	}
	return n, err
}

// Close ends the request.
func (b *receivedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// sentBody is the body of a request: between two reads of it, what was read is on its way.
type sentBody struct {
	io.ReadCloser

	patience *patience
	last     int
}

// Read gives the next bytes to send.
func (b *sentBody) Read(p []byte) (int, error) {
	if err := b.patience.end(b.last); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if b.last = n; err == nil {
		b.patience.begin()
	}
	return n, err
}
