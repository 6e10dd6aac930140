package maker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/render"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// Spec is what a backend has to build.
func (m *Maker) Spec(ctx context.Context, o *order.Order) (*backend.Spec, error) {
	configs, err := m.configsImage(ctx, o)
	if err != nil {
		return nil, err
	}
	spec := &backend.Spec{
		Key: o.Key, Pool: o.Pool, Config: o.Config, Rendered: o.Rendered, PushSpec: o.ContentTarget().String(),
		PullSecret: o.Credentials.PullSecret, PushSecret: o.PushSecret,
		Inputs: o.Inputs.Inputs, Proxy: m.options.Proxy,
	}
	o.Settings.ApplyTo(spec)
	pulling, err := o.Configuration.Pulling()
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	spec.Registries, spec.Policy, spec.TrustBundle = pulling.Registries, pulling.Policy, slices.Concat(m.options.TrustBundle, pulling.Anchors)
	m.acceptOwn(spec, o, configs)
	for i := range o.Described.Platforms {
		if p := &o.Described.Platforms[i]; p.HasContent {
			architecture, err := m.architecture(ctx, o, p, configs)
			if err != nil {
				return nil, err
			}
			spec.Architectures = append(spec.Architectures, *architecture)
		}
	}
	return spec, nil
}

// architecture is what has to be built for one architecture. Images that the Containerfile names
// are pinned here, once for the build.
func (m *Maker) architecture(
	ctx context.Context, o *order.Order, p *recipe.PlatformDescription, configs string,
) (*backend.ArchitectureSpec, error) {
	rendered, err := o.Described.Render(p, configs, map[string]string{mcfgv1.ImageLabelContentKey: o.Content().Key})
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, err)
	}
	t := o.ContentTarget()
	if len(o.Base.Platforms) > 1 {
		t.Tag += "-" + containerfiles.GoArch(p.Architecture)
	}
	instructions := backend.Instructions{
		Build: o.Key.Build, Architecture: mcfgv1.Architecture(p.Architecture),
		Containerfile: rendered.Text, Stage: rendered.Stage, Lines: linesOf(rendered), Target: t.String(),
		PlainHTTP: m.options.PlainHTTP, PrivateStorage: m.options.PrivateStorage,
	}
	if !o.Base.Created.IsZero() {
		instructions.Created = o.Base.Created.Unix()
	}
	for _, image := range rendered.Images {
		pinned, err := m.pin(ctx, o, p, image)
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

// pin says which image a name in a Containerfile stands for. Which registry a short name means is
// decided where the build runs.
func (m *Maker) pin(
	ctx context.Context, o *order.Order, p *recipe.PlatformDescription, image string,
) (backend.PinnedImage, error) {
	if strings.Contains(image, "@") {
		return backend.PinnedImage{Name: image, Image: image}, nil
	}
	full := p.FullName(image)
	if full == "" {
		return backend.PinnedImage{Name: image}, nil
	}
	pinned, err := m.options.Pinner.Pin(ctx, o.Credentials, full)
	return backend.PinnedImage{Name: image, Image: pinned}, err
}

// linesOf says where the lines of a rendered Containerfile are from, in as few entries as possible.
func linesOf(rendered *render.Rendered) []backend.LineOrigin {
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

// CopyBase brings the layers of the base image to where the content will be pushed, as they are:
// what pushes that has them unpacked, and no credentials for where they came from. Nodes know
// layers by their digests, and would pull all of them again otherwise.
func CopyBase(ctx context.Context, o *order.Order) error {
	request := registry.AppendRequest{Content: o.Base.Below(), Source: o.Credentials.Pull, Repository: o.Target.Repository}
	for _, p := range o.Content().Platforms {
		request.Platforms = append(request.Platforms, p.Platform)
	}
	if repository, _, _ := strings.Cut(request.Content, "@"); repository == request.Repository {
		return nil
	}
	traffic, err := o.Credentials.Push.CopyLayers(ctx, request)
	if err != nil {
		return err
	}
	log.FromContext(ctx).V(4).Info("Copied the layers of the base image", "requests", traffic.Requests, "bytesUp", traffic.BytesUp)
	return nil
}

// configsImage puts the base image with the configuration in it into the registry, for
// Containerfiles that start from that; empty where none does. The build pulls it as it pulls
// everything.
func (m *Maker) configsImage(ctx context.Context, o *order.Order) (string, error) {
	var platforms []v1.Platform
	for i, p := range o.Base.Platforms {
		if o.Described.Platforms[i].StartsFromConfigs() {
			platforms = append(platforms, p.Platform)
		}
	}
	if len(platforms) == 0 {
		return "", nil
	}
	result, err := o.Credentials.Push.Append(ctx, registry.AppendRequest{
		Content: o.Base.Below(), Source: o.Credentials.Pull, Platforms: platforms,
		Repository: o.Target.Repository, Tags: []string{names.ConfigsTag(o.Record.Keys.Build)}, Layer: m.options.Layers.OnBase(&o.Recipe),
	})
	if err != nil {
		return "", err
	}
	if _, err := o.Credentials.Pull.Resolve(ctx, result.Image); err != nil {
		if registry.IsDenied(err) || registry.IsNotFound(err) {
			err = fault.NewTerminal(mcfgv1.ReasonImageNotFound, fmt.Errorf(
				"the Containerfile starts from %s, which the build pulls from %s, but spec.baseImagePullSecret has no read access there: "+
					"grant it, or start from %s: %w", containerfiles.StageConfigs, o.Target.Repository, containerfiles.StageBase, err))
		}
		return "", err
	}
	log.FromContext(ctx).Info("Appended the configuration for the build to start from", "image", result.Image)
	return result.Image, nil
}

// acceptOwn makes the policy for the build accept what no one has signed and the controller answers
// for: the image with the configuration in it, which it has just made in the repository that nodes
// take signed images from; and, where nodes are made to insist on signatures, the base image, which
// may be signed with a key that lies on nodes alone.
func (m *Maker) acceptOwn(spec *backend.Spec, o *order.Order, configs string) {
	var own []string
	if configs != "" {
		own = append(own, configs)
	}
	if m.options.AcceptBase {
		own = append(own, o.Base.Image)
		for _, p := range o.Base.Platforms {
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
