package configs

import (
	"context"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/builder/watches"
)

// configsOfNode are the MachineOSConfigs of the pools that select a node, also those that it does
// not belong to: it may come to.
func (r *Reconciler) configsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	pools, err := wanted.PoolSelectors(ctx, r.options.Client)
	if err != nil { // the manager ends for it
		ctrl.LoggerFrom(ctx).Error(err, "Looking for the pools of a node")
		return nil
	}
	selecting := pools.Selecting(node.GetLabels())
	return watches.ConfigsThat(ctx, r.options.Client, func(config *mcfgv1.MachineOSConfig) bool {
		return slices.Contains(selecting, config.Spec.MachineConfigPool.Name)
	})
}
