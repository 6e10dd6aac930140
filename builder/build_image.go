package builder

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/builder/owner"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/builder/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/machineconfigs/osindex"
)

// turn is when a build looks again that waits for its turn, or for its predecessor to stop.
const turn = 200 * time.Millisecond

// made is an image that stands in the registry.
type made struct {
	// image is it by digest.
	image           string
	platforms       []registry.PlatformResult
	reason, message string
	// preBuilt is that the installer had it built.
	preBuilt bool
	// found is that the registry had it, and that nothing but its labels says that a build of this cluster made it.
	found bool
	// poolTag is when the pool's tag moves to it.
	poolTag mcfgv1.PoolTagPolicy
	// making is what only the process knows that made it.
	making making
}

// makeImage brings the image into the registry and writes down that it is there. Everything in it can be done again, and ends the same.
func (r *buildReconciler) makeImage(ctx context.Context, s *buildScope) error {
	running, end, ok := r.runs.begin(ctx, s.config.Name, s.build.Name)
	if !ok {
		s.show.Message = "it waits for the build before it to stop"
		s.after = turn
		return nil
	}
	defer end()
	if image := s.build.Status.DigestedImagePushSpec; image != "" {
		return r.finish(ctx, s, &made{image: string(image), reason: reasonOf(s.build), message: "the image was pushed before, and is signed now"})
	}
	running, cancel := context.WithTimeout(running, r.attempt(s.config))
	defer cancel()
	result, err := r.bring(running, s)
	if errors.Is(running.Err(), context.Canceled) && ctx.Err() == nil || errors.Is(err, errEnded) {
		s.after = turn // somebody stopped it: the object says why
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

// reasonOf is how an image came to be that an earlier pass has pushed.
func reasonOf(build *mcfgv1.MachineOSBuild) string {
	if build.Status.Builder != nil {
		return mcfgv1.ReasonBuilt
	}
	return mcfgv1.ReasonConfigAppended
}

// finish writes down which image was made, and ends the build once that is signed. What is written is what passes that follow go on with, so
// that the digest which is signed is the one that was pushed, whatever the tags stand for then. It takes no longer than an attempt.
func (r *buildReconciler) finish(ctx context.Context, s *buildScope, result *made) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Attempt)
	defer cancel()
	image, err := r.ensureImage(ctx, s, result)
	if err != nil {
		return err
	}
	s.build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(result.image)
	if err := r.attestBuilt(ctx, s, image, result.making); err != nil {
		if lacksKey(image) { // then it can't be signed either, and is to say so
			err = fault.Join(err, r.signBuilt(ctx, s, image))
		}
		return err
	}
	if err := r.signBuilt(ctx, s, image); err != nil {
		return err
	}
	s.after = 0
	s.show.Stage, s.show.Reason, s.show.Message = status.StageSucceeded, result.reason, result.message
	return nil
}

// bring finds the image in the registry, or makes it; nil while its content is being built.
func (r *buildReconciler) bring(ctx context.Context, s *buildScope) (*made, error) {
	b := &building{buildScope: s}
	var err error
	if b.credentials, err = r.checker.Credentials(ctx, s.config); err != nil {
		return nil, err
	}
	if b.target, err = targetOf(s.build.Spec.RenderedImagePushSpec); err != nil {
		return nil, err
	}
	if b.base, err = r.checker.BaseImage(ctx, b.credentials.Pull, s.build.Annotations[mcfgv1.AnnotationBaseImage], architecturesAsked(s.build)); err != nil {
		return nil, err
	}
	if image := s.build.Annotations[mcfgv1.AnnotationPreBuiltImage]; image != "" {
		return preBuilt(ctx, b.credentials, image)
	}
	if !s.isRebuild() {
		if found, err := r.reuse(ctx, b); found != nil || err != nil {
			return found, err
		}
	}
	if b.rendered, b.described, err = r.describe(ctx, b); err != nil {
		return nil, err
	}
	content, err := r.content(ctx, b)
	if err != nil || content == "" {
		return nil, err
	}
	result, err := r.append(ctx, b, content)
	if err == nil && r.options.Signer != nil {
		err = r.checkImage(ctx, b, result)
	}
	return result, err
}

