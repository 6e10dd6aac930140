package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/made"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/pooltag"
	"github.com/layerwright/layerwright/builder/reuse"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/status"
)

// slotInterval is when a build looks again that waits for a slot, or for its predecessor to stop.
const slotInterval = 200 * time.Millisecond

// imageResult is an image in the registry, and what its build records of it.
type imageResult struct {
	made.Image
	reason string
	// poolTag is when the pool's tag moves to it.
	poolTag mcfgv1.PoolTagPolicy
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
			Image:  made.Image{Image: &order.Image{Pinned: string(image), Message: "the image was pushed before, and is signed now"}},
			reason: reasonOf(s.build),
		})
	}
	running, cancel := context.WithTimeout(running, s.attempt())
	defer cancel()
	result, err := s.obtainImageNoted(running)
	if errors.Is(running.Err(), context.Canceled) && ctx.Err() == nil || errors.Is(err, errEnded) {
		s.after = slotInterval // someone stopped it: the object says why
		return nil
	}
	if errors.Is(err, wanted.ErrChanged) {
		s.show = status.Build{Stage: mcfgv1.BuildStageInterrupted, Reason: mcfgv1.ReasonSuperseded, Message: err.Error(), Generation: s.build.Generation}
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
	if err := s.options.Made.Write(ctx, s.config, s.build, &result.Image); err != nil {
		return err
	}
	s.after = 0
	s.show.Stage, s.show.Reason, s.show.Message = mcfgv1.BuildStageSucceeded, result.reason, result.Message
	return nil
}

// obtainImage makes the image, or takes the one that the build was asked to reuse. It returns nil
// while content is being built.
func (s *scope) obtainImage(ctx context.Context) (*imageResult, error) {
	order, err := s.options.Finder.Order(ctx, s.config, s.build)
	if err != nil {
		return nil, err
	}
	b := &building{scope: s, Order: order}
	b.backend, _ = s.options.Backends.For(s.config) // that there is none is a fact like any other
	if found, err := b.reuse(ctx); err != nil || found != nil {
		return found, err
	}
	if err := s.options.Finder.Describe(ctx, s.config, order); err != nil {
		return nil, err
	}
	content, err := b.obtainContent(ctx)
	if err != nil || content == "" {
		return nil, err
	}
	result, err := b.append(ctx, content)
	if err == nil && s.options.Images.Signs() {
		err = maker.Check(ctx, b.Order, result.Image.Image)
	}
	return result, err
}

// append puts the configuration on the content.
func (b *building) append(ctx context.Context, content string) (*imageResult, error) {
	begin := b.options.Clock.Now()
	result := &imageResult{reason: mcfgv1.ReasonConfigAppended}
	tagging := maker.Tagging{Before: b.requireNotEnded}
	tagging.Tags, result.poolTag = pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, b.options.Images.IsGated()))
	var err error
	result.Image.Image, err = b.options.Maker.Append(ctx, b.Order, content, tagging)
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
	result.Details = made.DetailsOf(b.Order, result.Image.Image)
	if b.Origin.Backend != "" {
		result.reason = mcfgv1.ReasonBuilt
	}
	return result, nil
}

// reuse takes the image that is there already: the one that the installer had built, or the one
// that the registry has under the tag of the wanted one. It is nil where that was not asked for,
// or the registry has lost it. Builds of earlier versions look for it in any case.
func (b *building) reuse(ctx context.Context) (*imageResult, error) {
	if action := b.build.Asked().Action; b.Rebuild || action == mcfgv1.BuildActionAppend || action == mcfgv1.BuildActionBuild {
		return nil, nil
	}
	if preBuilt := b.build.Annotations[mcfgv1.AnnotationPreBuiltImage]; preBuilt != "" {
		found, err := reuse.PreBuilt(ctx, b.Credentials, preBuilt)
		if err != nil {
			return nil, err
		}
		return &imageResult{Image: made.Image{Image: found, PreBuilt: true}, reason: mcfgv1.ReasonPreBuiltImageSeeded, poolTag: mcfgv1.PoolTagWhenReady}, nil
	}
	image, err := b.options.Registry.FindImage(ctx, b.Credentials, b.Target, b.record.Keys.Build, b.Base.Platforms)
	if err != nil || image == "" {
		return nil, err
	}
	if err := b.requireNotEnded(ctx); err != nil {
		return nil, err
	}
	found, err := reuse.Found(ctx, b.Order, image)
	if err != nil {
		return nil, err
	}
	tags, poolTag := pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, b.options.Images.IsGated()))
	for _, tag := range tags[1:] { // it was found by the first
		switch err := b.Credentials.Push.Tag(ctx, image, tag); {
		case pooltag.IsFinal(err):
			poolTag = mcfgv1.PoolTagWhenReady
		case err != nil:
			return nil, err
		}
	}
	reason := mcfgv1.ReasonReused
	if b.build.Status.Builder != nil { // this build pushed it, and what it wrote about it was lost
		reason, found.Message = mcfgv1.ReasonBuilt, "the content was built, and the image was pushed by an earlier attempt"
	}
	return &imageResult{Image: made.Image{Image: found, Found: !b.options.Images.Signs()}, reason: reason, poolTag: poolTag}, nil
}

// architectures are the results of each architecture, where there are several.
func architectures(m *imageResult) []mcfgv1.ArchitectureBuild {
	if len(m.Platforms) < 2 { //nolint:mnd // one is the image itself
		return nil
	}
	repository, _, _ := strings.Cut(m.Pinned, "@")
	var out []mcfgv1.ArchitectureBuild
	for _, p := range m.Platforms {
		arch, known := mcfgv1.ArchitectureFromOCI(cmp.Or(p.Platform.Architecture, "amd64"))
		if !known {
			continue
		}
		out = append(out, mcfgv1.ArchitectureBuild{
			Architecture: arch, State: mcfgv1.ArchitectureSucceeded,
			DigestedImagePushSpec: mcfgv1.ImageDigestFormat(repository + "@" + p.Digest.String()),
		})
	}
	return out
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
