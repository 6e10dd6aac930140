package maker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// howBuilt says what was built and, where the configuration had to come first, why a change of it
// costs a build.
func howBuilt(o *order.Order, appended string) string {
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
func (m *Maker) Built(ctx context.Context, o *order.Order, state *backend.State) (string, error) {
	o.BuilderImage = state.BuilderImage
	recordPulled(o, state)
	image, err := m.join(ctx, o, state)
	if err != nil {
		return "", err
	}
	return image, m.options.Statements.State(ctx, o, image)
}

// requireTarget refuses an image that is not where the build had to push to: the Job or PipelineRun
// that names it is not as the controller made it.
func requireTarget(o *order.Order, image string) error {
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

func (m *Maker) join(ctx context.Context, o *order.Order, state *backend.State) (string, error) {
	if len(o.Base.Platforms) == 1 {
		if state.Image == "" {
			return "", errors.New("the builder succeeded and did not report what it pushed")
		}
		return state.Image, requireTarget(o, state.Image)
	}
	request := registry.AppendRequest{Repository: o.Target.Repository}
	for i, p := range o.Base.Platforms {
		image := registry.PlatformImage{Platform: p.Platform, Image: o.Base.Image, Source: o.Credentials.Pull}
		if o.Described.Platforms[i].HasContent {
			image.Source = o.Credentials.Push
			if image.Image = resultOf(state, p.Architecture); image.Image == "" {
				return "", fmt.Errorf("the builder for %s succeeded and did not report what it pushed", p.Architecture)
			}
			if err := requireTarget(o, image.Image); err != nil {
				return "", err
			}
		}
		request.Images = append(request.Images, image)
	}
	joined, err := o.Credentials.Push.Append(ctx, request)
	if err != nil {
		return "", err
	}
	return joined.Image, o.Credentials.Push.TagNewest(ctx, joined.Image, o.ContentTarget().Tag)
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

// recordPulled notes the images that building the content has pulled, but for base image and
// extensions image, which provenance names itself.
func recordPulled(o *order.Order, state *backend.State) {
	ours := []string{o.Base.Image, o.Extensions}
	for _, p := range o.Base.Platforms {
		ours = append(ours, p.Image)
	}
	o.SetPulled(slices.DeleteFunc(slices.Clone(state.Pulled), func(p mcfgv1.PulledImage) bool {
		return p.Name != "" && slices.Contains(ours, p.Name)
	}), state.PulledMissing)
}
