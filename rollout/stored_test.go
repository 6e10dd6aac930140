package rollout

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/test/stored"
)

// TestStoredByEarlierVersions takes over clusters of earlier versions, in which a rollout waits for
// a drain and a pool has halted: nothing is to be done.
func TestStoredByEarlierVersions(t *testing.T) {
	t.Parallel()
	for version, objects := range stored.Objects(t, newScheme(t)) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, objects...)
			w.clock.SetTime(newest(objects))
			var pools mcfgv1.MachineConfigPoolList
			require.NoError(t, w.List(t.Context(), &pools))
			for i := range pools.Items {
				before := &pools.Items[i]
				_, err := w.r.Reconcile(t.Context(), request(before.Name)[0])
				require.NoError(t, err)
				after := &mcfgv1.MachineConfigPool{}
				require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(before), after))
				assert.Equal(t, said(before), said(after))
			}
			var nodes corev1.NodeList
			require.NoError(t, w.List(t.Context(), &nodes))
			for i := range nodes.Items {
				assert.Zero(t, w.writes[nodes.Items[i].Name], nodes.Items[i].Name)
			}
			var images mcfgv1alpha1.MachineOSImageList
			require.NoError(t, w.List(t.Context(), &images))
			for i := range images.Items {
				assert.Zero(t, w.writes[images.Items[i].Name], images.Items[i].Name)
			}
		})
	}
}

// said is what a pool says, in other words or the same.
func said(pool *mcfgv1.MachineConfigPool) (all []string) {
	for _, c := range pool.Status.Conditions {
		all = append(all, fmt.Sprint(c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC()))
	}
	r := pool.Status.Rollout
	return append(all, fmt.Sprint(r.TargetImagePullSpec, r.TargetConfiguration, r.UpdatedMachineCount, r.FailedMachineCount, r.RolledBackMachineCount))
}

// newest is when a condition of a pool changed last.
func newest(objects []client.Object) (at time.Time) {
	for _, object := range objects {
		if pool, is := object.(*mcfgv1.MachineConfigPool); is {
			for _, c := range pool.Status.Conditions {
				if c.LastTransitionTime.After(at) {
					at = c.LastTransitionTime.Time
				}
			}
		}
	}
	return at
}
