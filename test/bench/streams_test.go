//go:build e2e

package bench

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	imagename "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	imageregistry "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

// Budgets of finding out which streams a release has: 20 images of 10 streams, a registry that takes 50 ms to answer, and a release image of
// 200 layers.
const (
	budgetDiscover      = 1.0 // seconds
	budgetDiscoverBytes = 1.0 // MB
	registryLatency     = 50 * time.Millisecond
	discoveredStreams   = 10
	releaseLayers       = 200
)

// BenchmarkDiscoverStreams does it with an empty cache, and once more in a new process's stead with that cache.
func BenchmarkDiscoverStreams(b *testing.B) {
	s := newSlowRegistry(b)
	release := s.pushRelease(b)
	var requests, bytesDown, again int64
	runs := 0
	for b.Loop() {
		s.slow.Store(true)
		dir := b.TempDir()
		s.requests.Store(0)
		s.bytes.Store(0)
		require.Len(b, discover(b, dir, release), discoveredStreams)
		requests, bytesDown = s.requests.Load(), s.bytes.Load()
		b.StopTimer()
		require.Len(b, discover(b, dir, release), discoveredStreams)
		again = s.requests.Load() - requests
		runs++
		b.StartTimer()
	}
	seconds := b.Elapsed().Seconds() / float64(runs)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds, "s")
	b.ReportMetric(seconds/budgetDiscover, "s-of-budget")
	b.ReportMetric(float64(bytesDown)/1e6, "MB-down")
	b.ReportMetric(float64(bytesDown)/1e6/budgetDiscoverBytes, "MB-of-budget")
	b.ReportMetric(float64(requests), "requests")
	b.ReportMetric(float64(again), "requests-again")
}

func discover(b *testing.B, cache, release string) []string {
	b.Helper()
	access := source.Access{Registry: imageregistry.New(imageregistry.Options{})}
	reader := source.NewReader(source.Options{CacheDir: cache})
	list, err := reader.Release(b.Context(), access, release)
	require.NoError(b, err)
	gathered, err := reader.Inspect(b.Context(), access, streams.FromRelease(list.Tags))
	require.NoError(b, err)
	return streams.Names(streams.Merge([]streams.Contribution{streams.Group(gathered)}, nil).Available)
}

// slowRegistry answers late, and counts.
type slowRegistry struct {
	host            string
	slow            atomic.Bool
	requests, bytes atomic.Int64
}

func newSlowRegistry(b *testing.B) *slowRegistry {
	b.Helper()
	s := &slowRegistry{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.slow.Load() {
			timer := time.NewTimer(registryLatency)
			defer timer.Stop()
			<-timer.C
		}
		s.requests.Add(1)
		handler.ServeHTTP(&countedWriter{w, &s.bytes}, r)
	}))
	b.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

type countedWriter struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

// Write counts.
func (c *countedWriter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// pushRelease pushes a release image and all that it lists, and returns its name.
func (s *slowRegistry) pushRelease(b *testing.B) string {
	b.Helper()
	var tags []string
	for i := range discoveredStreams {
		stream := fmt.Sprintf("rhel-%d", i)
		for suffix, label := range map[string]string{"": "containers.bootc", "-extensions": "io.openshift.os.extensions"} {
			image := layersOf(b, map[string]string{"io.openshift.os.streamclass": stream, label: "true"}, 60)
			tags = append(tags, fmt.Sprintf(`{"name":"rhel-coreos-%d%s","from":{"kind":"DockerImage","name":%q}}`, i, suffix, s.push(b, stream+suffix, image)))
		}
	}
	list := `{"kind":"ImageStream","metadata":{"name":"4.21.0"},"spec":{"tags":[` + strings.Join(tags, ",") + `]}}`
	image, err := mutate.AppendLayers(layersOf(b, nil, releaseLayers-1),
		static.NewLayer(tarOf(b, "release-manifests/image-references", []byte(list)), types.OCIUncompressedLayer))
	require.NoError(b, err)
	return s.push(b, "release", image)
}

func (s *slowRegistry) push(b *testing.B, repository string, image v1.Image) string {
	b.Helper()
	ref, err := imagename.ParseReference(s.host + "/" + repository + ":1")
	require.NoError(b, err)
	require.NoError(b, remote.Write(ref, image, remote.WithContext(b.Context())))
	digest, err := image.Digest()
	require.NoError(b, err)
	return ref.Context().Digest(digest.String()).String()
}

// layersOf is an image with labels and as many layers of 100 kB that nobody has to read.
func layersOf(b *testing.B, labels map[string]string, count int) v1.Image {
	b.Helper()
	var layers []v1.Layer
	for i := range count {
		layers = append(layers, static.NewLayer(bytes.Repeat([]byte{byte(i)}, 100_000), types.OCIUncompressedLayer))
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	require.NoError(b, err)
	file, err := image.ConfigFile()
	require.NoError(b, err)
	file = file.DeepCopy()
	file.Config.Labels = labels
	image, err = mutate.ConfigFile(image, file)
	require.NoError(b, err)
	return image
}

// tarOf is an archive of one file.
func tarOf(b *testing.B, name string, content []byte) []byte {
	b.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(b, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write(content)
	require.NoError(b, err)
	require.NoError(b, w.Close())
	return out.Bytes()
}
