package source_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/streams/source"
)

// failing answers requests whose path has a part.
func failing(part string, code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		w.WriteHeader(code)
		return true
	}
}

// labelled is an image with labels, and a layer that no one has to read.
func labelled(t *testing.T, labels map[string]string) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		static.NewLayer(bytes.Repeat([]byte("x"), 1<<20), types.OCIUncompressedLayer))
	require.NoError(t, err)
	file, err := image.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.Config.Labels, file.OS, file.Architecture = labels, "linux", "amd64"
	image, err = mutate.ConfigFile(image, file)
	require.NoError(t, err)
	return image
}

func osLabels(stream string) map[string]string {
	return map[string]string{"io.openshift.os.streamclass": stream, "containers.bootc": "1", "vendor": "someone"}
}

func extensionsLabels(stream string) map[string]string {
	return map[string]string{"io.openshift.os.streamclass": stream, "io.openshift.os.extensions": "true"}
}

// entry is a file of a layer, by name and content; a name that ends in "/" is a folder.
type entry struct{ name, content string }

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(e.content))}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		require.NoError(t, w.WriteHeader(header))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func layerOf(t *testing.T, how compression.Compression, entries ...entry) v1.Layer {
	t.Helper()
	content := archive(t, entries...)
	if how == compression.None {
		return static.NewLayer(content, types.OCIUncompressedLayer)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithCompression(how), tarball.WithMediaType(types.OCILayer))
	require.NoError(t, err)
	return layer
}

// releaseOf is a release image of layers, the lowest first.
func releaseOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	require.NoError(t, err)
	return image
}

const list = "release-manifests/image-references"

// references is a list of images: pairs of tag and image.
func references(pairs ...string) string {
	var tags []string
	for pair := range slices.Chunk(pairs, 2) {
		tags = append(tags, fmt.Sprintf(`{"name":%q,"from":{"kind":"DockerImage","name":%q}}`, pair[0], pair[1]))
	}
	return `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"4.21.0"},"spec":{"tags":[` + strings.Join(tags, ",") + `]}}`
}

// access tries again at once.
func access(entries ...mirrors.Entry) source.Access {
	client := registry.New(registry.Options{Backoff: remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 2}})
	return source.Access{Registry: client.Through(mirrors.Table{mirrors.Rules{}.Add(mirrors.All, entries...)})}
}
