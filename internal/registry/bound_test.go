package registry_test

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
)

func TestTextsOfManyValuesAreRefused(t *testing.T) {
	t.Parallel()
	many := func(value string) string { return strings.TrimSuffix(strings.Repeat(value+",", 1<<16+1), ",") }
	const image = `"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:00","size":2}`
	tests := map[string]struct {
		mediaType types.MediaType
		manifest  string
	}{
		"an index of empty descriptors": {types.OCIImageIndex, `{"schemaVersion":2,"manifests":[` + many("{}") + `]}`},
		"an index of nothing":           {types.OCIImageIndex, `{"schemaVersion":2,"manifests":[` + many("null") + `]}`},
		"an image of empty layers":      {types.OCIManifestSchema1, `{"schemaVersion":2,` + image + `,"layers":[` + many("{}") + `]}`},
		"an image of lists":             {types.OCIManifestSchema1, `{"schemaVersion":2,` + image + `,"x":[` + many("[]") + `]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := serve(t, manifestServer(tt.mediaType, tt.manifest))
			_, err := client(t).Image(t.Context(), host+"/os:base", amd64)
			require.ErrorContains(t, err, "its manifest has more than 65536 values")
			assert.True(t, fault.IsTerminal(err))
		})
	}
	t.Run("a config of empty history", func(t *testing.T) {
		t.Parallel()
		img := three.make(t)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.History = make([]v1.History, 1<<16+1)
		img, err = mutate.ConfigFile(img, config)
		require.NoError(t, err)
		host := serve(t, inMemory())
		_, err = client(t).Config(t.Context(), push(t, host+"/os", img), amd64)
		require.ErrorContains(t, err, "its config has more than 65536 values")
		assert.True(t, fault.IsTerminal(err))
	})
}

// TestCommasInTextsAreNoValues has an annotation of many commas, quotes and brackets.
func TestCommasInTextsAreNoValues(t *testing.T) {
	t.Parallel()
	manifest := fmt.Sprintf(`{"schemaVersion":2,"annotations":{"a":%q},"manifests":[]}`, strings.Repeat(`,"{[\`, 1<<16))
	host := serve(t, manifestServer(types.OCIImageIndex, manifest))
	got, err := client(t).Resolve(t.Context(), host+"/os:base")
	require.NoError(t, err)
	assert.Equal(t, int64(len(manifest)), got.Size)
}

// manifestServer is a registry with one manifest, whatever is asked for.
func manifestServer(mediaType types.MediaType, manifest string) http.Handler {
	digest, _, _ := v1.SHA256(strings.NewReader(manifest))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(path.Dir(r.URL.Path)) != "manifests" {
			return
		}
		w.Header().Set("Content-Type", string(mediaType))
		w.Header().Set("Docker-Content-Digest", digest.String())
		w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(manifest))
		}
	})
}
