package made

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/trust/sign"
)

// Writer writes down images.
type Writer struct {
	Client client.Client
	// Images sees to it that they are attested and signed.
	Images *images.Keeper
}

// Image is one in the registry, and what its build knows of it.
type Image struct {
	*order.Image
	// PreBuilt reports whether the installer had it built.
	PreBuilt bool
	// Found reports whether the registry had it, and that nothing but its labels says that a build
	// of this cluster made it.
	Found bool
	// Details are what only the process knows that made it.
	Details images.BuildDetails
}

// DetailsOf are those of an image that was made to order.
func DetailsOf(o *order.Order, image *order.Image) images.BuildDetails {
	return images.BuildDetails{Version: version.Current().Version, BuilderImage: o.BuilderImage, Pulled: o.Pulled, Content: image.Content}
}

// scope is one image of a build.
type scope struct {
	*Writer
	config *mcfgv1.MachineOSConfig
	build  *mcfgv1.MachineOSBuild
}

func (s *scope) pool() string { return s.config.Spec.MachineConfigPool.Name }

// Write makes the MachineOSImage, notes the image in the build's status, and has it attested and
// signed.
func (w *Writer) Write(ctx context.Context, config *mcfgv1.MachineOSConfig, build *mcfgv1.MachineOSBuild, result *Image) error {
	s := &scope{w, config, build}
	image, err := s.ensureImage(ctx, result)
	if err != nil {
		return err
	}
	build.Status.DigestedImagePushSpec = mcfgv1.ImageDigestFormat(result.Pinned)
	if err := s.attestBuilt(ctx, image, result.Details); err != nil {
		if images.LacksKey(image) { // then it can't be signed either, and is to say so
			err = fault.Join(err, s.signBuilt(ctx, image))
		}
		return err
	}
	return s.signBuilt(ctx, image)
}

// ensureImage makes the MachineOSImage. It belongs to the MachineOSConfig, since the image outlives
// its build when the same one is built again, and to the pool, since nodes run it for longer than
// there is a MachineOSConfig.
func (s *scope) ensureImage(ctx context.Context, result *Image) (*mcfgv1alpha1.MachineOSImage, error) {
	pinned := mcfgv1.ImageDigestFormat(result.Pinned)
	image := &mcfgv1alpha1.MachineOSImage{
		ObjectMeta: metav1.ObjectMeta{
			Labels: objects.ValidLabels(map[string]string{
				mcfgv1.LabelOnClusterLayering:       "",
				mcfgv1.LabelTargetMachineConfigPool: s.pool(),
				mcfgv1.LabelMachineOSConfig:         s.config.Name,
				mcfgv1.LabelMachineOSBuild:          s.build.Name,
				mcfgv1.LabelRenderedMachineConfig:   s.build.Spec.MachineConfig.Name,
			}),
		},
		Spec: mcfgv1alpha1.MachineOSImageSpec{
			PullSpec: pinned, BaseOSImagePullSpec: s.build.Asked().BaseImage,
			RenderedMachineConfig: s.build.Spec.MachineConfig.Name, MachineConfigPool: s.pool(),
		},
	}
	if result.PreBuilt {
		image.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: ""}
	}
	if err := controllerutil.SetControllerReference(s.config, image, s.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of the MachineOSImage of %q: %w", pinned, err)
	}
	pool := &mcfgv1.MachineConfigPool{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.pool()}, pool); err != nil {
		return nil, fmt.Errorf("reading the pool of the MachineOSImage of %q: %w", pinned, err)
	}
	if err := controllerutil.SetOwnerReference(pool, image, s.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the pool of the MachineOSImage of %q: %w", pinned, err)
	}
	wanted := image.DeepCopy()
	for _, image.Name = range owner.ImageNames(s.pool(), pinned) {
		err := s.Client.Create(ctx, image)
		if apierrors.IsAlreadyExists(err) {
			err = s.Client.Get(ctx, client.ObjectKeyFromObject(image), image)
		}
		if err != nil {
			return nil, fmt.Errorf("creating MachineOSImage %q: %w", image.Name, err)
		}
		if image.Spec.PullSpec == pinned || image.Spec.PullSpec.Digest() != pinned.Digest() {
			break
		}
		image = wanted.DeepCopy() // that one is the same image in another repository
	}
	if err := s.adopt(ctx, image, wanted); err != nil {
		return nil, err
	}
	if err := s.owns(image, wanted); err != nil {
		return nil, err
	}
	return image, s.describeImage(ctx, image, result)
}

