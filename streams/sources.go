package streams

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Keys of the ConfigMap machine-config-osimageurl.
const (
	KeyOSImage         = "baseOSContainerImage"
	KeyExtensionsImage = "baseOSExtensionsContainerImage"
	KeyReleaseVersion  = "releaseVersion"
)

// FromArguments are the images of a command line, which are one stream's, that their labels name.
func FromArguments(osImage, extensionsImage string) Gathered {
	g := Gathered{Source: SourceArguments}
	g.name("the OS image", "", RoleOS, osImage)
	g.name("the extensions image", "", RoleExtensions, extensionsImage)
	return g
}

// FromConfigMap are the images of the ConfigMap machine-config-osimageurl, which are one stream's,
// that their labels name. Release is the controller's, empty where there is none: a ConfigMap of
// another one is not used.
func FromConfigMap(data map[string]string, release string) Gathered {
	g := Gathered{Source: SourceConfigMap}
	if of := data[KeyReleaseVersion]; release != "" && of != "" && of != release {
		return g.fail(mcfgv1.StreamConfigMapInvalid, mcfgv1.ReasonOtherRelease,
			"%s belongs to release %q, but this controller to %q: it is used only if both are the same", g.Source, of, release)
	}
	if data[KeyOSImage] == "" && data[KeyExtensionsImage] == "" {
		return g.fail(mcfgv1.StreamConfigMapInvalid, mcfgv1.ReasonInvalid,
			"%s names no image: it has to have the keys %s and %s", g.Source, KeyOSImage, KeyExtensionsImage)
	}
	g.name("key "+KeyOSImage, "", RoleOS, data[KeyOSImage])
	g.name("key "+KeyExtensionsImage, "", RoleExtensions, data[KeyExtensionsImage])
	return g
}

// FromSpec are the images of spec.images, where a stream needs no extensions image.
func FromSpec(images []mcfgv1.OSImageStreamImages) Gathered {
	g := Gathered{Source: SourceSpec, OSOnly: true}
	for i := range images {
		stream := &images[i]
		g.name(fmt.Sprintf("osImage of %q", stream.Name), stream.Name, RoleOS, string(stream.OSImage))
		g.name(fmt.Sprintf("osExtensionsImage of %q", stream.Name), stream.Name, RoleExtensions, string(stream.OSExtensionsImage))
	}
	return g
}

// FromRelease are the images of a release that may be those of streams. All have to be named by
// digest.
func FromRelease(tags []Tag) Gathered {
	g := Gathered{Source: SourceRelease}
	for _, tag := range Candidates(tags) {
		where := fmt.Sprintf("tag %q", tag.Name)
		if CheckReference(tag.Image) == "" && !IsPinned(tag.Image) {
			g.Images = append(g.Images, Found{Where: where, Role: roleOfTag(tag.Name), Image: tag.Image, Problem: &Problem{
				mcfgv1.StreamDigestsInvalid, mcfgv1.ReasonInvalidImageReference,
				fmt.Sprintf("%s of %s: image %q has to be named by digest, since what a release consists of never changes", where, g.Source, tag.Image),
			}})
			continue
		}
		g.name(where, "", roleOfTag(tag.Name), tag.Image)
	}
	return g
}

// Failing is a source that could not be read at all.
func Failing(source Source, conditionType, reason, message string) Gathered {
	return Gathered{Source: source, Failed: true, Problems: []Problem{{conditionType, reason, message}}}
}

// name adds an image that a source names; none is no image.
func (g *Gathered) name(where, stream string, role Role, image string) {
	image = mcfgv1.WithoutTag(image)
	if image == "" {
		return
	}
	f := Found{Where: where, Stream: stream, Role: role, Image: image}
	if wrong := CheckReference(image); wrong != "" {
		f.Problem = &Problem{
			mcfgv1.StreamDigestsInvalid, mcfgv1.ReasonInvalidImageReference,
			fmt.Sprintf("%s of %s: image %q: %s", where, g.Source, cut(image, maxImage), wrong),
		}
	}
	g.Images = append(g.Images, f)
}

func (g *Gathered) fail(conditionType, reason, format string, args ...any) Gathered {
	g.Failed = true
	g.Problems = append(g.Problems, Problem{conditionType, reason, fmt.Sprintf(format, args...)})
	return *g
}

// imageStream is the part of an ImageStream of OpenShift that is read.
type imageStream struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Tags []struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
			From        *struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"from"`
		} `json:"tags"`
	} `json:"spec"`
}

// Release is the list of images of a release.
type Release struct {
	// Version is the release's, such as 4.21.0.
	Version string `json:"version,omitempty"`
	// Tags are the images.
	Tags []Tag `json:"tags,omitempty"`
	// SkewLimits are the oldest boot images that the release allows, as its image says it; empty
	// where it says nothing.
	SkewLimits string `json:"skewLimits,omitempty"`
}

// ParseImageStream reads the ImageStream of a release, its list of images, in JSON or YAML.
func ParseImageStream(content []byte) (Release, error) {
	var parsed imageStream
	if err := yaml.Unmarshal(content, &parsed); err != nil {
		return Release{}, fmt.Errorf("reading the list of images: %s", firstLine(err))
	}
	if parsed.Kind != "ImageStream" {
		return Release{}, fmt.Errorf("reading the list of images: it is of kind %q, and has to be an ImageStream", cut(parsed.Kind, maxShown))
	}
	var tags []Tag
	for _, tag := range parsed.Spec.Tags {
		if tag.From != nil {
			tags = append(tags, Tag{Name: tag.Name, Kind: tag.From.Kind, Image: tag.From.Name, Annotations: tag.Annotations})
		}
	}
	if len(tags) == 0 {
		return Release{}, errors.New("reading the list of images: it is empty")
	}
	return Release{Version: parsed.Metadata.Name, Tags: tags}, nil
}
