package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// removalTimeout is how long one attempt to remove an image may take: it holds a worker. A registry
// that took longer is asked by no one for as long as silence.
const (
	removalTimeout = 10 * time.Second
	silence        = 10 * time.Second
)

// Options are what a Remover works with.
type Options struct {
	// Client reads from the cache, and deletes MachineOSImages; Reader asks the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events events.Publisher
	// Credentials are those that builds were pushed with.
	Credentials *credentials.Source
	// Images knows what is attached to images.
	Images *images.Keeper
	// Count is told of each image whether it is gone from its registry; nil counts nothing.
	Count func(isGone bool)
}

// Remover removes the images of builds from their registries.
type Remover struct {
	options Options
	// silent are the registries that did not answer, by host, with when.
	silent sync.Map
}

// New makes a remover.
func New(options Options) *Remover {
	if options.Count == nil {
		options.Count = func(bool) {}
	}
	return &Remover{options: options}
}

// Remove removes the image from the registry, and the MachineOSImage with it. The name is for
// people. The error is ErrPoolNames while that is about to change.
func (r *Remover) Remove(ctx context.Context, build *mcfgv1.MachineOSBuild) (name string, err error) {
	name = string(build.Spec.RenderedImagePushSpec)
	host, _, _ := strings.Cut(name, "/")
	if since, is := r.silent.Load(host); is && r.options.Clock.Since(since.(time.Time)) < silence { //nolint:forcetypeassert // only times are stored
		return name, fmt.Errorf("registry %q does not answer", host)
	}
	limited, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	name, err = r.remove(limited, build)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		r.silent.Store(host, r.options.Clock.Now())
		return name, fmt.Errorf("registry %q does not answer within %s: %w", host, removalTimeout, err)
	}
	r.silent.Delete(host)
	return name, err
}

func (r *Remover) remove(ctx context.Context, build *mcfgv1.MachineOSBuild) (name string, err error) {
	name = string(build.Spec.RenderedImagePushSpec)
	config := &mcfgv1.MachineOSConfig{}
	if err = client.IgnoreNotFound(r.options.Client.Get(ctx, client.ObjectKey{Name: build.Spec.MachineOSConfig.Name}, config)); err != nil {
		return name, fmt.Errorf("reading MachineOSConfig %q: %w", build.Spec.MachineOSConfig.Name, err)
	}
	if isKept(build, config) {
		return name, nil
	}
	credentials, err := r.options.Credentials.CredentialsOf(ctx, PushSecret(build, config), build.Asked().BaseImagePullSecret)
	if credentials.Push == nil {
		return name, err
	}
	if err := r.deleteIntermediate(ctx, build, credentials.Push); err != nil {
		return name, err
	}
	image, err := r.imageOf(ctx, build, credentials.Push)
	if err != nil || image == "" {
		return name, err
	}
	isUsed, err := r.isUsed(ctx, image, build.Name)
	if err != nil {
		return image, err
	}
	if isUsed {
		r.options.Events.Publish(build, events.ImageKept(image))
		return image, nil
	}
	return image, r.deleteSigned(ctx, build, credentials.Push, image)
}

// deleteSigned removes an image and its object while nothing signs it: a signature that is attached
// meanwhile would stay.
func (r *Remover) deleteSigned(ctx context.Context, build *mcfgv1.MachineOSBuild, push *registry.Client, image string) error {
	object, err := owner.ImageObject(ctx, r.options.Client, build.Spec.MachineOSConfig.Name, mcfgv1.ImageDigestFormat(image))
	if err != nil {
		return err
	}
	if object != nil {
		unlock, err := r.options.Images.Lock(ctx, object.Name)
		if err != nil {
			return fmt.Errorf("waiting for the signature of %q: %w", image, err)
		}
		defer unlock()
	}
	if err := r.deleteFromRegistry(ctx, build, push, image); err != nil || object == nil {
		return err
	}
	err = client.IgnoreNotFound(r.options.Client.Delete(ctx, object, client.Preconditions{UID: &object.UID}))
	if err != nil {
		return fmt.Errorf("deleting MachineOSImage %q: %w", object.Name, err)
	}
	return nil
}

// deleteIntermediate removes what was pushed on the way to an image with content: the base image
// with the configuration, and the content unless another build has the same in this repository.
// Tags that are not there need no removing.
func (r *Remover) deleteIntermediate(ctx context.Context, build *mcfgv1.MachineOSBuild, push *registry.Client) error {
	keys, hasContent := objects.ContentOf(build)
	t, err := order.TargetOf(build.Spec.RenderedImagePushSpec)
	if err != nil || !hasContent {
		return nil //nolint:nilerr // nothing can have been pushed there
	}
	var architectures []mcfgv1.Architecture
	for _, a := range build.Status.Architectures {
		architectures = append(architectures, a.Architecture)
	}
	tags := append([]string{names.ConfigsTag(keys.Build)}, contentTags(keys.Build, architectures)...)
	var builds mcfgv1.MachineOSBuildList
	if err := r.options.Client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	shared := slices.ContainsFunc(builds.Items, func(b mcfgv1.MachineOSBuild) bool {
		others, has := objects.ContentOf(&b)
		return b.Name != build.Name && b.DeletionTimestamp.IsZero() && has && others.Content == keys.Content && objects.PushesTo(t.Repository, &b)
	})
	if !shared {
		tags = append(tags, contentTags(keys.Content, architectures)...)
	}
	for _, tag := range tags {
		if err := r.removeTagged(ctx, push, order.Target{Repository: t.Repository, Tag: tag}); err != nil {
			return err
		}
	}
	return nil
}

