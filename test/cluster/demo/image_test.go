package demo

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

// layerOf makes a layer of a folder, /etc/motd and a link.
func layerOf(t *testing.T, motd string) v1.Layer {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, header := range []*tar.Header{
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "etc/motd", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(motd))},
		{Name: "etc/link", Typeflag: tar.TypeSymlink, Linkname: "motd"},
	} {
		require.NoError(t, w.WriteHeader(header))
		if header.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(motd))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	require.NoError(t, err)
	return layer
}

// shelf is a registry with a base image, and images on it.
type shelf struct {
	images
	t    *testing.T
	repo name.Repository
	base v1.Image
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	s := &shelf{t: t, images: images{options: func(ctx context.Context) []remote.Option { return []remote.Option{remote.WithContext(ctx)} }}}
	var err error
	s.repo, err = name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/os/worker")
	require.NoError(t, err)
	s.base, err = random.Image(2000, 3)
	require.NoError(t, err)
	return s
}

// push puts an image there and returns it by digest.
func (s *shelf) push(tag string, image v1.Image) string {
	s.t.Helper()
	require.NoError(s.t, remote.Write(s.repo.Tag(tag), image))
	digest, err := image.Digest()
	require.NoError(s.t, err)
	return s.repo.Name() + "@" + digest.String()
}

// pushOn puts an image on the base there.
func (s *shelf) pushOn(tag, motd string) string {
	s.t.Helper()
	image, err := mutate.AppendLayers(s.base, layerOf(s.t, motd))
	require.NoError(s.t, err)
	return s.push(tag, image)
}

func TestTopOfAnImage(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	base, err := s.facts(t.Context(), s.push("base", s.base))
	require.NoError(t, err)
	require.Len(t, base.layers, 3)
	require.Greater(t, base.bytes, int64(6000))

	image := s.pushOn("worker", "hello\n")
	found, err := s.top(t.Context(), image, base)
	require.NoError(t, err)
	require.Equal(t, 1, found.layers)
	require.Equal(t, []string{"/etc/motd", "/etc/link -> motd"}, found.paths)
	require.Equal(t, map[string]string{motdPath: "hello\n"}, found.contents)

	other, err := random.Image(2000, 3)
	require.NoError(t, err)
	otherBase, err := s.facts(t.Context(), s.push("other", other))
	require.NoError(t, err)
	found, err = s.top(t.Context(), image, otherBase)
	require.NoError(t, err)
	require.Nil(t, found, "it is on another base image, whose layers are not read")

	_, err = s.top(t.Context(), s.repo.Name()+":missing", base)
	require.ErrorContains(t, err, "reading "+s.repo.Name()+":missing: ")
}

func TestTagsHaveDigests(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	first, second := s.pushOn("worker-1", "one"), s.pushOn("worker-2", "two")
	s.pushOn("worker", "two")
	tags, err := s.tags(t.Context(), s.repo.Name())
	require.NoError(t, err)
	digest := func(image string) string { return strings.TrimPrefix(image, s.repo.Name()+"@") }
	require.Equal(t, []tag{{"worker", digest(second)}, {"worker-1", digest(first)}, {"worker-2", digest(second)}}, tags)
}

// removing answers questions about one tag as a registry does that has it no more.
type removing struct{ tag string }

func (r removing) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodHead && strings.HasSuffix(request.URL.Path, "/manifests/"+r.tag) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: request}, nil
	}
	return http.DefaultTransport.RoundTrip(request)
}

func TestATagThatIsRemovedMeanwhileIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.pushOn("worker-1", "one")
	s.pushOn("worker-2", "two")
	listing := images{options: func(ctx context.Context) []remote.Option {
		return []remote.Option{remote.WithContext(ctx), remote.WithTransport(removing{"worker-1"})}
	}}
	tags, err := listing.tags(t.Context(), s.repo.Name())
	require.NoError(t, err)
	require.Len(t, tags, 1)
	require.Equal(t, "worker-2", tags[0].name)
}
