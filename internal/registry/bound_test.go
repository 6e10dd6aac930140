package registry_test

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
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

func TestRedirectedManifestsAreBounded(t *testing.T) {
	t.Parallel()
	manifest := `{"schemaVersion":2,"manifests":[` + strings.Repeat("{},", 1<<16) + `{}]}`
	there := manifestServer(types.OCIImageIndex, manifest)
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case path.Base(path.Dir(r.URL.Path)) == "manifests":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case r.URL.Path == "/elsewhere":
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		default:
			r.URL.Path = strings.Replace(r.URL.Path, "/there", "/manifests/there", 1)
			there.ServeHTTP(w, r)
		}
	}))
	_, err := client(t).Image(t.Context(), host+"/os:base", amd64)
	require.ErrorContains(t, err, "its manifest has more than 65536 values")
	assert.True(t, fault.IsTerminal(err))
}

// TestConfigsHaveASize has a registry that never ends a config whose manifest says no size.
func TestConfigsHaveASize(t *testing.T) {
	t.Parallel()
	const manifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":-1,"digest":"sha256:` +
		`0000000000000000000000000000000000000000000000000000000000000000"},"layers":[]}`
	var sent atomic.Int64
	manifests := manifestServer(types.OCIManifestSchema1, manifest)
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(path.Dir(r.URL.Path)) != "blobs" {
			manifests.ServeHTTP(w, r)
			return
		}
		for part := make([]byte, 1<<20); sent.Load() < 64<<20; {
			n, err := w.Write(part)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	_, err := client(t).Image(t.Context(), host+"/os:base", amd64)
	require.ErrorContains(t, err, "has the size -1")
	assert.True(t, fault.IsTerminal(err))
	assert.Zero(t, sent.Load())
}

// TestHostileAttachmentsAreReplaced attaches to an image whose tag for attachments names an image
// with a hostile config: that is replaced.
func TestHostileAttachmentsAreReplaced(t *testing.T) {
	t.Parallel()
	kind := registry.AttachmentKind{Suffix: "sig", MediaType: "application/x.test"}
	many, err := mutate.ConfigFile(three.make(t), &v1.ConfigFile{History: make([]v1.History, 1<<16+1)})
	require.NoError(t, err)
	host := serve(t, inMemory())
	image := push(t, host+"/os", three.make(t))
	tag, err := client(t).AttachmentTag(image, kind)
	require.NoError(t, err)
	ref, err := name.ParseReference(tag)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, many, remote.WithTransport(transport(t))))

	_, err = client(t).Attach(t.Context(), image, kind, registry.Attachment{Content: []byte("signature")})
	require.NoError(t, err)
	got, err := remote.Image(ref, remote.WithTransport(transport(t)))
	require.NoError(t, err)
	config, err := got.ConfigFile()
	require.NoError(t, err)
	assert.Less(t, len(config.History), 2)
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
