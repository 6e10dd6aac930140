package builds

import (
	"context"
	"errors"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/events"
)

// maxRemovals is how often removing an image is tried: a registry that can't be reached must not
// keep objects in the cluster for ever.
const maxRemovals = 3

// release removes the image of a build that is being deleted, unless something uses it, and lets
// the build go.
func (s *scope) release(ctx context.Context) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(s.build, mcfgv1.FinalizerBuildImage) {
		return 0, nil
	}
	if s.options.Runs.Stop(s.build.Spec.MachineOSConfig.Name, s.build.Name) {
		return slotInterval, nil
	}
	if err := s.options.Backends.Remove(ctx, s.key()); err != nil {
		return 0, err
	}
	image, err := s.options.Remover.Remove(ctx, s.build)
	if err != nil {
		attempts, _ := strconv.Atoi(s.build.Annotations[mcfgv1.AnnotationImageDeletionAttempts])
		if attempts++; attempts < maxRemovals {
			return 0, errors.Join(err, objects.Change(ctx, s.options.Client, s.build, func(b *mcfgv1.MachineOSBuild) {
				metav1.SetMetaDataAnnotation(&b.ObjectMeta, mcfgv1.AnnotationImageDeletionAttempts, strconv.Itoa(attempts))
			}))
		}
		s.options.Events.Publish(s.build, events.ImageNotDeleted(image, err.Error()))
	}
	return 0, objects.Change(ctx, s.options.Client, s.build, func(b *mcfgv1.MachineOSBuild) {
		controllerutil.RemoveFinalizer(b, mcfgv1.FinalizerBuildImage)
	})
}
