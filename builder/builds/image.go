package builds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/pooltag"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/version"
)

// turn is when a build looks again that waits for a slot, or for its predecessor to stop.
const turn = 200 * time.Millisecond

// made is an image that stands in the registry, and what its build writes down of it.
type made struct {
	*maker.Image
	reason string
	// preBuilt is that the installer had it built.
	preBuilt bool
	// found is that the registry had it, and that nothing but its labels says that a build of this
	// cluster made it.
	found bool
	// poolTag is when the pool's tag moves to it.
	poolTag mcfgv1.PoolTagPolicy
	// making is what only the process knows that made it.
	making images.Making
}

// makeImage brings the image into the registry and writes down that it is there. Everything in it
// can be done again, and ends the same.
func (r *Reconciler) makeImage(ctx context.Context, s *scope) error {
	running, end, ok := r.options.Runs.Begin(ctx, s.config.Name, s.build.Name)
	if !ok {
		s.show.Message = "it waits for the build before it to stop"
		s.after = turn
		return nil
	}
	defer end()
	if image := s.build.Status.DigestedImagePushSpec; image != "" {
		return r.finish(ctx, s, &made{
			Image: &maker.Image{Pinned: string(image), Message: "the image was pushed before, and is signed now"}, reason: reasonOf(s.build),
		})
	}
	running, cancel := context.WithTimeout(running, r.attempt(s.config))
	defer cancel()
	result, err := r.bringNoted(running, s)
	if errors.Is(running.Err(), context.Canceled) && ctx.Err() == nil || errors.Is(err, errEnded) {
		s.after = turn // someone stopped it: the object says why
		return nil
	}
	if err != nil {
		if !s.record.Inputs.HasContent() { // else the backend counts its attempts
			err = r.judge(ctx, running, s, err)
		}
		return err
	}
	if result == nil {
		return nil
	}
	s.build.Status.Architectures, s.build.Status.PoolTag = architectures(result), result.poolTag
	return r.finish(ctx, s, result)
}

// bringNoted brings the image, and notes meanwhile that it is in work.
func (r *Reconciler) bringNoted(ctx context.Context, s *scope) (*made, error) {
	end, err := r.options.InWork.Begin(ctx, inwork.Work{
		Object: fmt.Sprintf("MachineOSBuild %q", s.build.Name), Version: string(s.build.UID),
		Retry: "set the annotation " + mcfgv1.AnnotationRebuild + " on the MachineOSConfig",
	})
	if err != nil {
		return nil, err
	}
	defer end()
	return r.bring(ctx, s)
}

// reasonOf is how an image came to be that an earlier pass has pushed.
func reasonOf(build *mcfgv1.MachineOSBuild) string {
	if build.Status.Builder != nil {
		return mcfgv1.ReasonBuilt
	}
	return mcfgv1.ReasonConfigAppended
}

// finish writes down which image was made, and ends the build once that is signed. What is written
// is what passes that follow go on with, so that the digest which is signed is the one that was
// pushed, whatever the tags stand for then. It takes no longer than an attempt.
func (r *Reconciler) finish(ctx context.Context, s *scope, result *made) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Attempt)
	defer cancel()
	image, err := r.ensureImage(ctx, s, result)
	if err != nil {
		return err
	}
	s.build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(result.Pinned)
	if err := r.attestBuilt(ctx, s, image, result.making); err != nil {
		if images.LacksKey(image) { // then it can't be signed either, and is to say so
			err = fault.Join(err, r.signBuilt(ctx, s, image))
		}
		return err
	}
	if err := r.signBuilt(ctx, s, image); err != nil {
		return err
	}
	s.after = 0
	s.show.Stage, s.show.Reason, s.show.Message = status.StageSucceeded, result.reason, result.Message
	return nil
}

// bring finds the image in the registry, or makes it; nil while its content is being built.
func (r *Reconciler) bring(ctx context.Context, s *scope) (*made, error) {
	b, err := r.order(ctx, s)
	if err != nil {
		return nil, err
	}
	making := plan.Making{PreBuilt: s.build.Annotations[mcfgv1.AnnotationPreBuiltImage], Rebuild: b.Rebuild}
	var image string
	if making.PreBuilt == "" && !making.Rebuild {
		if image, err = r.options.Maker.FindImage(ctx, b.Credentials.Push, b.Target, b.record.Keys.Build, b.Base.Platforms); err != nil {
			return nil, err
		}
		making.InRegistry = image != ""
	}
	if step := plan.Choose(&making); step.Action == plan.Reuse {
		return r.reuse(ctx, b, step.Reason, image)
	}
	if err := r.describe(ctx, b); err != nil {
		return nil, err
	}
	content, state, err := r.takeContent(ctx, b)
	if err != nil {
		return nil, err
	}
	making.HasContent, making.HasContentImage, making.Backend = b.record.Inputs.HasContent(), content != "", b.backend != nil
	switch step := plan.Choose(&making); step.Action {
	case plan.Append:
		if making.HasContent {
			b.notePulled()
		}
	case plan.Build:
		if content, err = r.build(ctx, b, state); err != nil || content == "" {
			return nil, err
		}
	default:
		return nil, fault.NewTerminal(step.Reason, errors.New(step.Message))
	}
	result, err := r.append(ctx, b, content)
	if err == nil && r.options.Images.Signs() {
		err = r.options.Maker.Check(ctx, b.Order, result.Image)
	}
	return result, err
}

