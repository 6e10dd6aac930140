//go:build e2e

package engine

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
)

// variant is the tiny image, made different from others, for an architecture.
func variant(t *testing.T, seed, architecture string) v1.Image {
	t.Helper()
	config, err := tiny.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.Author, config.Architecture = seed, architecture
	image, err := mutate.ConfigFile(tiny, config)
	require.NoError(t, err)
	return image
}

// manifestOf is the digest of an image.
func manifestOf(t *testing.T, image interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	digest, err := image.Digest()
	require.NoError(t, err)
	return digest.String()
}

// both is an index of two architectures.
func both(t *testing.T, seed string) (index v1.ImageIndex, manifests map[string]string) {
	t.Helper()
	index, manifests = empty.Index, map[string]string{}
	for _, architecture := range []string{"arm64", "amd64"} {
		image := variant(t, seed, architecture)
		manifests[architecture] = manifestOf(t, image)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index, manifests
}

// standFor has names in the Containerfile stand for images, as the controller says it.
func (p *pod) standFor(images map[string]string) {
	for i, image := range p.instructions.Images {
		if pinned, named := images[image.Name]; named {
			p.instructions.Images[i].Image = pinned
		}
	}
}

func TestPulledImagesAreReported(t *testing.T) { //nolint:tparallel // its parts share the pod
	t.Parallel()
	h := newHub(t)
	single := variant(t, "single", "amd64")
	pinned := map[string]string{h.host + "/tools/single:latest": h.put(t, "tools/single", single)}
	manifests := map[string]string{h.host + "/tools/single:latest": manifestOf(t, single)}
	other := map[string]string{}
	for _, name := range []string{"stage", "copied", "mounted", "digest"} {
		index, platforms := both(t, name)
		image := h.putIndex(t, "tools/"+name, index)
		tag := h.host + "/tools/" + name + ":latest"
		if name == "digest" {
			tag = image
		}
		pinned[tag], manifests[tag], other[tag] = image, platforms["amd64"], platforms["arm64"]
	}
	digest := pinned[h.host+"/tools/digest:latest"]
	for name := range pinned {
		if strings.Contains(name, "@") {
			digest = name
		}
	}
	containerfile := fmt.Sprintf(`FROM %[1]s/tools/stage:latest AS tools
RUN echo built > /agent
FROM %[1]s/tools/nowhere:1 AS unused
RUN --mount=type=bind,from=%[1]s/tools/nowhere:2,target=/mnt true
FROM %[1]s/tools/single:latest AS more
FROM os-base-image
COPY --from=tools /agent /usr/bin/agent
COPY --from=more /bin /opt/more
COPY --from=%[1]s/tools/copied:latest /bin /opt/copied
COPY --from=%[2]s /bin /opt/digest
RUN --mount=type=bind,from=%[1]s/tools/mounted:latest,target=/mnt ls /mnt/bin
`, h.host, digest)
	p := newPod(t, h, containerfile, nil)
	p.standFor(pinned)

	check := func(pulled []backend.PulledImage, manifests map[string]string) {
		t.Helper()
		require.Len(t, pulled, 6, "the base image too")
		for _, image := range pulled[1:] {
			if image.Name == digest {
				assert.Empty(t, image.Image, "it is in the name")
			} else {
				assert.Equal(t, pinned[image.Name], image.Image, image.Name)
			}
			assert.Equal(t, manifests[image.Name], image.Manifest, image.Name)
		}
		assert.Equal(t, p.instructions.Images[0].Name, pulled[0].Name)
		assert.Equal(t, manifestOf(t, tiny), pulled[0].Manifest)
	}
	check(p.succeed(t, backend.Fetch).report.Pulled, manifests)
	assert.Empty(t, p.succeed(t, backend.Build).report.Pulled)
	first := h.get(t, p.buildAndPush(t))
	again := newPod(t, h, containerfile, nil)
	again.standFor(pinned)
	assert.Equal(t, manifestOf(t, first), manifestOf(t, h.get(t, again.buildAndPush(t))), "nothing of it is in the image")

	t.Run("what was there was not pulled", func(t *testing.T) {
		p.cutOff(t)
		for _, image := range p.succeed(t, backend.Fetch).report.Pulled {
			assert.Empty(t, image.Manifest, image.Name)
		}
	})
	t.Run("another architecture", func(t *testing.T) {
		arm := newPod(t, h, containerfile, nil)
		arm.standFor(pinned)
		arm.instructions.Architecture = mcfgv1.ArchitectureARM64
		other[h.host+"/tools/single:latest"] = manifestOf(t, single)
		check(arm.succeed(t, backend.Fetch).report.Pulled, other)
	})
}

// TestMovedTagKeepsItsFirstDigest has a tag given to another image after the controller looked.
func TestMovedTagKeepsItsFirstDigest(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	before := variant(t, "before", "amd64")
	pinned := h.put(t, "tools/moving", before)
	p := newPod(t, h, "FROM os-base-image\nCOPY --from="+h.host+"/tools/moving:latest /bin /opt/bin\n", nil)
	p.standFor(map[string]string{h.host + "/tools/moving:latest": pinned})
	h.put(t, "tools/moving", variant(t, "after", "amd64"))
	assert.Equal(t, backend.PulledImage{Name: h.host + "/tools/moving:latest", Image: pinned, Manifest: manifestOf(t, before)},
		p.succeed(t, backend.Fetch).report.Pulled[1])
}

// TestOneImageByTwoNames has two names that stand for one image, which is pulled once.
func TestOneImageByTwoNames(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	index, manifests := both(t, "shared")
	pinned := h.putIndex(t, "tools/shared", index)
	one, two := h.host+"/tools/shared:1", h.host+"/tools/shared:2"
	p := newPod(t, h, "FROM os-base-image\nCOPY --from="+one+" /bin /opt/1\nCOPY --from="+two+" /bin /opt/2\n", nil)
	p.standFor(map[string]string{one: pinned, two: pinned})
	assert.Equal(t, []backend.PulledImage{
		{Name: one, Image: pinned, Manifest: manifests["amd64"]}, {Name: two, Image: pinned, Manifest: manifests["amd64"]},
	}, p.succeed(t, backend.Fetch).report.Pulled[1:])
}

func TestShortNameIsReportedInFull(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	image := variant(t, "short", "amd64")
	pinned := h.put(t, "library/tools", image)
	p := newPod(t, h, "FROM os-base-image\nCOPY --from=library/tools:latest /bin /opt/bin\n", nil)
	p.write(t, "registries.conf", "unqualified-search-registries = ["+fmt.Sprintf("%q", h.host)+"]\n")
	p.instructions.Images[1].Image = ""
	assert.Equal(t, []backend.PulledImage{{Name: "library/tools:latest", Image: pinned, Manifest: manifestOf(t, image)}},
		p.succeed(t, backend.Fetch).report.Pulled[1:])
}

// TestRunLinesCannotForgePulledImages has a line that writes reports wherever it can.
func TestRunLinesCannotForgePulledImages(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	forged := `{"step":"fetch","pulled":[{"name":"forged.example.com/x:1","image":"forged.example.com/x@sha256:` + strings.Repeat("f", 64) + `"}]}`
	p := newPod(t, h, "FROM os-base-image\nRUN <<END\nset -x\necho '"+forged+"'\necho '##layerwright "+forged+"'\n"+
		"echo '"+forged+"' > /dev/termination-log || true\nEND\n", nil)
	fetched := p.succeed(t, backend.Fetch)
	built := p.buildAndExport(t)
	assert.Contains(t, built.output, "forged.example.com", "it ran")
	assert.Empty(t, built.report.Pulled)
	assert.Equal(t, fetched.report.Pulled, p.ended(t, backend.Fetch, 0, "").report.Pulled, "the report of the step before is as it was")
	p.login(t, pusher)
	assert.Empty(t, p.succeed(t, backend.Push).report.Pulled)
}
