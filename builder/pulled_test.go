package builder

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
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/status"
)

func sha(character string) string { return "sha256:" + strings.Repeat(character, 64) }

// tools pushes an image that Containerfiles name by its tag.
func (w *world) tools() (tag string) {
	w.t.Helper()
	tag = w.registry.host + "/tools/agent:1"
	require.NoError(w.t, ggcr.Write(w.registry.parse(w.t, tag), osImage(w.t, "tools", "amd64")))
	return tag
}

// pulls is a backend that says which images it pulled, the base image among them.
func (s *standIn) pulls(images ...mcfgv1.PulledImage) {
	s.says = func(spec backend.Spec) backend.State {
		state := backend.State{Phase: backend.Succeeded}
		for _, a := range spec.Architectures {
			base := a.Instructions.Images[0]
			state.Pulled = append(state.Pulled, mcfgv1.PulledImage{Name: base.Name, Image: base.Image, Architecture: a.Architecture, ManifestDigest: sha("0")})
			for _, image := range images {
				if image.Architecture == "" || image.Architecture == a.Architecture {
					image.Architecture = a.Architecture
					state.Pulled = append(state.Pulled, image)
				}
			}
		}
		return state
	}
}

// pulledInto are the images that were pulled, by what the registry has of an image's provenance.
func (w *world) pulledInto(image string) []mcfgv1.PulledImage { return w.readPulled(image).Images }

func (w *world) readPulled(image string) provenance.Pulled {
	w.t.Helper()
	found, err := w.stated(image, "https://slsa.dev/provenance/v1", firstKey())
	require.NoError(w.t, err)
	require.Len(w.t, found, 1)
	return provenance.ReadPulled(found[0])
}

// content is the content image of the newest build, by digest.
func (w *world) content() string {
	w.t.Helper()
	tagged := w.registry.host + "/host/os:content-" + w.builds()[0].Status.ContentKey
	return w.registry.parse(w.t, tagged).Context().Digest(w.registry.digestOf(w.t, tagged)).String()
}

func TestPulledImagesAreAttested(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	tag := w.tools()
	w.containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	w.add(firstKey().secret())
	want := []mcfgv1.PulledImage{{Name: tag, Image: w.registry.host + "/tools/agent@" + sha("a"), Architecture: "AMD64", ManifestDigest: sha("b")}}
	s.pulls(want[0])
	w.settle(w.builder(use, w.attesting(nil)))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, want, w.builds()[0].Status.PulledImages)
	assert.Equal(t, want, w.pulledInto(w.content()))
	first := w.onlyImage().Spec.PullSpec
	assert.Equal(t, want, w.pulledInto(string(first)))

	s.pulls(mcfgv1.PulledImage{Name: tag, Image: w.registry.host + "/tools/agent@" + sha("c")}) // what a build of now would pull
	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(w.builder(use, w.attesting(nil)))
	assert.Equal(t, 1, s.ensure, "the content was taken from its tag")
	newer := w.osConfig("worker").Status.CurrentImagePullSpec
	require.NotEqual(t, first, newer)
	assert.Equal(t, want, w.pulledInto(string(newer)), "and is what it was built with")
	for _, build := range w.builds() {
		assert.Equal(t, want, build.Status.PulledImages, build.Name)
	}
}

func TestPulledImagesOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.base = w.registry.pushBase(t, "stream/os", "both", "amd64", "arm64")
	w.add(firstKey().secret(), w.rendered("worker", "1", "/etc/motd", "one"), newPool("worker", "rendered-worker-1"), w.config("worker"))
	tag := w.tools()
	w.containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	s := newStandIn(w)
	image := mcfgv1.PulledImage{Name: tag, Image: w.registry.host + "/tools/agent@" + sha("a")}
	amd64, arm64 := image, image
	amd64.Architecture, amd64.ManifestDigest = "AMD64", sha("b")
	arm64.Architecture, arm64.ManifestDigest = "ARM64", sha("c")
	s.pulls(amd64, arm64)
	w.settle(w.builder(func(o *settings) { o.Backends = asJobs(s) }, w.attesting(nil)))
	want := []mcfgv1.PulledImage{amd64, arm64}
	assert.Equal(t, want, w.builds()[0].Status.PulledImages)
	assert.Equal(t, want, w.pulledInto(w.content()))
	assert.Equal(t, want, w.pulledInto(string(w.onlyImage().Spec.PullSpec)))
}

