package maker

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/registry"
)

// Tagging is what an image gets when it stands in the registry.
type Tagging struct {
	Tags []string
	// Before is asked before the tags are given: its error keeps them where they are. It may be
	// nil.
	Before func(context.Context) error
	// Labels are given beside those of the order.
	Labels map[string]string
}

// Append puts the configuration on the content, which may be the base image itself.
func (m *Maker) Append(ctx context.Context, o *order.Order, content string, tagging Tagging) (*order.Image, error) {
	request := registry.AppendRequest{
		Content: content, Source: o.Credentials.Push, Repository: o.Target.Repository, Layer: m.options.Layers.OnContent(&o.Recipe),
		Before: o.Before, Platforms: o.EachPlatform(), Tags: tagging.Tags, BeforeTags: tagging.Before,
	}
	if content == o.Base.Below() {
		request.Source, request.Layer = o.Credentials.Pull, m.options.Layers.OnBase(&o.Recipe)
	}
	request.Labels, request.Annotations = o.Labels()
	maps.Copy(request.Labels, tagging.Labels)
	result, err := o.Credentials.Push.Append(ctx, request)
	if err != nil {
		return nil, err
	}
	log.FromContext(ctx).Info("Appended", "image", result.Image, "requests", result.Traffic.Requests,
		"bytesUp", result.Traffic.BytesUp, "bytesDown", result.Traffic.BytesDown, "took", result.Duration.String())
	done := &order.Image{
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
		done.Message = howBuilt(o, done.Message)
	}
	return done.Compare(o), nil
}
