package inventory

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestTagsOfAPool(t *testing.T) {
	t.Parallel()
	const key = "0123456789abcdef0123456789abcdef"
	for tag, is := range map[string]bool{
		"worker": true, "worker-" + key: true, "worker-" + key + ".2": true, "worker-" + key + ".8": true, "trial-worker": true,
		"worker-" + key + ".9": false, "worker-gpu": false, "worker-gpu-" + key: false, "worker-" + key[1:]: false, "content-" + key: false,
		"configs-" + key: false, "sha256-" + key + ".sig": false, "master": false, "latest": false, key: false,
	} {
		assert.Equal(t, is, isOf("worker", tag), tag)
	}
}

func TestMost(t *testing.T) {
	t.Parallel()
	assert.Empty(t, most(nil))
	assert.Empty(t, most(map[mcfgv1.ImageDigestFormat]int{"": 5}))
	assert.Equal(t, mcfgv1.ImageDigestFormat("b"), most(map[mcfgv1.ImageDigestFormat]int{"": 5, "a": 1, "b": 2}))
	assert.Equal(t, mcfgv1.ImageDigestFormat("a"), most(map[mcfgv1.ImageDigestFormat]int{"b": 2, "a": 2}), "each time the same")
}

func TestPullOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	layer := func(hex string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex} }
	have := &content{layers: map[string]map[v1.Hash]int64{"amd64": {layer("a"): 100}, "arm64": {layer("b"): 200}}}
	found := &content{layers: map[string]map[v1.Hash]int64{"amd64": {layer("a"): 100, layer("c"): 7}, "arm64": {layer("b"): 200, layer("d"): 5}}}
	var image Image
	image.add(found, have)
	assert.Equal(t, int64(205), *image.Size, "that of the largest")
	assert.Equal(t, int64(7), *image.Pull)
	image = Image{}
	delete(have.layers, "arm64")
	image.add(found, have)
	assert.Nil(t, image.Pull, "there is nothing to compare with")
}
