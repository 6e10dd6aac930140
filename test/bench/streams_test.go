//go:build e2e

package bench

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	imageregistry "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

// Budgets of finding out which streams a release has: 20 images of 10 streams, a registry that
// takes 50 ms to answer, and a release image of 200 layers.
const (
	budgetDiscover      = 1.0 // seconds
	budgetDiscoverBytes = 1.0 // MB
	registryLatency     = 50 * time.Millisecond
	discoveredStreams   = 10
	releaseLayers       = 200
)

// BenchmarkDiscoverStreams does it with an empty cache, and once more in a new process's stead with
// that cache.
func BenchmarkDiscoverStreams(b *testing.B) {
	s := registrytest.New(b, nil)
	release := pushRelease(b, s)
	s.Answer(late)
	var bytesDown int64
	var requests, again, runs int
	for b.Loop() {
		dir := b.TempDir()
		s.Forget()
		require.Len(b, discover(b, dir, release), discoveredStreams)
		requests, bytesDown = len(s.Requests()), s.Sent()
		b.StopTimer()
		require.Len(b, discover(b, dir, release), discoveredStreams)
		again = len(s.Requests()) - requests
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

// late makes a registry answer late.
func late(http.ResponseWriter, *http.Request) bool {
	timer := time.NewTimer(registryLatency)
	defer timer.Stop()
	<-timer.C
	return false
}

// pushRelease pushes a release image and all that it lists, and returns its name.
func pushRelease(b *testing.B, s *registrytest.Server) string {
	b.Helper()
	var tags []string
	for i := range discoveredStreams {
		stream := fmt.Sprintf("rhel-%d", i)
		for suffix, label := range map[string]string{"": "containers.bootc", "-extensions": "io.openshift.os.extensions"} {
			image := layersOf(b, map[string]string{"io.openshift.os.streamclass": stream, label: "true"}, 60)
			tags = append(tags, fmt.Sprintf(`{"name":"rhel-coreos-%d%s","from":{"kind":"DockerImage","name":%q}}`, i, suffix, s.Push(b, stream+suffix+":1", image)))
		}
	}
	list := `{"kind":"ImageStream","metadata":{"name":"4.21.0"},"spec":{"tags":[` + strings.Join(tags, ",") + `]}}`
	image, err := mutate.AppendLayers(layersOf(b, nil, releaseLayers-1),
		static.NewLayer(tarOf(b, "release-manifests/image-references", []byte(list)), types.OCIUncompressedLayer))
	require.NoError(b, err)
	return s.Push(b, "release:1", image)
}

// layersOf is an image with labels and as many layers of 100 kB that no one has to read.
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
