package preflight_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// inputs are what can be written by who may create objects or push images, each as large as an
// attacker makes it.
var inputs = map[string]func(*testing.T){
	"an image of long symbolic links":       readLinks,
	"an index of empty descriptors":         readDescriptors,
	"a MachineConfig of compressed zeros":   readZeros,
	"as many compressed zeros as there may": readMostZeros,
}

// inputEnv has the name of the input that a process of its own reads.
const inputEnv = "LAYERWRIGHT_TEST_INPUT"

// TestNoInputKillsTheController reads each input in a process with the controller's limits, and
// asks the kernel how much it took.
func TestNoInputKillsTheController(t *testing.T) {
	t.Parallel()
	if read, isChild := inputs[os.Getenv(inputEnv)]; isChild {
		read(t)
		const limit = 200 // of 256 MiB; the rest is the controller's own
		require.Less(t, peakMiB(t), limit)
		return
	}
	// As the controller is built: the race detector takes several times the memory.
	program := filepath.Join(t.TempDir(), "preflight.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-race=false", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for name := range inputs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestNoInputKillsTheController$")
			cmd.Env = append(os.Environ(), inputEnv+"="+name, "GOMEMLIMIT=256000000")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}

// peakMiB is what this process had resident at most.
func peakMiB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib >> 10
}

// readLinks indexes an image of 100,000 symbolic links, which is some MB large.
func readLinks(t *testing.T) {
	t.Helper()
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	require.NoError(t, err)
	require.NoError(t, writeLinks(zip))
	require.NoError(t, zip.Close())
	links, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	require.NoError(t, err)
	image, err := mutate.AppendLayers(empty.Image, links)
	require.NoError(t, err)
	_, err = baseimage.New(baseimage.Options{}).Index(t.Context(), image)
	require.ErrorContains(t, err, "the image's paths take more than 48 MiB of memory")
	require.True(t, fault.IsTerminal(err))
}

func writeLinks(w io.Writer) error {
	const many, long = 100_000, 4000
	archive := tar.NewWriter(w)
	target := strings.Repeat("x", long)
	for i := range many {
		if err := archive.WriteHeader(&tar.Header{Name: "etc/" + strconv.Itoa(i), Typeflag: tar.TypeSymlink, Linkname: target}); err != nil {
			return err
		}
	}
	return archive.Close()
}

// readDescriptors opens an index of 8 MB.
func readDescriptors(t *testing.T) {
	t.Helper()
	manifest := []byte(`{"schemaVersion":2,"manifests":[` + strings.TrimSuffix(strings.Repeat("{},", 8<<20/3-100), ",") + `]}`)
	digest, _, err := v1.SHA256(bytes.NewReader(manifest))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		w.Header().Set("Docker-Content-Digest", digest.String())
		w.Header().Set("Content-Length", strconv.Itoa(len(manifest)))
		if r.Method == http.MethodGet && path.Base(path.Dir(r.URL.Path)) == "manifests" {
			_, _ = w.Write(manifest)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	_, err = registry.New(registry.Options{}).Resolve(t.Context(), strings.TrimPrefix(server.URL, "http://")+"/os:base")
	require.ErrorContains(t, err, "its manifest has more than 65536 values")
	require.True(t, fault.IsTerminal(err))
}

// readZeros joins a MachineConfig with 12 files of 60 MiB.
func readZeros(t *testing.T) {
	t.Helper()
	const files, size = 12, 60 << 20
	_, err := machineconfigs.Render(machineconfigs.Options{Pool: "worker"}, []*mcfgv1.MachineConfig{zeros(t, files, size)})
	require.ErrorContains(t, err, `MachineConfig "50-zeros"`)
	require.ErrorContains(t, err, "the contents have more than 64 MiB together")
}

// readMostZeros makes a layer of what a MachineConfig may have.
func readMostZeros(t *testing.T) {
	t.Helper()
	const files, size = 16, 4 << 20
	rendered, err := machineconfigs.Render(machineconfigs.Options{Pool: "worker"}, []*mcfgv1.MachineConfig{zeros(t, files, size)})
	require.NoError(t, err)
	config, err := machineconfigs.Parse(rendered.MachineConfig)
	require.NoError(t, err)
	plan, err := layer.Split(config, &osindex.Index{})
	require.NoError(t, err)
	made, err := plan.Build(layer.Inputs{})
	require.NoError(t, err)
	written, err := made.WriteTo(sha256.New())
	require.NoError(t, err)
	require.Greater(t, written, int64(2*files*size), "the files, and the record with them in base64")
}

// zeros is a MachineConfig of files of compressed zeros.
func zeros(t *testing.T, files, size int) *mcfgv1.MachineConfig {
	t.Helper()
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	for range size >> 20 {
		_, err := zip.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, zip.Close())
	source := "data:;base64," + base64.StdEncoding.EncodeToString(packed.Bytes())
	all := make([]string, files)
	for i := range all {
		all[i] = fmt.Sprintf(`{"path":"/etc/zeros-%d","contents":{"source":%q,"compression":"gzip"}}`, i, source)
	}
	mc := &mcfgv1.MachineConfig{}
	mc.Name = "50-zeros"
	mc.Labels = map[string]string{mcfgv1.LabelRole: mcfgv1.PoolWorker}
	mc.Spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + strings.Join(all, ",") + `]}}`)}
	return mc
}