// reuse takes the image that the registry has already, under the tag of the one that is wanted and with its build key; nil where there is none.
// Where images are signed, it has to be signed by this cluster: whoever may push can give the tag to anything, and write any label.
func (r *buildReconciler) reuse(ctx context.Context, b *building) (*made, error) {
	push := b.credentials.Push
	image, err := findImage(ctx, push, b.target, identity{mcfgv1.ImageLabelBuildKey, b.record.Keys.Build}, b.base.Platforms)
	if err != nil || image == "" {
		return nil, err
	}
	if may, err := r.mayReuse(ctx, push, image); err != nil || !may {
		return nil, err
	}
	if err := r.mayTag(ctx, b.buildScope); err != nil {
		return nil, err
	}
	platforms := make([]v1.Platform, len(b.base.Platforms))
	for i, p := range b.base.Platforms {
		platforms[i] = p.Platform
	}
	results, err := imagesOf(ctx, push, image, platforms)
	if err != nil {
		return nil, err
	}
	tags, poolTag := r.tagsOf(b)
	for _, tag := range tags[1:] { // it was found by the first
		if err := push.Tag(ctx, image, tag); err != nil {
			return nil, err
		}
	}
	return &made{
		image: image, platforms: results, reason: mcfgv1.ReasonReused, message: "the registry had the image already", found: r.options.Signer == nil,
		poolTag: poolTag,
	}, nil
}

// preBuilt takes an image that the installer had built. It may be anywhere, so either secret may be the one that reads it.
func preBuilt(ctx context.Context, credentials preflight.Credentials, image string) (*made, error) {
	if _, err := name.NewDigest(image, name.StrictValidation); err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf(
			"annotation %s has to name an image by its digest, name@sha256 and so on: %w", mcfgv1.AnnotationPreBuiltImage, err))
	}
	reader := credentials.Pull
	found, err := reader.Resolve(ctx, image)
	if registry.IsNotFound(err) || registry.IsDenied(err) {
		reader = credentials.Push
		found, err = reader.Resolve(ctx, image)
	}
	var results []registry.PlatformResult
	if err == nil {
		platforms := found.Platforms
		if platforms == nil {
			platforms = []v1.Platform{{}} // a single image says itself what it is for
		}
		results, err = imagesOf(ctx, reader, image, platforms)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", mcfgv1.AnnotationPreBuiltImage, err)
	}
	return &made{image: image, platforms: results, reason: mcfgv1.ReasonPreBuiltImageSeeded, message: "the installer had built the image", preBuilt: true, poolTag: mcfgv1.PoolTagWhenReady}, nil
}

// imagesOf reads what the image of each platform is, of one that is in a registry already.
func imagesOf(ctx context.Context, reader *registry.Client, pinned string, platforms []v1.Platform) ([]registry.PlatformResult, error) {
	results := make([]registry.PlatformResult, len(platforms))
	for i, platform := range platforms {
		image, err := reader.Image(ctx, pinned, platform)
		if err != nil {
			return nil, err
		}
		digest, digestErr := image.Digest()
		manifest, manifestErr := image.Manifest()
		config, configErr := image.ConfigFile()
		if err := errors.Join(digestErr, manifestErr, configErr); err != nil {
			return nil, fmt.Errorf("reading image %q: %w", pinned, err)
		}
		results[i] = registry.PlatformResult{Platform: v1.Platform{OS: config.OS, Architecture: config.Architecture}, Digest: digest}
		for _, layer := range manifest.Layers {
			results[i].Size += layer.Size
		}
	}
	return results, nil
}

// errEnded is that a build has ended without this process.
var errEnded = errors.New("the build has been ended by another process")

