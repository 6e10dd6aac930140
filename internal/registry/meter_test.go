package registry_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry/wire"
)

func TestMeterCountsBodies(t *testing.T) {
	t.Parallel()
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
		_, _ = io.WriteString(w, "!")
	}))
	meter := &wire.Meter{}
	c := &http.Client{Transport: meter.Wrap(transport(t))}
	for _, body := range []io.Reader{http.NoBody, strings.NewReader("12345"), io.MultiReader(strings.NewReader("123"), strings.NewReader("45"))} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+host, body)
		require.NoError(t, err)
		response, err := c.Do(request)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	assert.Equal(t, wire.Traffic{Requests: 3, BytesUp: 10, BytesDown: 13}, meter.Traffic())
}

func TestMeterCountsRetries(t *testing.T) {
	t.Parallel()
	meter, sent := &wire.Meter{}, &bytes.Buffer{}
	rt := meter.Wrap(tripper(func(r *http.Request) (*http.Response, error) {
		_, err := io.Copy(sent, r.Body)
		require.NoError(t, err)
		again, err := r.GetBody()
		require.NoError(t, err)
		_, err = io.Copy(sent, again)
		return nil, err
	}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://quay.io", strings.NewReader("12345"))
	require.NoError(t, err)
	_, err = rt.RoundTrip(request) //nolint:bodyclose // there is no response
	require.NoError(t, err)
	assert.Equal(t, "1234512345", sent.String())
	assert.Equal(t, wire.Traffic{Requests: 1, BytesUp: 10}, meter.Traffic())
}
