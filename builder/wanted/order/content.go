package order

import (
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/names"
)

// Content is what has to be built for an image, below its configuration.
type Content struct {
	// Key identifies it. Content that sees the configuration changes with it.
	Key string
	// Platforms are those that something is built for: their images say which content they are.
	Platforms []recipe.Platform
}

// ContentOf is the content of a described image.
func ContentOf(r *recipe.Recipe) Content {
	c := Content{Key: r.Described.Keys.Content}
	for i, p := range r.Described.Platforms {
		if !p.HasContent {
			continue
		}
		c.Platforms = append(c.Platforms, r.Base.Platforms[i])
		if p.StartsFromConfigs() {
			c.Key = r.Described.Keys.Build
		}
	}
	return c
}

// In is the tag of the content in a repository.
func (c Content) In(repository string) Target {
	return Target{Repository: repository, Tag: names.ContentTag(c.Key)}
}

// Content is what has to be built for the image.
func (o *Order) Content() Content { return ContentOf(&o.Recipe) }

// ContentTarget is where that goes.
func (o *Order) ContentTarget() Target { return o.Content().In(o.Target.Repository) }

// MaxPulled is how many of the images that a build pulls the API server takes.
const MaxPulled = 128

// SetPulled leaves out what is no image by its digest, or more than a MachineOSBuild has room for,
// and counts it with those that are missing: pods and registries say what they like.
func (o *Order) SetPulled(images []mcfgv1.PulledImage, missing int) {
	all := len(images)
	images = slices.DeleteFunc(images, func(p mcfgv1.PulledImage) bool { return !isPulled(&p) })
	images = images[:min(len(images), MaxPulled)]
	const most = 1 << 16 // more than any Containerfile has room for
	o.Pulled = provenance.Pulled{Images: images, Missing: min(max(missing, 0), most) + all - len(images)}
}

func isPulled(p *mcfgv1.PulledImage) bool {
	const longest = 512
	if p.Name == "" || len(p.Name) > longest || len(p.Image) > longest {
		return false
	}
	if p.ManifestDigest != "" {
		if _, err := v1.NewHash(p.ManifestDigest); err != nil {
			return false
		}
	}
	_, err := name.NewDigest(p.Image, name.StrictValidation)
	return err == nil
}
