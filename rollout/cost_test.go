package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
)

// TestPoolReportsItsRolloutCost has nodes that run the OS image of their configuration, on which
// the new image stands.
func TestPoolReportsItsRolloutCost(t *testing.T) {
	t.Parallel()
	image := newImage("new", "2", "rendered-2")
	image.Status.PreviousImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned("0"))
	image.Status.Architectures = []mcfgv1alpha1.ImageArchitecture{{Architecture: mcfgv1.ArchitectureAMD64, Size: new(int64(1e9)), PullSize: new(int64(2e7))}}
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newConfig("rendered-1", "0"), newLayer("2"), image, newNode("a"), newNode("b"))
	w.reconcile()
	assert.Equal(t, &mcfgv1.RolloutCost{
		UnknownMachineCount: 2, PullBytes: new(int64(2e7)), Summary: "nodes: 2 not known yet; a node pulls at most 20 MB",
	}, w.pool().Status.Rollout.Cost)
	w.reconcile() // both stage
	w.clock.SetTime(t0.Add(10 * time.Minute))
	w.reconcile() // their agents don't answer
	version := w.pool().ResourceVersion
	w.clock.SetTime(t0.Add(time.Hour))
	w.reconcile()
	assert.Equal(t, version, w.pool().ResourceVersion, "time alone changes nothing")

	for _, name := range []string{"a", "b"} {
		n := w.node(name)
		n.Annotations[mcfgv1.AnnotationStagedImage], n.Annotations[mcfgv1.AnnotationStagedChange] = nodestest.Pinned("2"), mcfgv1.NodeChangeReboot
		require.NoError(t, w.Update(t.Context(), n))
	}
	w.reconcile() // node a is told
	assert.Equal(t, &mcfgv1.RolloutCost{RebootMachineCount: 2, Summary: "nodes: 2 reboot"}, w.pool().Status.Rollout.Cost)
	w.clock.SetTime(t0.Add(time.Hour + 4*time.Minute))
	w.arrive("a")
	w.reconcile()
	assert.Equal(t, &mcfgv1.RolloutCost{
		RebootMachineCount: 1, DurationSeconds: new(int64(240)), Summary: "nodes: 1 reboot; about 4m in all",
	}, w.pool().Status.Rollout.Cost)
	w.clock.SetTime(t0.Add(time.Hour + 12*time.Minute))
	w.settle()
	r := w.pool().Status.Rollout
	assert.Nil(t, r.Cost, "nothing is left to do")
	assert.Equal(t, int64(360), *r.MachineUpdateSeconds, "what nodes of the next rollout will take")
}

func TestUpdateSeconds(t *testing.T) {
	t.Parallel()
	assert.Nil(t, updateSeconds(nil, nil))
	assert.Equal(t, int64(90), *updateSeconds(nil, []time.Duration{90*time.Second + 400*time.Millisecond}))
	assert.Equal(t, int64(75), *updateSeconds(new(int64(30)), []time.Duration{90 * time.Second, 90 * time.Second}))
}

func TestWhatAPoolPulls(t *testing.T) {
	t.Parallel()
	image := newImage("new", "2", "rendered-2")
	image.Status.Architectures = []mcfgv1alpha1.ImageArchitecture{
		{Architecture: mcfgv1.ArchitectureAMD64, Size: new(int64(5)), PullSize: new(int64(3))},
		{Architecture: mcfgv1.ArchitectureARM64, Size: new(int64(6))},
		{Architecture: mcfgv1.ArchitectureS390X, Size: new(int64(9)), PullSize: new(int64(8))},
	}
	assert.Equal(t, plan.Pull{Less: new(int64(3)), All: new(int64(6))}, pullOf(image, []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64}))
	assert.Equal(t, plan.Pull{}, pullOf(nil, nil))
	assert.Equal(t, plan.Pull{}, pullOf(image, nil))
}
