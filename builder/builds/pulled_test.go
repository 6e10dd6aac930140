package builds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// tools pushes an image that Containerfiles name by its tag.
func tools(w *worldtest.World) (tag string) {
	w.T.Helper()
	tag = w.Registry.Host + "/tools/agent:1"
	require.NoError(w.T, ggcr.Write(w.Registry.Parse(w.T, tag), worldtest.OSImage(w.T, "tools", "amd64")))
	return tag
}

// pulledInto are the images that were pulled, by what the registry has of an image's provenance.
func pulledInto(w *worldtest.World, image string) []mcfgv1.PulledImage {
	return readPulled(w, image).Images
}

func readPulled(w *worldtest.World, image string) provenance.Pulled {
	w.T.Helper()
	found, err := w.Stated(image, "https://slsa.dev/provenance/v1", worldtest.FirstKey())
	require.NoError(w.T, err)
	require.Len(w.T, found, 1)
	return provenance.ReadPulled(found[0])
}

func TestPulledImagesAreAttested(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	tag := tools(w)
	w.Containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	w.Add(worldtest.FirstKey().Secret())
	want := []mcfgv1.PulledImage{{Name: tag, Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("a"), Architecture: "AMD64", ManifestDigest: worldtest.Sha("b")}}
	s.Pulls(want[0])
	w.Settle(w.Builder(use, w.Attesting(nil)))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, want, w.Builds()[0].Status.PulledImages)
	assert.Equal(t, want, pulledInto(w, w.Content()))
	first := w.OnlyImage().Spec.PullSpec
	assert.Equal(t, want, pulledInto(w, string(first)))

	s.Pulls(mcfgv1.PulledImage{Name: tag, Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("c")}) // what a build of now would pull
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(w.Builder(use, w.Attesting(nil)))
	assert.Equal(t, 1, s.Begun, "the content was taken from its tag")
	newer := w.OSConfig("worker").Status.CurrentImagePullSpec
	require.NotEqual(t, first, newer)
	assert.Equal(t, want, pulledInto(w, string(newer)), "and is what it was built with")
	for _, build := range w.Builds() {
		assert.Equal(t, want, build.Status.PulledImages, build.Name)
	}
}

func TestPulledImagesOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	w := worldtest.New(t)
	w.Base = w.Registry.PushBase(t, "stream/os", "both", "amd64", "arm64")
	w.Add(worldtest.FirstKey().Secret(), w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
	tag := tools(w)
	w.Containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	s := worldtest.NewStandIn(w)
	image := mcfgv1.PulledImage{Name: tag, Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("a")}
	amd64, arm64 := image, image
	amd64.Architecture, amd64.ManifestDigest = "AMD64", worldtest.Sha("b")
	arm64.Architecture, arm64.ManifestDigest = "ARM64", worldtest.Sha("c")
	s.Pulls(amd64, arm64)
	w.Settle(w.Builder(func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(s) }, w.Attesting(nil)))
	want := []mcfgv1.PulledImage{amd64, arm64}
	assert.Equal(t, want, w.Builds()[0].Status.PulledImages)
	assert.Equal(t, want, pulledInto(w, w.Content()))
	assert.Equal(t, want, pulledInto(w, string(w.OnlyImage().Spec.PullSpec)))
}

func TestPulledImagesThatTheReportHasNoRoomFor(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	tag := tools(w)
	w.Containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	w.Add(worldtest.FirstKey().Secret())
	s.Pulls(mcfgv1.PulledImage{Name: tag, Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("a"), Architecture: "AMD64"})
	says := s.Says
	s.Says = func(spec backend.Spec) backend.State {
		state := says(spec)
		state.PulledMissing = 3
		return state
	}
	w.Settle(w.Builder(use, w.Attesting(nil)))
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(w.Builder(use, w.Attesting(nil)))
	assert.Equal(t, 1, s.Begun, "the content was taken from its tag")
	require.Len(t, w.Builds(), 2)
	for _, build := range w.Builds() {
		assert.Equal(t, int32(3), build.Status.PulledImagesMissing, build.Name)
	}
	assert.Equal(t, 3, readPulled(w, w.Content()).Missing)
	assert.Equal(t, 3, readPulled(w, string(w.OSConfig("worker").Status.CurrentImagePullSpec)).Missing)
}

