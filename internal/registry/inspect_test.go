package registry_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

var (
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
	s390x = v1.Platform{OS: "linux", Architecture: "s390x"}
)

func TestResolve(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(inMemory()))
	single := push(t, host+"/os/single", three.make(t))
	several := push(t, host+"/os/several", indexOf(t, types.OCIImageIndex, shape{arch: "amd64"}, shape{arch: "arm64"}))
	tests := map[string]struct {
		image, want string
		mediaType   types.MediaType
		platforms   []v1.Platform
		gets        int
	}{
		"a tag costs a HEAD":                     {image: host + "/os/single:base", want: single, mediaType: types.OCIManifestSchema1},
		"a digest stays what it is":              {image: single, want: single, mediaType: types.OCIManifestSchema1},
		"tag and digest: the digest counts":      {image: strings.Replace(single, "@", ":other@", 1), want: single, mediaType: types.OCIManifestSchema1},
		"an index says what it is for":           {image: host + "/os/several:base", want: several, mediaType: types.OCIImageIndex, platforms: []v1.Platform{amd64, arm64}, gets: 1},
		"an index by digest":                     {image: several, want: several, mediaType: types.OCIImageIndex, platforms: []v1.Platform{amd64, arm64}, gets: 1},
		"without a tag it is the one \"latest\"": {image: host + "/os/latest", want: strings.Replace(push(t, host+"/os/latest", three.make(t)), ":base", "", 1), mediaType: types.OCIManifestSchema1},
	}
	ref, err := name.NewTag(host + "/os/latest:latest")
	require.NoError(t, err)
	require.NoError(t, client(t).Tag(t.Context(), tests["without a tag it is the one \"latest\""].want, ref.TagStr()))
	for name, tt := range tests {
		calls.reset()
		got, err := client(t).Resolve(t.Context(), tt.image)
		require.NoError(t, err, name)
		assert.Equal(t, tt.want, got.Image, name)
		assert.True(t, strings.HasSuffix(got.Image, "@"+got.Digest.String()), name)
		assert.Equal(t, tt.mediaType, got.MediaType, name)
		assert.Positive(t, got.Size, name)
		assert.Equal(t, tt.platforms, got.Platforms, name)
		assert.Equal(t, 1, calls.count("HEAD /v2/os"), name)
		assert.Equal(t, tt.gets, calls.count("GET /v2/os"), name)
	}
}

func TestResolveFallsBackToGet(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w http.ResponseWriter){
		"no digest":        func(w http.ResponseWriter) { w.Header().Del("Docker-Content-Digest") },
		"a broken digest":  func(w http.ResponseWriter) { w.Header().Set("Docker-Content-Digest", "sha256:x") },
		"no type":          func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil },
		"no such method":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"refused for HEAD": func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend, begun := inMemory(), &atomic.Bool{}
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if begun.Load() && r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/base") {
					w = &late{ResponseWriter: w, change: change}
				}
				backend.ServeHTTP(w, r)
			}))
			want := push(t, host+"/os", three.make(t))
			begun.Store(true)
			got, err := client(t).Resolve(t.Context(), host+"/os:base")
			require.NoError(t, err)
			assert.Equal(t, want, got.Image)
			assert.Equal(t, types.OCIManifestSchema1, got.MediaType)
		})
	}
}

// late changes an answer just before it is sent.
type late struct {
	http.ResponseWriter
	change func(w http.ResponseWriter)
	done   bool
}

// WriteHeader changes the header, or sends another status.
func (l *late) WriteHeader(status int) {
	if !l.done {
		l.done = true
		l.change(l.ResponseWriter)
	}
	l.ResponseWriter.WriteHeader(status)
}

func TestExists(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	pinned := push(t, host+"/os", three.make(t))
	got, there, err := client(t).Exists(t.Context(), host+"/os", "base")
	require.NoError(t, err)
	assert.True(t, there)
	assert.Equal(t, pinned, host+"/os@"+got.String())

	for name, tt := range map[string]struct{ repository, tag string }{
		"no such tag": {host + "/os", "other"}, "no such repository": {host + "/nowhere/os", "base"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, there, err := client(t).Exists(t.Context(), tt.repository, tt.tag)
			require.NoError(t, err)
			assert.False(t, there)
		})
	}
	_, there, err = client(t, func(o *registry.Options) { o.Keychain = nil }).Exists(t.Context(), host+"/os", "base")
	assert.False(t, there)
	assert.True(t, registry.IsDenied(err), "what may not be seen is not the same as what is not there: %v", err)
}

func TestTags(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	c := client(t)
	pinned := push(t, host+"/os", three.make(t))
	require.NoError(t, c.Tag(t.Context(), pinned, "worker"))
	require.NoError(t, c.Tag(t.Context(), pinned, "worker-0a1b"))
	tags, err := c.Tags(t.Context(), host+"/os")
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"base", "worker", "worker-0a1b"}, tags)

	tags, err = c.Tags(t.Context(), host+"/nowhere")
	require.NoError(t, err)
	assert.Empty(t, tags)
}

