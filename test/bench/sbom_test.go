//go:build e2e

package bench

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	imagename "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Budgets of the SBOM of an image of 2 GB.
const (
	budgetSBOMMemory = 512.0 // MiB resident at most
	budgetSBOMMore   = 100.0 // MiB of these beyond a program that does nothing
)

// The large image: 2 GiB in layers of which an eighth is random, with as many files and packages as
// a large system.
const (
	sbomLayers   = 16
	sbomFiles    = 6000 // in each layer
	sbomFile     = 22 << 10
	sbomPackages = 3000
	sbomAdded    = 100
)

// sbomHost is the registry that a child process reads images from.
const sbomHost = "LAYERWRIGHT_BENCH_SBOM"

// sbomMeasures is what the child measured.
type sbomMeasures struct {
	// Cold is a new image on a base image that is new too, Next one on a base image that is known,
	// Configured one with configuration alone.
	Cold, Next, Configured time.Duration
	Before, Peak           float64 // KiB resident
	Bytes                  int     // of the document
	Packages               int
}

// BenchmarkSBOM makes SBOMs of an image of 2 GB, in a process that does nothing else.
func BenchmarkSBOM(b *testing.B) {
	if host := os.Getenv(sbomHost); host != "" {
		sbomInChild(b, host, os.Getenv(childCache))
		return
	}
	host := largeImages(b)
	var sum sbomMeasures
	for range b.N {
		m := runChild[sbomMeasures](b, "BenchmarkSBOM", b.TempDir(), sbomHost+"="+host, "GOMEMLIMIT=256000000") // as the controller is deployed
		sum.Cold += m.Cold
		sum.Next += m.Next
		sum.Configured += m.Configured
		sum.Before, sum.Peak, sum.Bytes = max(sum.Before, m.Before), max(sum.Peak, m.Peak), m.Bytes
		require.Equal(b, sbomAdded+1, m.Packages)
	}
	n := float64(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sum.Cold.Seconds()/n, "s-cold")
	b.ReportMetric(sum.Next.Seconds()/n, "s-next")
	b.ReportMetric(sum.Configured.Seconds()/n, "s-configured")
	b.ReportMetric(sum.Peak/1024, "MiB")
	b.ReportMetric(sum.Before/1024, "MiB-before")
	b.ReportMetric(sum.Peak/1024/budgetSBOMMemory, "MiB-of-budget")
	b.ReportMetric((sum.Peak-sum.Before)/1024/budgetSBOMMore, "more-of-budget")
	b.ReportMetric(float64(sum.Bytes)/1000, "kB-document")
}

// dpkgStatus is a database of dpkg with packages that have as much text as real ones.
func dpkgStatus(from, to int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		_, _ = fmt.Fprintf(&text, "Package: package-%04d\nStatus: install ok installed\nArchitecture: amd64\nSource: source-%04d\nVersion: 1:%d.2-3+deb12u1\n"+
			"Depends: %s\nDescription: one of many\n%s\n", i, i/3, i, strings.Repeat("libsomething (>= 1.2), ", 20), strings.Repeat(" and what it is good for.\n", 15))
	}
	return text.String()
}

// sbomLayer is a layer that is made while it is read.
func sbomLayer(number int, database string) tarball.Opener {
	return func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			buffered := bufio.NewWriterSize(writer, 1<<20)
			err := writeSBOMLayer(tar.NewWriter(buffered), number, database)
			if err == nil {
				err = buffered.Flush()
			}
			_ = writer.CloseWithError(err)
		}()
		return reader, nil
	}
}

func writeSBOMLayer(w *tar.Writer, number int, database string) error {
	random, content := rand.NewChaCha8([32]byte{byte(number)}), make([]byte, sbomFile)
	for i := range sbomFiles {
		_, _ = random.Read(content[:sbomFile/8])
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("usr/share/large/%02d/%03d/file-%04d", number, i/100, i), Mode: 0o644, Size: sbomFile}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	for _, file := range [][2]string{{"var/lib/dpkg/status", database}, {"etc/os-release", "ID=debian\nVERSION_ID=12\n"}} { // always in this order: it is written twice
		if database == "" {
			break
		}
		if err := w.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1]))}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, file[1]); err != nil {
			return err
		}
	}
	return w.Close()
}