// mayTag asks the API server, and not the cache, whether the build is still to be made. A process that was stopped for longer than its Lease lasts
// does not know that another one has made this image, and maybe the next, and would give the pool's tag to the older one.
func (r *buildReconciler) mayTag(ctx context.Context, s *buildScope) error {
	now := &mcfgv1.MachineOSBuild{}
	err := r.reader.Get(ctx, client.ObjectKeyFromObject(s.build), now)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading MachineOSBuild %q: %w", s.build.Name, err)
	}
	if err != nil || now.UID != s.build.UID || hasEnded(now) || status.BuildStageOf(now.Status.Conditions).IsFinal() {
		return errEnded
	}
	return nil
}

// target is where an image goes.
type target struct{ repository, tag string }

// String is it as people write it.
func (t target) String() string { return t.repository + ":" + t.tag }

func targetOf(pushSpec mcfgv1.ImageTagFormat) (target, error) {
	repository, err := preflight.Repository(pushSpec)
	return target{repository: repository, tag: strings.TrimPrefix(strings.TrimPrefix(string(pushSpec), repository), ":")}, err
}

// identity is the label that an image has to have, with the key that it says.
type identity struct{ label, key string }

// findImage finds the image with a key under its tag, by digest; empty where there is none. What has the tag and does not say, in the label,
// that it is that image is none: somebody else may have pushed it.
func findImage(ctx context.Context, push *registry.Client, t target, is identity, platforms []preflight.Platform) (string, error) {
	digest, found, err := push.Exists(ctx, t.repository, t.tag)
	if registry.IsDenied(err) {
		return "", nil // whoever may not read may still write
	}
	if err != nil || !found {
		return "", err
	}
	image := t.repository + "@" + digest.String()
	for _, p := range platforms {
		labels, err := push.Labels(ctx, image, p.Platform)
		if registry.IsNotFound(err) || err == nil && labels[is.label] != is.key {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
	return image, nil
}

// appendRequest asks for the configuration on the content, which may be the base image itself, without any tag.
func (r *buildReconciler) appendRequest(b *building, content string) registry.AppendRequest {
	request := registry.AppendRequest{Content: content, Source: b.credentials.Push, Repository: b.target.repository, Layer: r.layersOnContent(b)}
	if content == b.base.Below() {
		request.Source, request.Layer = b.credentials.Pull, r.layersOnBase(b)
	}
	for _, p := range b.base.Platforms {
		request.Platforms = append(request.Platforms, p.Platform)
	}
	request.Labels, request.Annotations = imageLabels(b)
	return request
}

// append puts the configuration on the content.
func (r *buildReconciler) append(ctx context.Context, b *building, content string) (*made, error) {
	begin := r.clock.Now()
	request := r.appendRequest(b, content)
	var poolTag mcfgv1.PoolTagPolicy
	request.Tags, poolTag = r.tagsOf(b)
	request.BeforeTags = func(ctx context.Context) error { return r.mayTag(ctx, b.buildScope) }
	result, err := b.credentials.Push.Append(ctx, request)
	if err != nil {
		if fault.IsTerminal(err) {
			r.options.Metrics.Pushed(b.pool(), "failed", r.clock.Since(begin))
		}
		return nil, err
	}
	r.options.Metrics.Pushed(b.pool(), "succeeded", r.clock.Since(begin))
	ctrl.LoggerFrom(ctx).Info("Appended", "image", result.Image, "requests", result.Traffic.Requests,
		"bytesUp", result.Traffic.BytesUp, "bytesDown", result.Traffic.BytesDown, "took", result.Duration.String())
	done := &made{
		image: result.Image, platforms: result.Platforms, reason: mcfgv1.ReasonConfigAppended, poolTag: poolTag,
		message: fmt.Sprintf("the configuration was appended in %s, with %d bytes sent and %d received",
			result.Duration.Round(time.Millisecond), result.Traffic.BytesUp, result.Traffic.BytesDown),
	}
	done.making = making{version: version.Current().Version, builderImage: b.builderImage, pulled: provenance.PulledBy(b.build)}
	if content != b.base.Below() {
		done.making.content = content
	}
	if b.build.Status.Builder != nil {
		done.reason, done.message = mcfgv1.ReasonBuilt, b.howBuilt(done.message)
	}
	return done, nil
}

// describe says again which image is wanted, from the objects as they are now. If that has another key, somebody has changed one, or this
// program means something else by them than the one before: the image would not be what its tag says.
func (r *buildReconciler) describe(ctx context.Context, b *building) (*machineconfigs.Config, *description.Description, error) {
	rendered, err := r.rendered(ctx, b.build.Spec.MachineConfig.Name)
	if err != nil {
		return nil, nil, err
	}
	request := description.Request{
		Config: rendered, Base: b.base.Image, Extensions: b.build.Annotations[mcfgv1.AnnotationExtensionsImage], Platforms: b.base.Described(),
		IsChoice: b.base.IsChoice,
	}
	if b.record.Inputs.HasContent() {
		if request.Sources, err = r.checker.Sources(ctx, b.config); err != nil {
			return nil, nil, err
		}
		inputs, err := r.checker.BuildInputs(ctx, b.pool())
		if err != nil {
			return nil, nil, err
		}
		request.BuildInputs = inputs.Items
	}
	described, err := description.Describe(request)
	if err != nil {
		return nil, nil, err
	}
	if described.Keys.Build != b.record.Keys.Build {
		return nil, nil, fault.NewWaiting(mcfgv1.ReasonPreparing, 5*time.Second, errors.New(
			"what this build was asked for is no longer what the MachineOSConfig and its pool say; another build follows"))
	}
	return rendered, described, nil
}

// rendered reads a rendered MachineConfig. Those that builds name are kept.
func (b *Builder) rendered(ctx context.Context, name string) (*machineconfigs.Config, error) {
	mc, err := b.renderedObject(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := machineconfigs.Parse(mc)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	return config, nil
}

// renderedObject is shared with the cache, and only read: it may be large.
func (b *Builder) renderedObject(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	err := b.client.Get(ctx, client.ObjectKey{Name: name}, mc, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForPool, time.Second, fmt.Errorf("the rendered MachineConfig %q is not there", name))
	}
	if err != nil {
		return nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	return mc, nil
}

// layersOnBase makes the configuration layer of each architecture for the base image, when it is asked for.
func (r *buildReconciler) layersOnBase(b *building) registry.LayerFunc {
	return r.layers(b, func(_ context.Context, i int, _ v1.Image) (*layer.Plan, *osindex.Index, error) {
		return b.described.Platforms[i].Layer, b.base.Platforms[i].Index, nil
	})
}

// layersOnContent makes it for what was built. Where that was built on top of the configuration, there is nothing to add.
func (r *buildReconciler) layersOnContent(b *building) registry.LayerFunc {
	return r.layers(b, func(ctx context.Context, i int, below v1.Image) (*layer.Plan, *osindex.Index, error) {
		if isConfigFirst(&b.described.Platforms[i]) {
			return nil, nil, nil
		}
		index, err := r.options.Base.Index(ctx, below)
		if err != nil {
			return nil, nil, err
		}
		split, err := b.described.LayerOn(index)
		return split, index, err
	})
}

// layers makes layers of plans, by the place of the architecture in the description.
func (r *buildReconciler) layers(
	b *building, planFor func(ctx context.Context, i int, below v1.Image) (*layer.Plan, *osindex.Index, error),
) registry.LayerFunc {
	sources := configlayer.Sources{Fetcher: r.options.Fetcher, Files: r.options.Base}
	return func(ctx context.Context, platform v1.Platform, below v1.Image) (registry.Opener, error) {
		i := slices.IndexFunc(b.base.Platforms, func(p preflight.Platform) bool { return p.Platform.Architecture == platform.Architecture })
		if i < 0 {
			return nil, fmt.Errorf("the image has the architecture %q, which was not described", platform.Architecture)
		}
		planned, index, err := planFor(ctx, i, below)
		if err != nil || planned == nil {
			return nil, err
		}
		made, err := sources.Make(ctx, planned, configlayer.Below{Image: below, Index: index})
		var content *configlayer.ContentError
		if errors.As(err, &content) {
			return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForRemoteFile, time.Minute, err)
		}
		if err != nil {
			return nil, err
		}
		return opener(made), nil
	}
}

// opener streams a layer, so that its archive is never in memory as a whole.
func opener(l *layer.Layer) registry.Opener {
	return func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			_, err := l.WriteTo(writer)
			_ = writer.CloseWithError(err) // never fails
		}()
		return reader, nil
	}
}

