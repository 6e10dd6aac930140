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

// slotInterval is when a build looks again that waits for a slot, or for its predecessor to stop.
const slotInterval = 200 * time.Millisecond

// imageResult is an image in the registry, and what its build records of it.
type imageResult struct {
	*maker.Image
	reason string
	// preBuilt reports whether the installer had it built.
	preBuilt bool
	// found reports whether the registry had it, and that nothing but its labels says that a build
	// of this cluster made it.
	found bool
	// poolTag is when the pool's tag moves to it.
	poolTag mcfgv1.PoolTagPolicy
	// details are what only the process knows that made it.
	details images.BuildDetails
}

// makeImage brings the image into the registry and writes down that it is there. Everything in it
// can be done again, and ends the same.
func (s *scope) makeImage(ctx context.Context) error {
	running, end, ok := s.options.Runs.Begin(ctx, s.config.Name, s.build.Name)
	if !ok {
		s.show.Message = "it waits for the previous build to stop"
		s.after = slotInterval
		return nil
	}
	defer end()
	if image := s.build.Status.DigestedImagePushSpec; image != "" {
		return s.finish(ctx, &imageResult{
			Image: &maker.Image{Pinned: string(image), Message: "the image was pushed before, and is signed now"}, reason: reasonOf(s.build),
		})
	}
	running, cancel := context.WithTimeout(running, s.attempt())
	defer cancel()
	result, err := s.obtainImageNoted(running)
	if errors.Is(running.Err(), context.Canceled) && ctx.Err() == nil || errors.Is(err, errEnded) {
		s.after = slotInterval // someone stopped it: the object says why
		return nil
	}
	if err != nil {
		if !s.record.Inputs.HasContent() { // else the backend counts its attempts
			err = s.judge(ctx, running, err)
		}
		return err
	}
	if result == nil {
		return nil
	}
	s.build.Status.Architectures, s.build.Status.PoolTag = architectures(result), result.poolTag
	return s.finish(ctx, result)
}

// obtainImageNoted obtains the image, and notes meanwhile that it is in work.
func (s *scope) obtainImageNoted(ctx context.Context) (*imageResult, error) {
	end, err := s.options.InWork.Begin(ctx, inwork.Work{
		Object: fmt.Sprintf("MachineOSBuild %q", s.build.Name), Version: string(s.build.UID),
		Retry: "set the annotation " + mcfgv1.AnnotationRebuild + " on the MachineOSConfig",
	})
	if err != nil {
		return nil, err
	}
	defer end()
	return s.obtainImage(ctx)
}

// reasonOf is how an image came to be that an earlier reconcile has pushed.
func reasonOf(build *mcfgv1.MachineOSBuild) string {
	if build.Status.Builder != nil {
		return mcfgv1.ReasonBuilt
	}
	return mcfgv1.ReasonConfigAppended
}

// finish writes down which image was made, and ends the build once that is signed. What is written
// is what reconciles that follow go on with, so that the digest which is signed is the one that was
// pushed, whatever the tags stand for then. It takes no longer than an attempt.
func (s *scope) finish(ctx context.Context, result *imageResult) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Attempt)
	defer cancel()
	image, err := s.ensureImage(ctx, result)
	if err != nil {
		return err
	}
	s.build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(result.Pinned)
	if err := s.attestBuilt(ctx, image, result.details); err != nil {
		if images.LacksKey(image) { // then it can't be signed either, and is to say so
			err = fault.Join(err, s.signBuilt(ctx, image))
		}
		return err
	}
	if err := s.signBuilt(ctx, image); err != nil {
		return err
	}
	s.after = 0
	s.show.Stage, s.show.Reason, s.show.Message = mcfgv1.BuildStageSucceeded, result.reason, result.Message
	return nil
}

// obtainImage finds the image in the registry, or makes it. It returns nil while content is being
// built.
func (s *scope) obtainImage(ctx context.Context) (*imageResult, error) {
	b, err := s.order(ctx)
	if err != nil {
		return nil, err
	}
	input := plan.ImagePlanInput{PreBuilt: s.build.Annotations[mcfgv1.AnnotationPreBuiltImage], Rebuild: b.Rebuild}
	var image string
	if input.PreBuilt == "" && !input.Rebuild {
		if image, err = s.options.Maker.FindImage(ctx, b.Credentials.Push, b.Target, b.record.Keys.Build, b.Base.Platforms); err != nil {
			return nil, err
		}
		input.InRegistry = image != ""
	}
	if step := plan.Choose(&input); step.Action == plan.Reuse {
		return b.reuse(ctx, step.Reason, image)
	}
	if err := b.describe(ctx); err != nil {
		return nil, err
	}
	content, state, err := b.takeContent(ctx)
	if err != nil {
		return nil, err
	}
	input.HasContent, input.HasContentImage, input.Backend = b.record.Inputs.HasContent(), content != "", b.backend != nil
	switch step := plan.Choose(&input); step.Action {
	case plan.Append:
		if input.HasContent {
			b.notePulled()
		}
	case plan.Build:
		if content, err = b.buildContent(ctx, state); err != nil || content == "" {
			return nil, err
		}
	default:
		return nil, fault.NewTerminal(step.Reason, errors.New(step.Message))
	}
	result, err := b.append(ctx, content)
	if err == nil && s.options.Images.Signs() {
		err = b.Check(ctx, result.Image)
	}
	return result, err
}

