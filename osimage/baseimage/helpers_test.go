package baseimage_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// file has its content in Linkname, where an archive of regular files has nothing.
func file(name, content string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), Linkname: content}
}

func hardlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Mode: 0o644, Linkname: target}
}

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, hdr := range headers {
		content := ""
		if hdr.Typeflag == tar.TypeReg {
			content, hdr.Linkname = hdr.Linkname, ""
		}
		require.NoError(t, w.WriteHeader(&hdr))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buffer.Bytes()
}

// packed is a compressed layer.
func packed(t *testing.T, how compression.Compression, headers ...tar.Header) v1.Layer {
	t.Helper()
	data := archive(t, headers...)
	if how == compression.None {
		return static.NewLayer(data, types.OCIUncompressedLayer)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithCompression(how), tarball.WithMediaType(types.OCILayer))
	require.NoError(t, err)
	return layer
}

func layer(t *testing.T, headers ...tar.Header) v1.Layer {
	t.Helper()
	return packed(t, compression.GZip, headers...)
}

func imageOf(t *testing.T, layers ...v1.Layer) v1.Image { //nolint:ireturn // that is how go-containerregistry has images
	t.Helper()
	return onTopOf(t, mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
}

func onTopOf(t *testing.T, base v1.Image, layers ...v1.Layer) v1.Image { //nolint:ireturn // as above
	t.Helper()
	image, err := mutate.AppendLayers(base, layers...)
	require.NoError(t, err)
	return image
}

// plainIndex applies the layers without any loader.
func plainIndex(t *testing.T, image v1.Image) *osindex.Index {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	x := &osindex.Index{}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		require.NoError(t, err)
		require.NoError(t, x.Apply(r))
		require.NoError(t, r.Close())
	}
	return x
}

func encoded(t *testing.T, x *osindex.Index) []byte {
	t.Helper()
	var buffer bytes.Buffer
	require.NoError(t, x.Encode(&buffer))
	return buffer.Bytes()
}

// server is a registry that can be made to misbehave when it is read.
type server struct{ *registrytest.Server }

func serve(t *testing.T) *server {
	t.Helper()
	return &server{registrytest.New(t, nil)}
}

// set has a function answer GETs from now on, where it returns that it did.
func (s *server) set(meddle func(w http.ResponseWriter, r *http.Request) bool) {
	s.Answer(func(w http.ResponseWriter, r *http.Request) bool { return r.Method == http.MethodGet && meddle(w, r) })
}

// push stores an image and returns a reference to it.
func (s *server) push(t *testing.T, image v1.Image) name.Reference { //nolint:ireturn // as above
	t.Helper()
	ref, err := name.ParseReference(s.Host + "/os/base:latest")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, image))
	return ref
}

// pull is the image as the registry has it.
func (s *server) pull(ctx context.Context, t *testing.T, ref name.Reference) v1.Image { //nolint:ireturn // as above
	t.Helper()
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 1}))
	require.NoError(t, err)
	return image
}

// remoteOf pushes and pulls an image.
func (s *server) remoteOf(t *testing.T, image v1.Image) v1.Image { //nolint:ireturn // as above
	t.Helper()
	return s.pull(t.Context(), t, s.push(t, image))
}

func digests(t *testing.T, image v1.Image) []v1.Hash {
	t.Helper()
	manifest, err := image.Manifest()
	require.NoError(t, err)
	var all []v1.Hash
	for _, layer := range manifest.Layers {
		all = append(all, layer.Digest)
	}
	return all
}

// counts are how often each layer was read.
func (s *server) counts(t *testing.T, image v1.Image) string {
	t.Helper()
	var all []string
	for _, digest := range digests(t, image) {
		all = append(all, fmt.Sprint(s.Count(http.MethodGet, digest.String())))
	}
	return strings.Join(all, " ")
}

// base is a small image with a layer of each kind.
func base(t *testing.T) v1.Image { //nolint:ireturn // as above
	t.Helper()
	return imageOf(t,
		packed(t, compression.GZip, file("etc/passwd", "root:x:0:0"), file("usr/bin/bash", strings.Repeat("bash", 1000)), file("usr/share/doc", "doc")),
		packed(t, compression.ZStd, file("usr/lib/unit", "unit"), file("etc/.wh.old", ""), hardlink("usr/lib/link", "usr/lib/unit")),
		packed(t, compression.None, file("usr/lib/plain", "plain")),
		packed(t, compression.GZip),
	)
}

// receive waits for a value.
func receive[T any](t *testing.T, values <-chan T, what string) T { //nolint:ireturn // whatever it is
	t.Helper()
	select {
	case value := <-values:
		return value
	case <-time.After(patience):
		require.Fail(t, "waited too long for "+what)
		panic("unreachable")
	}
}