// order says what the build was asked to make.
func (r *Reconciler) order(ctx context.Context, s *scope) (*building, error) {
	credentials, err := r.options.Checker.Credentials(ctx, s.config)
	if err != nil {
		return nil, err
	}
	target, err := maker.TargetOf(s.build.Spec.RenderedImagePushSpec)
	if err != nil {
		return nil, err
	}
	base, err := r.options.Checker.BaseImage(ctx, credentials.Pull, s.build.Annotations[mcfgv1.AnnotationBaseImage], objects.ArchitecturesAsked(s.build))
	if err != nil {
		return nil, err
	}
	b := &building{scope: s, Order: &maker.Order{
		Key: s.key(), Pool: s.pool(), Config: s.config.Name, Rendered: s.build.Spec.MachineConfig.Name,
		Credentials: credentials, PushSecret: s.config.Spec.RenderedImagePushSecret.Name, Settings: objects.SettingsOf(s.config),
		Base: base, Extensions: s.build.Annotations[mcfgv1.AnnotationExtensionsImage], Record: s.record,
		Target: target, Before: string(s.config.Status.CurrentImagePullSpec),
		Origin: provenance.OriginOf(s.build), Rebuild: s.isRebuild(), Pulled: provenance.PulledBy(s.build),
	}}
	b.backend, _ = r.options.Backends.For(s.config) // that there is none is a fact like any other
	b.IsStale = func(ctx context.Context, invocation string) (bool, error) {
		return objects.IsRebuilt(ctx, r.options.Client, maker.ContentOf(b.Base, b.Described), b.Target.Repository, s.build.UID, invocation)
	}
	return b, nil
}

// describe reads what the image is made of, and says again which one is wanted.
func (r *Reconciler) describe(ctx context.Context, b *building) error {
	var err error
	if b.Configuration, err = objects.ReadConfiguration(ctx, r.options.Reader, b.Rendered); err != nil {
		return err
	}
	if !b.record.Inputs.HasContent() {
		return b.Describe(nil, preflight.BuildInputs{})
	}
	sources, err := r.options.Checker.Sources(ctx, b.config)
	if err != nil {
		return err
	}
	inputs, err := r.options.Checker.BuildInputs(ctx, b.Pool)
	if err != nil {
		return err
	}
	return b.Describe(sources, inputs)
}

// append puts the configuration on the content.
func (r *Reconciler) append(ctx context.Context, b *building, content string) (*made, error) {
	begin := r.options.Clock.Now()
	result := &made{reason: mcfgv1.ReasonConfigAppended}
	var err error
	result.Image, err = r.options.Maker.Append(ctx, b.Order, content, func(request *registry.AppendRequest) {
		request.Tags, result.poolTag = pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, r.options.Images.IsGated()))
		request.BeforeTags = func(ctx context.Context) error { return r.mayTag(ctx, b.scope) }
	})
	if err != nil {
		if fault.IsTerminal(err) {
			r.options.Metrics.Pushed(b.Pool, "failed", r.options.Clock.Since(begin))
		}
		return nil, err
	}
	r.options.Metrics.Pushed(b.Pool, "succeeded", r.options.Clock.Since(begin))
	result.making = images.Making{Version: version.Current().Version, BuilderImage: b.BuilderImage, Pulled: b.Pulled, Content: result.Content}
	if b.Origin.Backend != "" {
		result.reason = mcfgv1.ReasonBuilt
	}
	return result, nil
}

// reuse takes the image that is there already: the one that the installer had built, or the one
// that the registry has under the tag of the wanted one.
func (r *Reconciler) reuse(ctx context.Context, b *building, reason, image string) (*made, error) {
	if reason == mcfgv1.ReasonPreBuiltImageSeeded {
		found, err := maker.PreBuilt(ctx, b.Credentials, b.build.Annotations[mcfgv1.AnnotationPreBuiltImage])
		if err != nil {
			return nil, err
		}
		return &made{Image: found, reason: reason, preBuilt: true, poolTag: mcfgv1.PoolTagWhenReady}, nil
	}
	if err := r.mayTag(ctx, b.scope); err != nil {
		return nil, err
	}
	found, err := r.options.Maker.Found(ctx, b.Order, image)
	if err != nil {
		return nil, err
	}
	tags, poolTag := pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, r.options.Images.IsGated()))
	for _, tag := range tags[1:] { // it was found by the first
		if err := b.Credentials.Push.Tag(ctx, image, tag); err != nil {
			return nil, err
		}
	}
	if b.build.Status.Builder != nil { // this build pushed it, and what it wrote about it was lost
		reason, found.Message = mcfgv1.ReasonBuilt, "the content was built, and the image was pushed by an earlier attempt"
	}
	return &made{Image: found, reason: reason, found: !r.options.Images.Signs(), poolTag: poolTag}, nil
}

// errEnded is that a build has ended without this process.
var errEnded = errors.New("the build has been ended by another process")

// mayTag asks the API server, and not the cache, whether the build is still to be made. A process
// that was stopped for longer than its Lease lasts does not know that another one has made this
// image, and maybe the next, and would give the pool's tag to the older one.
func (r *Reconciler) mayTag(ctx context.Context, s *scope) error {
	now := &mcfgv1.MachineOSBuild{}
	err := r.options.Reader.Get(ctx, client.ObjectKeyFromObject(s.build), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MachineOSBuild %q: %w", s.build.Name, err)
	}
	if err != nil || now.UID != s.build.UID || objects.HasEnded(now) || status.BuildStageOf(now.Status.Conditions).IsFinal() {
		return errEnded
	}
	return nil
}
