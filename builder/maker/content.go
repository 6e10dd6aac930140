package maker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
)

// Content is what has to be built for an image, below its configuration.
type Content struct {
	// Key identifies it. Content that sees the configuration changes with it.
	Key string
	// Platforms are those that something is built for: their images say which content they are.
	Platforms []preflight.Platform
}

// ContentOf is the content of a described image.
func ContentOf(r *preflight.Recipe) Content {
	c := Content{Key: r.Described.Keys.Content}
	for i, p := range r.Described.Platforms {
		if !p.HasContent {
			continue
		}
		c.Platforms = append(c.Platforms, r.Base.Platforms[i])
		if usesConfigs(p.Source, p.Architecture) {
			c.Key = r.Described.Keys.Build
		}
	}
	return c
}

// In is the tag of the content in a repository.
func (c Content) In(repository string) Target {
	return Target{Repository: repository, Tag: names.ContentTag(c.Key)}
}

func (o *Order) content() Content { return ContentOf(&o.Recipe) }

func (o *Order) contentTarget() Target { return o.content().In(o.Target.Repository) }

// howBuilt says what was built and, where the configuration had to come first, why a change of it
// costs a build.
func (o *Order) howBuilt(appended string) string {
	for _, p := range o.Described.Platforms {
		if p.IsConfigFirst() {
			return "the content was built on top of the configuration: " + p.StrategyReason
		}
	}
	return "the content was built, and " + appended
}

// Built takes what a backend has made: it notes how, states it, and gives the content image. That
// is what was pushed, or an index of what was pushed for each architecture and of the base image
// for the others.
func (m *Maker) Built(ctx context.Context, o *Order, state *backend.State) (string, error) {
	o.BuilderImage = state.BuilderImage
	o.recordPulled(state)
	image, err := m.join(ctx, o, state)
	if err != nil {
		return "", err
	}
	return image, m.attest(ctx, o, image)
}

// requireTarget refuses an image that is not where the build had to push to: the Job or PipelineRun
// that names it is not as the controller made it.
func (o *Order) requireTarget(image string) error {
	target, err := name.NewRepository(o.Target.Repository)
	if err != nil {
		return err
	}
	if found, err := name.NewDigest(image); err != nil || found.Context().Name() != target.Name() {
		return fault.NewTerminal(mcfgv1.ReasonBuildFailed, fmt.Errorf(
			"the builder reports that it pushed %q, which is not an image by digest in the repository that it had to push to", image))
	}
	return nil
}

func (m *Maker) join(ctx context.Context, o *Order, state *backend.State) (string, error) {
	if len(o.Base.Platforms) == 1 {
		if state.Image == "" {
			return "", errors.New("the builder succeeded and did not report what it pushed")
		}
		return state.Image, o.requireTarget(state.Image)
	}
	request := registry.AppendRequest{Repository: o.Target.Repository}
	for i, p := range o.Base.Platforms {
		image := registry.PlatformImage{Platform: p.Platform, Image: o.Base.Image, Source: o.Credentials.Pull}
		if o.Described.Platforms[i].HasContent {
			image.Source = o.Credentials.Push
			if image.Image = resultOf(state, p.Architecture); image.Image == "" {
				return "", fmt.Errorf("the builder for %s succeeded and did not report what it pushed", p.Architecture)
			}
			if err := o.requireTarget(image.Image); err != nil {
				return "", err
			}
		}
		request.Images = append(request.Images, image)
	}
	joined, err := o.Credentials.Push.Append(ctx, request)
	if err != nil {
		return "", err
	}
	return joined.Image, o.Credentials.Push.TagNewest(ctx, joined.Image, o.contentTarget().Tag)
}

func resultOf(state *backend.State, arch mcfgv1.ContainerfileArch) string {
	for _, result := range state.Architectures {
		if result.Architecture == mcfgv1.Architecture(arch) {
			return string(result.DigestedImagePushSpec)
		}
	}
	return state.Image
}

// Failed is the error of a build that its backend has given up, or that waits. What was Transient
// is Terminal by then: the backend has counted the attempts.
func Failed(state *backend.State) error {
	f := state.Failure
	if f == nil {
		return fault.NewTerminal(mcfgv1.ReasonBuildFailed, errors.New("the builder failed and did not report why"))
	}
	if f.Class == fault.Waiting && state.Phase != backend.Failed {
		return fault.NewWaiting(f.Reason, state.After, errors.New(f.Message))
	}
	message := f.Message
	if f.Architecture != "" {
		message = fmt.Sprintf("%s: %s", f.Architecture.OCI(), message)
	}
	reason := cmp.Or(f.Reason, mcfgv1.ReasonBuildFailed)
	if f.Class == fault.Transient && reason != mcfgv1.ReasonTimedOut {
		reason = mcfgv1.ReasonRetryLimitReached
	}
	return fault.NewTerminal(reason, errors.New(message))
}

// MaxPulled is how many of the images that a build pulls the API server takes.
const MaxPulled = 128

// recordPulled notes the images that building the content has pulled, but for base image and
// extensions image, which provenance names itself.
func (o *Order) recordPulled(state *backend.State) {
	ours := []string{o.Base.Image, o.Extensions}
	for _, p := range o.Base.Platforms {
		ours = append(ours, p.Image)
	}
	o.setPulled(slices.DeleteFunc(slices.Clone(state.Pulled), func(p mcfgv1.PulledImage) bool {
		return p.Name != "" && slices.Contains(ours, p.Name)
	}), state.PulledMissing)
}

// setPulled leaves out what is no image by its digest, or more than a MachineOSBuild has room for,
// and counts it with those that are missing: pods and registries say what they like.
func (o *Order) setPulled(images []mcfgv1.PulledImage, missing int) {
	all := len(images)
	images = slices.DeleteFunc(images, func(p mcfgv1.PulledImage) bool { return !isPulled(&p) })
	images = images[:min(len(images), MaxPulled)]
	const most = 1 << 16 // more than any Containerfile has room for
	o.Pulled = provenance.Pulled{Images: images, Missing: min(max(missing, 0), most) + all - len(images)}
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
