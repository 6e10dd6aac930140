package objects

import (
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/status"
)

// RecordBefore is the record of the newest build that succeeded; nil where there is none, or it
// says nothing. Of an image that is made again it is the build's own: the one before had the same
// inputs, and is gone.
func RecordBefore(ctx context.Context, from client.Reader, config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild) (*plan.Record, error) {
	current := config.Status.CurrentImagePullSpec
	image, err := owner.ImageObject(ctx, from, config.Spec.MachineConfigPool.Name, current)
	if err != nil {
		return nil, err
	}
	if image != nil && image.Labels[mcfgv1.LabelMachineOSBuild] == build.Name {
		return plan.RecordOf(build)
	}
	builds, err := owner.Builds(ctx, from, config.Name)
	if err != nil {
		return nil, err
	}
	builds = slices.DeleteFunc(builds, func(b *mcfgv1.MachineOSBuild) bool {
		return b.Name == build.Name || status.BuildStageOf(b.Status.Conditions) != mcfgv1.BuildStageSucceeded
	})
	if len(builds) == 0 {
		return nil, nil
	}
	newest := slices.MaxFunc(builds, func(a, b *mcfgv1.MachineOSBuild) int {
		if isA, isB := a.Status.DigestedImagePushSpec == current, b.Status.DigestedImagePushSpec == current; isA != isB && current != "" {
			if isA {
				return 1
			}
			return -1
		}
		return strings.Compare(EndOf(a)+a.Name, EndOf(b)+b.Name)
	})
	before, err := plan.RecordOf(newest)
	if err != nil {
		log.FromContext(ctx).V(4).Info("The previous build has no readable record of its inputs", "build", newest.Name, "reason", err.Error())
		return nil, nil
	}
	return before, nil
}
