package builder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/sign"
)

// Limits of removing an image: a registry that can't be reached must not keep objects in the
// cluster for ever.
const (
	maxRemovals    = 3
	removalTimeout = 30 * time.Second
)

// release removes the image of a build that is being deleted, unless something uses it, and lets
// the build go.
func (r *buildReconciler) release(ctx context.Context, s *buildScope) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(s.build, mcfgv1.FinalizerBuildImage) {
		return 0, nil
	}
	if r.runs.stop(s.build.Spec.MachineOSConfig.Name, s.build.Name) {
		return turn, nil
	}
	if err := r.removeFrom(ctx, s.key()); err != nil {
		return 0, err
	}
	image, err := r.removeImage(ctx, s)
	if err != nil {
		attempts, _ := strconv.Atoi(s.build.Annotations[mcfgv1.AnnotationImageDeletionAttempts])
		if attempts++; attempts < maxRemovals {
			return 0, errors.Join(err, r.changeBuild(ctx, s.build, func(b *mcfgv1.MachineOSBuild) {
				metav1.SetMetaDataAnnotation(&b.ObjectMeta, mcfgv1.AnnotationImageDeletionAttempts, strconv.Itoa(attempts))
			}))
		}
		r.events.Publish(s.build, events.ImageNotDeleted(image, err.Error()))
	}
	return 0, r.changeBuild(ctx, s.build, func(b *mcfgv1.MachineOSBuild) {
		controllerutil.RemoveFinalizer(b, mcfgv1.FinalizerBuildImage)
	})
}

