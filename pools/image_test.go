package pools

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// saysOfImage gives a pool one condition of the builder, and ImageBuildDegraded as it is with that.
func saysOfImage(is mcfgv1.MachineConfigPoolConditionType, reason string, degraded metav1.ConditionStatus) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.SetConditions([]metav1.Condition{
			{Type: string(is), Status: metav1.ConditionTrue, Reason: reason, Message: "m", LastTransitionTime: metav1.NewTime(t0)},
			{Type: typeImageBuildDegraded, Status: degraded, Reason: reason, Message: "m", LastTransitionTime: metav1.NewTime(t0)},
		})
	}
}

// TestUpdatingReportsImageProgress for those who wait for Updated: there is a better image to come
// than the one that all nodes have.
func TestUpdatingReportsImageProgress(t *testing.T) {
	t.Parallel()
	updating := func(says string) []string {
		return []string{"False Progressing All nodes are updating to x: " + says, "True Progressing All nodes are updating to x: " + says, "True Progressing All nodes are updating to x: " + says}
	}
	tests := map[string]struct {
		change   func(*mcfgv1.MachineConfigPool)
		observed int64
		isPaused bool
		// says are Updated, Updating and Reconciling, or Stalled.
		says []string
	}{
		"the image is being built": {
			saysOfImage(mcfgv1.PoolBuilding, mcfgv1.ReasonBuilding, "False"), 2, false, updating("OS image build in progress"),
		},
		"its build has not begun": {
			saysOfImage(mcfgv1.PoolBuildPending, mcfgv1.ReasonBuildPending, "False"), 2, false, updating("OS image build pending"),
		},
		"its build is made again": {
			saysOfImage(mcfgv1.PoolBuildInterrupted, mcfgv1.ReasonInterrupted, "False"), 2, false, updating("OS image build pending"),
		},
		"the image is being verified": {
			saysOfImage(mcfgv1.PoolBuilding, "VerificationPending", "False"), 2, false, updating("OS image verification in progress"),
		},
		"the builder has not seen the newest MachineOSConfig": {
			saysOfImage(mcfgv1.PoolBuildSuccess, mcfgv1.ReasonBuildSuccess, "False"), 1, false, updating("OS image build pending"),
		},
		"nothing is known of the image yet": {func(*mcfgv1.MachineConfigPool) {}, 0, false, updating("OS image build pending")},
		"the image is there": {
			saysOfImage(mcfgv1.PoolBuildSuccess, mcfgv1.ReasonBuildSuccess, "False"), 2, false,
			[]string{"True Succeeded All nodes are updated with x and image 111111111111", "False Succeeded", "none"},
		},
		"the pool is paused": {
			saysOfImage(mcfgv1.PoolBuilding, mcfgv1.ReasonBuilding, "False"), 2, true,
			[]string{
				"False Paused Pool is paused; will not update to x: OS image build in progress",
				"False Paused Pool is paused; will not update to x: OS image build in progress",
				"True Paused Pool is paused; will not update to x: OS image build in progress",
			},
		},
		"the image can't be built": {
			saysOfImage(mcfgv1.PoolBuildFailed, mcfgv1.ReasonBuildFailed, "True"), 2, false,
			[]string{
				"False BuildFailed There is no image to update to with x: see ImageBuildDegraded",
				"False BuildFailed There is no image to update to with x: see ImageBuildDegraded",
				"none",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool("worker", wanting("x"), wantingImage("1"), tt.change)
			pool.Spec.Paused = tt.isPaused
			layer := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", Generation: 2}}
			layer.Status.ObservedGeneration = tt.observed
			setStatus(pool, facts{members: observeAll(newNode("a", worker, having("x"), havingImage("1"))), want: rendered("x"), layer: layer}, t0)
			rulesOf(pool).Conclude(pool, t0, nil)
			got := []string{conditionOf(pool, typeUpdated), conditionOf(pool, typeUpdating), conditionOf(pool, mcfgv1.ConditionReconciling)}
			assert.Equal(t, tt.says, got)
			stalled := "none"
			if tt.says[2] == "none" && tt.says[1] != "False Succeeded" {
				stalled = "True BuildFailed m"
			}
			assert.Equal(t, stalled, conditionOf(pool, mcfgv1.ConditionStalled), "a pool is stalled as its MachineOSConfig is")
		})
	}
}

// TestUpdatedWhileThePoolIsNotRendered is about a pool whose builder waits until it can be rendered
// again.
func TestUpdatedWhileThePoolIsNotRendered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		isBuilt           bool
		updated, updating string
	}{
		"nodes have the image of the last configuration": {
			true, "True Succeeded All nodes are updated with x and image 111111111111", "False Succeeded",
		},
		"the last configuration has no image": {
			false,
			"False InvalidMachineConfig There is no image to update to with x: see RenderDegraded",
			"False InvalidMachineConfig There is no image to update to with x: see RenderDegraded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool("worker", wanting("x"), wantingImage("1"), saysOfImage(mcfgv1.PoolBuildPending, mcfgv1.ReasonBuildPending, "False"))
			layer := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
			setStatus(pool, facts{
				members: observeAll(newNode("a", worker, having("x"), havingImage("1"))), layer: layer, isBuilt: tt.isBuilt,
				want: &outcome{err: fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, errors.New("bad"))},
			}, t0)
			assert.Equal(t, tt.updated, conditionOf(pool, typeUpdated))
			assert.Equal(t, tt.updating, conditionOf(pool, typeUpdating))
			assert.Contains(t, conditionOf(pool, typeDegraded), "True")
		})
	}
}

func TestUpdatedWaitsForTheRollout(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*mcfgv1.MachineConfigPool, *mcfgv1.MachineOSConfig)
		want   string
	}{
		"the newest image is still to come": {
			func(*mcfgv1.MachineConfigPool, *mcfgv1.MachineOSConfig) {}, "False Progressing All nodes are updating to x: OS image rollout pending",
		},
		"images are only pushed": {
			func(_ *mcfgv1.MachineConfigPool, c *mcfgv1.MachineOSConfig) {
				c.Spec.PostBuildStrategy = mcfgv1.ImagePushOnly
			},
			"True Succeeded All nodes are updated with x and image 111111111111",
		},
		"the pool names another image": {
			func(p *mcfgv1.MachineConfigPool, _ *mcfgv1.MachineOSConfig) { p.Spec.MachineOSImage = "old" },
			"True Succeeded All nodes are updated with x and image 111111111111",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool("worker", wanting("x"), wantingImage("1"), saysOfImage(mcfgv1.PoolBuildSuccess, mcfgv1.ReasonBuildSuccess, "False"))
			layer := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
			layer.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(pinned("2"))
			tt.change(pool, layer)
			setStatus(pool, facts{members: observeAll(newNode("a", worker, having("x"), havingImage("1"))), want: rendered("x"), layer: layer}, t0)
			assert.Equal(t, tt.want, conditionOf(pool, typeUpdated))
		})
	}
}
