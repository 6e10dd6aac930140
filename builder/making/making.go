package making

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/content"
	"github.com/layerwright/layerwright/builder/made"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/pooltag"
	"github.com/layerwright/layerwright/builder/reuse"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

// Options are what an Imager works with.
type Options struct {
	// Reader asks the API server.
	Reader client.Reader
	Clock  clock.PassiveClock
	// Finder says what an image is made of, Registry what is there already, Content obtains what
	// the configuration goes onto, and Maker puts it there.
	Finder   *wanted.Finder
	Registry *reuse.Registry
	Content  *content.Follower
	Maker    *maker.Maker
	// Made writes down what was made.
	Made *made.Writer
	// Images says what happens to images that were built.
	Images keeper
	// Metrics may be nil.
	Metrics *metrics.Builds
}

// keeper knows whether images are signed, and whether something may keep them from nodes;
// *images.Keeper is one.
type keeper interface {
	Signs() bool
	IsGated() bool
}

// Imager obtains the images of builds, and writes them down. It may be used by several goroutines.
type Imager struct {
	*made.Writer

	options Options
}

// New returns an Imager.
func New(options Options) *Imager { return &Imager{options.Made, options} }

// Result is an image in the registry, and what its build records of it.
type Result struct {
	made.Image
	// Reason is how it came to be.
	Reason string
	// PoolTag is when the pool's tag moves to it.
	PoolTag mcfgv1.PoolTagPolicy
}

// Pushed is the image that an earlier reconcile of a build has pushed; nil where none has.
func Pushed(build *mcfgv1.MachineOSBuild) *Result {
	image := build.Status.DigestedImagePushSpec
	if image == "" {
		return nil
	}
	return &Result{
		Image:  made.Image{Image: &order.Image{Pinned: string(image), Message: "the image was pushed before, and is signed now"}},
		Reason: reasonOf(build),
	}
}

// reasonOf is how an image came to be that an earlier reconcile has pushed.
func reasonOf(build *mcfgv1.MachineOSBuild) string {
	if build.Status.Builder != nil {
		return mcfgv1.ReasonBuilt
	}
	return mcfgv1.ReasonConfigAppended
}

// building is one image that is obtained.
type building struct {
	*Options
	*order.Order

	build  *mcfgv1.MachineOSBuild
	config *mcfgv1.MachineOSConfig
}

// Obtain makes the image of a build, or takes the one that it was asked to reuse. It is nil while
// content is being built, and where another image is wanted by now: then the step says so, which
// counts beside an error too.
func (i *Imager) Obtain(ctx context.Context, config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild, show status.Build) (*Result, content.Step, error) {
	step := content.Step{Show: show}
	o, err := i.options.Finder.Order(ctx, config, build)
	if err != nil {
		return nil, step, err
	}
	b := &building{&i.options, o, build, config}
	if found, err := b.reuse(ctx); err != nil || found != nil {
		return found, step, err
	}
	err = i.options.Finder.Describe(ctx, config, o)
	if errors.Is(err, wanted.ErrChanged) {
		step.Show = status.Build{Stage: mcfgv1.BuildStageInterrupted, Reason: mcfgv1.ReasonSuperseded, Message: err.Error(), Generation: build.Generation}
		return nil, step, nil
	}
	if err != nil {
		return nil, step, err
	}
	below, step, err := i.options.Content.Obtain(ctx, o, content.Subject{Build: build, Config: config, Show: show})
	if err != nil || below == "" {
		return nil, step, err
	}
	result, err := b.append(ctx, below)
	if err == nil && i.options.Images.Signs() {
		err = maker.Check(ctx, o, result.Image.Image)
	}
	return result, step, err
}

// append puts the configuration on the content.
func (b *building) append(ctx context.Context, content string) (*Result, error) {
	begin := b.Clock.Now()
	result := &Result{Reason: mcfgv1.ReasonConfigAppended}
	tagging := maker.Tagging{Before: b.requireNotEnded}
	tagging.Tags, result.PoolTag = pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, b.Images.IsGated()))
	var err error
	result.Image.Image, err = b.Maker.Append(ctx, b.Order, content, tagging)
	if err = objects.NameSources(ctx, b.Reader, b.Pool, err); err != nil {
		if fault.IsTerminal(err) {
			b.Metrics.Pushed(b.Pool, "failed", b.Clock.Since(begin))
		}
		return nil, err
	}
	if pooltag.IsAmong(result.Immutable, b.Pool) { // it says so as long as the tag is not there
		result.PoolTag = mcfgv1.PoolTagWhenReady
	}
	b.Metrics.Pushed(b.Pool, "succeeded", b.Clock.Since(begin))
	result.Details = made.DetailsOf(b.Order, result.Image.Image)
	if b.Origin.Backend != "" {
		result.Reason = mcfgv1.ReasonBuilt
	}
	return result, nil
}

// reuse takes the image that is there already: the one that the installer had built, or the one
// that the registry has under the tag of the wanted one. It is nil where that was not asked for,
// or the registry has lost it. Builds of earlier versions look for it in any case.
func (b *building) reuse(ctx context.Context) (*Result, error) {
	if action := b.build.Asked().Action; b.Rebuild || action == mcfgv1.BuildActionAppend || action == mcfgv1.BuildActionBuild {
		return nil, nil
	}
	if preBuilt := b.build.Annotations[mcfgv1.AnnotationPreBuiltImage]; preBuilt != "" {
		found, err := reuse.PreBuilt(ctx, b.Credentials, preBuilt)
		if err != nil {
			return nil, err
		}
		return &Result{Image: made.Image{Image: found, PreBuilt: true}, Reason: mcfgv1.ReasonPreBuiltImageSeeded, PoolTag: mcfgv1.PoolTagWhenReady}, nil
	}
	image, err := b.Registry.FindImage(ctx, b.Credentials, b.Target, b.Record.Keys.Build, b.Base.Platforms)
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
	tags, poolTag := pooltag.Tags(b.Target.Tag, b.Pool, pooltag.MayHoldBack(b.config, b.Images.IsGated()))
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
	return &Result{Image: made.Image{Image: found, Found: !b.Images.Signs()}, Reason: reason, PoolTag: poolTag}, nil
}

// ErrEnded means that a build has ended without this process.
var ErrEnded = errors.New("the build has been ended by another process")

// requireNotEnded asks the API server, not the cache, whether the build is still wanted. A process
// that was paused beyond its Lease does not know of newer images, and would move the pool's tag
// back to an older one.
func (b *building) requireNotEnded(ctx context.Context) error {
	now := &mcfgv1.MachineOSBuild{}
	err := b.Reader.Get(ctx, client.ObjectKeyFromObject(b.build), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MachineOSBuild %q: %w", b.build.Name, err)
	}
	if err != nil || now.UID != b.build.UID || objects.IsInterruptedOrDeleted(now) || status.BuildStageOf(now.Status.Conditions).IsFinal() {
		return ErrEnded
	}
	return nil
}
