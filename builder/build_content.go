package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/machineconfigs"
)

// Where a MachineOSConfig says nothing (spec.buildRetryLimit, spec.buildTimeout).
const (
	defaultRetries = 3
	defaultTimeout = 2 * time.Hour
)

// watching is when to look at a build again although its backend has told nothing.
const watching = 30 * time.Second

// building is what one pass knows while it makes an image.
type building struct {
	*buildScope
	credentials preflight.Credentials
	base        *preflight.Base
	// rendered is the configuration, and described what it and the Containerfile mean.
	rendered  *machineconfigs.Config
	described *description.Description
	target    target
	// builderImage is what built the content, by digest; empty where it was not built now, or that is not known.
	builderImage string
}

// content is the image that the configuration goes onto: the base image, or what was built on it. It is empty while that is being built.
func (r *buildReconciler) content(ctx context.Context, b *building) (string, error) {
	if !b.record.Inputs.HasContent() {
		return b.base.Below(), nil
	}
	builds, err := r.backend(b.config)
	if err != nil {
		return "", err
	}
	state, err := builds.Observe(ctx, b.key())
	if err != nil {
		return "", err
	}
	if state.Phase == backend.Absent {
		return r.beginContent(ctx, b, builds)
	}
	if hasOldSettings(&state, b.config) {
		return "", r.beginAgain(ctx, b, builds)
	}
	return r.follow(ctx, b, builds, &state)
}

// beginContent takes content that was built before, or has it built.
func (r *buildReconciler) beginContent(ctx context.Context, b *building, builds Backend) (string, error) {
	if !b.isRebuild() {
		image, err := r.findContent(ctx, b)
		if err != nil || image != "" {
			return image, err
		}
	}
	if b.show.Stage >= status.StageBuilding && b.build.Status.Builder != nil {
		r.options.Metrics.Job(b.pool(), metrics.JobInterrupted)
		b.show = status.Build{
			Stage: status.StageInterrupted, Reason: mcfgv1.ReasonBuilderDeleted, Generation: b.build.Generation,
			Message: "somebody deleted what built the image; annotate the MachineOSConfig with " + mcfgv1.AnnotationRebuild + " to build it",
		}
		return "", nil
	}
	spec, err := r.spec(ctx, b)
	if err != nil {
		return "", err
	}
	if err := r.copyBase(ctx, b); err != nil {
		return "", err
	}
	if err := builds.Ensure(ctx, *spec); err != nil {
		if fault.Reason(err) == mcfgv1.ReasonInputsChanged {
			r.events.Publish(b.build, events.InputsChanged(fault.Message(err)))
		}
		return "", err
	}
	b.show.Message = "what builds the image has been created"
	b.after = watching
	return "", nil
}

// beginAgain removes what builds the image, so that it is made with the settings that the MachineOSConfig has now. The build itself stays.
func (r *buildReconciler) beginAgain(ctx context.Context, b *building, builds Backend) error {
	if err := builds.Remove(ctx, b.key()); err != nil {
		return err
	}
	b.build.Status.Builder = nil // so that its absence is not taken for a person's will
	b.show.Reason = mcfgv1.ReasonPreparing
	b.show.Message = "buildResources, buildPlacement, buildRetryLimit or buildTimeout has changed; what builds the image is made again"
	b.after = watching
	return nil
}

