package objects

import (
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/names"
)

// IsNamedByKey reports whether a build has the name of the build with its key, in any repository:
// the name is what says which image is wanted, and who may create builds may write any key into
// them.
func IsNamedByKey(build *mcfgv1.MachineOSBuild, key string) bool {
	target, err := order.TargetOf(build.Spec.RenderedImagePushSpec)
	config := build.Spec.MachineOSConfig.Name
	return err == nil && slices.Contains(
		[]string{names.MachineOSBuild(config, key), names.MachineOSBuild(config, names.InRepository(key, target.Repository))}, build.Name)
}

// OrderOf is what a build was asked to make, as far as the objects say it.
func OrderOf(config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild) (*order.Order, error) {
	record, err := plan.RecordOf(build)
	if err != nil {
		return nil, err
	}
	target, err := order.TargetOf(build.Spec.RenderedImagePushSpec)
	if err != nil {
		return nil, err
	}
	return &order.Order{
		Pool: config.Spec.MachineConfigPool.Name, Config: config.Name, Rendered: build.Spec.MachineConfig.Name,
		PushSecret: config.Spec.RenderedImagePushSecret.Name, Settings: SettingsOf(config),
		Record: record, Target: target, Before: string(config.Status.CurrentImagePullSpec),
		Origin: provenance.OriginOf(build), Rebuild: IsRebuild(build), Pulled: provenance.PulledBy(build),
	}, nil
}