// imageLabels are what the image says about itself: labels, and annotations for registries and tools that read those.
func imageLabels(s *building) (labels, annotations map[string]string) {
	name, digest, _ := strings.Cut(s.base.Image, "@")
	about := map[string]string{
		mcfgv1.ImageLabelBuildKey:   s.record.Keys.Build,
		mcfgv1.ImageLabelContentKey: s.record.Keys.Content,
		mcfgv1.ImageLabelBaseDigest: digest,
	}
	if hash := containerfileHash(s.buildScope); hash != "" {
		about[mcfgv1.ImageLabelContainerfileHash] = hash
	}
	if s.base.Stream != "" {
		about[mcfgv1.ImageLabelStream] = s.base.Stream
	}
	published := map[string]string{
		mcfgv1.ImageLabelMachineConfig:     s.build.Spec.MachineConfig.Name,
		mcfgv1.ImageLabelMachineConfigPool: s.pool(),
		mcfgv1.ImageLabelBaseImage:         s.base.Image,
	}
	labels, annotations = map[string]string{}, map[string]string{
		"org.opencontainers.image.base.name":   name,
		"org.opencontainers.image.base.digest": digest,
	}
	for _, part := range []map[string]string{about, published} {
		for key, value := range part {
			labels[key] = value
		}
	}
	for key, value := range about {
		annotations[key] = value
	}
	annotations[annotationPrefix+mcfgv1.ImageLabelMachineConfig] = s.build.Spec.MachineConfig.Name
	annotations[annotationPrefix+mcfgv1.ImageLabelMachineConfigPool] = s.pool()
	return labels, annotations
}

