package retention_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/retention"
)

func TestPreview(t *testing.T) {
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
		removals, waits := retention.Preview(config, builds, references)
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
	removals, waits := retention.Preview(config, builds, nil)
	assert.Empty(t, removals)
	assert.Contains(t, waits, "is not made yet")
}
