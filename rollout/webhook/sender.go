package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// limit is how many messages may wait to be sent; further ones are given up.
	limit = 100
	// timeout is how long one request may take.
	timeout = 10 * time.Second
)

// errGivenUp is why a message was not even tried.
var errGivenUp = errors.New("too many messages wait to be sent")

// Address is where messages go.
type Address struct {
	// URL is http or https.
	URL string
	// Token is sent as a bearer token; empty for none.
	Token string
}

// Lookup finds the address that a Secret holds.
type Lookup func(ctx context.Context, secret string) (Address, error)

// Sender sends messages, one after the other, in the order in which they were handed to it.
type Sender struct {
	lookup Lookup
	client *http.Client
	clock  clock.Clock
	// pauses are between one try of a message and the next.
	pauses []time.Duration
	queue  chan job
}

type job struct {
	secret  string
	message Message
	failed  func(error)
}

// New makes a Sender, which sends while it runs.
func New(lookup Lookup) *Sender {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = registry.DialContext // no address where clouds hand out credentials
	return &Sender{
		lookup: lookup, clock: clock.RealClock{}, queue: make(chan job, limit),
		pauses: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second},
		client: &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the token is for this address alone
		}},
	}
}

// Send has a message sent to the address in a Secret, and never blocks. failed is called, perhaps
// later and by another goroutine, when the message is given up.
func (s *Sender) Send(secret string, m Message, failed func(error)) {
	m.Schema = schema
	select {
	case s.queue <- job{secret, m, failed}:
	default:
		failed(errGivenUp)
	}
}

// Start sends until the context ends. What waits then is lost.
func (s *Sender) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case j := <-s.queue:
			if err := s.deliver(ctx, &j); err != nil && ctx.Err() == nil {
				j.failed(err)
			}
		}
	}
}

// deliver tries a message until it is taken, refused for good, or has been tried often enough.
func (s *Sender) deliver(ctx context.Context, j *job) error {
	body, err := json.Marshal(&j.message)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err, again := s.try(ctx, j.secret, body)
		if err == nil || !again || try == len(s.pauses) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.clock.After(s.pauses[try]):
		}
	}
}

// try sends a body once, and reports whether another try may help.
func (s *Sender) try(ctx context.Context, secret string, body []byte) (err error, again bool) { //nolint:revive // again is about the error
	address, err := s.lookup(ctx, secret)
	if err != nil {
		return err, true
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address.URL, bytes.NewReader(body))
	if err != nil || !slices.Contains([]string{"http", "https"}, request.URL.Scheme) {
		return fmt.Errorf("the url in Secret %q is no http or https address", secret), false
	}
	request.Header.Set("Content-Type", "application/json")
	if address.Token != "" {
		request.Header.Set("Authorization", "Bearer "+address.Token)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("the webhook can't be reached: %w", fault.WithoutURL(err)), true
	}
	defer func() { _ = response.Body.Close() }() // nothing of it is needed
	_, _ = io.CopyN(io.Discard, response.Body, 4096)
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		return nil, false
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return fmt.Errorf("the webhook answered %d", code), true
	default:
		return fmt.Errorf("the webhook answered %d", code), false
	}
}
