package builder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
)

// gatherConfig reads everything that the pass needs from the cache.
func (r *configReconciler) gatherConfig(ctx context.Context, s *configScope) error {
	pool := &mcfgv1.MachineConfigPool{}
	err := r.client.Get(ctx, client.ObjectKey{Name: s.config.Spec.MachineConfigPool.Name}, pool)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MachineConfigPool %q: %w", s.config.Spec.MachineConfigPool.Name, err)
	}
	if err == nil {
		s.pool = pool
	}
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var images mcfgv1alpha1.MachineOSImageList
	for _, list := range []client.ObjectList{&configs, &builds, &images} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
	}
	r.options.Metrics.Configs(len(configs.Items))
	s.all = builds.Items
	for i := range s.all {
		if s.all[i].Spec.MachineOSConfig.Name == s.config.Name {
			s.builds = append(s.builds, &s.all[i])
		}
	}
	s.images = images.Items
	return r.gatherDemand(ctx, s)
}

// poolFacts are what matters of the pool. A pool whose nodes failed gets new images all the same:
// the next one may be the cure.
func poolFacts(pool *mcfgv1.MachineConfigPool) plan.PoolFacts {
	if pool == nil || !pool.DeletionTimestamp.IsZero() {
		return plan.PoolFacts{}
	}
	facts := plan.PoolFacts{Exists: true, Config: pool.Spec.Configuration.Name}
	if c := status.Find(pool.GetConditions(), string(mcfgv1.PoolRenderDegraded)); c != nil && c.Status == metav1.ConditionTrue {
		facts.Degraded = c.Message
	}
	return facts
}

// inspect finds out which image is wanted, and what speaks against it. What it finds wrong is a
// fact like any other: the pass goes on.
func (r *configReconciler) inspect(ctx context.Context, s *configScope) error {
	facts := poolFacts(s.pool)
	if !facts.Exists || facts.Config == "" || facts.Degraded != "" {
		return nil
	}
	if s.rendered, s.problem = r.renderedObject(ctx, facts.Config); s.problem != nil {
		return nil //nolint:nilerr // it is told with everything else
	}
	key, err := r.inspectionKey(ctx, s)
	if err != nil {
		return err
	}
	s.found, s.problem = r.known(ctx, s, key)
	if s.found == nil && s.problem == nil {
		r.lookAnew(ctx, s, key)
	}
	return nil
}

// lookAnew finds out which image is wanted, and remembers what is wrong until a person acts.
func (r *configReconciler) lookAnew(ctx context.Context, s *configScope, key string) {
	s.found, s.problem = r.look(ctx, s, key)
	if fault.IsTerminal(s.problem) {
		r.inspections.note(s.config.Name, &failure{
			key: key, access: r.checker.Access(ctx, s.config), at: r.clock.Now(), err: s.problem,
		})
	}
}

// known is what was found before and still holds. Where something is wrong, someone may have
// replaced a secret, which nothing tells of: then the secrets are read in each pass, and the
// registries are asked only if one has changed.
func (r *configReconciler) known(ctx context.Context, s *configScope, key string) (*inspection, error) {
	if looksAgain(s.config) {
		return nil, nil
	}
	now := r.clock.Now()
	if !status.IsTrue(s.config.Status.Conditions, status.Stalled) {
		return r.inspections.of(s.config.Name, key, now.Add(soon-idle)), nil
	}
	access := r.checker.Access(ctx, s.config)
	found, problem := r.inspections.of(s.config.Name, key, now.Add(soon-stopped)), r.inspections.failure(s.config.Name)
	switch {
	case problem != nil && problem.key == key && problem.access == access && problem.at.After(now.Add(soon-stopped)):
		return nil, problem.err
	case found != nil && found.credentials.Access == access:
		return found, nil
	default:
		return nil, nil
	}
}