// annotationPrefix makes annotations of the published labels, which have none.
const annotationPrefix = "layerwright.io/"

func containerfileHash(s *buildScope) string {
	if len(s.record.Inputs.Containerfiles) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, file := range s.record.Inputs.Containerfiles {
		_, _ = fmt.Fprintf(hash, "%s\n%d\n%s", file.Arch, len(file.Text), file.Text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// ensureImage makes the MachineOSImage. It belongs to the MachineOSConfig, since the image outlives its build when the same one is built again.
func (r *buildReconciler) ensureImage(ctx context.Context, s *buildScope, result *made) (*mcfgv1alpha1.MachineOSImage, error) {
	pinned := mcfgv1.ImageDigestFormat(result.image)
	image := &mcfgv1alpha1.MachineOSImage{
		ObjectMeta: metav1.ObjectMeta{
			Name: names.MachineOSImage(s.pool(), pinned.Digest()), Labels: validLabels(map[string]string{
				mcfgv1.LabelOnClusterLayering:       "",
				mcfgv1.LabelTargetMachineConfigPool: s.pool(),
				mcfgv1.LabelMachineOSConfig:         s.config.Name,
				mcfgv1.LabelMachineOSBuild:          s.build.Name,
				mcfgv1.LabelRenderedMachineConfig:   s.build.Spec.MachineConfig.Name,
			}),
		},
		Spec: mcfgv1alpha1.MachineOSImageSpec{
			PullSpec: pinned, BaseOSImagePullSpec: mcfgv1.ImageDigestFormat(s.build.Annotations[mcfgv1.AnnotationBaseImage]),
			RenderedMachineConfig: s.build.Spec.MachineConfig.Name, MachineConfigPool: s.pool(),
		},
	}
	if result.preBuilt {
		image.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: ""}
	}
	if err := controllerutil.SetControllerReference(s.config, image, r.client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of MachineOSImage %q: %w", image.Name, err)
	}
	wanted := image.DeepCopy()
	err := r.client.Create(ctx, image)
	if apierrors.IsAlreadyExists(err) {
		err = r.client.Get(ctx, client.ObjectKeyFromObject(image), image)
	}
	if err != nil {
		return nil, fmt.Errorf("creating MachineOSImage %q: %w", image.Name, err)
	}
	if err := s.owns(image, wanted); err != nil {
		return nil, err
	}
	return image, r.describeImage(ctx, image, result)
}

// owns makes sure that the object of an image is the one that the build has made, or has made before. Somebody may have known its name: what that object names
// was not made here, or would not be signed or tested. And the MachineOSConfig may have been made anew: what belonged to the one before is about to go.
func (s *buildScope) owns(image, wanted *mcfgv1alpha1.MachineOSImage) error {
	if image.Spec.PullSpec != wanted.Spec.PullSpec {
		return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, deniedAgain, fmt.Errorf(
			"MachineOSImage %q is of %q, and the image %q needs its name; delete it", image.Name, image.Spec.PullSpec, wanted.Spec.PullSpec))
	}
	// Other names of the base image and of the rendered MachineConfig make no other image.
	isAlike := image.Spec.MachineConfigPool == wanted.Spec.MachineConfigPool &&
		image.Spec.BaseOSImagePullSpec.Digest() == wanted.Spec.BaseOSImagePullSpec.Digest() && !owner.IsPreBuilt(image)
	_, isPreBuilt := s.build.Annotations[mcfgv1.AnnotationPreBuiltImage]
	if metav1.IsControlledBy(image, s.config) && image.DeletionTimestamp.IsZero() && (isAlike || isPreBuilt) {
		return nil
	}
	return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, signAgain, fmt.Errorf(
		"MachineOSImage %q is there already, and was not made by the MachineOSConfig %q; delete it", image.Name, s.config.Name))
}

