package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

func message() Message {
	return Message{
		Event: RolledBack, Time: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Pool: "worker", Configuration: "rendered-2", Image: "example.com/os@sha256:2",
		Node: "a", Text: "no disk", Nodes: Nodes{Total: 3, Updated: 1, Failed: 1},
	}
}

const body = `{"schema":"v1","event":"NodeRolledBack","time":"2026-03-04T05:06:07Z","pool":"worker","configuration":"rendered-2",` +
	`"image":"example.com/os@sha256:2","node":"a","text":"no disk","nodes":{"total":3,"updated":1,"failed":1}}`

func TestSend(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answers []int // of one request after the other
		url     string
		lookup  error
		tries   int
		failed  string
	}{
		"the first answer is enough":             {answers: []int{204}, tries: 1},
		"what may pass is tried again":           {answers: []int{503, 429, 200}, tries: 3},
		"what does not pass is given up":         {answers: []int{500, 500, 500, 500}, tries: 4, failed: "the webhook answered 500"},
		"a refusal is not tried again":           {answers: []int{403}, tries: 1, failed: `the webhook answered 403: see the key token of Secret "hook"`},
		"a redirect is not followed":             {answers: []int{302}, tries: 1, failed: `the webhook answered 302: redirects are not followed, so correct the key url of Secret "hook"`},
		"an address that is none":                {url: "file:///etc/passwd?secret", failed: `the url in Secret "hook": it is no http or https address`},
		"an error does not have the address":     {url: "http://127.0.0.1:1/secret", failed: "the webhook can't be reached: dial tcp 127.0.0.1:1: connect: connection refused"},
		"no cloud's own address is asked":        {url: "http://169.254.169.254/secret", failed: "the webhook can't be reached: dial tcp 169.254.169.254:80: clouds reserve this address for the machine itself, and it is never asked"},
		"a Secret that can't be read is no harm": {lookup: errors.New("not found"), failed: "not found"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.JSONEq(t, body, string(got))
				assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				w.WriteHeader(tt.answers[tries])
				tries++
			}))
			t.Cleanup(server.Close)
			if tt.url == "" {
				tt.url = server.URL
			}
			s := newSender(func(context.Context, string) (endpoint.Address, error) {
				return endpoint.Address{URL: tt.url, Token: "secret"}, tt.lookup
			})
			s.pauses = []time.Duration{0, 0, 0}
			m := message()
			m.Schema = schema
			err := s.deliver(t.Context(), &job{secret: "hook", message: m})
			assert.Equal(t, tt.tries, tries)
			if tt.failed == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.failed)
			assert.NotContains(t, strings.ReplaceAll(err.Error(), "Secret", ""), "secret")
		})
	}
}

func TestSendNeverBlocks(t *testing.T) {
	t.Parallel()
	var failed []error
	sent := make(chan string, limit)
	s := newSender(func(_ context.Context, secret string) (endpoint.Address, error) {
		sent <- secret
		return endpoint.Address{}, nil
	})
	for range limit + 1 {
		s.Send("hook", message(), func(err error) { failed = append(failed, err) })
	}
	require.Equal(t, []error{errGivenUp}, failed, "who does not run takes no more than it can hold")

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	assert.Equal(t, "hook", <-sent)
	cancel()
	require.NoError(t, <-ended)
}
