package reuse

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
)

// FindImage finds the image with a build key under its tag, by digest; empty where there is none
// that may be taken. Whoever may push can give the tag to anything, and write any label. Beside an
// error, an image is one that is there, and of which it can't be found out now whether it may be
// taken.
func (r *Registry) FindImage(ctx context.Context, with credentials.Credentials, t order.Target, key string, platforms []recipe.Platform) (string, error) {
	image, err := find(ctx, with.Push, t, identity{mcfgv1.ImageLabelBuildKey, key}, platforms)
	if err != nil || image == "" || r.options.MayReuse == nil {
		return image, err
	}
	may, err := r.options.MayReuse(ctx, with.Push, image)
	if err == nil && !may {
		return "", nil
	}
	return image, err
}

// Found describes an image that FindImage has found.
func Found(ctx context.Context, o *order.Order, image string) (*order.Image, error) {
	results, err := imagesOf(ctx, o.Credentials.Push, image, o.EachPlatform())
	if err != nil {
		return nil, err
	}
	return (&order.Image{Pinned: image, Platforms: results, Message: "the registry had the image already"}).Compare(o), nil
}

// PreBuilt describes an image that the installer had built. It may be anywhere, so either secret
// may be the one that reads it.
func PreBuilt(ctx context.Context, credentials credentials.Credentials, image string) (*order.Image, error) {
	if _, err := name.NewDigest(image, name.StrictValidation); err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf(
			"annotation %s has to name an image by its digest, name@sha256 and so on: %w", mcfgv1.AnnotationPreBuiltImage, err))
	}
	reader := credentials.Pull
	found, err := reader.Resolve(ctx, image)
	if registry.IsNotFound(err) || registry.IsDenied(err) {
		reader = credentials.Push
		found, err = reader.Resolve(ctx, image)
	}
	var results []registry.PlatformResult
	if err == nil {
		results, err = imagesOf(ctx, reader, image, found.EachPlatform())
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", mcfgv1.AnnotationPreBuiltImage, err)
	}
	return &order.Image{Pinned: image, Platforms: results, Message: "the installer had built the image"}, nil
}

// imagesOf reads what the image of each platform is, of one that is in a registry already.
func imagesOf(ctx context.Context, reader *registry.Client, pinned string, platforms []v1.Platform) ([]registry.PlatformResult, error) {
	results := make([]registry.PlatformResult, len(platforms))
	for i, platform := range platforms {
		image, err := reader.Image(ctx, pinned, platform)
		if err != nil {
			return nil, err
		}
		digest, digestErr := image.Digest()
		manifest, manifestErr := image.Manifest()
		config, configErr := image.ConfigFile()
		if err := errors.Join(digestErr, manifestErr, configErr); err != nil {
			return nil, fmt.Errorf("reading image %q: %w", pinned, err)
		}
		results[i] = registry.PlatformResult{Platform: v1.Platform{OS: config.OS, Architecture: config.Architecture}, Digest: digest}
		for _, layer := range manifest.Layers {
			results[i].Size += layer.Size
			results[i].Layers = append(results[i].Layers, layer.Size)
		}
	}
	return results, nil
}

// identity is the label that an image has to have, with the key that it says.
type identity struct{ label, key string }

// find finds the image with a key under its tag, by digest; empty where there is none. What has the
// tag and does not say, in the label, that it is that image is none: someone else may have pushed
// it.
func find(ctx context.Context, push *registry.Client, t order.Target, is identity, platforms []recipe.Platform) (string, error) {
	look := push.Exists
	if is.label == mcfgv1.ImageLabelContentKey { // which has the next tag where the first can't be moved
		look = push.Newest
	}
	digest, found, err := look(ctx, t.Repository, t.Tag)
	if registry.IsDenied(err) {
		return "", nil // whoever may not read may still write
	}
	if err != nil || !found {
		return "", err
	}
	image := t.Repository + "@" + digest.String()
	for _, p := range platforms {
		labels, err := push.Labels(ctx, image, p.Platform)
		if registry.IsNotFound(err) || err == nil && labels[is.label] != is.key {
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
	return image, nil
}
