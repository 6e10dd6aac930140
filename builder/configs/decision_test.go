package configs_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/osimage/osindex"
	"github.com/layerwright/layerwright/test/worldtest"
)

// countedBases counts how often it is read what a base image has.
type countedBases struct {
	*baseimage.Loader

	reads atomic.Int32
}

func (c *countedBases) Index(ctx context.Context, image v1.Image) (*osindex.Index, error) {
	c.reads.Add(1)
	return c.Loader.Index(ctx, image)
}

// TestOneChangeIsDecidedOnce counts what a change of one file costs.
func TestOneChangeIsDecidedOnce(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	bases := &countedBases{Loader: baseimage.New(baseimage.Options{CacheDir: w.CacheDir})}
	b := w.Builder(func(o *worldtest.Settings) { o.Base = bases })
	w.Settle(b)
	w.Registry.Forget()
	bases.reads.Store(0)
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)

	build := worldtest.Read(w, &mcfgv1.MachineOSBuild{}, w.OSConfig("worker").Status.MachineOSBuild.Name)
	assert.Equal(t, mcfgv1.BuildActionAppend, build.Spec.Decision.Action)
	_, tag, _ := strings.Cut(strings.TrimPrefix(string(build.Spec.RenderedImagePushSpec), w.Registry.Host), ":")
	var looked []string
	for _, request := range w.Registry.Forget() {
		if strings.HasSuffix(request, "/manifests/"+tag) && !strings.HasPrefix(request, "PUT") {
			looked = append(looked, request)
		}
	}
	assert.Len(t, looked, 1, "it is looked for once")
	assert.EqualValues(t, 2, bases.reads.Load(), "it is described once, and made once")
}

// TestABuildMakesWhatWasDecided changes the configuration behind the back of a build.
func TestABuildMakesWhatWasDecided(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		restarts bool
		says     string
	}{
		"the recipe was handed on": {false, "True Succeeded"},
		"the process was restarted": {
			true, "True Interrupted the MachineOSConfig or its pool has changed since this build was requested; another build follows",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			b := w.Builder()
			require.NoError(t, w.Round(b))
			build := w.Builds()[0]
			worldtest.Edit(w, &mcfgv1.MachineConfig{}, "rendered-worker-1", func(mc *mcfgv1.MachineConfig) {
				mc.Spec.Config.Raw = bytes.ReplaceAll(mc.Spec.Config.Raw, []byte("data:,one"), []byte("data:,two"))
			})
			if tt.restarts {
				b = w.Builder()
			}
			_, err := w.ReconcileBuild(b, build.Name)
			require.NoError(t, err)
			assert.Contains(t, worldtest.Text(worldtest.Read(w, &mcfgv1.MachineOSBuild{}, build.Name).Status.Conditions, status.Ready), strings.TrimPrefix(tt.says, "True "))
			w.Settle(b)
			current := w.OSConfig("worker").Status
			assert.NotEqual(t, build.Name, current.MachineOSBuild.Name)
			assert.Equal(t, "two", w.Unpacked(string(current.CurrentImagePullSpec), "amd64", "etc/motd"))
		})
	}
}

// asBefore makes a build what an earlier version of Layerwright would have requested.
func asBefore(w *worldtest.World, name string) {
	w.T.Helper()
	worldtest.Edit(w, &mcfgv1.MachineOSBuild{}, name, func(b *mcfgv1.MachineOSBuild) {
		record, err := plan.RecordOf(b)
		require.NoError(w.T, err)
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		require.NoError(w.T, json.NewEncoder(zip).Encode(record))
		require.NoError(w.T, zip.Close())
		d := b.Spec.Decision
		b.Annotations = map[string]string{
			mcfgv1.AnnotationBaseImage: string(d.BaseImage), mcfgv1.AnnotationOSImageStream: d.OSImageStream,
			mcfgv1.AnnotationBuildInputs: base64.StdEncoding.EncodeToString(out.Bytes()), mcfgv1.AnnotationBuildCause: string(d.Cause),
			mcfgv1.AnnotationContentImage: d.ContentImage, mcfgv1.AnnotationRegistryAccess: d.RegistryAccess,
			mcfgv1.AnnotationRenderedImagePushSecret: d.RenderedImagePushSecret, mcfgv1.AnnotationBaseImagePullSecret: d.BaseImagePullSecret,
		}
		b.Spec.Decision = nil
		b.Generation--
	})
}

func TestBuildsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	for name, rounds := range map[string]int{"one that has succeeded": 20, "one that is under way": 1} {
		for content, containerfile := range map[string]string{"configuration": "", "content": worldtest.CheapFile} {
			t.Run(fmt.Sprintf("%s, with %s", name, content), func(t *testing.T) {
				t.Parallel()
				w, _, use := worldtest.WithContent(t, containerfile)
				b := w.Builder(use)
				for range rounds {
					require.NoError(t, w.Round(b))
				}
				build := w.Builds()[0]
				asBefore(w, build.Name)
				w.Writes = nil
				b = w.Builder(use)
				w.Settle(b)
				require.Len(t, w.Builds(), 1)
				after := w.Builds()[0]
				assert.Equal(t, build.UID, after.UID)
				assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
				assert.NotContains(t, fmt.Sprint(w.Writes), "MachineOSBuild "+build.Name+" delete")
				if image := build.Status.DigestedImagePushSpec; image != "" {
					assert.Equal(t, image, after.Status.DigestedImagePushSpec)
					assert.NotContains(t, fmt.Sprint(w.Writes), "create")
				}

				w.Rerender("worker", "2", "/etc/motd", "two")
				w.Settle(b)
				next := worldtest.Read(w, &mcfgv1.MachineOSBuild{}, w.OSConfig("worker").Status.MachineOSBuild.Name)
				assert.Equal(t, "file /etc/motd changed", next.Status.Why)
			})
		}
	}
}
