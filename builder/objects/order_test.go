package objects_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/names"
)

func TestIsNamedByKey(t *testing.T) {
	t.Parallel()
	build := &mcfgv1.MachineOSBuild{}
	build.Spec.MachineOSConfig.Name, build.Spec.RenderedImagePushSpec = "worker", "registry.example.com/os/worker:worker-k1"
	for name, want := range map[string]bool{
		names.MachineOSBuild("worker", "k1"): true,
		names.MachineOSBuild("worker", names.InRepository("k1", "registry.example.com/os/worker")): true,
		names.MachineOSBuild("worker", names.InRepository("k1", "registry.example.com/os/other")):  false,
		names.MachineOSBuild("worker", "k2"):                                                       false,
		names.MachineOSBuild("infra", "k1"):                                                        false,
		"worker-foreign":                                                                           false,
	} {
		build.Name = name
		assert.Equal(t, want, objects.IsNamedByKey(build, "k1"), name)
	}
	build.Spec.RenderedImagePushSpec = "no reference"
	assert.False(t, objects.IsNamedByKey(build, "k1"))
}
