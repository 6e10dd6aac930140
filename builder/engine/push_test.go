//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/folders"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

// pushes has a step upload an image without layers, of which a text tells it apart.
func pushes(t *testing.T, host, text string) (*run, error) {
	t.Helper()
	r := &run{
		Options: Options{Patience: time.Minute, Clock: clock.RealClock{}, Paths: folders.Paths{Work: t.TempDir(), Fetched: t.TempDir(), Registries: folders.Nowhere}},
		step:    backend.Push, output: report.NewOutput(io.Discard, backend.Push, clock.RealClock{}), report: &backend.Report{},
	}
	r.instructions = &backend.Instructions{Architecture: mcfgv1.ArchitectureAMD64, PlainHTTP: []string{host}, Target: host + "/os:content-1"}
	system, err := r.newSystem()
	require.NoError(t, err)
	t.Cleanup(system.close)
	image := &assembled{config: fmt.Appendf(nil, `{"os":"linux","architecture":"amd64","author":%q,"rootfs":{"type":"layers"}}`, text)}
	made := imagespec.Manifest{MediaType: imagespec.MediaTypeImageManifest, Layers: []imagespec.Descriptor{}, Config: imagespec.Descriptor{
		MediaType: imagespec.MediaTypeImageConfig, Digest: digest.FromBytes(image.config), Size: int64(len(image.config)),
	}}
	made.SchemaVersion = 2
	image.manifest, err = json.Marshal(made)
	require.NoError(t, err)
	targets, err := r.targets()
	require.NoError(t, err)
	err = r.upload(t.Context(), system, image, targets)
	return r, err
}

// TestContentThatIsBuiltAgain has its tag, or the next one where the registry lets no one move it,
// and is what is found.
func TestContentThatIsBuiltAgain(t *testing.T) {
	t.Parallel()
	for name, refusal := range registrytest.Immutables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := registrytest.New(t, nil)
			client := registry.New(registry.Options{PlainHTTP: []string{server.Host}})
			isNewest := func(r *run) {
				found, is, err := client.Newest(t.Context(), server.Host+"/os", "content-1")
				require.NoError(t, err)
				require.True(t, is)
				assert.Equal(t, r.report.Image, server.Host+"/os@"+found.String())
			}
			tags := func() []string {
				all, err := client.Tags(t.Context(), server.Host+"/os")
				require.NoError(t, err)
				return all
			}
			for _, text := range []string{"one", "two"} { // tags move
				r, err := pushes(t, server.Host, text)
				require.NoError(t, err)
				isNewest(r)
				assert.Equal(t, []string{"content-1"}, tags())
			}
			server.FixTags(refusal)
			for i, text := range []string{"three", "four", "five"} {
				r, err := pushes(t, server.Host, text)
				require.NoError(t, err)
				isNewest(r)
				assert.Len(t, tags(), i+1)
				assert.Positive(t, r.report.Bytes, "its config was sent")
			}
			server.Answer(nil)
			r, err := pushes(t, server.Host, "tags move again")
			require.NoError(t, err)
			isNewest(r)
			assert.Len(t, tags(), 3)

			server.FixTags(refusal)
			for i := range 20 {
				if _, err = pushes(t, server.Host, strings.Repeat("x", i)); err != nil {
					break
				}
			}
			require.ErrorContains(t, err, "/os:content-1.8: the tag stands for another image, and the registry's tags are immutable")
			require.ErrorContains(t, err, "except it from that rule of the registry")
			assert.Equal(t, mcfgv1.ReasonPushDenied, report.FailureOf(err).Reason)
		})
	}
}
