package objects

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
)

// NameSources has an error about the rendered MachineConfig of a pool name the MachineConfigs that
// it was joined from. They are read only then, not for one who waits for others, and where they
// can't be, the error is as it was.
func NameSources(ctx context.Context, from client.Reader, pool string, err error) error {
	if err == nil || !layer.IsAbout(err) || fault.Reason(err) == mcfgv1.ReasonWaitingForTurn {
		return err
	}
	found := &mcfgv1.MachineConfigPool{}
	if from.Get(ctx, client.ObjectKey{Name: pool}, found) != nil {
		return err
	}
	var sources []*machineconfigs.Config
	for _, reference := range found.Spec.Configuration.Source {
		mc := &mcfgv1.MachineConfig{}
		if from.Get(ctx, client.ObjectKey{Name: reference.Name}, mc) != nil {
			continue
		}
		if config, wrong := machineconfigs.Parse(mc); wrong == nil {
			sources = append(sources, config)
		}
	}
	return layer.InSources(err, sources)
}
