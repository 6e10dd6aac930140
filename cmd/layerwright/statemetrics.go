//go:build !client

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/states"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/view"
)

// addStateMetrics registers what is scraped of all objects, from the manager's cache.
func addStateMetrics(manager ctrl.Manager) error {
	return register("the metrics of objects", metrics.NewState(func(ctx context.Context) (*metrics.State, error) {
		return readState(ctx, manager.GetClient())
	}))
}

func readState(ctx context.Context, from client.Reader) (*metrics.State, error) {
	var (
		mcps     mcfgv1.MachineConfigPoolList
		configs  mcfgv1.MachineOSConfigList
		builds   mcfgv1.MachineOSBuildList
		images   mcfgv1alpha1.MachineOSImageList
		nodes    corev1.NodeList
		reports  mcfgv1.MachineConfigNodeList
		streams  mcfgv1.OSImageStreamList
		machines operatorv1.MachineConfigurationList
	)
	for _, list := range []client.ObjectList{&mcps, &configs, &builds, &images, &nodes, &reports, &streams, &machines} {
		if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	return states.Of(&view.Objects{
		Pools: mcps.Items, Configs: configs.Items, Builds: builds.Items, Images: images.Items,
		Nodes: nodes.Items, Reports: reports.Items, Streams: streams.Items, Machines: machines.Items,
	}), nil
}
