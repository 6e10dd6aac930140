package source

import (
	"cmp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/streams"
)

// Mirror says where the images of a source are besides, in the words of OpenShift's
// ImageDigestMirrorSet.
type Mirror struct {
	// Source is what is mirrored: a registry, or a repository with or without a name at its end,
	// such as quay.io/team. "*." at its beginning stands for the subdomains of a registry.
	Source string `json:"source"`
	// Mirrors are where to look first, in this order.
	Mirrors []string `json:"mirrors"`
	// MirrorSourcePolicy NeverContactSource looks nowhere else.
	MirrorSourcePolicy string `json:"mirrorSourcePolicy,omitempty"`
}

// neverContactSource is the value of mirrorSourcePolicy that makes mirrors the only place.
const neverContactSource = "NeverContactSource"

// Mirrors are the mirrors of a cluster, for images that are named by digest and by tag.
type Mirrors struct {
	Digests, Tags []Mirror
}

// ParseMirrors reads the key mirrors.yaml of a ConfigMap: a list of Mirrors, for images by digest
// alone. A mirror of tags says what an image is, which is for the cluster's own objects to say.
func ParseMirrors(configMap string, data map[string]string) (Mirrors, *streams.Problem) {
	var parsed []Mirror
	if err := yaml.UnmarshalStrict([]byte(data[KeyMirrors]), &parsed); err != nil {
		return Mirrors{}, invalidConfigMap("ConfigMap %q: key %q: %s", configMap, KeyMirrors, strings.SplitN(err.Error(), "\n", 2)[0]) //nolint:mnd // a line and the rest
	}
	for _, mirror := range parsed {
		if mirror.Source == "" || len(mirror.Mirrors) == 0 {
			return Mirrors{}, invalidConfigMap("ConfigMap %q: key %q: each entry has to have a source and mirrors", configMap, KeyMirrors)
		}
	}
	return Mirrors{Digests: parsed}, nil
}

// KeyMirrors is the key of a ConfigMap with mirrors.
const KeyMirrors = "mirrors.yaml"

// candidates are the places to look for an image, the best first: the mirrors of the longest source
// that it belongs to, then the image itself, unless its source may not be asked.
func (m Mirrors) candidates(image string) []string {
	table := m.Tags
	if streams.IsPinned(image) {
		table = m.Digests
	}
	matching := slices.DeleteFunc(slices.Clone(table), func(mirror Mirror) bool { return matched(mirror.Source, image) == "" })
	if len(matching) == 0 {
		return []string{image}
	}
	slices.SortStableFunc(matching, func(a, b Mirror) int { return cmp.Compare(len(b.Source), len(a.Source)) })
	var out []string
	closed := false
	for _, mirror := range matching {
		if mirror.Source != matching[0].Source {
			break // several entries for one source add up; shorter ones don't count
		}
		rest := strings.TrimPrefix(image, matched(mirror.Source, image))
		for _, place := range mirror.Mirrors {
			out = append(out, place+rest)
		}
		closed = closed || mirror.MirrorSourcePolicy == neverContactSource
	}
	if !closed {
		out = append(out, image)
	}
	return out
}

// matched is the part of an image's name that a source stands for; empty where it is not the
// image's source.
func matched(source, image string) string {
	prefix := source
	if domain, isWildcard := strings.CutPrefix(source, "*."); isWildcard {
		host, _, _ := strings.Cut(image, "/")
		if !strings.HasSuffix(host, "."+domain) {
			return ""
		}
		prefix = host
	}
	rest, ok := strings.CutPrefix(image, prefix)
	if !ok || rest == "" || !strings.ContainsAny(rest[:1], "/@:") {
		return ""
	}
	return prefix
}
