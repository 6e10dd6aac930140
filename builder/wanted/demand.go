package wanted

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes"
)

// Demand finds what says which architectures the image is to be for: the pool's nodes, the
// Containerfiles, and the image before.
func (f *Finder) Demand(ctx context.Context, config *mcfgv1.MachineOSConfig, builds []*mcfgv1.MachineOSBuild) (plan.Demand, error) {
	var nodes corev1.NodeList
	if err := f.options.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return plan.Demand{}, fmt.Errorf("listing nodes: %w", err)
	}
	pools, err := PoolSelectors(ctx, f.options.Client)
	if err != nil {
		return plan.Demand{}, err
	}
	demand := demandOf(config, nodes.Items, pools)
	if !objects.WantsRebuild(config) {
		demand.Before = architecturesBefore(config, builds)
	}
	return demand, nil
}

// PoolSelectors are those of all pools.
func PoolSelectors(ctx context.Context, from client.Reader) (*nodes.Selectors, error) {
	var list mcfgv1.MachineConfigPoolList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	pools := make([]*mcfgv1.MachineConfigPool, len(list.Items))
	for i := range list.Items {
		pools[i] = &list.Items[i]
	}
	return nodes.NewSelectors(pools), nil
}

// demandOf is what nodes and Containerfiles say. A node whose kubelet has not said what it is
// counts when it has.
func demandOf(config *mcfgv1.MachineOSConfig, nodes []corev1.Node, pools *nodes.Selectors) plan.Demand {
	pool := config.Spec.MachineConfigPool.Name
	d := plan.Demand{Pool: pool, Nodes: map[string]string{}}
	for i := range nodes {
		arch := nodes[i].Labels[corev1.LabelArchStable]
		if arch == "" {
			continue
		}
		if !slices.Contains(d.Cluster, arch) {
			d.Cluster = append(d.Cluster, arch)
		}
		if first, has := d.Nodes[arch]; (!has || nodes[i].Name < first) && pools.Has(pool, nodes[i].Labels) {
			d.Nodes[arch] = nodes[i].Name
		}
	}
	for _, entry := range config.Spec.Containerfile {
		if arch := cmp.Or(entry.ContainerfileArch, mcfgv1.NoArch); arch != mcfgv1.NoArch {
			d.Named = append(d.Named, mcfgv1.Architecture(arch))
		}
	}
	return d
}

// architecturesBefore are those of the newest build that is under way or has succeeded, where its
// base image was for several.
func architecturesBefore(config *mcfgv1.MachineOSConfig, builds []*mcfgv1.MachineOSBuild) []mcfgv1.Architecture {
	var newest *mcfgv1.MachineOSBuild
	for _, b := range builds {
		if stage := status.BuildStageOf(b.Status.Conditions); !b.DeletionTimestamp.IsZero() || stage.IsFinal() && stage != mcfgv1.BuildStageSucceeded {
			continue
		}
		if b.Name == config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild] {
			newest = b
			break
		}
		if newest == nil || newest.CreationTimestamp.Before(&b.CreationTimestamp) {
			newest = b
		}
	}
	if newest == nil {
		return nil
	}
	return newest.Asked().Inputs.Architectures
}
