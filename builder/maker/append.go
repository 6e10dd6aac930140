package maker

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
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// Append puts the configuration on the content, which may be the base image itself. What it asks
// for may be changed before it is sent, such as the tags.
func (m *Maker) Append(ctx context.Context, o *Order, content string, change func(*registry.AppendRequest)) (*Image, error) {
	request := m.request(o, content)
	change(&request)
	result, err := o.Credentials.Push.Append(ctx, request)
	if err != nil {
		return nil, err
	}
	ctrl.LoggerFrom(ctx).Info("Appended", "image", result.Image, "requests", result.Traffic.Requests,
		"bytesUp", result.Traffic.BytesUp, "bytesDown", result.Traffic.BytesDown, "took", result.Duration.String())
	done := &Image{
		Pinned: result.Image, Platforms: result.Platforms,
		Message: fmt.Sprintf("the configuration was appended in %s, with %d bytes sent and %d received",
			result.Duration.Round(time.Millisecond), result.Traffic.BytesUp, result.Traffic.BytesDown),
	}
	if len(result.Immutable) > 0 {
		done.Immutable = result.Immutable
		done.Message += fmt.Sprintf("; it has no tag %s: the registry's tags are immutable, and there is another image", strings.Join(result.Immutable, " and "))
	}
	if content != o.Base.Below() {
		done.Content = content
	}
	if o.Origin.Backend != "" {
		done.Message = o.howBuilt(done.Message)
	}
	return done.compare(o), nil
}

// request asks for the configuration on the content, without any tag.
func (m *Maker) request(o *Order, content string) registry.AppendRequest {
	request := registry.AppendRequest{
		Content: content, Source: o.Credentials.Push, Repository: o.Target.Repository, Layer: m.layersOnContent(o),
		Before: o.Before, Platforms: o.platforms(),
	}
	if content == o.Base.Below() {
		request.Source, request.Layer = o.Credentials.Pull, m.layersOnBase(o)
	}
	request.Labels, request.Annotations = o.imageLabels()
	return request
}

// layersOnBase makes the configuration layer of each architecture for the base image, when it is
// asked for.
func (m *Maker) layersOnBase(o *Order) compose.LayerFunc {
	return m.layers(o, func(ctx context.Context, i int, _ v1.Image) (*layer.Plan, *osindex.Index, error) {
		index, err := o.Base.Platforms[i].Open(ctx)
		return o.Described.Platforms[i].Layer, index, err
	})
}

// layersOnContent makes it for what was built. Where that was built on top of the configuration, it
// is what the configuration had to wait for.
func (m *Maker) layersOnContent(o *Order) compose.LayerFunc {
	return m.layers(o, func(ctx context.Context, i int, below v1.Image) (*layer.Plan, *osindex.Index, error) {
		return o.Described.LayerOn(&o.Described.Platforms[i], func() (*osindex.Index, error) { return m.options.Base.Index(ctx, below) })
	})
}

// layers makes layers of plans, by the place of the architecture in the description.
func (m *Maker) layers(
	o *Order, planFor func(ctx context.Context, i int, below v1.Image) (*layer.Plan, *osindex.Index, error),
) compose.LayerFunc {
	sources := configlayer.Sources{Fetcher: m.options.Fetcher, Files: m.options.Base}
	return func(ctx context.Context, platform v1.Platform, below v1.Image) (registry.Opener, error) {
		i := slices.IndexFunc(o.Base.Platforms, func(p preflight.Platform) bool { return p.Platform.Architecture == platform.Architecture })
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

// imageLabels are what the image says about itself: labels, and annotations for registries and
// tools that read those.
func (o *Order) imageLabels() (labels, annotations map[string]string) {
	name, digest, _ := strings.Cut(o.Base.Image, "@")
	about := map[string]string{
		mcfgv1.ImageLabelBuildKey:   o.Record.Keys.Build,
		mcfgv1.ImageLabelContentKey: o.Record.Keys.Content,
		mcfgv1.ImageLabelBaseDigest: digest,
	}
	if hash := o.containerfileHash(); hash != "" {
		about[mcfgv1.ImageLabelContainerfileHash] = hash
	}
	if o.Base.Stream != "" {
		about[mcfgv1.ImageLabelStream] = o.Base.Stream
	}
	published := map[string]string{
		mcfgv1.ImageLabelMachineConfig:     o.Rendered,
		mcfgv1.ImageLabelMachineConfigPool: o.Pool,
		mcfgv1.ImageLabelBaseImage:         o.Base.Image,
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
	annotations[annotationPrefix+mcfgv1.ImageLabelMachineConfig] = o.Rendered
	annotations[annotationPrefix+mcfgv1.ImageLabelMachineConfigPool] = o.Pool
	return labels, annotations
}

// annotationPrefix makes annotations of the published labels, which have none.
const annotationPrefix = "layerwright.io/"

func (o *Order) containerfileHash() string {
	if len(o.Record.Inputs.Containerfiles) == 0 {
		return ""
	}
	hash := sha256.New()
	for _, file := range o.Record.Inputs.Containerfiles {
		_, _ = fmt.Fprintf(hash, "%s\n%d\n%s", file.Arch, len(file.Text), file.Text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}