// adopt takes over the image of a MachineOSConfig that was deleted, which stayed because nodes have
// it. That a build has made it is known from its status, which no one else may write.
func (s *scope) adopt(ctx context.Context, image, wanted *mcfgv1alpha1.MachineOSImage) error {
	isOurs := image.Status.ShortDigest != "" && image.Labels[mcfgv1.LabelMachineOSConfig] == wanted.Labels[mcfgv1.LabelMachineOSConfig]
	if metav1.GetControllerOf(image) != nil || len(image.OwnerReferences) == 0 || !isOurs || !image.DeletionTimestamp.IsZero() {
		return nil
	}
	patch := client.MergeFromWithOptions(image.DeepCopy(), client.MergeFromWithOptimisticLock{})
	image.OwnerReferences = wanted.OwnerReferences
	if err := s.Client.Patch(ctx, image, patch); err != nil {
		return fmt.Errorf("taking over MachineOSImage %q: %w", image.Name, err)
	}
	return nil
}

// owns makes sure that the object of an image is the one that the build has made, or has made
// before. Someone may have known its name: what that object names was not made here, or would not
// be signed or tested. And the MachineOSConfig may have been made anew: what belonged to the one
// before is about to go.
func (s *scope) owns(image, wanted *mcfgv1alpha1.MachineOSImage) error {
	if image.Spec.PullSpec != wanted.Spec.PullSpec {
		return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, sign.DeniedAgain, fmt.Errorf(
			"MachineOSImage %q is of %q, and the image %q needs its name; delete it", image.Name, image.Spec.PullSpec, wanted.Spec.PullSpec))
	}
	// Other names of the base image and of the rendered MachineConfig make no other image.
	isAlike := image.Spec.MachineConfigPool == wanted.Spec.MachineConfigPool &&
		image.Spec.BaseOSImagePullSpec.Digest() == wanted.Spec.BaseOSImagePullSpec.Digest() && !owner.IsPreBuilt(image)
	_, isPreBuilt := s.build.Annotations[mcfgv1.AnnotationPreBuiltImage]
	if metav1.IsControlledBy(image, s.config) && image.DeletionTimestamp.IsZero() && (isAlike || isPreBuilt) {
		return nil
	}
	return fault.NewWaiting(mcfgv1.ReasonWaitingForSignature, sign.Again, fmt.Errorf(
		"MachineOSImage %q is there already, and was not made by the MachineOSConfig %q; delete it", image.Name, s.config.Name))
}

// describeImage writes what is known of the image into the status of its object, once. Conditions
// are of those who sign it and roll it out.
func (s *scope) describeImage(ctx context.Context, image *mcfgv1alpha1.MachineOSImage, result *Image) error {
	origin := mcfgv1alpha1.ImageBuilt
	if result.PreBuilt || result.Found {
		origin = mcfgv1alpha1.ImageImported
	}
	if isDescribed := image.Status.ShortDigest != ""; isDescribed && (image.Status.Origin != mcfgv1alpha1.ImageImported || origin == image.Status.Origin) {
		return nil
	}
	before := image.DeepCopy()
	image.Status.ShortDigest, image.Status.Origin, image.Status.Architectures = image.Spec.PullSpec.Short(), origin, nil
	image.Status.RenderedMachineConfig = s.build.Spec.MachineConfig.Name
	for i, p := range result.Platforms {
		if arch, known := mcfgv1.ArchitectureFromOCI(p.Platform.Architecture); known {
			one := mcfgv1alpha1.ImageArchitecture{Architecture: arch, Digest: p.Digest.String(), Size: &p.Size}
			if i < len(result.Pulls) {
				one.PullSize, image.Status.PreviousImagePullSpec = &result.Pulls[i], mcfgv1.ImageDigestFormat(result.Previous)
			}
			image.Status.Architectures = append(image.Status.Architectures, one)
		}
	}
	if err := client.IgnoreNotFound(s.Client.Status().Patch(ctx, image, client.MergeFrom(before))); err != nil {
		return fmt.Errorf("writing the status of MachineOSImage %q: %w", image.Name, err)
	}
	return nil
}
