package builder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
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
	result, err := r.bringNoted(running, s)
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

// bringNoted brings the image, and notes meanwhile that it is in work.
func (r *buildReconciler) bringNoted(ctx context.Context, s *buildScope) (*made, error) {
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