func TestImageConfigAndLabels(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	c := client(t)
	single := push(t, host+"/single", three.make(t))
	several := push(t, host+"/several", indexOf(t, types.OCIImageIndex, shape{arch: "amd64", layers: three.layers, body: "a"}, shape{arch: "arm64", layers: three.layers, body: "b"}))
	for _, platform := range []v1.Platform{{}, amd64} {
		img, err := c.Image(t.Context(), single, platform)
		require.NoError(t, err)
		require.NoError(t, validate.Image(img))
		digest, err := img.Digest()
		require.NoError(t, err)
		assert.Equal(t, single, host+"/single@"+digest.String())
	}
	for _, platform := range []v1.Platform{amd64, arm64, {OS: "linux", Architecture: "arm64", Variant: "v8"}} {
		img, err := c.Image(t.Context(), several, platform)
		require.NoError(t, err)
		require.NoError(t, validate.Image(img))
		config, err := c.Config(t.Context(), several, platform)
		require.NoError(t, err)
		assert.Equal(t, platform.Architecture, config.Architecture)
		labels, err := c.Labels(t.Context(), several, platform)
		require.NoError(t, err)
		assert.Equal(t, "1", labels["containers.bootc"])
	}
}

func TestImageForAnotherPlatform(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	single := push(t, host+"/single", three.make(t))
	several := push(t, host+"/several", indexOf(t, types.OCIImageIndex, shape{arch: "amd64"}, shape{arch: "arm64"}))
	hollow := push(t, host+"/hollow", indexOf(t, types.OCIImageIndex))
	tests := map[string]struct {
		image    string
		platform v1.Platform
		want     string
	}{
		"a single image for another":      {single, arm64, "it is an image for linux/amd64, and linux/arm64 is wanted"},
		"an index without it":             {several, s390x, "it has no image for linux/s390x, only for linux/amd64, linux/arm64"},
		"an index and no wish":            {several, v1.Platform{}, "it is for several platforms: linux/amd64, linux/arm64"},
		"an index with another variant":   {several, v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v9"}, "it has no image for linux/arm64/v9"},
		"an index with nothing in it":     {hollow, amd64, "its index has no image for any platform"},
		"another operating system's":      {several, v1.Platform{OS: "windows", Architecture: "amd64"}, "it has no image for windows/amd64"},
		"a single one for another system": {single, v1.Platform{OS: "windows", Architecture: "amd64"}, "and windows/amd64 is wanted"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client(t).Image(t.Context(), tt.image, tt.platform)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, tt.image)
			assert.Equal(t, fault.Terminal, fault.ClassOf(err))
			assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))
		})
	}
}

func TestLayersOfAnImageThatVanished(t *testing.T) {
	t.Parallel()
	backend, gone := inMemory(), &atomic.Bool{}
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() && strings.Contains(r.URL.Path, "/blobs/") {
			http.NotFound(w, r)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	pinned := push(t, host+"/os", three.make(t))
	img, err := client(t).Image(t.Context(), pinned, amd64)
	require.NoError(t, err)
	gone.Store(true)
	layers, err := img.Layers()
	require.NoError(t, err)
	_, err = layers[0].Uncompressed()
	digest, _ := layers[0].Digest()
	require.ErrorContains(t, err, "reading layer "+digest.String()+" of image \""+pinned+"\": it does not exist")
	assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))
}

func TestInvalidNames(t *testing.T) {
	t.Parallel()
	c := client(t)
	digest := "@sha256:" + strings.Repeat("0", 64)
	tests := map[string]func(ctx context.Context) error{
		"an empty image":              func(ctx context.Context) error { _, err := c.Resolve(ctx, ""); return err },
		"capitals":                    func(ctx context.Context) error { _, err := c.Resolve(ctx, "quay.io/OS/x:y"); return err },
		"a URL":                       func(ctx context.Context) error { _, err := c.Resolve(ctx, "https://bot:hunter2@quay.io/x"); return err },
		"half a digest":               func(ctx context.Context) error { _, err := c.Resolve(ctx, "quay.io/x@sha256:0a"); return err },
		"a repository with a tag":     func(ctx context.Context) error { return c.CanPush(ctx, "quay.io/x:y") },
		"a tag with a slash":          func(ctx context.Context) error { _, _, err := c.Exists(ctx, "quay.io/x", "a/b"); return err },
		"a tag that is more":          func(ctx context.Context) error { _, _, err := c.Exists(ctx, "quay.io/x", "a:b"); return err },
		"an empty tag":                func(ctx context.Context) error { _, err := c.DeleteTag(ctx, "quay.io/x", ""); return err },
		"a manifest without a digest": func(ctx context.Context) error { _, err := c.DeleteManifest(ctx, "quay.io/x:y"); return err },
		"tagging without a digest":    func(ctx context.Context) error { return c.Tag(ctx, "quay.io/x:y", "z") },
		"listing nothing":             func(ctx context.Context) error { _, err := c.Tags(ctx, ""); return err },
		"appending to a tag": func(ctx context.Context) error {
			_, err := c.Append(ctx, registry.AppendRequest{Content: "quay.io/x:y", Repository: "quay.io/x"})
			return err
		},
		"appending to nowhere": func(ctx context.Context) error {
			_, err := c.Append(ctx, registry.AppendRequest{Content: "quay.io/x" + digest})
			return err
		},
		"appending with a bad tag": func(ctx context.Context) error {
			_, err := c.Append(ctx, registry.AppendRequest{Content: "quay.io/x" + digest, Repository: "quay.io/x", Tags: []string{"-"}})
			return err
		},
	}
	for name, try := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := try(t.Context())
			require.ErrorContains(t, err, "reading the name of ")
			assert.NotContains(t, err.Error(), "hunter2")
			assert.Equal(t, fault.Terminal, fault.ClassOf(err))
			assert.Equal(t, mcfgv1.ReasonInvalid, fault.Reason(err))
		})
	}
}
