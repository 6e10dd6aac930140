//go:build e2e

package e2e

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// containing gives a MachineOSConfig a Containerfile.
func containing(text string) func(*mcfgv1.MachineOSConfig) {
	return func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
	}
}

// testContentIsBuiltInAPod has Buildah build what a Containerfile says, in a pod, for an image of a
// pool; and then only appends.
func testContentIsBuiltInAPod(t *testing.T) {
	b := newBuilds(t)
	p := b.unasked(t, "content")
	p.ask(containing("FROM os-base-image\nRUN echo built > /usr/share/built\n"))
	var image string
	p.eventually(func(t *assert.CollectT) {
		config := p.config(t)
		require.Contains(t, conditionText(config.Status.Conditions, status.Ready), "True Succeeded")
		image = string(config.Status.CurrentImagePullSpec)
	})
	assert.Equal(t, "built\n", p.inLayers(image, "usr/share/built"))
	builds := p.machineOSBuilds(t.Context(), t)
	require.Len(t, builds, 1)
	assert.Contains(t, conditionText(builds[0].Status.Conditions, status.BuildSucceeded), "True Built the content was built, and the configuration was appended")
	require.NotNil(t, builds[0].Status.Builder)

	p.write("another")
	p.eventually(func(t *assert.CollectT) {
		config := p.config(t)
		require.NotEqual(t, image, string(config.Status.CurrentImagePullSpec))
		require.Contains(t, conditionText(config.Status.Conditions, status.Ready), "True Succeeded")
	})
	newer := string(p.config(t).Status.CurrentImagePullSpec)
	assert.Equal(t, "built\n", p.inLayers(newer, "usr/share/built"))
	for _, build := range p.machineOSBuilds(t.Context(), t) {
		if build.Name != builds[0].Name {
			assert.Contains(t, conditionText(build.Status.Conditions, status.BuildSucceeded), "True ConfigAppended", "nothing is built again")
		}
	}
}

// testContentThatSeesTheConfiguration has RUN lines read what the configuration says. It talks to
// the registry as users do, by TLS with an authority that only the controller was given.
func testContentThatSeesTheConfiguration(t *testing.T) {
	b := newBuilds(t)
	b.base, b.host = tinyImage(t), statusOf(t).Registry
	p := b.unasked(t, "seeing")
	p.ask(containing("FROM configs AS final\nRUN cat /etc/motd > /usr/share/seen\n"), func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
	})
	var image string
	p.eventually(func(t *assert.CollectT) {
		config := p.config(t)
		require.Contains(t, conditionText(config.Status.Conditions, status.Ready), "True Succeeded")
		image = string(config.Status.CurrentImagePullSpec)
	})
	assert.Equal(t, "one", p.inLayers(image, "usr/share/seen"))
	assert.Equal(t, "one", p.inLayers(image, "etc/motd"))
	builds := p.machineOSBuilds(t.Context(), t)
	require.Len(t, builds, 1)
	assert.Contains(t, conditionText(builds[0].Status.Conditions, status.BuildSucceeded), "True Built the content was built on top of the configuration: ")
}

// inLayers is a file as the highest layer of an image that has it says; empty where none has.
func (p *layered) inLayers(pinned, path string) string {
	layers, err := p.image(p.t, pinned).Layers()
	require.NoError(p.t, err)
	for i := len(layers) - 1; i >= 0; i-- {
		if text := p.inLayer(layers[i], path); text != "" {
			return text
		}
	}
	return ""
}

func (p *layered) inLayer(layer v1.Layer, path string) string {
	archive, err := layer.Uncompressed()
	require.NoError(p.t, err)
	defer func() { _ = archive.Close() }()
	return fileIn(p.t, archive, path)
}
