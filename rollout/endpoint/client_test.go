package endpoint_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

func at(a endpoint.Address) endpoint.Lookup {
	return func(context.Context, string) (endpoint.Address, error) { return a, nil }
}

func TestDo(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.Equal(t, "/prefix/api?filter=node%3D%22a%22&key=1", r.URL.RequestURI())
		assert.Equal(t, []string{"PUT", "Bearer secret", "application/json", "{}"}, []string{r.Method, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)})
		w.Header().Set("Date", "Wed, 04 Mar 2026 05:06:07 GMT")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	}))
	t.Cleanup(server.Close)
	c := endpoint.New("kettle", at(endpoint.Address{URL: server.URL + "/prefix?key=1", Token: "secret"}))
	answer, err := c.Do(t.Context(), &endpoint.Request{Secret: "s", Method: http.MethodPut, Path: "/api", Query: url.Values{"filter": {`node="a"`}}, Body: []byte("{}")})
	require.NoError(t, err)
	assert.Equal(t, http.StatusTeapot, answer.Code)
	assert.Equal(t, time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), answer.Time)
	assert.Equal(t, "short and stout", string(answer.Body))
	assert.True(t, answer.IsWhole)
	assert.False(t, answer.IsSuccess())
	assert.Equal(t, "no REDACTED", answer.Redact("no secret"))
}

func TestDoFails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		address endpoint.Address
		is      error
		says    string
	}{
		"no scheme":            {endpoint.Address{URL: "hooks.example.com/my-secret"}, endpoint.ErrAddress, `the url in Secret "s": it is no http or https address`},
		"a file":               {endpoint.Address{URL: "file:///my-secret"}, endpoint.ErrAddress, `the url in Secret "s": it is no http or https address`},
		"no host":              {endpoint.Address{URL: "https:my-secret"}, endpoint.ErrAddress, `the url in Secret "s": it is no http or https address`},
		"what can't be parsed": {endpoint.Address{URL: "http://[my-secret"}, endpoint.ErrAddress, `the url in Secret "s": it is no http or https address`},
		"no certificate":       {endpoint.Address{URL: "https://127.0.0.1:1/my-secret", CA: []byte("my-secret")}, endpoint.ErrCA, `ca.crt in Secret "s": it has no certificate in PEM`},
		"no one listens":       {endpoint.Address{URL: "http://me:my-secret@127.0.0.1:1/my-secret"}, nil, "the kettle can't be reached: dial tcp 127.0.0.1:1: connect: connection refused"}, //nolint:gosec // a test\'s
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := endpoint.New("kettle", at(tt.address)).Do(t.Context(), &endpoint.Request{Secret: "s", Method: http.MethodGet})
			require.EqualError(t, err, tt.says)
			assert.NotContains(t, err.Error(), "my-secret")
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
		})
	}
	gone := errors.New("not found")
	c := endpoint.New("kettle", func(context.Context, string) (endpoint.Address, error) { return endpoint.Address{}, gone })
	_, err := c.Do(t.Context(), &endpoint.Request{Secret: "s", Method: http.MethodGet})
	require.ErrorIs(t, err, gone)
}

func TestAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // until the client has heard enough
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	answer, err := endpoint.New("kettle", at(endpoint.Address{URL: server.URL})).Do(t.Context(), &endpoint.Request{Method: http.MethodGet})
	require.NoError(t, err)
	assert.Len(t, answer.Body, 1<<20)
	assert.False(t, answer.IsWhole)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "the token went elsewhere") }))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	answer, err := endpoint.New("kettle", at(endpoint.Address{URL: server.URL, Token: "t"})).Do(t.Context(), &endpoint.Request{Method: http.MethodPost})
	require.NoError(t, err)
	assert.Equal(t, http.StatusTemporaryRedirect, answer.Code)
}

func TestWhatIsTrusted(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	do := func(ca []byte) error {
		_, err := endpoint.New("kettle", at(endpoint.Address{URL: server.URL, CA: ca})).Do(t.Context(), &endpoint.Request{Method: http.MethodGet})
		return err
	}
	require.NoError(t, do(own))
	require.ErrorContains(t, do(nil), "the kettle can't be reached: tls: failed to verify certificate")
}

func TestTheAddressIsInASecret(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "hook"},
		Data:       map[string][]byte{"url": []byte("https://example.com/x\n"), "token": []byte("t\n"), "ca.crt": []byte("c")},
	}
	lookup := endpoint.Secrets(fake.NewClientBuilder().WithObjects(secret).Build(), "layerwright")
	got, err := lookup(t.Context(), "hook")
	require.NoError(t, err)
	assert.Equal(t, endpoint.Address{URL: "https://example.com/x", Token: "t", CA: []byte("c")}, got)
	_, err = lookup(t.Context(), "other")
	require.ErrorContains(t, err, `Secret "other" does not exist in namespace "layerwright": create it with the key url, or correct secretName`)
	delete(secret.Data, "url")
	_, err = endpoint.Secrets(fake.NewClientBuilder().WithObjects(secret).Build(), "layerwright")(t.Context(), "hook")
	require.EqualError(t, err, `Secret "hook" in namespace "layerwright" has no key url: add the address`)
}
