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
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/signaturepolicy"
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
		return "", err
	}
	b.show.Message = "what builds the image has been created"
	b.after = watching
	return "", nil
}

// follow says how far a build is, and gives what it made.
func (r *buildReconciler) follow(ctx context.Context, b *building, builds Backend, state *backend.State) (string, error) {
	b.show.Message = cmp.Or(state.Message, b.show.Message)
	b.after = cmp.Or(state.After, watching)
	b.build.Status.Builder = builderReference(b.config.Spec.ImageBuilder.ImageBuilderType, state.Object)
	b.build.Status.Architectures = state.Architectures
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
		if state.Failure != nil && state.Failure.Reason == mcfgv1.ReasonBuilderDeleted {
			return r.lostAndFound(ctx, b, builds, state)
		}
		return "", failed(state)
	case backend.Succeeded:
		b.after = 0
		b.builderImage = state.BuilderImage
		b.recordPulled(state)
		image, err := r.built(ctx, b, state)
		if err != nil {
			return "", err
		}
		return image, r.attestContent(ctx, b, image, state.BuilderImage)
	case backend.Absent:
	}
	return "", nil
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

// spec is what the backend has to build.
func (r *buildReconciler) spec(ctx context.Context, b *building) (*backend.Spec, error) {
	inputs, err := r.checker.BuildInputs(ctx, b.pool())
	if err != nil {
		return nil, err
	}
	configs, err := r.configsImage(ctx, b)
	if err != nil {
		return nil, err
	}
	spec := &backend.Spec{
		Key: b.key(), Pool: b.pool(), PushSpec: b.contentTarget().String(),
		PullSecret: b.credentials.PullSecret, PushSecret: b.config.Spec.RenderedImagePushSecret.Name,
		Inputs: inputs.Inputs, Proxy: r.options.Proxy, TrustBundle: r.options.TrustBundle,
		Resources: b.config.Spec.BuildResources, Placement: b.config.Spec.BuildPlacement,
		Retries: defaultRetries, Timeout: defaultTimeout,
	}
	if limit := b.config.Spec.BuildRetryLimit; limit != nil {
		spec.Retries = int(*limit)
	}
	if timeout, ok := buildTimeout(b.config); ok {
		spec.Timeout = timeout
	}
	if err := addHostFiles(spec, b.rendered); err != nil {
		return nil, err
	}
	r.acceptOwn(spec, b, configs)
	for i := range b.described.Platforms {
		if p := &b.described.Platforms[i]; p.HasContent {
			architecture, err := r.architecture(ctx, b, p, configs)
			if err != nil {
				return nil, err
			}
			spec.Architectures = append(spec.Architectures, *architecture)
		}
	}
	return spec, nil
}

// architecture is what has to be built for one architecture. Images that the Containerfile names are pinned here, once for the build.
func (r *buildReconciler) architecture(
	ctx context.Context, b *building, p *description.PlatformDescription, configs string,
) (*backend.ArchitectureSpec, error) {
	rendered, err := b.described.Render(p, configs, map[string]string{mcfgv1.ImageLabelContentKey: b.contentKey()})
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, err)
	}
	t := b.contentTarget()
	if len(b.base.Platforms) > 1 {
		t.tag += "-" + containerfiles.GoArch(p.Architecture)
	}
	instructions := backend.Instructions{
		Build: b.build.Name, Architecture: mcfgv1.Architecture(p.Architecture),
		Containerfile: rendered.Text, Stage: rendered.Stage, Lines: linesOf(rendered), Target: t.String(),
	}
	if !b.base.Created.IsZero() {
		instructions.Created = b.base.Created.Unix()
	}
	for _, image := range rendered.Images {
		pinned, err := r.pin(ctx, b, p, image)
		if err != nil {
			return nil, err
		}
		instructions.Images = append(instructions.Images, pinned)
	}
	context := map[string][]byte{}
	for _, name := range p.Source.ContextFiles() {
		context[name] = p.Source.Context[name]
	}
	return &backend.ArchitectureSpec{Architecture: mcfgv1.Architecture(p.Architecture), Instructions: instructions, Context: context}, nil
}

// pin says which image a name in a Containerfile stands for. Which registry a short name means is decided where the build runs.
func (r *buildReconciler) pin(
	ctx context.Context, b *building, p *description.PlatformDescription, image string,
) (backend.PinnedImage, error) {
	if strings.Contains(image, "@") {
		return backend.PinnedImage{Name: image, Image: image}, nil
	}
	file, err := containerfiles.Parse(p.Source.Name, []byte(p.Source.Text))
	if err != nil {
		return backend.PinnedImage{}, fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, err)
	}
	uses, _ := containerfiles.Images(file, containerfiles.PlatformArgs(p.Architecture)) // names that stand for nothing were refused
	i := slices.IndexFunc(uses, func(use containerfiles.ImageUse) bool { return use.Reference == image })
	if i < 0 || uses[i].Short {
		return backend.PinnedImage{Name: image}, nil
	}
	pinned, err := r.checker.Pin(ctx, b.credentials, uses[i].Normalized)
	return backend.PinnedImage{Name: image, Image: pinned}, err
}

