package registry_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// large is an image with the layers of an operating system.
func large() shape {
	var layers []types.MediaType
	for range 51 {
		layers = append(layers, types.OCILayer)
	}
	return shape{layers: layers}
}

func TestAppendAsksLittleForAFurtherChange(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(strictest(t)))
	request := ordinary(t, push(t, host+"/base", large().make(t)), host+"/os")
	calls.reset()
	first := appended(t, client(t), request)
	assert.LessOrEqual(t, first.Traffic.Requests, int64(123), "requests of the first time")

	request.Layer, request.Before = configuration(t, "two"), first.Image
	calls.reset()
	second := appended(t, client(t), request)
	assert.LessOrEqual(t, second.Traffic.Requests, int64(15), "with the look for TLS:\n%s", strings.Join(calls.lines, "\n"))
	getImage(t, second.Image)
	assert.Nil(t, first.Platforms[0].New, "there was no image before")
	assert.Equal(t, second.Platforms[0].Layer.Size, *second.Platforms[0].New, "the image before lacks the configuration alone")
	assert.Len(t, second.Platforms[0].Layers, 52)
}

func TestALargeImageThatLostALayer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	// lost is what a registry does with a manifest while a layer of it is missing.
	type lost func(w http.ResponseWriter, r *http.Request, next http.Handler)
	refuse := func(code int, body string) lost {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, answer := range map[string]lost{
		"it says so":                   func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) },
		"it says that it is not found": refuse(http.StatusNotFound, `{"errors":[{"code":"BLOB_UNKNOWN"}]}`),
		"it says that it is invalid":   refuse(http.StatusBadRequest, `{"errors":[{"code":"MANIFEST_INVALID"}]}`),
		"it says that it is denied":    refuse(http.StatusForbidden, `{"errors":[{"code":"DENIED"}]}`),
		"it fails":                     refuse(http.StatusInternalServerError, ""),
		"it says so of the tag only": func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/sha256:") {
				w.WriteHeader(http.StatusCreated)
				return
			}
			w.WriteHeader(http.StatusNotFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := strictest(t)
			var missing v1.Hash
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/os/manifests/") && isMissing(registry, r, missing) {
					answer(w, r, registry)
					return
				}
				registry.ServeHTTP(w, r)
			}))
			request := ordinary(t, push(t, host+"/base", large().make(t)), host+"/os")
			first := appended(t, client(t), request)
			manifest, err := getImage(t, first.Image).Manifest()
			require.NoError(t, err)
			missing = manifest.Layers[7].Digest
			remove := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, fmt.Sprintf("http://%s/v2/os/blobs/%s", host, missing), nil)
			remove.SetBasicAuth(pusher.Name, pusher.Password)
			gone := httptest.NewRecorder()
			registry.ServeHTTP(gone, remove)
			require.Equal(t, http.StatusAccepted, gone.Code)

			request.Layer, request.Before = configuration(t, "two"), first.Image
			second := appended(t, client(t), request)
			getImage(t, second.Image)
			for _, tag := range request.Tags {
				digest, there := tagged(t, request.Repository, tag)
				assert.True(t, there)
				assert.Equal(t, second.Digest, digest)
			}
		})
	}
}

// isMissing reports whether the registry lacks a layer now.
func isMissing(registry http.Handler, like *http.Request, layer v1.Hash) bool {
	if layer.Hex == "" {
		return false
	}
	ask := httptest.NewRequestWithContext(like.Context(), http.MethodHead, "/v2/os/blobs/"+layer.String(), bytes.NewReader(nil))
	ask.Host, ask.Header = like.Host, http.Header{"Authorization": like.Header["Authorization"]}
	answer := httptest.NewRecorder()
	registry.ServeHTTP(answer, ask)
	return answer.Code == http.StatusNotFound
}

func TestAppendAfterAnImageThatSaysNothing(t *testing.T) {
	t.Parallel()
	host := serve(t, strictest(t))
	base := push(t, host+"/base", three.make(t))
	index := push(t, host+"/index", shapes(t)["oci-index"])
	for name, before := range map[string]string{
		"none":                  "",
		"no digest":             host + "/os:latest",
		"gone":                  host + "/os@sha256:" + strings.Repeat("0", 64),
		"in another repository": base,
		"an index elsewhere":    index,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := ordinary(t, base, host+"/os/"+strings.ReplaceAll(name, " ", "-"))
			request.Before = before
			getImage(t, appended(t, client(t), request).Image)
		})
	}
	t.Run("an index", func(t *testing.T) {
		t.Parallel()
		request := ordinary(t, index, host+"/os/many")
		request.Before = appended(t, client(t), request).Image
		request.Layer = configuration(t, "two")
		second := appended(t, client(t), request)
		for _, p := range second.Platforms {
			getImage(t, request.Repository+"@"+p.Digest.String())
		}
	})
}