// changeBuild changes the metadata of a build.
func (b *Builder) changeBuild(ctx context.Context, build *mcfgv1.MachineOSBuild, change func(*mcfgv1.MachineOSBuild)) error {
	changed := build.DeepCopy()
	change(changed)
	err := b.client.Patch(ctx, changed, client.MergeFromWithOptions(build, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing MachineOSBuild %q: %w", build.Name, err)
	}
	return nil
}

// removeImage removes the image from the registry, and the MachineOSImage with it. The name is for
// people.
func (r *buildReconciler) removeImage(ctx context.Context, s *buildScope) (name string, err error) {
	name = string(s.build.Spec.RenderedImagePushSpec)
	config := &mcfgv1.MachineOSConfig{}
	if err = client.IgnoreNotFound(r.client.Get(ctx, client.ObjectKey{Name: s.build.Spec.MachineOSConfig.Name}, config)); err != nil {
		return name, fmt.Errorf("reading MachineOSConfig %q: %w", s.build.Spec.MachineOSConfig.Name, err)
	}
	if r.isKept(s.build, config) {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	credentials, err := r.checker.CredentialsOf(ctx, pushSecret(s.build, config), s.build.Annotations[mcfgv1.AnnotationBaseImagePullSecret])
	if credentials.Push == nil {
		return name, err
	}
	if err := r.deleteIntermediate(ctx, s, credentials.Push); err != nil {
		return name, err
	}
	image, err := r.imageOf(ctx, s, credentials.Push)
	if err != nil || image == "" {
		return name, err
	}
	references, err := r.references(ctx, s.build.Name)
	if err != nil {
		return image, err
	}
	if references[image] {
		r.events.Publish(s.build, events.ImageKept(image))
		return image, nil
	}
	return image, r.deleteSigned(ctx, s, credentials.Push, image)
}

// deleteSigned removes an image and its object while nothing signs it: a signature that is attached
// meanwhile would stay.
func (r *buildReconciler) deleteSigned(ctx context.Context, s *buildScope, push *registry.Client, image string) error {
	object, err := r.imageObject(ctx, s.pool(), mcfgv1.ImageDigestFormat(image))
	if err != nil {
		return err
	}
	if object != nil {
		unlock, err := r.images.Lock(ctx, object.Name)
		if err != nil {
			return fmt.Errorf("waiting for the signature of %q: %w", image, err)
		}
		defer unlock()
	}
	if err := r.deleteFromRegistry(ctx, s, push, image); err != nil || object == nil {
		return err
	}
	err = client.IgnoreNotFound(r.client.Delete(ctx, object, client.Preconditions{UID: &object.UID}))
	if err != nil {
		return fmt.Errorf("deleting MachineOSImage %q: %w", object.Name, err)
	}
	return nil
}

// deleteIntermediate removes what was pushed on the way to an image with content: the base image
// with the configuration, and the content unless another build has the same in this repository.
// Tags that are not there need no removing.
func (r *buildReconciler) deleteIntermediate(ctx context.Context, s *buildScope, push *registry.Client) error {
	keys, hasContent := contentOf(s.build)
	t, err := maker.TargetOf(s.build.Spec.RenderedImagePushSpec)
	if err != nil || !hasContent {
		return nil //nolint:nilerr // nothing can have been pushed there
	}
	tags := append([]string{names.ConfigsTag(keys.Build)}, contentTags(s.build, keys.Build)...)
	var builds mcfgv1.MachineOSBuildList
	if err := r.client.List(ctx, &builds, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	shared := slices.ContainsFunc(builds.Items, func(b mcfgv1.MachineOSBuild) bool {
		others, has := contentOf(&b)
		return b.Name != s.build.Name && b.DeletionTimestamp.IsZero() && has && others.Content == keys.Content && makesIn(t.Repository, &b)
	})
	if !shared {
		tags = append(tags, contentTags(s.build, keys.Content)...)
	}
	for _, tag := range tags {
		if err := r.deleteTagged(ctx, push, maker.Target{Repository: t.Repository, Tag: tag}); err != nil {
			return err
		}
	}
	return nil
}

// contentOf are the keys of a build, and whether it has content.
func contentOf(build *mcfgv1.MachineOSBuild) (plan.Keys, bool) {
	record, err := plan.ReadRecord(build.Annotations[mcfgv1.AnnotationBuildInputs])
	if err != nil {
		return plan.Keys{}, false
	}
	return record.Keys, record.Inputs.HasContent()
}

// contentTags are the tags of the content with a key, and of its architectures where there are
// several.
func contentTags(build *mcfgv1.MachineOSBuild, key string) []string {
	tags := []string{names.ContentTag(key)}
	for _, a := range build.Status.Architectures {
		tags = append(tags, names.ContentTag(key)+"-"+containerfiles.GoArch(mcfgv1.ContainerfileArch(a.Architecture)))
	}
	return tags
}

// deleteTagged removes an image by its tag.
func (r *buildReconciler) deleteTagged(ctx context.Context, push *registry.Client, t maker.Target) error {
	digest, found, err := push.Exists(ctx, t.Repository, t.Tag)
	if err != nil || !found {
		return err
	}
	if r.images.Attests() {
		if err := images.DeleteAttached(ctx, push, t.Repository+"@"+digest.String(), sign.Attestations); err != nil {
			return err
		}
	}
	deletion, err := push.DeleteManifest(ctx, t.Repository+"@"+digest.String())
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Removed an image from its registry", "image", t.String(), "outcome", deletion.Outcome)
	return nil
}

// isKept reports whether the image outlives its build: by the administrator's will, or because
// someone else made it.
func (*buildReconciler) isKept(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) bool {
	if build.Annotations[mcfgv1.AnnotationPreBuiltImage] != "" {
		return true
	}
	if config.Name == "" { // gone: what it said when the build was made counts
		return build.Annotations[mcfgv1.AnnotationImageDeletion] == string(mcfgv1.Disabled)
	}
	return config.Spec.Retention != nil && config.Spec.Retention.ImageDeletion == mcfgv1.Disabled
}

// pushSecret is the secret of the MachineOSConfig or, when that is gone or pushes to another
// repository by now, the one that it had when the build was made.
func pushSecret(build *mcfgv1.MachineOSBuild, config *mcfgv1.MachineOSConfig) string {
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if own := build.Annotations[mcfgv1.AnnotationRenderedImagePushSecret]; err == nil && (makesIn(repository, build) || own == "") {
		return config.Spec.RenderedImagePushSecret.Name
	}
	return build.Annotations[mcfgv1.AnnotationRenderedImagePushSecret]
}

// imageOf is the image that a build made. One that was ended before it could say so may have pushed
// one all the same, under its tag.
func (r *buildReconciler) imageOf(ctx context.Context, s *buildScope, push *registry.Client) (string, error) {
	if image := string(s.build.Status.DigestedImagePushSpec); image != "" {
		return image, nil
	}
	record, err := plan.ReadRecord(s.build.Annotations[mcfgv1.AnnotationBuildInputs])
	if err != nil {
		return "", nil //nolint:nilerr // it is none of ours, and neither is what it may have pushed
	}
	t, err := maker.TargetOf(s.build.Spec.RenderedImagePushSpec)
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
	labels, err := push.Labels(ctx, image, firstOf(resolved.Platforms))
	if err != nil || labels[mcfgv1.ImageLabelBuildKey] != record.Keys.Build {
		return "", err
	}
	return image, nil
}

// firstOf is the first platform of an index, the zero one of a single image.
func firstOf(platforms []v1.Platform) v1.Platform {
	if len(platforms) == 0 {
		return v1.Platform{}
	}
	return platforms[0]
}

// deleteFromRegistry removes an image with its tags, and the images of its architectures.
func (r *buildReconciler) deleteFromRegistry(ctx context.Context, s *buildScope, push *registry.Client, image string) error {
	all := []string{image}
	for _, a := range s.build.Status.Architectures {
		if a.DigestedImagePushSpec != "" {
			all = append(all, string(a.DigestedImagePushSpec))
		}
	}
	for _, image := range all {
		if r.images.Signs() {
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
			r.events.Publish(s.build, events.ImageNotDeleted(image, deletion.Detail))
			return nil
		case registry.Deleted, registry.Gone:
			ctrl.LoggerFrom(ctx).Info("Removed an image from its registry", "image", image, "outcome", deletion.Outcome)
		}
	}
	return nil
}

// references are the images, by digest, that must not be removed: what nodes have and are on their
// way to, what pools name, what MachineOSConfigs stand for, and what other builds than the one of
// the given name have made.
func (b *Builder) references(ctx context.Context, but string) (map[string]bool, error) {
	var (
		nodes   corev1.NodeList
		agents  mcfgv1.MachineConfigNodeList
		pools   mcfgv1.MachineConfigPoolList
		images  mcfgv1alpha1.MachineOSImageList
		configs mcfgv1.MachineOSConfigList
		builds  mcfgv1.MachineOSBuildList
	)
	for _, list := range []client.ObjectList{&nodes, &agents, &pools, &images, &configs, &builds} {
		if err := b.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	found := map[string]bool{}
	for i := range nodes.Items {
		a := nodes.Items[i].Annotations
		found[a[mcfgv1.AnnotationCurrentImage]], found[a[mcfgv1.AnnotationDesiredImage]] = true, true
	}
	for i := range agents.Items {
		n := &agents.Items[i]
		for _, image := range []mcfgv1.ImageDigestFormat{
			n.Spec.ConfigImage.DesiredImage, n.Status.ConfigImage.CurrentImage, n.Status.ConfigImage.DesiredImage,
		} {
			found[string(image)] = true
		}
	}
	named := map[string]bool{}
	for i := range pools.Items {
		found[string(pools.Items[i].Status.OSImagePullSpec)] = true
		named[pools.Items[i].Spec.MachineOSImage] = true
	}
	for i := range images.Items {
		if named[images.Items[i].Name] {
			found[string(images.Items[i].Spec.PullSpec)] = true
		}
	}
	for i := range configs.Items {
		if configs.Items[i].DeletionTimestamp.IsZero() {
			found[string(configs.Items[i].Status.CurrentImagePullSpec)] = true
			if tag := configs.Items[i].Status.PoolTag; tag != nil { // the tag would go with its image
				found[string(tag.PullSpec)] = true
			}
		}
	}
	for i := range builds.Items {
		if builds.Items[i].Name != but && but != "" && builds.Items[i].DeletionTimestamp.IsZero() {
			found[string(builds.Items[i].Status.DigestedImagePushSpec)] = true
		}
	}
	delete(found, "")
	return found, nil
}
