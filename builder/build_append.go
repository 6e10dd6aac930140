package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/description"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/builder/provenance"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/machineconfigs/osindex"
)

// appendRequest asks for the configuration on the content, which may be the base image itself, without any tag.
func (r *buildReconciler) appendRequest(b *building, content string) registry.AppendRequest {
	request := registry.AppendRequest{
		Content: content, Source: b.credentials.Push, Repository: b.target.repository, Layer: r.layersOnContent(b),
		Before: string(b.config.Status.CurrentImagePullSpec),
	}
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
	mc, err := b.renderedContent(ctx, name)
	if err != nil {
		return nil, err
	}
	config, err := machineconfigs.Parse(mc)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	return config, nil
}

// renderedObject is shared with the cache, and only read. It may lack its content.
func (b *Builder) renderedObject(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	return readRendered(ctx, b.client, name)
}

// renderedContent has all of the content, which the cache does not.
func (b *Builder) renderedContent(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	return readRendered(ctx, b.reader, name)
}

func readRendered(ctx context.Context, reader client.Reader, name string) (*mcfgv1.MachineConfig, error) {
	mc := &mcfgv1.MachineConfig{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, mc, client.UnsafeDisableDeepCopy)
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
