package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
)

// RemoveTrial removes the image of a stream trial, and the content that was built for it. An event
// of the MachineOSConfig says if the registry deletes nothing.
func (r *Remover) RemoveTrial(ctx context.Context, config *mcfgv1.MachineOSConfig, push *registry.Client, image string) error {
	if err := r.removeTrialContent(ctx, push, image); err != nil {
		return err
	}
	deletion, err := push.DeleteManifest(ctx, image)
	if err != nil {
		return err
	}
	isKept := deletion.Outcome == registry.Denied || deletion.Outcome == registry.Unsupported
	if isKept {
		r.options.Events.Publish(config, events.ImageNotDeleted(image, deletion.Detail))
	}
	r.options.Count(!isKept)
	return nil
}

// removeTrialContent removes what was built for a trial's image, as its labels say, unless a build
// has the same content: the pool may have moved.
func (r *Remover) removeTrialContent(ctx context.Context, push *registry.Client, image string) error {
	resolved, err := push.Resolve(ctx, image)
	if registry.IsNotFound(err) || registry.IsDenied(err) {
		return nil
	}
	if err != nil {
		return err
	}
	labels, err := push.Labels(ctx, image, objects.FirstOf(resolved.Platforms))
	if err != nil {
		return err
	}
	var builds mcfgv1.MachineOSBuildList
	if err := r.options.Client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	var architectures []mcfgv1.Architecture
	for _, p := range resolved.Platforms {
		if arch, known := mcfgv1.ArchitectureFromOCI(p.Architecture); known {
			architectures = append(architectures, arch)
		}
	}
	repository, _, _ := strings.Cut(image, "@")
	for _, key := range []string{labels[mcfgv1.ImageLabelContentKey], labels[mcfgv1.ImageLabelBuildKey]} {
		shared := slices.ContainsFunc(builds.Items, func(b mcfgv1.MachineOSBuild) bool {
			keys, has := objects.ContentOf(&b)
			return has && (keys.Content == key || keys.Build == key)
		})
		if key == "" || shared {
			continue
		}
		for _, tag := range append(contentTags(key, architectures), names.ConfigsTag(key)) {
			if err := r.removeTagged(ctx, push, order.Target{Repository: repository, Tag: tag}); err != nil {
				return err
			}
		}
	}
	return nil
}
