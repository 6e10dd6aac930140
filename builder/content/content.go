package content

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/reuse"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

// again is when to look again at what is about to be ended.
const again = 200 * time.Millisecond

// backendInterval is when to look at a build again although its backend reports nothing.
const backendInterval = 30 * time.Second

// Options are what a Follower works with.
type Options struct {
	// Client reads from the cache, and notes on builds how often they failed.
	Client client.Client
	Events events.Publisher
	// Registry finds content that is there already, and Maker says what is to be built.
	Registry *reuse.Registry
	Maker    *maker.Maker
	// Backends build content.
	Backends backends.Set
	// Images knows whether content is attested; *images.Keeper does.
	Images interface{ Attests() bool }
	// Metrics may be nil.
	Metrics *metrics.Builds
}

// Follower has content built, and follows that. It may be used by several goroutines.
type Follower struct{ options Options }

// New returns a Follower.
func New(options Options) *Follower { return &Follower{options} }

// Subject is the build that content is for. What builds it is written into its status.
type Subject struct {
	Build  *mcfgv1.MachineOSBuild
	Config *mcfgv1.MachineOSConfig
	// Show is what the conditions of the build say now.
	Show status.Build
}

// Step is how far a build is.
type Step struct {
	// Show is what the conditions are to say.
	Show status.Build
	// After is when to look again; zero where there is nothing to wait for.
	After time.Duration
	// Began is when the backend says that it began; zero where it has not, or there is none.
	Began time.Time
}

// building is what is known while the content of one build is obtained.
type building struct {
	*Options
	*order.Order
	Subject

	step Step
	// backend builds the content; nil where nothing here does.
	backend backends.Backend
}

// Obtain is the image that the configuration goes onto: the base image, or content that is built
// now or was built before. Empty is that it is not there yet. The step says how far it is, and
// counts beside an error too.
func (f *Follower) Obtain(ctx context.Context, o *order.Order, of Subject) (string, Step, error) {
	step := Step{Show: of.Show}
	if !o.Record.Inputs.HasContent() {
		return o.Base.Below(), step, nil
	}
	b := &building{Options: &f.options, Order: o, Subject: of, step: step}
	b.backend, _ = f.options.Backends.For(of.Config) // that there is none is a fact like any other
	content, err := b.obtain(ctx)
	return content, b.step, err
}

// obtain takes content that was built before, or has it built.
func (b *building) obtain(ctx context.Context) (string, error) {
	content, state, err := b.takeContent(ctx)
	if err != nil {
		return "", err
	}
	step := plan.Choose(&plan.ImagePlanInput{HasContent: true, HasContentImage: content != "", Backend: b.backend != nil})
	switch step.Action {
	case plan.Append:
		b.notePulled()
		return content, nil
	case plan.Build:
		return b.buildContent(ctx, state)
	default:
		return "", fault.NewTerminal(step.Reason, errors.New(step.Message))
	}
}

// takeContent is content that an earlier build has made. Where content is being built, the backend
// says how far it is.
func (b *building) takeContent(ctx context.Context) (content string, state *backend.State, err error) {
	if b.backend != nil {
		found, err := b.backend.Observe(ctx, b.Key)
		if err != nil {
			return "", nil, err
		}
		if state = &found; found.Phase != backend.Absent {
			return "", state, nil
		}
	}
	if b.Rebuild {
		return "", state, nil
	}
	content, err = b.Registry.TakeContent(ctx, b.Order)
	return content, state, err
}

// buildContent has the content built, or follows that. It gives the content when it is there.
func (b *building) buildContent(ctx context.Context, state *backend.State) (string, error) {
	switch {
	case state.Phase == backend.Absent && b.hasBegun(): // whether it ran or waited
		b.Metrics.Job(b.Pool, metrics.JobInterrupted)
		b.step.Show = status.Build{
			Stage: mcfgv1.BuildStageInterrupted, Reason: mcfgv1.ReasonBuilderDeleted, Generation: b.Build.Generation,
			Message: "the Job or PipelineRun that built the image was deleted; annotate the MachineOSConfig with " + mcfgv1.AnnotationRebuild + " to build it",
		}
		return "", nil
	case state.Phase == backend.Absent && b.Build.Status.Builder != nil:
		b.forgetBuilder("imageBuilderType has changed; what built the image until now is ended")
		return "", nil
	case state.Phase == backend.Absent:
		if err := b.Backends.RemoveOthers(ctx, b.Key, b.backend); err != nil {
			return "", err
		}
		return "", b.beginContent(ctx)
	case b.Settings.AreOld(state):
		const changed = "buildResources, buildPlacement, buildRetryLimit or buildTimeout has changed; what builds the image is made again"
		if b.Build.Status.Builder == nil {
			return "", b.beginAgain(ctx, mcfgv1.ReasonPreparing, changed)
		}
		b.forgetBuilder(changed)
		return "", nil
	}
	return b.follow(ctx, state)
}