// order says what the build was asked to make.
func (s *scope) order(ctx context.Context) (*building, error) {
	credentials, err := s.options.Checker.Credentials(ctx, s.config)
	if err != nil {
		return nil, err
	}
	target, err := maker.TargetOf(s.build.Spec.RenderedImagePushSpec)
	if err != nil {
		return nil, err
	}
	asked := s.build.Asked()
	base, err := s.options.Checker.BaseImage(ctx, credentials, string(asked.BaseImage), asked.Inputs.Architectures)
	if err != nil {
		return nil, err
	}
	b := &building{scope: s, Order: &maker.Order{
		Key: s.key(), Pool: s.pool(), Config: s.config.Name, Rendered: s.build.Spec.MachineConfig.Name,
		Credentials: credentials, PushSecret: s.config.Spec.RenderedImagePushSecret.Name, Settings: objects.SettingsOf(s.config),
		Base: base, Extensions: string(asked.ExtensionsImage), Record: s.record,
		Target: target, Before: string(s.config.Status.CurrentImagePullSpec),
		Origin: provenance.OriginOf(s.build), Rebuild: s.isRebuild(), Pulled: provenance.PulledBy(s.build),
	}}
	b.backend, _ = s.options.Backends.For(s.config) // that there is none is a fact like any other
	b.IsStale = func(ctx context.Context, invocation string) (bool, error) {
		return objects.IsRebuilt(ctx, s.options.Client, maker.ContentOf(b.Base, b.Described), b.Target.Repository, s.build.UID, invocation)
	}
	return b, nil
}

// describe reads what the image is made of, and says again which one is wanted.
func (b *building) describe(ctx context.Context) error {
	var err error
	if b.Configuration, err = objects.ReadConfiguration(ctx, b.options.Reader, b.Rendered); err != nil {
		return err
	}
	if !b.record.Inputs.HasContent() {
		return b.Describe(ctx, nil, preflight.BuildInputs{})
	}
	sources, err := b.options.Checker.Sources(ctx, b.config)
	if err != nil {
		return err
	}
	inputs, err := b.options.Checker.BuildInputs(ctx, b.Pool)
	if err != nil {
		return err
	}
	return b.Describe(ctx, sources, inputs)
}

// append puts the configuration on the content.
func (b *building) append(ctx context.Context, content string) (*imageResult, error) {
	begin := b.options.Clock.Now()
	result := &imageResult{reason: mcfgv1.ReasonConfigAppended}
	var err error
	result.Image, err = b.options.Maker.Append(ctx, b.Order, content, func(request *registry.AppendRequest) {
		request.Tags, result.poolTag = pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, b.options.Images.IsGated()))
		request.BeforeTags = b.requireNotEnded
	})
	if err = objects.NameSources(ctx, b.options.Reader, b.Pool, err); err != nil {
		if fault.IsTerminal(err) {
			b.options.Metrics.Pushed(b.Pool, "failed", b.options.Clock.Since(begin))
		}
		return nil, err
	}
	if pooltag.IsAmong(result.Immutable, b.Pool) { // it says so as long as the tag is not there
		result.poolTag = mcfgv1.PoolTagWhenReady
	}
	b.options.Metrics.Pushed(b.Pool, "succeeded", b.options.Clock.Since(begin))
	result.details = images.BuildDetails{Version: version.Current().Version, BuilderImage: b.BuilderImage, Pulled: b.Pulled, Content: result.Content}
	if b.Origin.Backend != "" {
		result.reason = mcfgv1.ReasonBuilt
	}
	return result, nil
}

// reuse takes the image that is there already: the one that the installer had built, or the one
// that the registry has under the tag of the wanted one.
func (b *building) reuse(ctx context.Context, reason, image string) (*imageResult, error) {
	if reason == mcfgv1.ReasonPreBuiltImageSeeded {
		found, err := maker.PreBuilt(ctx, b.Credentials, b.build.Annotations[mcfgv1.AnnotationPreBuiltImage])
		if err != nil {
			return nil, err
		}
		return &imageResult{Image: found, reason: reason, preBuilt: true, poolTag: mcfgv1.PoolTagWhenReady}, nil
	}
	if err := b.requireNotEnded(ctx); err != nil {
		return nil, err
	}
	found, err := b.Found(ctx, image)
	if err != nil {
		return nil, err
	}
	tags, poolTag := pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, b.options.Images.IsGated()))
	for _, tag := range tags[1:] { // it was found by the first
		switch err := b.Credentials.Push.Tag(ctx, image, tag); {
		case registry.IsImmutable(err):
			poolTag = mcfgv1.PoolTagWhenReady
		case err != nil:
			return nil, err
		}
	}
	if b.build.Status.Builder != nil { // this build pushed it, and what it wrote about it was lost
		reason, found.Message = mcfgv1.ReasonBuilt, "the content was built, and the image was pushed by an earlier attempt"
	}
	return &imageResult{Image: found, reason: reason, found: !b.options.Images.Signs(), poolTag: poolTag}, nil
}

// errEnded means that a build has ended without this process.
var errEnded = errors.New("the build has been ended by another process")

// requireNotEnded asks the API server, not the cache, whether the build is still wanted. A process
// that was paused beyond its Lease does not know of newer images, and would move the pool's tag
// back to an older one.
func (s *scope) requireNotEnded(ctx context.Context) error {
	now := &mcfgv1.MachineOSBuild{}
	err := s.options.Reader.Get(ctx, client.ObjectKeyFromObject(s.build), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MachineOSBuild %q: %w", s.build.Name, err)
	}
	if err != nil || now.UID != s.build.UID || objects.IsInterruptedOrDeleted(now) || status.BuildStageOf(now.Status.Conditions).IsFinal() {
		return errEnded
	}
	return nil
}