// linesOf says where the lines of a rendered Containerfile are from, in as few entries as possible.
func linesOf(rendered *containerfiles.Rendered) []backend.LineOrigin {
	var origins []backend.LineOrigin
	for line := 1; line <= strings.Count(rendered.Text, "\n"); line++ {
		admin, _ := rendered.AdminLine(line)
		what := rendered.Origin(line)
		if admin > 0 {
			what = ""
		}
		if n := len(origins); n > 0 && origins[n-1].Continues(line, admin, what) {
			origins[n-1].Last = line
			continue
		}
		if admin > 0 || what != "" {
			origins = append(origins, backend.LineOrigin{First: line, Last: line, Admin: admin, What: what})
		}
	}
	return origins
}

// copyBase brings the layers of the base image to where the content will be pushed, as they are: what pushes that has them unpacked, and no
// credentials for where they came from. Nodes know layers by their digests, and would pull all of them again otherwise.
func (r *buildReconciler) copyBase(ctx context.Context, b *building) error {
	request := registry.AppendRequest{Content: b.base.Below(), Source: b.credentials.Pull, Repository: b.target.repository}
	for _, p := range builtPlatforms(b.base, b.described) {
		request.Platforms = append(request.Platforms, p.Platform)
	}
	if repository, _, _ := strings.Cut(request.Content, "@"); repository == request.Repository {
		return nil
	}
	traffic, err := b.credentials.Push.CopyLayers(ctx, request)
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).V(4).Info("Copied the layers of the base image", "requests", traffic.Requests, "bytesUp", traffic.BytesUp)
	return nil
}

// configsImage puts the base image with the configuration in it into the registry, for Containerfiles that start from that; empty where none does.
// The build pulls it as it pulls everything.
func (r *buildReconciler) configsImage(ctx context.Context, b *building) (string, error) {
	var platforms []v1.Platform
	for i, p := range b.base.Platforms {
		if source := b.described.Platforms[i].Source; usesConfigs(source, p.Architecture) {
			platforms = append(platforms, p.Platform)
		}
	}
	if len(platforms) == 0 {
		return "", nil
	}
	result, err := b.credentials.Push.Append(ctx, registry.AppendRequest{
		Content: b.base.Below(), Source: b.credentials.Pull, Platforms: platforms,
		Repository: b.target.repository, Tags: []string{names.ConfigsTag(b.record.Keys.Build)}, Layer: r.layersOnBase(b),
	})
	if err != nil {
		return "", err
	}
	if _, err := b.credentials.Pull.Resolve(ctx, result.Image); err != nil {
		if registry.IsDenied(err) || registry.IsNotFound(err) {
			err = fault.NewTerminal(mcfgv1.ReasonImageNotFound, fmt.Errorf(
				"the Containerfile starts from %s, which the build pulls from %s, and spec.baseImagePullSecret may not read there: "+
					"give that account the right, or start from %s: %w", containerfiles.StageConfigs, b.target.repository, containerfiles.StageBase, err))
		}
		return "", err
	}
	ctrl.LoggerFrom(ctx).Info("Appended the configuration for the build to start from", "image", result.Image)
	return result.Image, nil
}

func usesConfigs(source containerfiles.Source, arch mcfgv1.ContainerfileArch) bool {
	file, err := containerfiles.Parse(source.Name, []byte(source.Text))
	return err == nil && containerfiles.UsesConfigImage(file, arch)
}

// acceptOwn makes the policy for the build accept what nobody has signed and the controller answers for: the image with the configuration in it, which it
// has just made in the repository that nodes take signed images from; and, where nodes are made to insist on signatures, the base image, which may be
// signed with a key that lies on nodes alone.
func (r *buildReconciler) acceptOwn(spec *backend.Spec, b *building, configs string) {
	var own []string
	if configs != "" {
		own = append(own, configs)
	}
	if r.options.Trust != nil {
		own = append(own, b.base.Image)
		for _, p := range b.base.Platforms {
			own = append(own, p.Image)
		}
	}
	if len(spec.Policy) == 0 || len(own) == 0 {
		return
	}
	if policy, err := signaturepolicy.Accept(spec.Policy, own...); err == nil { // else the build says what is wrong with it
		spec.Policy = policy
	}
}

// Files of a host's configuration that a build heeds too.
const (
	registriesPath = "/etc/containers/registries.conf"
	policyPath     = "/etc/containers/policy.json"
	anchorsPath    = "/etc/pki/ca-trust/source/anchors/"
)

// addHostFiles takes what the pool's own nodes go by when they pull images.
func addHostFiles(spec *backend.Spec, config *machineconfigs.Config) error {
	for _, file := range config.Ignition.Storage.Files {
		var into *[]byte
		switch {
		case file.Path == registriesPath:
			into = &spec.Registries
		case file.Path == policyPath:
			into = &spec.Policy
		case strings.HasPrefix(file.Path, anchorsPath):
			into = &spec.TrustBundle
		default:
			continue
		}
		data, remote, err := machineconfigs.DecodeContents(file.Contents)
		if err != nil {
			return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf("file %s: %w", file.Path, err))
		}
		if remote {
			continue // what has to be fetched first can't say how to fetch
		}
		*into = slices.Concat(*into, data)
		if into == &spec.TrustBundle {
			*into = append(*into, '\n')
		}
	}
	return nil
}