// describeImage writes what is known of the image into the status of its object, once. Conditions are of those who sign it and roll it out.
func (r *buildReconciler) describeImage(ctx context.Context, image *mcfgv1alpha1.MachineOSImage, result *made) error {
	origin := mcfgv1alpha1.ImageBuilt
	if result.preBuilt || result.found {
		origin = mcfgv1alpha1.ImageImported
	}
	if isDescribed := image.Status.ShortDigest != ""; isDescribed && (image.Status.Origin != mcfgv1alpha1.ImageImported || origin == image.Status.Origin) {
		return nil
	}
	before := image.DeepCopy()
	image.Status.ShortDigest, image.Status.Origin, image.Status.Architectures = image.Spec.PullSpec.Short(), origin, nil
	for _, p := range result.platforms {
		if arch, known := mcfgv1.ArchitectureFromOCI(p.Platform.Architecture); known {
			image.Status.Architectures = append(image.Status.Architectures, mcfgv1alpha1.ImageArchitecture{
				Architecture: arch, Digest: p.Digest.String(), Size: &p.Size,
			})
		}
	}
	if err := client.IgnoreNotFound(r.client.Status().Patch(ctx, image, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("writing the status of MachineOSImage %q: %w", image.Name, err)
	}
	return nil
}

// architectures are the results of each architecture, where there are several.
func architectures(m *made) []mcfgv1.ArchitectureBuild {
	if len(m.platforms) < 2 { //nolint:mnd // one is the image itself
		return nil
	}
	repository, _, _ := strings.Cut(m.image, "@")
	var out []mcfgv1.ArchitectureBuild
	for _, p := range m.platforms {
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
