package configs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/retention"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

// gatherConfig reads everything that the reconcile needs from the cache.
func (r *Reconciler) gatherConfig(ctx context.Context, s *scope) error {
	pool := &mcfgv1.MachineConfigPool{}
	err := r.options.Client.Get(ctx, client.ObjectKey{Name: s.config.Spec.MachineConfigPool.Name}, pool)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MachineConfigPool %q: %w", s.config.Spec.MachineConfigPool.Name, err)
	}
	if err == nil {
		s.pool = pool
	}
	var builds mcfgv1.MachineOSBuildList
	var images mcfgv1alpha1.MachineOSImageList
	for _, list := range []client.ObjectList{&builds, &images} {
		if err := r.options.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	s.all = builds.Items
	for i := range s.all {
		if s.all[i].Spec.MachineOSConfig.Name == s.config.Name {
			s.builds = append(s.builds, &s.all[i])
		}
	}
	s.images = images.Items

	s.demand, err = r.options.Finder.Demand(ctx, s.config, s.builds)
	return err
}

// inspect finds out which image is wanted, and what prevents it. What it finds wrong is a
// fact like any other: the reconcile goes on.
func (r *Reconciler) inspect(ctx context.Context, s *scope) error {
	facts := objects.PoolFacts(s.pool)
	if !facts.Exists || facts.Config == "" || facts.Degraded != "" {
		return nil
	}
	if s.rendered, s.problem = objects.ReadRendered(ctx, r.options.Client, facts.Config); s.problem != nil {
		return nil //nolint:nilerr // it is told with everything else
	}
	var err error
	s.answer, err = r.options.Finder.Find(ctx, &wanted.Subject{Config: s.config, Rendered: s.rendered, Demand: s.demand})
	s.found, s.problem, s.late = s.answer.Image, s.answer.Problem, s.answer.Late
	return err
}

// decide says what to do. Whether the image may be pushed is only asked where one is to be made.
func (r *Reconciler) decide(ctx context.Context, s *scope) error {
	state := r.state(s)
	if s.found != nil && state.Pool.Degraded == "" {
		var err error
		wanted := objects.Named(s.builds, state.Wanted.Build)
		if state.InRegistry, err = r.options.Finder.InRegistry(ctx, s.config, s.found, wanted); err != nil {
			if !fault.IsTransient(err) || wanted != nil {
				return err
			}
			s.problem = fmt.Errorf("spec.renderedImagePushSpec: %w", err) // of the first build the pool hears too
			state.Problem = problemOf(s.problem)
		}
		if s.found.HasContent && !state.InRegistry && !state.Rebuild && wanted == nil { // else it decides nothing
			if state.HasContentImage, err = r.options.Finder.HasContentImage(ctx, s.config, s.found); err != nil {
				return err
			}
		}
	}
	d := plan.Decide(state)
	if s.found != nil && s.problem == nil && (d.Action == plan.Append || d.Action == plan.Build || len(d.Remove) > 0) {
		if s.problem = r.options.Finder.CanPush(ctx, s.config, s.found); s.problem != nil {
			state.Problem = problemOf(s.problem)
			d = plan.Decide(state)
		}
	}
	s.decision = &d
	s.build = objects.Named(s.builds, d.Build)
	return nil
}

// state is what a decision looks at.
func (r *Reconciler) state(s *scope) *plan.State {
	state := &plan.State{
		Now: r.options.Clock.Now(), Deleting: !s.config.DeletionTimestamp.IsZero(), Pool: objects.PoolFacts(s.pool), Problem: problemOf(s.problem),
		PreBuilt: s.config.Annotations[mcfgv1.AnnotationPreBuiltImage], Rebuild: objects.WantsRebuild(s.config),
		Timeout: objects.TimeoutOf(s.config),
	}
	state.Backend = r.options.HasBackend(s.config)
	if s.found != nil {
		state.Wanted = &plan.Wanted{Build: s.found.BuildOf(s.config, s.builds), HasContent: s.found.HasContent}
		state.Access = s.found.Credentials.Access
		state.Retries = objects.RetriesOf(s.config, state.Wanted.Build)
		state.HadImage = slices.ContainsFunc(s.images, func(image mcfgv1alpha1.MachineOSImage) bool {
			return metav1.IsControlledBy(&image, s.config) && image.Labels[mcfgv1.LabelMachineOSBuild] == state.Wanted.Build
		})
	}
	for _, b := range s.builds {
		state.Builds = append(state.Builds, objects.Existing(b))
	}
	if wanted := objects.Named(s.builds, nameOf(state.Wanted)); wanted == nil || !objects.IsRebuild(wanted) {
		state.ContentBuild = objects.ContentBuild(s.all, s.found.ContentImage(s.config))
	}
	return state
}