// look finds out which image is wanted. What was found before is believed on while it can't be
// found out again.
func (r *configReconciler) look(ctx context.Context, s *configScope, key string) (*inspection, error) {
	end, err := r.options.InWork.Begin(ctx, workOn(s.config, s.rendered.Name))
	if err != nil {
		return nil, err
	}
	defer end()
	parsed, err := r.rendered(ctx, s.rendered.Name)
	if err != nil {
		return nil, err
	}
	result, err := r.checker.Inspect(ctx, preflight.Request{Config: s.config, Rendered: parsed, Demand: s.demand, Fresh: looksAgain(s.config)})
	if fault.IsTransient(err) {
		if last := r.inspections.of(s.config.Name, key, time.Time{}); last != nil {
			s.late = err
			return last, nil
		}
	}
	if err != nil {
		return nil, err
	}
	found := &inspection{
		key: key, at: r.clock.Now(), credentials: result.Credentials, base: result.Base, extensions: result.Extensions,
		record: result.Description.Inputs.Record(), hasContent: result.Description.Inputs.HasContent(), warnings: warnings(result.Description),
		content: maker.ContentOf(result.Base, result.Description),
	}
	r.inspections.remember(s.config.Name, found)
	return found, nil
}

// workOn is the work on a MachineOSConfig, which a change of it, of what it is built from, or of
// the annotation for another build begins anew.
func workOn(config *mcfgv1.MachineOSConfig, from string) inwork.Work {
	version := []string{string(config.UID), fmt.Sprint(config.Generation), from}
	for _, key := range rebuildAnnotations {
		if value, has := config.Annotations[key]; has {
			version = append(version, key+"="+value)
		}
	}
	return inwork.Work{
		Object: fmt.Sprintf("MachineOSConfig %q", config.Name), Version: strings.Join(version, "/"),
		Retry: "set the annotation " + mcfgv1.AnnotationRebuild,
	}
}

// warnings are what the linter says of the Containerfiles, each once.
func warnings(d *description.Description) []string {
	var said []string
	for _, p := range d.Platforms {
		for _, finding := range p.Findings {
			if text := finding.String(); finding.Severity == containerfiles.SeverityWarning && !slices.Contains(said, text) {
				said = append(said, text)
			}
		}
	}
	return said
}

// looksAgain reports whether nothing that was found before counts, since someone asks.
func looksAgain(config *mcfgv1.MachineOSConfig) bool {
	_, asked := config.Annotations[mcfgv1.AnnotationCheckImages]
	return asked || wantsRebuild(config)
}

// inspectionKey identifies what is inspected: objects by their versions.
func (r *configReconciler) inspectionKey(ctx context.Context, s *configScope) (string, error) {
	parts := []string{
		string(s.config.UID), fmt.Sprint(s.config.Generation), s.rendered.Name, string(s.rendered.UID), s.rendered.ResourceVersion, s.demand.String(),
	}
	read := []string{backend.InputYumRepos}
	for _, entry := range s.config.Spec.Containerfile {
		if entry.ConfigMapRef != nil {
			read = append(read, entry.ConfigMapRef.Name)
		}
	}
	for _, name := range read {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(configMapKind)
		err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, meta)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading ConfigMap %q: %w", name, err)
		}
		parts = append(parts, string(meta.UID), meta.ResourceVersion)
	}
	return strings.Join(parts, "/"), nil
}

func wantsRebuild(config *mcfgv1.MachineOSConfig) bool {
	for _, key := range rebuildAnnotations {
		if _, has := config.Annotations[key]; has {
			return true
		}
	}
	return false
}

var rebuildAnnotations = []string{mcfgv1.AnnotationRebuild, mcfgv1.AnnotationRebuildImage}

// decide says what to do. Whether the image may be pushed is only asked where one is to be made.
func (r *configReconciler) decide(ctx context.Context, s *configScope) error {
	state := r.state(s)
	if s.found != nil && state.Pool.Degraded == "" {
		var err error
		if state.InRegistry, err = r.inRegistry(ctx, s, state.Wanted.Build); err != nil {
			if !fault.IsTransient(err) || buildNamed(s.builds, state.Wanted.Build) != nil {
				return err
			}
			s.problem = fmt.Errorf("spec.renderedImagePushSpec: %w", err) // of the first build the pool hears too
			state.Problem = problemOf(s.problem)
		}
		if state.HasContentImage, err = r.hasContentImage(ctx, s, state); err != nil {
			return err
		}
	}
	d := plan.Decide(state)
	if s.found != nil && s.problem == nil && (d.Action == plan.Append || d.Action == plan.Build || len(d.Remove) > 0) {
		if s.problem = r.checker.CanPush(ctx, s.found.credentials, s.config.Spec.RenderedImagePushSpec, wantsRebuild(s.config)); s.problem != nil {
			state.Problem = problemOf(s.problem)
			d = plan.Decide(state)
		}
	}
	s.decision = &d
	s.build = buildNamed(s.builds, d.Build)
	return nil
}

