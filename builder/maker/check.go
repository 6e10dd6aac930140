package maker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// Check makes sure, before an image is signed, that what the registry has under its digest is what
// was asked for: the platforms, the labels, the base image's layers below all others, and the
// configuration layer on top. All is read by digest, so what is checked is what is signed.
func Check(ctx context.Context, o *order.Order, made *order.Image) error {
	resolved, err := o.Credentials.Push.Resolve(ctx, made.Pinned)
	if err != nil {
		return err
	}
	if err := checkPlatforms(o.Base.Platforms, resolved.Platforms, resolved.MediaType.IsIndex()); err != nil {
		return notAskedFor(made.Pinned, err)
	}
	labels, _ := o.Labels()
	for i, p := range o.Base.Platforms {
		base, err := o.Credentials.Pull.Image(ctx, o.Base.Image, p.Platform)
		if err != nil {
			return err
		}
		image, err := o.Credentials.Push.Image(ctx, made.Pinned, p.Platform)
		if err != nil {
			return err
		}
		facts, err := factsOf(base, image)
		if err != nil {
			return err
		}
		if i < len(made.Platforms) {
			facts.result = made.Platforms[i]
		}
		if err := facts.check(labels); err != nil {
			return notAskedFor(made.Pinned, fmt.Errorf("%s: %w", p.Platform.String(), err))
		}
	}
	return nil
}

// notAskedFor ends the build: what was pushed is not what was asked for, and signing it would vouch
// for it.
func notAskedFor(image string, why error) error {
	return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("the image %q is not the one that was asked for, and is not signed: %w", image, why))
}

// checkPlatforms makes sure that an index lists exactly the platforms that were asked for. A single
// image says itself what it is for.
func checkPlatforms(wanted []recipe.Platform, listed []v1.Platform, isIndex bool) error {
	if !isIndex {
		if len(wanted) != 1 {
			return fmt.Errorf("it is for one architecture, and %d were asked for", len(wanted))
		}
		return nil
	}
	if len(listed) != len(wanted) {
		return fmt.Errorf("it has %d architectures, and %d were asked for", len(listed), len(wanted))
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(listed, func(p v1.Platform) bool { return p.OS == w.Platform.OS && p.Architecture == w.Platform.Architecture }) {
			return fmt.Errorf("it lacks %s", w.Platform.String())
		}
	}
	return nil
}

// imageFacts are what is checked of the image of one architecture.
type imageFacts struct {
	labels map[string]string
	digest v1.Hash
	// base and image are the layers, as the configs and as the manifests list them: nodes and
	// scanners trust the second.
	base, image           []v1.Hash
	baseBlobs, imageBlobs []v1.Hash
	// result is what was pushed, as far as it is known.
	result registry.PlatformResult
}

func factsOf(base, image v1.Image) (*imageFacts, error) {
	below, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	baseManifest, err := base.Manifest()
	if err != nil {
		return nil, err
	}
	return &imageFacts{
		labels: config.Config.Labels, digest: digest, base: below.RootFS.DiffIDs, image: config.RootFS.DiffIDs,
		baseBlobs: blobsOf(baseManifest), imageBlobs: blobsOf(manifest),
	}, nil
}

// blobsOf are the layers of a manifest.
func blobsOf(manifest *v1.Manifest) []v1.Hash {
	blobs := make([]v1.Hash, len(manifest.Layers))
	for i := range manifest.Layers {
		blobs[i] = manifest.Layers[i].Digest
	}
	return blobs
}

// top is the highest layer.
func (f *imageFacts) top() v1.Hash {
	if len(f.imageBlobs) == 0 {
		return v1.Hash{}
	}
	return f.imageBlobs[len(f.imageBlobs)-1]
}

// isOn reports whether some layers begin with those of a base, which may have had one more.
func isOn(layers, base []v1.Hash, replaced bool) bool {
	if replaced && len(base) > 0 { // the base's own configuration layer gave way
		base = base[:len(base)-1]
	}
	return len(layers) >= len(base) && slices.Equal(layers[:len(base)], base)
}

func (f *imageFacts) check(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if got := f.labels[key]; got != labels[key] {
			return fmt.Errorf("its label %s is %q and not %q", key, got, labels[key])
		}
	}
	if replaced := f.result.Replaced; !isOn(f.image, f.base, replaced) || !isOn(f.imageBlobs, f.baseBlobs, replaced) {
		return errors.New("it is not built on the layers of its base image")
	}
	if f.result.Digest != (v1.Hash{}) && f.result.Digest != f.digest {
		return fmt.Errorf("it is %s, and %s was pushed", f.digest, f.result.Digest)
	}
	if wanted := f.result.Layer.Digest; wanted != (v1.Hash{}) && wanted != f.top() {
		return fmt.Errorf("its highest layer is %s and not the configuration, %s", f.top(), wanted)
	}
	return nil
}
