package builds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

// Removing an image is tried until its build has been deleted for so long, with a pause between: a
// registry that can't be reached must not keep objects in the cluster for ever.
const (
	maxRemoval   = 5 * time.Minute
	removalPause = 10 * time.Second
)

// release removes the image of a build that is being deleted, unless something uses it, and lets
// the build go.
func (s *scope) release(ctx context.Context) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(s.build, mcfgv1.FinalizerBuildImage) {
		return 0, nil
	}
	if s.options.Runs.Stop(s.build.Spec.MachineOSConfig.Name, s.build.Name) {
		return slotInterval, nil
	}
	if err := s.options.Backends.Remove(ctx, backend.KeyOf(s.build)); err != nil {
		return 0, err
	}
	const removing = "its image is being removed from the registry"
	if s.build.Status.Removal == "" {
		if err := s.showRemoval(ctx, removing); err != nil {
			return 0, err
		}
	}
	image, err := s.options.Remover.Remove(ctx, s.build)
	until := s.build.DeletionTimestamp.Add(maxRemoval)
	isNamed := errors.Is(err, retention.ErrPoolNames)
	switch {
	case err == nil:
	case s.options.Clock.Now().Before(until) && (isNamed || fault.IsTransient(err)):
		if s.build.Status.Removal == removing && !isNamed {
			s.options.Events.Publish(s.build, events.ImageRemovalFails(image, fault.Message(err), until))
		}
		return removalPause, s.showRemoval(ctx, fmt.Sprintf("%s; tried again until %s: %s", removing, until.UTC().Format("15:04:05 MST"), fault.Message(err)))
	case isNamed:
		s.options.Events.Publish(s.build, events.ImageKept(image))
	default:
		s.options.Events.Publish(s.build, events.ImageNotDeleted(image, fault.Message(err)))
	}
	return 0, status.ChangeMetadata(ctx, s.options.Client, s.build, func(b *mcfgv1.MachineOSBuild) {
		controllerutil.RemoveFinalizer(b, mcfgv1.FinalizerBuildImage)
	})
}

// showRemoval says why the build is still there. Its conditions can't: they are those of its end.
func (s *scope) showRemoval(ctx context.Context, text string) error {
	if s.build.Status.Removal == text {
		return nil
	}
	before := s.build.DeepCopy()
	s.build.Status.Removal = text
	err := s.options.Client.Status().Patch(ctx, s.build, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing that the image of MachineOSBuild %q is being removed: %w", s.build.Name, err)
	}
	return nil
}