// state is what a decision looks at.
func (r *configReconciler) state(s *configScope) *plan.State {
	state := &plan.State{
		Now: r.clock.Now(), Deleting: !s.config.DeletionTimestamp.IsZero(), Pool: poolFacts(s.pool), Problem: problemOf(s.problem),
		PreBuilt: s.config.Annotations[mcfgv1.AnnotationPreBuiltImage], Rebuild: wantsRebuild(s.config),
		Timeout: timeoutOf(s.config),
	}
	_, err := r.backend(s.config)
	state.Backend = err == nil
	if s.found != nil {
		state.Wanted = &plan.Wanted{Build: wantedBuild(s), HasContent: s.found.hasContent}
		state.Access = s.found.credentials.Access
		state.HadImage = slices.ContainsFunc(s.images, func(image mcfgv1alpha1.MachineOSImage) bool {
			return metav1.IsControlledBy(&image, s.config) && image.Labels[mcfgv1.LabelMachineOSBuild] == state.Wanted.Build
		})
	}
	for _, b := range s.builds {
		state.Builds = append(state.Builds, existing(b))
	}
	if wanted := buildNamed(s.builds, nameOf(state.Wanted)); wanted == nil || !isRebuild(wanted) {
		state.ContentBuild = contentBuild(s.all, contentImage(s))
	}
	return state
}

// wantedBuild is the name of the build of the wanted image, in the repository that it is wanted in:
// the one that has the name of its key, unless that made the image for another repository.
func wantedBuild(s *configScope) string {
	key := s.found.record.Keys.Build
	plain := names.MachineOSBuild(s.config.Name, key)
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil { // which is told before anything is made
		return plain
	}
	elsewhere := names.MachineOSBuild(s.config.Name, names.InRepository(key, repository))
	for _, name := range []string{plain, elsewhere} {
		if b := buildNamed(s.builds, name); b != nil && makesIn(repository, b) {
			return name
		}
	}
	if buildNamed(s.builds, plain) == nil {
		return plain
	}
	return elsewhere
}

// makesIn reports whether a build makes its image in a repository.
func makesIn(repository string, b *mcfgv1.MachineOSBuild) bool {
	its, err := credentials.Repository(b.Spec.RenderedImagePushSpec)
	return err == nil && its == repository
}

func nameOf(wanted *plan.Wanted) string {
	if wanted == nil {
		return ""
	}
	return wanted.Build
}

// contentImage is the tag of what has to be built for the wanted image; empty where that is
// nothing.
func contentImage(s *configScope) string {
	if s.found == nil || !s.found.hasContent {
		return ""
	}
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil {
		return ""
	}
	return s.found.content.In(repository).String()
}

// contentBuild is the build that makes a content now.
func contentBuild(builds []mcfgv1.MachineOSBuild, content string) string {
	all := make([]plan.Existing, len(builds))
	for i := range builds {
		all[i] = existing(&builds[i])
	}
	return plan.ContentBuild(all, content)
}

