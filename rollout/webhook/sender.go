package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

// limit is how many messages may wait to be sent; further ones are given up.
const limit = 100

// errGivenUp is why a message was not even tried.
var errGivenUp = errors.New("too many messages wait to be sent")

// Sender sends messages, one after the other, in the order in which they were handed to it.
type Sender struct {
	client *endpoint.Client
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

// New makes a Sender, which sends while it runs. Addresses are in Secrets of the namespace.
func New(reader client.Reader, namespace string) *Sender {
	return newSender(endpoint.Secrets(reader, namespace))
}

func newSender(lookup endpoint.Lookup) *Sender {
	return &Sender{
		client: endpoint.New("webhook", lookup), clock: clock.RealClock{}, queue: make(chan job, limit),
		pauses: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second},
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
	answer, err := s.client.Do(ctx, &endpoint.Request{Secret: secret, Method: http.MethodPost, Body: body})
	if err != nil {
		return err, !errors.Is(err, endpoint.ErrAddress) && !errors.Is(err, endpoint.ErrCA)
	}
	switch code := answer.Code; {
	case answer.IsSuccess():
		return nil, false
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return answer.Refusal(), true
	default:
		return answer.Refusal(), false
	}
}
