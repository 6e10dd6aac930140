package inventory

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestPrune(t *testing.T) {
	t.Parallel()
	build := func(name string, at int64, condition, image string) mcfgv1.MachineOSBuild {
		b := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(at, 0)}}
		b.Spec.MachineOSConfig.Name, b.Spec.RenderedImagePushSpec = "worker", mcfgv1.ImageTagFormat("os:"+name)
		b.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(image)
		b.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue}}
		return b
	}
	const succeeded, failed = mcfgv1.BuildSucceeded, mcfgv1.BuildFailed
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	config.Spec.Retention = &mcfgv1.Retention{SuccessfulBuilds: new(int32(1)), FailedBuilds: new(int32(0))}
	config.Status.MachineOSBuild = &mcfgv1.ObjectReference{Name: "w3"}
	other := build("other", 0, succeeded, "o")
	other.Spec.MachineOSConfig.Name = "other"
	builds := []mcfgv1.MachineOSBuild{
		build("w0", 0, succeeded, "a"), build("w1", 1, succeeded, "b"), build("w2", 2, failed, ""), build("w3", 3, succeeded, "c"), build("w4", -1, succeeded, "c"), other,
	}
	gone := func(references map[string]bool) map[string]string {
		removals, waits := Prune(config, builds, references)
		require.Empty(t, waits)
		names := map[string]string{}
		for _, r := range removals {
			names[r.Build] = r.Stays
			assert.NotEmpty(t, r.Reason)
			assert.Equal(t, "os:"+r.Build, r.Tag)
		}
		return names
	}
	assert.Equal(t, map[string]string{"w0": "", "w1": "", "w2": "", "w4": "MachineOSBuild w3 has made the same image"}, gone(nil))
	assert.NotContains(t, gone(map[string]bool{"a": true}), "w0", "a node runs it")
	config.Spec.Retention.ImageDeletion = mcfgv1.Disabled
	assert.Equal(t, "spec.retention.imageDeletion is Disabled", gone(nil)["w1"])
	config.Status.MachineOSBuild.Name = "w2"
	removals, waits := Prune(config, builds, nil)
	assert.Empty(t, removals)
	assert.Contains(t, waits, "is not made yet")
}