// existing is what matters of a build.
func existing(b *mcfgv1.MachineOSBuild) plan.Existing {
	out := plan.Existing{
		Name: b.Name, Created: b.CreationTimestamp.Time, Image: string(b.Status.DigestedImagePushSpec),
		Access: b.Annotations[mcfgv1.AnnotationRegistryAccess], Deleting: !b.DeletionTimestamp.IsZero(),
	}
	_, out.Rebuild = b.Annotations[mcfgv1.AnnotationRebuild]
	if !isRebuild(b) { // that takes nothing from before, and others need not wait for it
		out.Content = b.Annotations[mcfgv1.AnnotationContentImage]
	}
	out.Timeout, _ = time.ParseDuration(b.Annotations[mcfgv1.AnnotationBuildTimeout]) // none is zero
	out.Begun = status.BuildStageOf(b.Status.Conditions) != status.StagePending
	if b.Status.BuildEnd != nil {
		out.Ended = b.Status.BuildEnd.Time
	}
	switch status.BuildStageOf(b.Status.Conditions) {
	case status.StageSucceeded:
		out.Stage = plan.Succeeded
	case status.StageFailed:
		out.Stage = plan.Failed
	case status.StageInterrupted:
		out.Stage = plan.Interrupted
	default:
		out.Stage = plan.Active
		if c := status.Find(b.Status.Conditions, status.Reconciling); c != nil {
			out.Reason, out.Message = c.Reason, c.Message
		}
		return out
	}
	out.Reason, out.Message = finalOf(b.Status.Conditions)
	return out
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

func buildNamed(builds []*mcfgv1.MachineOSBuild, name string) *mcfgv1.MachineOSBuild {
	for _, b := range builds {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// inRegistry reports whether the registry has the wanted image: the one that a build made, by its
// digest, or one under the image's tag. Where that is about to become the current image, the
// registry is asked now: it may be that of weeks ago.
func (r *configReconciler) inRegistry(ctx context.Context, s *configScope, wanted string) (bool, error) {
	with := s.found.credentials
	if b := buildNamed(s.builds, wanted); b != nil {
		if status.BuildStageOf(b.Status.Conditions) != status.StageSucceeded {
			return false, nil
		}
		image := b.Status.DigestedImagePushSpec
		fresh := image != s.config.Status.CurrentImagePullSpec || looksAgain(s.config)
		found, err := r.checker.Has(ctx, with.Push, with.Access+"|push", string(image), fresh)
		if err == nil && !found && b.Annotations[mcfgv1.AnnotationPreBuiltImage] != "" { // it may be anywhere
			found, err = r.checker.Has(ctx, with.Pull, with.Access+"|pull", string(image), fresh)
		}
		return found, err
	}
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil {
		return false, err
	}
	key := s.found.record.Keys.Build
	target := maker.Target{Repository: repository, Tag: names.ImageTag(s.pool.Name, key)}
	image, err := r.maker.FindImage(ctx, with.Push, target, key, s.found.base.Platforms)
	if image != "" { // where it can't be verified now, the build waits for that, and says so
		return true, nil
	}
	return false, err
}

// hasContentImage reports whether the registry has what would be built. It is asked for where that
// decides: no build stands for the image.
func (r *configReconciler) hasContentImage(ctx context.Context, s *configScope, state *plan.State) (bool, error) {
	if !s.found.hasContent || state.InRegistry || state.Rebuild || buildNamed(s.builds, state.Wanted.Build) != nil {
		return false, nil
	}
	repository, err := credentials.Repository(s.config.Spec.RenderedImagePushSpec)
	if err != nil {
		return false, err
	}
	image, _, err := r.maker.FindContent(ctx, s.found.credentials.Push, s.found.content, repository, func(ctx context.Context, invocation string) (bool, error) {
		return isRebuilt(ctx, r.client, s.found.content, repository, "", invocation)
	})
	if image != "" { // where it can't be verified now, the build waits for that, and says so
		return true, nil
	}
	return false, err
}

// interrupt ends builds that no one wants any more.
func (r *configReconciler) interrupt(ctx context.Context, s *configScope) error {
	var errs []error
	for _, name := range s.decision.Interrupt {
		b := buildNamed(s.builds, name).DeepCopy()
		scope := &buildScope{build: b, show: status.Build{
			Stage: status.StageInterrupted, Reason: mcfgv1.ReasonSuperseded, Generation: b.Generation,
			Message: fmt.Sprintf("the image that is wanted now is that of build %q", s.decision.Build),
		}}
		before := b.DeepCopy()
		patch := status.NewPatcher(r.client, b, status.Freezing(status.FinalBuildTypes()...))
		setBuildStatus(scope, r.clock.Now(), nil)
		version := b.ResourceVersion
		_, err := patch.Finish(ctx, b, done, nil)
		if errs = append(errs, err); err == nil && b.ResourceVersion != version {
			r.runs.stop(s.config.Name, name)
			(&buildReconciler{r.Builder}).reportBuild(ctx, before, b)
		}
	}
	return errors.Join(errs...)
}

// remove deletes builds that make room for another one of their name.
func (r *configReconciler) remove(ctx context.Context, s *configScope) error {
	return r.deleteBuilds(ctx, s, s.decision.Remove, s.decision.Message)
}

func (r *configReconciler) deleteBuilds(ctx context.Context, s *configScope, builds []string, why string) error {
	var errs []error
	for _, name := range builds {
		b := buildNamed(s.builds, name)
		// In the background: nothing depends on a build, and waiting for the garbage collector to
		// find that out takes time.
		err := r.client.Delete(ctx, b.DeepCopy(), client.Preconditions{UID: &b.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting MachineOSBuild %q: %w", name, err))
			continue
		}
		if err == nil {
			r.events.Publish(s.config, events.BuildDeleted(name, why))
		}
	}
	return errors.Join(errs...)
}

// acknowledge takes the request for a rebuild down: from the MachineOSConfig once the build that
// answers it is there, and from that build once the MachineOSConfig is seen without. In this order,
// and in two passes, no request is answered twice or forgotten, wherever it stops.
func (r *configReconciler) acknowledge(ctx context.Context, s *configScope) error {
	if _, asked := s.config.Annotations[mcfgv1.AnnotationCheckImages]; asked && s.late == nil && !fault.IsTransient(s.problem) {
		if err := r.removeAnnotations(ctx, s, mcfgv1.AnnotationCheckImages); err != nil {
			return err
		}
		if s.found != nil { // else the condition says what is wrong
			r.events.Publish(s.config, events.ImagesChecked(s.found.base.Image))
		}
	}
	if s.decision.Acknowledge {
		return r.removeAnnotations(ctx, s, rebuildAnnotations...)
	}
	if _, says := s.config.Annotations[mcfgv1.AnnotationPreBuiltImage]; says && s.decision.Action == plan.Nothing {
		return r.removeAnnotations(ctx, s, mcfgv1.AnnotationPreBuiltImage)
	}
	if s.build == nil || wantsRebuild(s.config) {
		return nil
	}
	if _, marked := s.build.Annotations[mcfgv1.AnnotationRebuild]; !marked {
		return nil
	}
	return r.changeBuild(ctx, s.build, func(b *mcfgv1.MachineOSBuild) { delete(b.Annotations, mcfgv1.AnnotationRebuild) })
}

// removeAnnotations takes annotations of the MachineOSConfig down that have been followed.
func (r *configReconciler) removeAnnotations(ctx context.Context, s *configScope, keys ...string) error {
	changed := s.config.DeepCopy()
	for _, key := range keys {
		delete(changed.Annotations, key)
	}
	return r.patchConfig(ctx, s, changed)
}

// nameBuild writes the published annotation with the newest build.
func (r *configReconciler) nameBuild(ctx context.Context, s *configScope) error {
	if s.build == nil || s.config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild] == s.build.Name {
		return nil
	}
	changed := s.config.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, mcfgv1.AnnotationCurrentMachineOSBuild, s.build.Name)
	return r.patchConfig(ctx, s, changed)
}

// patchConfig writes changed annotations. The status in hand stays: it is written at the end of the
// pass.
func (r *configReconciler) patchConfig(ctx context.Context, s *configScope, changed *mcfgv1.MachineOSConfig) error {
	annotations := maps.Clone(changed.Annotations)
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(s.config.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing annotations of MachineOSConfig %q: %w", s.config.Name, err)
	}
	s.config.Annotations, s.config.ResourceVersion = annotations, changed.ResourceVersion
	return nil
}

// prune deletes builds that retention no longer keeps, once the wanted image is there.
func (r *configReconciler) prune(ctx context.Context, s *configScope) error {
	if s.decision.Action != plan.Nothing {
		return nil
	}
	keep := plan.DefaultRetention
	if spec := s.config.Spec.Retention; spec != nil {
		if spec.SuccessfulBuilds != nil {
			keep.Successful = int(*spec.SuccessfulBuilds)
		}
		if spec.FailedBuilds != nil {
			keep.Failed = int(*spec.FailedBuilds)
		}
	}
	state := r.state(s)
	if len(plan.Retain(state.Builds, s.decision.Build, nil, keep)) == 0 {
		return nil
	}
	references, err := r.references(ctx, "")
	if err != nil {
		return err
	}
	references[string(s.build.Status.DigestedImagePushSpec)] = true // it is about to be the current one
	gone := plan.Retain(state.Builds, s.decision.Build, references, keep)
	slices.Sort(gone)
	return r.deleteBuilds(ctx, s, gone, "spec.retention keeps others")
}