// follow says how far a build is, and gives what it made.
func (r *buildReconciler) follow(ctx context.Context, b *building, builds Backend, state *backend.State) (string, error) {
	b.show.Message = cmp.Or(state.Message, b.show.Message)
	b.after = cmp.Or(state.After, watching)
	b.build.Status.Builder = builderReference(b.config.Spec.ImageBuilder.ImageBuilderType, state.Object)
	b.build.Status.Architectures = state.Architectures
	b.build.Status.RelatedObjects = relatedObjects(state)
	b.began = state.Started
	r.options.Metrics.Job(b.pool(), jobState(state.Phase))
	if f := state.Failure; f != nil && f.Class == backend.Waiting && state.Phase != backend.Failed {
		return "", fault.NewWaiting(f.Reason, b.after, errors.New(f.Message))
	}
	switch state.Phase {
	case backend.Running, backend.Pending:
		if state.Phase == backend.Running {
			b.show.Stage, b.show.Reason = status.StageBuilding, mcfgv1.ReasonBuilding
		}
		if state.Failure != nil {
			b.show.Reason, b.show.Message = mcfgv1.ReasonRetryingBuild, fmt.Sprintf("%s; the attempt before: %s", b.show.Message, state.Failure.Message)
		}
	case backend.Failed:
		if state.Failure != nil && state.Failure.IsCancelled {
			r.options.Metrics.Job(b.pool(), metrics.JobInterrupted)
			b.show = status.Build{
				Stage: status.StageInterrupted, Reason: state.Failure.Reason, Generation: b.build.Generation,
				Message: state.Failure.Message + "; annotate the MachineOSConfig with " + mcfgv1.AnnotationRebuild + " to build the image",
			}
			return "", nil
		}
		if state.Failure != nil && state.Failure.IsLost {
			return r.lostAndFound(ctx, b, builds, state)
		}
		return "", failed(state)
	case backend.Succeeded:
		b.after = 0
		b.builderImage = state.BuilderImage
		b.recordPulled(state)
		image, err := r.built(ctx, b, state)
		if err == nil {
			err = r.attestContent(ctx, b, image, state.BuilderImage)
		}
		if err != nil || r.isSuperseded(ctx, b) {
			return "", err
		}
		return image, nil
	case backend.Absent:
	}
	return "", nil
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

// isSuperseded ends a build that was left running for its content alone: the MachineOSConfig wants another configuration on it by now.
func (r *buildReconciler) isSuperseded(ctx context.Context, b *building) bool {
	newest := b.config.Annotations[mcfgv1.AnnotationCurrentMachineOSBuild]
	next := &mcfgv1.MachineOSBuild{}
	if newest == b.build.Name || newest == "" || r.client.Get(ctx, client.ObjectKey{Name: newest}, next) != nil ||
		existing(next).Content != b.sharedContent() || existing(next).Stage != plan.Active {
		return false
	}
	b.show = status.Build{
		Stage: status.StageInterrupted, Reason: mcfgv1.ReasonSuperseded, Generation: b.build.Generation,
		Message: fmt.Sprintf("its content was built, and the image that is wanted now is that of build %q", newest),
	}
	return true
}

// maxPulled is how many of them the API server takes.
const maxPulled = 128

// recordPulled writes down the images that building the content has pulled, but for base image and extensions image, which provenance names itself.
func (b *building) recordPulled(state *backend.State) {
	ours := []string{b.base.Image, b.build.Annotations[mcfgv1.AnnotationExtensionsImage]}
	for _, p := range b.base.Platforms {
		ours = append(ours, p.Image)
	}
	b.setPulled(slices.DeleteFunc(slices.Clone(state.Pulled), func(p mcfgv1.PulledImage) bool { return p.Name != "" && slices.Contains(ours, p.Name) }), state.PulledMissing)
}

// setPulled leaves out what is no image by its digest, or more than a MachineOSBuild has room for, and counts it with those that are missing: pods and
// registries say what they like.
func (b *building) setPulled(images []mcfgv1.PulledImage, missing int) {
	all := len(images)
	images = slices.DeleteFunc(images, func(p mcfgv1.PulledImage) bool { return !isPulled(&p) })
	images = images[:min(len(images), maxPulled)]
	const most = 1 << 16 // more than any Containerfile has room for
	b.build.Status.PulledImages = images
	b.build.Status.PulledImagesMissing = int32(min(max(missing, 0), most) + all - len(images)) //nolint:gosec // both are small
}

func isPulled(p *mcfgv1.PulledImage) bool {
	const longest = 512
	if p.Name == "" || len(p.Name) > longest || len(p.Image) > longest {
		return false
	}
	if p.ManifestDigest != "" {
		if _, err := v1.NewHash(p.ManifestDigest); err != nil {
			return false
		}
	}
	_, err := name.NewDigest(p.Image, name.StrictValidation)
	return err == nil
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

// lostAndFound is for content that was pushed by something that has gone without saying its digest: it is the one that its tag stands for. Where content
// is attested that says nothing, since whoever may push can give the tag to anything: it is built again.
func (r *buildReconciler) lostAndFound(ctx context.Context, b *building, builds Backend, state *backend.State) (string, error) {
	image, err := r.findContent(ctx, b)
	if err != nil || image != "" {
		return image, err
	}
	if r.options.Attester == nil {
		return "", failed(state)
	}
	if err := r.countAttempt(ctx, b.buildScope, contentRetries(b.config), errors.New(state.Failure.Message)); fault.IsTerminal(err) {
		return "", err
	}
	if err := builds.Remove(ctx, b.key()); err != nil {
		return "", err
	}
	b.build.Status.Builder = nil // so that its absence is not taken for somebody's will
	b.show.Reason, b.show.Message = mcfgv1.ReasonRetryingBuild, "it is built again: "+state.Failure.Message
	b.after = watching
	return "", nil
}

// failed is the error of a build that its backend has given up.
func failed(state *backend.State) error {
	f := state.Failure
	if f == nil {
		return fault.NewTerminal(mcfgv1.ReasonBuildFailed, errors.New("what built the image says that it failed, and not why"))
	}
	message := f.Message
	if f.Architecture != "" {
		message = fmt.Sprintf("%s: %s", f.Architecture.OCI(), message)
	}
	reason := cmp.Or(f.Reason, mcfgv1.ReasonBuildFailed)
	if f.Class == backend.Infrastructure && reason != mcfgv1.ReasonTimedOut {
		reason = mcfgv1.ReasonRetryLimitReached
	}
	return fault.NewTerminal(reason, errors.New(message))
}

// built is the content image: what a backend pushed, or an index of what it pushed for each architecture and of the base image for the others.
func (r *buildReconciler) built(ctx context.Context, b *building, state *backend.State) (string, error) {
	if len(b.base.Platforms) == 1 {
		if state.Image == "" {
			return "", errors.New("what built the image says that it succeeded, and not what it pushed")
		}
		return state.Image, nil
	}
	request := registry.AppendRequest{Repository: b.target.repository, Tags: []string{b.contentTarget().tag}}
	for i, p := range b.base.Platforms {
		image := registry.PlatformImage{Platform: p.Platform, Image: b.base.Image, Source: b.credentials.Pull}
		if b.described.Platforms[i].HasContent {
			image.Source = b.credentials.Push
			if image.Image = resultOf(state, p.Architecture); image.Image == "" {
				return "", fmt.Errorf("what built the image for %s says that it succeeded, and not what it pushed", p.Architecture)
			}
		}
		request.Images = append(request.Images, image)
	}
	joined, err := b.credentials.Push.Append(ctx, request)
	if err != nil {
		return "", err
	}
	return joined.Image, nil
}

func resultOf(state *backend.State, arch mcfgv1.ContainerfileArch) string {
	for _, result := range state.Architectures {
		if result.Architecture == mcfgv1.Architecture(arch) {
			return string(result.DigestedImagePushSpec)
		}
	}
	return state.Image
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

// isRebuild tells whether nothing is to be taken from before.
func (s *buildScope) isRebuild() bool { return isRebuild(s.build) }

func isRebuild(build *mcfgv1.MachineOSBuild) bool {
	return build.Annotations[mcfgv1.AnnotationBuildCause] == string(mcfgv1.BuildInputRebuildRequested)
}

// isConfigFirst tells whether the content of an architecture is built on top of the configuration.
func isConfigFirst(p *description.PlatformDescription) bool {
	return p.HasContent && p.Road == containerfiles.ConfigFirst
}

// howBuilt says what was built and, where the configuration had to come first, why a change of it costs a build.
func (b *building) howBuilt(appended string) string {
	for _, p := range b.described.Platforms {
		if isConfigFirst(&p) {
			return "the content was built on top of the configuration: " + p.RoadReason
		}
	}
	return "the content was built, and " + appended
}

// contentKey identifies the content image. What sees the configuration changes with it.
func (b *building) contentKey() string { return contentKey(b.described) }

func contentKey(d *description.Description) string {
	for _, p := range d.Platforms {
		if p.HasContent && usesConfigs(p.Source, p.Architecture) {
			return d.Keys.Build
		}
	}
	return d.Keys.Content
}

func (b *building) contentTarget() target {
	return target{repository: b.target.repository, tag: names.ContentTag(b.contentKey())}
}

// builtPlatforms are those with something built: their images say which content they are.
func builtPlatforms(base *preflight.Base, d *description.Description) []preflight.Platform {
	var out []preflight.Platform
	for i, p := range base.Platforms {
		if d.Platforms[i].HasContent {
			out = append(out, p)
		}
	}
	return out
}