func nameOf(wanted *plan.Wanted) string {
	if wanted == nil {
		return ""
	}
	return wanted.Build
}

// problemOf is an error as a decision takes it.
func problemOf(err error) *plan.Problem {
	if err == nil {
		return nil
	}
	p := &plan.Problem{Reason: fault.Reason(err), Message: fault.Message(err), Waits: !fault.IsTerminal(err)}
	if fault.IsTransient(err) {
		p.Reason = mcfgv1.ReasonRetrying
	}
	return p
}

// interrupt ends builds that no one wants any more.
func (r *Reconciler) interrupt(ctx context.Context, s *scope) error {
	var errs []error
	for _, name := range s.decision.Interrupt {
		errs = append(errs, r.options.Builds.Supersede(ctx, objects.Named(s.builds, name).DeepCopy(), s.decision.Build))
	}
	return errors.Join(errs...)
}

// remove deletes builds that make room for another one of their name.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	if err := r.deleteBuilds(ctx, s, s.decision.Remove, s.decision.Message); err != nil || !s.decision.Retries {
		return err
	}
	// Counted once it is under way: one that could not begin is not one more.
	return status.ChangeMetadata(ctx, r.options.Client, s.config, func(c *mcfgv1.MachineOSConfig) { objects.NoteRetry(c, s.decision.Build) })
}

func (r *Reconciler) deleteBuilds(ctx context.Context, s *scope, builds []string, why string) error {
	var errs []error
	for _, name := range builds {
		b := objects.Named(s.builds, name)
		// In the background: nothing depends on a build, and waiting for the garbage collector to
		// find that out takes time.
		err := r.options.Client.Delete(ctx, b.DeepCopy(), client.Preconditions{UID: &b.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting MachineOSBuild %q: %w", name, err))
			continue
		}
		if err == nil {
			r.options.Events.Publish(s.config, events.BuildDeleted(name, why))
		}
	}
	return errors.Join(errs...)
}

// acknowledge removes annotations whose request has been served. That for a rebuild is removed from
// the MachineOSConfig first, and from the build in a later reconcile: so none is lost or repeated.
func (r *Reconciler) acknowledge(ctx context.Context, s *scope) error {
	if s.late == nil && isChecked(s.problem) {
		asked, err := status.Acknowledge(ctx, r.options.Client, s.config, mcfgv1.AnnotationCheckImages)
		if err != nil {
			return err
		}
		if asked && s.found != nil { // else the condition says what is wrong
			r.options.Events.Publish(s.config, events.ImagesChecked(s.found.Base.Image))
		}
	}
	var served []string
	if s.decision.Action == plan.Nothing {
		served = []string{mcfgv1.AnnotationPreBuiltImage, mcfgv1.AnnotationBuildRetries}
	}
	if s.decision.Acknowledge {
		served = append(served, objects.RebuildAnnotations()...)
	}
	if was, err := status.Acknowledge(ctx, r.options.Client, s.config, served...); was || err != nil {
		return err
	}
	if s.build == nil || objects.WantsRebuild(s.config) {
		return nil
	}
	if _, marked := s.build.Annotations[mcfgv1.AnnotationRebuild]; !marked {
		return nil
	}
	s.build = s.build.DeepCopy() // the cache has it, too
	return status.ChangeMetadata(ctx, r.options.Client, s.build, func(b *mcfgv1.MachineOSBuild) { delete(b.Annotations, mcfgv1.AnnotationRebuild) })
}

// isChecked reports whether images were looked at, whatever was found: not where a registry does
// not answer, or another image has the turn.
func isChecked(problem error) bool {
	return !fault.IsTransient(problem) && fault.Reason(problem) != mcfgv1.ReasonWaitingForTurn
}

// nameBuild writes the published annotation with the newest build.
func (r *Reconciler) nameBuild(ctx context.Context, s *scope) error {
	if s.build == nil {
		return nil
	}
	return status.ChangeMetadata(ctx, r.options.Client, s.config, func(c *mcfgv1.MachineOSConfig) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationCurrentMachineOSBuild, s.build.Name)
	})
}

// prune deletes builds that retention no longer keeps, once the wanted image is there.
func (r *Reconciler) prune(ctx context.Context, s *scope) error {
	if s.decision.Action != plan.Nothing {
		return nil
	}
	keep, state := objects.RetentionOf(s.config), r.state(s)
	if len(plan.Retain(state.Builds, s.decision.Build, nil, keep)) == 0 {
		return nil
	}
	references, err := retention.References(ctx, r.options.Client, "")
	if err != nil {
		return err
	}
	references[string(s.build.Status.DigestedImagePushSpec)] = true // it is about to be the current one
	gone := plan.Retain(state.Builds, s.decision.Build, references, keep)
	slices.Sort(gone)
	return r.deleteBuilds(ctx, s, gone, "spec.retention keeps others")
}