// removeTagged removes an image by its tag, and those that were pushed later where tags are
// immutable.
func (r *Remover) removeTagged(ctx context.Context, push *registry.Client, t order.Target) error {
	for number := 1; number <= names.MaxTags; number++ {
		is := order.Target{Repository: t.Repository, Tag: names.NextTag(t.Tag, number)}
		if found, err := r.removeOne(ctx, push, is); err != nil || !found {
			return err
		}
	}
	return nil
}

func (r *Remover) removeOne(ctx context.Context, push *registry.Client, t order.Target) (found bool, err error) {
	digest, found, err := push.Exists(ctx, t.Repository, t.Tag)
	if err != nil || !found {
		return false, err
	}
	if r.options.Images.Attests() {
		if err := images.DeleteAttestations(ctx, push, t.Repository+"@"+digest.String()); err != nil {
			return false, err
		}
	}
	deletion, err := push.DeleteManifest(ctx, t.Repository+"@"+digest.String())
	if err != nil {
		return false, err
	}
	log.FromContext(ctx).Info("Removed an image from its registry", "image", t.String(), "outcome", deletion.Outcome)
	return true, nil
}

// isKept reports whether the image outlives its build: by the administrator's will, or because
// someone else made it.
func isKept(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) bool {
	if build.Annotations[mcfgv1.AnnotationPreBuiltImage] != "" {
		return true
	}
	if config.Name == "" { // gone: what it said when the build was made counts
		return build.Asked().ImageDeletion == mcfgv1.Disabled
	}
	return config.Spec.Retention != nil && config.Spec.Retention.ImageDeletion == mcfgv1.Disabled
}

// PushSecret is the secret of the MachineOSConfig or, when that is gone or pushes to another
// repository by now, the one that it had when the build was made.
func PushSecret(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) string {
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	own := build.Asked().RenderedImagePushSecret
	if err == nil && (objects.PushesTo(repository, build) || own == "") {
		return config.Spec.RenderedImagePushSecret.Name
	}
	return own
}

// imageOf is the image that a build made. One that was ended before it could say so may have pushed
// one all the same, under its tag.
func (r *Remover) imageOf(ctx context.Context, build *mcfgv1.MachineOSBuild, push *registry.Client) (string, error) {
	if image := string(build.Status.DigestedImagePushSpec); image != "" {
		return image, nil
	}
	record, err := plan.RecordOf(build)
	if err != nil || record == nil {
		return "", nil //nolint:nilerr // it is none of ours, and neither is what it may have pushed
	}
	t, err := order.TargetOf(build.Spec.RenderedImagePushSpec)
	if err != nil {
		return "", nil //nolint:nilerr // nothing can have been pushed there
	}
	digest, found, err := push.Exists(ctx, t.Repository, t.Tag)
	if err != nil || !found {
		return "", err
	}
	image := t.Repository + "@" + digest.String()
	resolved, err := push.Resolve(ctx, image)
	if err != nil {
		return "", err
	}
	labels, err := push.Labels(ctx, image, objects.FirstOf(resolved.Platforms))
	if err != nil || labels[mcfgv1.ImageLabelBuildKey] != record.Keys.Build {
		return "", err
	}
	return image, nil
}

// deleteFromRegistry removes an image with its tags, and the images of its architectures.
func (r *Remover) deleteFromRegistry(ctx context.Context, build *mcfgv1.MachineOSBuild, push *registry.Client, image string) error {
	all := []string{image}
	for _, a := range build.Status.Architectures {
		if a.DigestedImagePushSpec != "" {
			all = append(all, string(a.DigestedImagePushSpec))
		}
	}
	for _, image := range all {
		if r.options.Images.Signs() {
			if err := images.DeleteSignatures(ctx, push, image); err != nil {
				return err
			}
		}
		deletion, err := push.DeleteManifest(ctx, image)
		if err != nil {
			return err
		}
		switch deletion.Outcome {
		case registry.Denied, registry.Unsupported:
			r.options.Events.Publish(build, events.ImageNotDeleted(image, deletion.Detail))
			r.options.Count(false)
			return nil
		case registry.Deleted, registry.Gone:
			r.options.Count(true)
			log.FromContext(ctx).Info("Removed an image from its registry", "image", image, "outcome", deletion.Outcome)
		}
	}
	return nil
}