func TestPulledImagesThatTheReportHasNoRoomFor(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	tag := w.tools()
	w.containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	w.add(firstKey().secret())
	s.pulls(mcfgv1.PulledImage{Name: tag, Image: w.registry.host + "/tools/agent@" + sha("a"), Architecture: "AMD64"})
	says := s.says
	s.says = func(spec backend.Spec) backend.State {
		state := says(spec)
		state.PulledMissing = 3
		return state
	}
	w.settle(w.builder(use, w.attesting(nil)))
	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(w.builder(use, w.attesting(nil)))
	assert.Equal(t, 1, s.ensure, "the content was taken from its tag")
	require.Len(t, w.builds(), 2)
	for _, build := range w.builds() {
		assert.Equal(t, int32(3), build.Status.PulledImagesMissing, build.Name)
	}
	assert.Equal(t, 3, w.readPulled(w.content()).Missing)
	assert.Equal(t, 3, w.readPulled(string(w.osConfig("worker").Status.CurrentImagePullSpec)).Missing)
}

func TestUnknownPulledImages(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	tag := w.tools()
	w.containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	w.add(firstKey().secret())
	good := mcfgv1.PulledImage{Name: tag, Image: w.registry.host + "/tools/agent@" + sha("a"), Architecture: "AMD64"}
	bad := []mcfgv1.PulledImage{
		{Image: good.Image},
		{Name: tag},
		{Name: tag, Image: tag},
		{Name: tag, Image: w.registry.host + "/tools/agent@sha256:short"},
		{Name: tag, Image: good.Image, ManifestDigest: "sha256:short"},
		{Name: strings.Repeat("x", 513), Image: good.Image},
	}
	for n := range 200 {
		many := good
		many.Name = fmt.Sprintf("%s-%d", tag, n)
		bad = append(bad, many)
	}
	s.pulls(append([]mcfgv1.PulledImage{good}, bad...)...)
	w.settle(w.builder(use, w.attesting(nil)))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	got := w.builds()[0].Status.PulledImages
	assert.Len(t, got, maker.MaxPulled, "no more than the API server takes")
	assert.Equal(t, good, got[0])
	assert.Equal(t, tag+"-0", got[1].Name, "what is none is left out")
	const missing = 207 - maker.MaxPulled
	assert.Equal(t, int32(missing), w.builds()[0].Status.PulledImagesMissing, "and counted")
	assert.Equal(t, missing, w.readPulled(w.content()).Missing)
	assert.Equal(t, missing, w.readPulled(string(w.onlyImage().Spec.PullSpec)).Missing)

	w, _, use = withContent(t, cheapFile)
	w.add(firstKey().secret())
	w.settle(w.builder(use, w.attesting(nil)))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready), "a builder from before says nothing")
	assert.Empty(t, w.builds()[0].Status.PulledImages)
	assert.Empty(t, w.pulledInto(string(w.onlyImage().Spec.PullSpec)))
}

// TestPulledImagesAfterARestart has the key come when the process that saw the build is gone.
func TestPulledImagesAfterARestart(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	tag := w.tools()
	w.containerfile("FROM os-base-image\nCOPY --from=" + tag + " /a /etc/a\n")
	image := mcfgv1.PulledImage{Name: tag, Image: w.registry.host + "/tools/agent@" + sha("a"), Architecture: "AMD64"}
	s.pulls(image)
	w.settle(w.builder(use)) // it does not attest
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	w.add(firstKey().secret())
	_, err := w.reconcileImage(w.builder(use, w.attesting(nil)), w.onlyImage().Name)
	require.NoError(t, err)
	assert.Equal(t, []mcfgv1.PulledImage{image}, w.pulledInto(string(w.onlyImage().Spec.PullSpec)))
}

// TestContentOfATrialRecordsItsInputs has what a move to the other stream would find and take.
func TestContentOfATrialRecordsItsInputs(t *testing.T) {
	t.Parallel()
	w, _, s := tryingContent(t)
	w.add(firstKey().secret())
	before := w.contentImages()
	image := mcfgv1.PulledImage{Name: w.registry.host + "/tools/agent:1", Image: w.registry.host + "/tools/agent@" + sha("a"), Architecture: "AMD64"}
	s.pulls(image)
	b := w.builder(func(o *settings) { o.Backends = asJobs(s) }, w.attesting(nil))
	w.try(newStream)
	require.Eventually(t, func() bool { return w.triedAgain(b).State == mcfgv1.StreamTrialReported }, time.Minute, time.Millisecond)
	made := slices.DeleteFunc(w.contentImages(), func(digest string) bool { return slices.Contains(before, digest) })
	require.Len(t, made, 1)
	content := w.registry.host + "/host/os@" + made[0]
	assert.Equal(t, []mcfgv1.PulledImage{image}, w.pulledInto(content))
	d := w.provenance(content, firstKey()).BuildDefinition
	assert.Equal(t, "Job", d.InternalParameters.Backend)
	assert.Equal(t, "base image", d.ResolvedDependencies[0].Name)
	assert.Equal(t, "sha256:"+d.ResolvedDependencies[0].Digest["sha256"], w.registry.digestOf(t, w.registry.host+"/stream/os:el10"))
}