// forgetBuilder says why what builds will be ended. It is written before that goes: this process
// may end in between, or the MachineOSConfig name it again, and no person would have ended it.
func (b *building) forgetBuilder(why string) {
	b.Build.Status.Builder = nil
	b.step.Show.Reason, b.step.Show.Message, b.step.After = mcfgv1.ReasonPreparing, why, again
}

// hasBegun reports whether the backend that the MachineOSConfig names now was seen to build.
func (b *building) hasBegun() bool {
	builder := b.Build.Status.Builder
	return builder != nil && builder.ImageBuilderType == b.Subject.Config.Spec.ImageBuilder.ImageBuilderType
}

// beginContent has content built.
func (b *building) beginContent(ctx context.Context) error {
	spec, err := b.Maker.Spec(ctx, b.Order)
	if err != nil {
		return err
	}
	if err := maker.CopyBase(ctx, b.Order); err != nil {
		return err
	}
	if err := b.ensure(ctx, spec); err != nil {
		return err
	}
	b.step.Show.Message, b.step.After = "what builds the image has been created", backendInterval
	return nil
}

// ensure makes what is missing of what builds content.
func (b *building) ensure(ctx context.Context, spec *backend.Spec) error {
	err := b.backend.Ensure(ctx, *spec)
	if err != nil && fault.Reason(err) == mcfgv1.ReasonInputsChanged {
		b.Events.Publish(b.Build, events.InputsChanged(fault.Message(err)))
	}
	return err
}

// complete makes again what someone deleted of a build that needs it.
func (b *building) complete(ctx context.Context) error {
	spec, err := b.Maker.Spec(ctx, b.Order)
	if err != nil {
		return err
	}
	return b.ensure(ctx, spec)
}

// beginAgain removes what builds the image, so that it is made again. The build itself stays.
func (b *building) beginAgain(ctx context.Context, reason, message string) error {
	b.Build.Status.Builder = nil // so that its absence is not taken for a person's will
	if err := b.backend.Remove(ctx, b.Key); err != nil {
		return err
	}
	b.step.Show.Reason, b.step.Show.Message, b.step.After = reason, message, backendInterval
	return nil
}

// follow says how far a build is, and gives what it made.
func (b *building) follow(ctx context.Context, state *backend.State) (string, error) {
	st := &b.Build.Status
	b.step.Show.Message = cmp.Or(state.Message, b.step.Show.Message)
	state.After = cmp.Or(state.After, backendInterval)
	b.step.After = state.After
	st.Builder = builderReference(b.Subject.Config.Spec.ImageBuilder.ImageBuilderType, state.Object)
	b.Origin.Backend = backendOf(st)
	st.Architectures, st.RelatedObjects = state.Architectures, relatedObjects(state)
	b.step.Began = state.Started
	b.Metrics.Job(b.Pool, jobState(state.Phase))
	if state.IsIncomplete {
		if err := b.complete(ctx); err != nil {
			return "", err
		}
	}
	if f := state.Failure; f != nil && f.Class == fault.Waiting {
		return "", maker.Failed(state)
	}
	switch state.Phase {
	case backend.Running, backend.Pending:
		if state.Phase == backend.Running {
			b.step.Show.Stage, b.step.Show.Reason = mcfgv1.BuildStageBuilding, mcfgv1.ReasonBuilding
		}
		if state.Failure != nil {
			b.step.Show.Reason, b.step.Show.Message = mcfgv1.ReasonRetryingBuild, fmt.Sprintf("%s; the previous attempt: %s", b.step.Show.Message, state.Failure.Message)
		}
	case backend.Failed:
		if state.Failure != nil && state.Failure.IsCancelled {
			b.Metrics.Job(b.Pool, metrics.JobInterrupted)
			b.step.Show = status.Build{
				Stage: mcfgv1.BuildStageInterrupted, Reason: state.Failure.Reason, Generation: b.Build.Generation,
				Message: state.Failure.Message + "; annotate the MachineOSConfig with " + mcfgv1.AnnotationRebuild + " to build the image",
			}
			return "", nil
		}
		if state.Failure != nil && state.Failure.IsLost {
			return b.recoverContent(ctx, state)
		}
		return "", maker.Failed(state)
	case backend.Succeeded:
		b.step.After = 0
		image, err := b.Maker.Built(ctx, b.Order, state)
		b.notePulled()
		if err != nil || b.interruptIfSuperseded(ctx) {
			return "", err
		}
		return image, nil
	case backend.Absent:
	}
	return "", nil
}

