package builder

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes"
)

// gatherDemand finds what says which architectures the image is to be for: the pool's nodes, the
// Containerfiles, and the image before.
func (r *configReconciler) gatherDemand(ctx context.Context, s *configScope) error {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	pools, err := r.poolSelectors(ctx)
	if err != nil {
		return err
	}
	s.demand = demandOf(s.config, nodes.Items, pools)
	if !wantsRebuild(s.config) {
		s.demand.Before = architecturesBefore(s.config, s.builds)
	}
	return nil
}

func (b *Builder) poolSelectors(ctx context.Context) (*nodes.Selectors, error) {
	var list mcfgv1.MachineConfigPoolList
	if err := b.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
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
		if stage := status.BuildStageOf(b.Status.Conditions); !b.DeletionTimestamp.IsZero() || stage.IsFinal() && stage != status.StageSucceeded {
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
	return architecturesAsked(newest)
}

// architecturesAsked are those that a build is for; none where its base image is for one.
func architecturesAsked(build *mcfgv1.MachineOSBuild) []mcfgv1.Architecture {
	var out []mcfgv1.Architecture
	for text := range strings.SplitSeq(build.Annotations[mcfgv1.AnnotationBuildArchitectures], ",") {
		if text != "" {
			out = append(out, mcfgv1.Architecture(text))
		}
	}
	return out
}

func asText(architectures []mcfgv1.Architecture) string {
	texts := make([]string, len(architectures))
	for i, a := range architectures {
		texts[i] = string(a)
	}
	return strings.Join(texts, ",")
}

// configsOfNode are the MachineOSConfigs of the pools that select a node, also those that it does
// not belong to: it may come to.
func (b *Builder) configsOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	pools, err := b.poolSelectors(ctx)
	if err != nil { // the manager ends for it
		ctrl.LoggerFrom(ctx).Error(err, "Looking for the pools of a node")
		return nil
	}
	selecting := pools.Selecting(node.GetLabels())
	return b.configsThat(ctx, func(config *mcfgv1.MachineOSConfig) bool {
		return slices.Contains(selecting, config.Spec.MachineConfigPool.Name)
	})
}
