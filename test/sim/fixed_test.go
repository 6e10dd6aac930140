package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// TestFixedImageArrives plays pools with a canary and two degraded nodes, of which one keeps an
// edited file through updates. A bad image halts, and the fixed one reaches every node.
func TestFixedImageArrives(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed)
			w.machines, w.joined, w.calm = nil, 0, true
			w.begin(mcfgv1.PoolWorker, 4+w.random.IntN(5))
			w.pool.Spec.Rollout = &mcfgv1.RolloutSpec{
				RebootTimeout: "1h", Canary: &mcfgv1.RolloutCanary{MachineCount: new(int32(1)), SoakTime: "30m"},
			}
			// One for the node that stays degraded with the image, and one for those that change.
			w.pool.Spec.MaxUnavailable = new(intstr.FromInt32(2))
			drifted, degraded := w.machines[w.random.IntN(2)], w.machines[2+w.random.IntN(2)]
			drifted.edited, degraded.edited, degraded.heals = true, true, true
			w.bad[w.target.Image] = true
			defer func() {
				if t.Failed() {
					t.Log(strings.Join(w.log, "\n"))
				}
			}()
			for ; w.tick < calm && !w.quarantined[w.target.Image]; w.tick++ {
				w.step(t)
			}
			require.True(t, w.quarantined[w.target.Image])
			require.Empty(t, w.hit[w.target.Image][drifted.Name], "a node with an edited file was a canary")
			require.Empty(t, w.hit[w.target.Image][degraded.Name], "a degraded node was a canary")
			w.newTarget()
			hasAll := func() bool {
				for _, m := range w.machines {
					if m.has() != w.target || m != drifted && !m.IsAt(w.target) {
						return false
					}
				}
				return true
			}
			for end := w.tick + calm; w.tick < end && !hasAll(); w.tick++ {
				w.step(t)
			}
			require.True(t, hasAll(), "not every node has %s", w.target.Config)
		})
	}
}
