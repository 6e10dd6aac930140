package cleanup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/builder/runs"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

// Removing an image is tried until its build has been deleted for so long, with a pause between: a
// registry that can't be reached must not keep objects in the cluster for ever.
const (
	maxRemoval   = 5 * time.Minute
	removalPause = 10 * time.Second
)

// Options are what a Cleaner works with.
type Options struct {
	Client client.Client
	Clock  clock.PassiveClock
	Events events.Publisher
	// Recipes are what builds were handed on; *wanted.Finder has them.
	Recipes interface{ Drop(build string) }
	// Backends have built content, and Remover removes images.
	Backends backends.Set
	Remover  *retention.Remover
	// Runs are the builds that this process works on.
	Runs *runs.Runs
	// Metrics may be nil.
	Metrics *metrics.Builds
}

// Cleaner removes what builds leave behind.
type Cleaner struct{ options Options }

// New returns a Cleaner.
func New(options Options) *Cleaner { return &Cleaner{options} }

// Clean removes what built the image of a build that has ended, but for what a backend keeps. After
// a failure all of it stays, for someone to look at, until the build goes.
func (c *Cleaner) Clean(ctx context.Context, build *mcfgv1.MachineOSBuild) error {
	c.options.Recipes.Drop(build.Name)
	if _, hasContent := objects.ContentOf(build); !hasContent || status.BuildStageOf(build.Status.Conditions) == mcfgv1.BuildStageFailed {
		return nil
	}
	return c.options.Backends.Clean(ctx, backend.KeyOf(build))
}

// Release removes the image of a build that is being deleted, unless something uses it, and lets
// the build go.
func (c *Cleaner) Release(ctx context.Context, build *mcfgv1.MachineOSBuild) (time.Duration, error) {
	c.options.Recipes.Drop(build.Name)
	if !controllerutil.ContainsFinalizer(build, mcfgv1.FinalizerBuildImage) {
		return 0, nil
	}
	if c.options.Runs.Stop(build.Spec.MachineOSConfig.Name, build.Name) {
		return runs.SlotInterval, nil
	}
	if err := c.options.Backends.Remove(ctx, backend.KeyOf(build)); err != nil {
		return 0, err
	}
	const removing = "its image is being removed from the registry"
	if build.Status.Removal == "" {
		if err := c.showRemoval(ctx, build, removing); err != nil {
			return 0, err
		}
	}
	image, err := c.options.Remover.Remove(ctx, build)
	until := build.DeletionTimestamp.Add(maxRemoval)
	isNamed := errors.Is(err, retention.ErrPoolNames)
	switch {
	case err == nil:
	case c.options.Clock.Now().Before(until) && (isNamed || fault.IsTransient(err)):
		if build.Status.Removal == removing && !isNamed {
			c.options.Events.Publish(build, events.ImageRemovalFails(image, fault.Message(err), until))
		}
		return removalPause, c.showRemoval(ctx, build, fmt.Sprintf("%s; tried again until %s: %s", removing, until.UTC().Format("15:04:05 MST"), fault.Message(err)))
	case isNamed:
		c.options.Events.Publish(build, events.ImageKept(image))
	default:
		c.options.Events.Publish(build, events.ImageNotDeleted(image, fault.Message(err)))
		c.options.Metrics.Deleted(false)
	}
	return 0, status.ChangeMetadata(ctx, c.options.Client, build, func(b *mcfgv1.MachineOSBuild) {
		controllerutil.RemoveFinalizer(b, mcfgv1.FinalizerBuildImage)
	})
}

// showRemoval says why the build is still there. Its conditions can't: they are those of its end.
func (c *Cleaner) showRemoval(ctx context.Context, build *mcfgv1.MachineOSBuild, text string) error {
	if build.Status.Removal == text {
		return nil
	}
	before := build.DeepCopy()
	build.Status.Removal = text
	err := c.options.Client.Status().Patch(ctx, build, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing that the image of MachineOSBuild %q is being removed: %w", build.Name, err)
	}
	return nil
}