// largeImages serves the images os:base, os:image, os:next and os:configured, from a disk.
func largeImages(b *testing.B) string {
	b.Helper()
	server := httptest.NewServer(registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(b.TempDir())), registry.Logger(log.New(io.Discard, "", 0))))
	b.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	push := func(tag string, image v1.Image) {
		ref, err := imagename.ParseReference(host + "/os:" + tag)
		require.NoError(b, err)
		require.NoError(b, remote.Write(ref, image, remote.WithContext(b.Context()), remote.WithJobs(2)))
	}
	with := func(image v1.Image, open tarball.Opener) v1.Image {
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(1))
		require.NoError(b, err)
		image, err = mutate.AppendLayers(image, layer)
		require.NoError(b, err)
		return image
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for i := range sbomLayers {
		database := ""
		if i == sbomLayers/2 {
			database = dpkgStatus(0, sbomPackages)
		}
		base = with(base, sbomLayer(i, database))
	}
	push("base", base)
	push("image", with(base, sbomLayer(100, dpkgStatus(1, sbomPackages+sbomAdded)+strings.Replace(dpkgStatus(0, 1), "1:0.2", "1:0.3", 1))))
	push("next", with(base, sbomLayer(101, dpkgStatus(0, sbomPackages+sbomAdded+1))))
	push("configured", with(base, sbomLayer(102, "")))
	return host
}

func sbomInChild(b *testing.B, host, cache string) {
	b.Helper()
	if hasMeasured(cache) {
		return
	}
	m := sbomMeasures{Before: residentKiB(b, "VmRSS")}
	maker := sbom.New(baseimage.New(baseimage.Options{CacheDir: cache}), "bench", clock.RealClock{})
	timed := func(tag string) (time.Duration, []byte) {
		begin := time.Now()
		base, image := pulled(b, host+"/os:base"), pulled(b, host+"/os:"+tag)
		text, err := maker.Make(b.Context(), sbomSubject(b, host+"/os", base, image))
		require.NoError(b, err)
		return time.Since(begin), text
	}
	var text []byte
	m.Cold, text = timed("image")
	m.Bytes, m.Packages = len(text), strings.Count(string(text), "built from the source package")
	m.Next, _ = timed("next")
	m.Configured, text = timed("configured")
	require.NotContains(b, string(text), "built from the source package")
	m.Peak = residentKiB(b, "VmHWM")
	leaveMeasured(b, cache, m)
}

func pulled(tb testing.TB, reference string) v1.Image {
	tb.Helper()
	ref, err := imagename.ParseReference(reference)
	require.NoError(tb, err)
	image, err := remote.Image(ref, remote.WithContext(tb.Context()))
	require.NoError(tb, err)
	return image
}

func sbomSubject(tb testing.TB, repository string, base, image v1.Image) sbom.Subject {
	tb.Helper()
	digest, err := image.Digest()
	require.NoError(tb, err)
	return sbom.Subject{
		Image: repository + "@" + digest.String(), Created: time.Unix(0, 0),
		Platforms: []sbom.Platform{{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, Digest: digest, Base: base, Image: image}},
	}
}

// TestSBOMOfDebian adds a package to the real database of the full fixture.
func TestSBOMOfDebian(t *testing.T) {
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: filepath.Join(cache, "layerwright"), Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(t, err)
	set, err := maker.Build(t.Context(), fixtures.Full)
	require.NoError(t, err)
	base := set.OS[fixtures.RHEL9]["amd64"]
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir()})
	index, err := loader.Index(t.Context(), base)
	require.NoError(t, err)
	found, err := index.Follow("/var/lib/dpkg/status")
	require.NoError(t, err)
	require.True(t, found.Exists(), "the fixture is made of Debian's packages")
	folder := t.TempDir()
	require.NoError(t, loader.CopyFiles(t.Context(), base, index, folder, map[string]string{found.Path: "status"}))
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	require.NoError(t, err)
	list, err := loader.Packages(t.Context(), base, index)
	require.NoError(t, err)
	require.Greater(t, len(list.Packages), 50)

	added := string(status) + "\nPackage: htop\nStatus: install ok installed\nArchitecture: amd64\nVersion: 3.2.2-2\n\n"
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			w := tar.NewWriter(writer)
			err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(found.Path, "/"), Mode: 0o644, Size: int64(len(added))})
			if err == nil {
				_, err = io.WriteString(w, added)
			}
			if err == nil {
				err = w.Close()
			}
			_ = writer.CloseWithError(err)
		}()
		return reader, nil
	})
	require.NoError(t, err)
	image, err := mutate.AppendLayers(base, layer)
	require.NoError(t, err)
	text, err := sbom.New(loader, "test", clock.RealClock{}).Make(t.Context(), sbomSubject(t, "registry.example.com/os", base, image))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), `"referenceLocator":"pkg:deb/`))
	require.Contains(t, string(text), "htop@3.2.2-2?arch=amd64")
	t.Logf("%d packages in the base image", len(list.Packages))
}
