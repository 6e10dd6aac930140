package configs

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

// maxRecord bounds what a build records of its inputs, in bytes of JSON: the cache has some builds
// for each pool. It has room for fewer items than the API takes (4096).
const maxRecord = 128 << 10

// crdCheck is when to look again whether the CustomResourceDefinition has been replaced.
const crdCheck = time.Minute

// ensureBuild makes the build that the decision asks for. Its name has the build key in it, so a
// second one is the same one.
func (r *Reconciler) ensureBuild(ctx context.Context, s *scope) error {
	switch s.decision.Action {
	case plan.Reuse, plan.Append, plan.Build:
	case plan.Nothing, plan.Wait, plan.Stop:
		return nil
	}
	build, err := r.newBuild(s)
	if err != nil {
		return err
	}
	r.options.Finder.HandOn(build.Name, &s.answer) // before the build is there and looks for it
	err = r.options.Client.Create(ctx, build)
	if apierrors.IsAlreadyExists(err) { // the cache has not seen it yet
		existing := &mcfgv1.MachineOSBuild{}
		if err := r.options.Reader.Get(ctx, client.ObjectKeyFromObject(build), existing); err != nil {
			return fmt.Errorf("reading MachineOSBuild %q: %w", build.Name, err)
		}
		s.build = existing
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating MachineOSBuild %q: %w", build.Name, err)
	}
	if build.Spec.Decision == nil { // the API server has left it out
		err := r.options.Client.Delete(ctx, build, client.Preconditions{UID: &build.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return errors.Join(client.IgnoreNotFound(err), fault.NewWaiting(mcfgv1.ReasonWaiting, crdCheck, errors.New(
			"the CustomResourceDefinition of MachineOSBuilds is of an earlier version and has no spec.decision; apply the CustomResourceDefinitions of this version")))
	}
	s.build = build
	ctrl.LoggerFrom(ctx).Info("Asked for a build", "build", build.Name, "action", s.decision.Action, "cause", s.decision.Cause)
	if s.decision.Cause == mcfgv1.BuildInputRebuildRequested {
		r.options.Events.Publish(s.config, events.RebuildRequested(build.Name))
	}
	if len(s.found.Warnings) > 0 {
		r.options.Events.Publish(s.config, events.ContainerfileWarnings(s.found.Warnings))
	}
	return nil
}

// labelBuild makes the pool's present rendered MachineConfig lead to the build by its label. A
// change of kernel arguments alone makes another rendered MachineConfig and no other image.
func (r *Reconciler) labelBuild(ctx context.Context, s *scope) error {
	if s.build == nil || s.rendered == nil || !s.build.DeletionTimestamp.IsZero() {
		return nil
	}
	wanted := objects.ValidLabels(map[string]string{mcfgv1.LabelRenderedMachineConfig: s.rendered.Name})[mcfgv1.LabelRenderedMachineConfig]
	if s.build.Labels[mcfgv1.LabelRenderedMachineConfig] == wanted {
		return nil
	}
	s.build = s.build.DeepCopy() // the cache has it, too
	return status.ChangeMetadata(ctx, r.options.Client, s.build, func(b *mcfgv1.MachineOSBuild) {
		metav1.SetMetaDataLabel(&b.ObjectMeta, mcfgv1.LabelRenderedMachineConfig, wanted)
	})
}

// nameConfiguration writes down that the image is what the pool's present rendered MachineConfig
// asks for: it may have been made with another one. Nodes get no image of which that is not said.
func (r *Reconciler) nameConfiguration(ctx context.Context, s *scope) error {
	if s.decision.Action != plan.Nothing || s.build == nil || s.rendered == nil {
		return nil
	}
	for i := range s.images {
		image := &s.images[i]
		isOurs := metav1.IsControlledBy(image, s.config) && image.Spec.MachineConfigPool == s.pool.Name
		if !isOurs || image.Spec.PullSpec != s.build.Status.DigestedImagePushSpec || image.Status.RenderedMachineConfig == s.rendered.Name {
			continue
		}
		after := image.DeepCopy()
		after.Status.RenderedMachineConfig = s.rendered.Name
		if err := client.IgnoreNotFound(r.options.Client.Status().Patch(ctx, after, client.MergeFrom(image.DeepCopy()))); err != nil {
			return fmt.Errorf("writing the configuration of MachineOSImage %q: %w", image.Name, err)
		}
		ctrl.LoggerFrom(ctx).Info("An image fits the configuration", "image", image.Name, "from", image.Configuration(), "to", s.rendered.Name)
	}
	return nil
}

// newBuild is the build of the wanted image, with everything that it needs to know.
func (r *Reconciler) newBuild(s *scope) (*mcfgv1.MachineOSBuild, error) {
	decision, err := decisionOf(s)
	if err != nil {
		return nil, err
	}
	pushSpec, err := s.found.PushSpec(s.config)
	if err != nil {
		return nil, err
	}
	build := &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.decision.Build,
			Labels: objects.ValidLabels(map[string]string{
				mcfgv1.LabelOnClusterLayering:       "",
				mcfgv1.LabelTargetMachineConfigPool: s.pool.Name,
				mcfgv1.LabelMachineOSConfig:         s.config.Name,
				mcfgv1.LabelRenderedMachineConfig:   s.rendered.Name,
				mcfgv1.LabelRenderedImagePushSecret: s.config.Spec.RenderedImagePushSecret.Name,
			}),
			Finalizers: []string{mcfgv1.FinalizerBuildImage, metav1.FinalizerDeleteDependents},
		},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: s.rendered.Name},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: s.config.Name},
			RenderedImagePushSpec: pushSpec,
			Decision:              decision,
		},
	}
	if s.decision.Reason == mcfgv1.ReasonPreBuiltImageSeeded {
		build.Labels[mcfgv1.LabelPreBuiltImage] = "true"
		metav1.SetMetaDataAnnotation(&build.ObjectMeta, mcfgv1.AnnotationPreBuiltImage, s.config.Annotations[mcfgv1.AnnotationPreBuiltImage])
	}
	if s.decision.Cause == mcfgv1.BuildInputRebuildRequested {
		metav1.SetMetaDataAnnotation(&build.ObjectMeta, mcfgv1.AnnotationRebuild, "")
	}
	if err := controllerutil.SetControllerReference(s.config, build, r.options.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of MachineOSBuild %q: %w", build.Name, err)
	}
	return build, nil
}

// decisionOf is what the build is to make, and with what.
func decisionOf(s *scope) (*mcfgv1.BuildDecision, error) {
	record, err := s.found.Record.Fit(maxRecord)
	if err != nil {
		return nil, err
	}
	d := &mcfgv1.BuildDecision{
		Action: mcfgv1.BuildAction(s.decision.Action), Cause: s.decision.Cause,
		BuildKey: record.Keys.Build, ContentKey: record.Keys.Content,
		BaseImage: mcfgv1.ImageDigestFormat(s.found.Base.Image), OSImageStream: s.found.Base.Stream, ExtensionsImage: mcfgv1.ImageDigestFormat(s.found.Extensions),
		ContentImage: s.found.ContentImage(s.config), RegistryAccess: s.found.Credentials.Access,
		BaseImagePullSecret: s.found.Credentials.PullSecret, RenderedImagePushSecret: s.config.Spec.RenderedImagePushSecret.Name,
		InputsLevel: int32(record.Level), Inputs: mcfgv1.ImageInputs(record.Inputs), //nolint:gosec // there are three levels
	}
	if s.config.Spec.Retention != nil {
		d.ImageDeletion = s.config.Spec.Retention.ImageDeletion
	}
	return d, nil
}