func TestUnknownPulledImages(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	tag := tools(w)
	w.Containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	w.Add(worldtest.FirstKey().Secret())
	good := mcfgv1.PulledImage{Name: tag, Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("a"), Architecture: "AMD64"}
	bad := []mcfgv1.PulledImage{
		{Image: good.Image},
		{Name: tag},
		{Name: tag, Image: tag},
		{Name: tag, Image: w.Registry.Host + "/tools/agent@sha256:short"},
		{Name: tag, Image: good.Image, ManifestDigest: "sha256:short"},
		{Name: strings.Repeat("x", 513), Image: good.Image},
	}
	for n := range 200 {
		many := good
		many.Name = fmt.Sprintf("%s-%d", tag, n)
		bad = append(bad, many)
	}
	s.Pulls(append([]mcfgv1.PulledImage{good}, bad...)...)
	w.Settle(w.Builder(use, w.Attesting(nil)))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	got := w.Builds()[0].Status.PulledImages
	assert.Len(t, got, order.MaxPulled, "no more than the API server takes")
	assert.Equal(t, good, got[0])
	assert.Equal(t, tag+"-0", got[1].Name, "what is none is left out")
	const missing = 207 - order.MaxPulled
	assert.Equal(t, int32(missing), w.Builds()[0].Status.PulledImagesMissing, "and counted")
	assert.Equal(t, missing, readPulled(w, w.Content()).Missing)
	assert.Equal(t, missing, readPulled(w, string(w.OnlyImage().Spec.PullSpec)).Missing)

	w, _, use = worldtest.WithContent(t, worldtest.CheapFile)
	w.Add(worldtest.FirstKey().Secret())
	w.Settle(w.Builder(use, w.Attesting(nil)))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready), "a builder from before says nothing")
	assert.Empty(t, w.Builds()[0].Status.PulledImages)
	assert.Empty(t, pulledInto(w, string(w.OnlyImage().Spec.PullSpec)))
}

// TestPulledImagesAfterARestart has the key come when the process that saw the build is gone.
func TestPulledImagesAfterARestart(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	tag := tools(w)
	w.Containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	image := mcfgv1.PulledImage{Name: tag, Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("a"), Architecture: "AMD64"}
	s.Pulls(image)
	w.Settle(w.Builder(use)) // it does not attest
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	w.Add(worldtest.FirstKey().Secret())
	_, err := w.ReconcileImage(w.Builder(use, w.Attesting(nil)), w.OnlyImage().Name)
	require.NoError(t, err)
	assert.Equal(t, []mcfgv1.PulledImage{image}, pulledInto(w, string(w.OnlyImage().Spec.PullSpec)))
}

// TestContentOfATrialRecordsItsInputs has what a move to the other stream would find and take.
func TestContentOfATrialRecordsItsInputs(t *testing.T) {
	t.Parallel()
	w, _, s := worldtest.TryingContent(t)
	w.Add(worldtest.FirstKey().Secret())
	before := w.ContentImages()
	image := mcfgv1.PulledImage{Name: w.Registry.Host + "/tools/agent:1", Image: w.Registry.Host + "/tools/agent@" + worldtest.Sha("a"), Architecture: "AMD64"}
	s.Pulls(image)
	b := w.Builder(func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(s) }, w.Attesting(nil))
	w.Try(worldtest.NewStream)
	require.Eventually(t, func() bool { return w.TriedAgain(b).State == mcfgv1.StreamTrialReported }, time.Minute, time.Millisecond)
	made := slices.DeleteFunc(w.ContentImages(), func(digest string) bool { return slices.Contains(before, digest) })
	require.Len(t, made, 1)
	content := w.Registry.Host + "/host/os@" + made[0]
	assert.Equal(t, []mcfgv1.PulledImage{image}, pulledInto(w, content))
	d := w.Provenance(content, worldtest.FirstKey()).BuildDefinition
	assert.Equal(t, "Job", d.InternalParameters.Backend)
	assert.Equal(t, "base image", d.ResolvedDependencies[0].Name)
	assert.Equal(t, "sha256:"+d.ResolvedDependencies[0].Digest["sha256"], w.Registry.DigestOf(t, w.Registry.Host+"/stream/os:el10"))
}