// backendOf is what built content, as provenance calls it; empty where nothing did.
func backendOf(st *mcfgv1.MachineOSBuildStatus) string {
	if st.Builder == nil {
		return ""
	}
	return string(st.Builder.ImageBuilderType)
}

// notePulled writes down the images that the content was built with.
func (b *building) notePulled() {
	st := &b.Build.Status
	st.PulledImages, st.PulledImagesMissing = b.Pulled.Images, int32(b.Pulled.Missing) //nolint:gosec // it is small
}

// relatedObjects are the ConfigMaps of a build, for status. After success there are none.
func relatedObjects(state *backend.State) []mcfgv1.RelatedObject {
	const most = 10 // as many as the API server takes
	if state.Phase == backend.Succeeded {
		return nil
	}
	var objects []mcfgv1.RelatedObject
	for _, name := range state.Related[:min(len(state.Related), most)] {
		objects = append(objects, mcfgv1.RelatedObject{Resource: "configmaps", Namespace: state.Namespace, Name: name})
	}
	return objects
}

// interruptIfSuperseded reports whether the MachineOSConfig wants another configuration on the same
// content, and then shows the build as Interrupted.
func (b *building) interruptIfSuperseded(ctx context.Context) bool {
	newest := b.Subject.Config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild]
	next := &mcfgv1.MachineOSBuild{}
	if newest == b.Build.Name || newest == "" || b.Client.Get(ctx, client.ObjectKey{Name: newest}, next) != nil ||
		objects.Existing(next).Content != objects.Existing(b.Build).Content || objects.Existing(next).Stage.IsFinal() {
		return false
	}
	b.step.Show = status.Build{
		Stage: mcfgv1.BuildStageInterrupted, Reason: mcfgv1.ReasonSuperseded, Generation: b.Build.Generation,
		Message: fmt.Sprintf("its content was built, but build %q supersedes it", newest),
	}
	return true
}

// jobState is how the metric calls a phase.
func jobState(phase backend.Phase) string {
	switch phase {
	case backend.Running:
		return metrics.JobBuilding
	case backend.Succeeded:
		return metrics.JobSucceeded
	case backend.Failed:
		return metrics.JobFailed
	case backend.Absent, backend.Pending:
	}
	return metrics.JobPending
}

// recoverContent is for content that was pushed by something that has gone without saying its
// digest: it is the one that its tag stands for. Where content is attested that says nothing, since
// whoever may push can give the tag to anything: it is built again.
func (b *building) recoverContent(ctx context.Context, state *backend.State) (string, error) {
	image, err := b.Registry.TakeContent(ctx, b.Order)
	if err != nil || image != "" {
		b.notePulled()
		return image, err
	}
	if !b.Images.Attests() {
		return "", maker.Failed(state)
	}
	if err := objects.CountAttempt(ctx, b.Client, b.Build, objects.ContentRetries(b.Subject.Config), errors.New(state.Failure.Message)); fault.IsTerminal(err) {
		return "", err
	}
	return "", b.beginAgain(ctx, mcfgv1.ReasonRetryingBuild, "it is built again: "+state.Failure.Message)
}

func builderReference(kind mcfgv1.MachineOSImageBuilderType, object *corev1.ObjectReference) *mcfgv1.MachineOSBuilderReference {
	if object == nil {
		return nil
	}
	group, _, _ := strings.Cut(object.APIVersion, "/")
	reference := &mcfgv1.ObjectReference{
		Group: group, Resource: strings.ToLower(object.Kind) + "s", Namespace: object.Namespace, Name: object.Name,
	}
	if kind == mcfgv1.JobBuilder {
		return &mcfgv1.MachineOSBuilderReference{ImageBuilderType: kind, Job: reference}
	}
	return &mcfgv1.MachineOSBuilderReference{ImageBuilderType: kind, PipelineRun: reference}
}
