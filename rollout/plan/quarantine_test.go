package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
)

// TestQuarantine has a node that failed when the image was quarantined, and whose check has its
// time again, and one that was asked to stage the image.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	const hold, evidence = "it is in quarantine", "n0: disk is ill"
	tests := map[string]struct {
		condemned []string
		paused    bool
		want      []string
	}{
		"it is known which node failed": {condemned: []string{"n0"}, want: []string{
			"Rollback n0: " + evidence, "Unstage z: no node may get the image", "z: the rollout is halted: 1 of 2 nodes failed with b and image 222222222222: n0: " + evidence,
		}},
		"no node is known to have failed": {want: []string{
			"Unstage z: no node may get the image", "n0: is not healthy yet: check disk is false", "z: " + hold,
		}},
		"a paused pool does not stage it either": {condemned: []string{"n0"}, paused: true, want: []string{
			"Unstage z: no node may get the image", "n0: its update failed, and the pool is paused: " + evidence, "z: the pool is paused",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := rolling(mcfgv1.RolloutSpec{Canary: canary(1)})
			p.Spec.Paused = tt.paused
			got := plan.Decide(plan.Input{
				Pool: p, Target: to(), Image: to().Image, Hold: hold, Quarantined: true, FailedAtQuarantine: tt.condemned, Evidence: evidence,
				Nodes: append(many(1, since(time.Minute, check(false, "false"))), node("z", func(n *plan.Node) { n.StageImage = to().Image })),
				Now:   t0, Started: t0.Add(-time.Hour),
			})
			assert.Equal(t, tt.want, said(got))
		})
	}
}
