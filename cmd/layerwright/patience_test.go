package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// transport is a RoundTripper that notes that it was taken.
type transport struct {
	name  string
	taken *string
}

func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	*t.taken = t.name
	return &http.Response{Body: http.NoBody}, nil
}

func TestManifestsAreWaitedForBriefly(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]string{
		"GET /v2/": "quick", "HEAD /v2/os/worker/manifests/latest": "quick", "GET /v2/os/worker/tags/list": "quick",
		"PUT /v2/os/worker/manifests/latest": "patient", "GET /v2/os/worker/blobs/sha256:1": "reading", "GET /token": "reading",
		"POST /v2/os/worker/blobs/uploads/": "patient",
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			var taken string
			method, path, _ := strings.Cut(request, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, "https://registry.example"+path, http.NoBody)
			require.NoError(t, err)
			response, err := (&byPatience{
				quick: transport{"quick", &taken}, reading: transport{"reading", &taken}, patient: transport{"patient", &taken},
			}).RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, want, taken)
		})
	}
}
