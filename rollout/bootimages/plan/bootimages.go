package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
)

// Keys of the ConfigMap with the boot images.
const (
	// KeyStream has the metadata of one stream, as JSON.
	KeyStream = "stream"
	// KeyStreams has those of several, as a JSON object by the streams' names.
	KeyStreams = "streams"
	// KeyReleaseVersion is the release that the ConfigMap is of.
	KeyReleaseVersion = "releaseVersion"
	// KeyStamp is the release that a node of the control plane has been updated to.
	KeyStamp = "MCOReleaseImageVersion"
)

// BootImages are the boot images of a release, by stream.
type BootImages struct {
	// Release is the release that they are of; empty where the ConfigMap does not say.
	Release string
	// Stamp is the release that a node of the control plane has been updated to; empty where no one
	// said.
	Stamp   string
	streams map[string]*stream.Stream
	// legacy is the one of KeyStream, whose name is rarely that of a pool's stream.
	legacy  *stream.Stream
	major   func(string) int
	variant func(string) string
}

// Parse reads the data of the ConfigMap. major is the major version that a stream's name says, 0
// where it says none, and variant what else it says.
func Parse(data map[string]string, major func(string) int, variant func(string) string) (*BootImages, error) {
	b := &BootImages{
		Release: data[KeyReleaseVersion], Stamp: data[KeyStamp], streams: map[string]*stream.Stream{}, major: major, variant: variant,
	}
	one, several := data[KeyStream], data[KeyStreams]
	if one == "" && several == "" {
		return nil, fmt.Errorf("it has neither the key %q nor the key %q", KeyStream, KeyStreams)
	}
	if one != "" {
		b.legacy = &stream.Stream{}
		if err := json.Unmarshal([]byte(one), b.legacy); err != nil {
			return nil, fmt.Errorf("reading key %q: %w", KeyStream, err)
		}
	}
	if several != "" {
		if err := json.Unmarshal([]byte(several), &b.streams); err != nil {
			return nil, fmt.Errorf("reading key %q: %w", KeyStreams, err)
		}
	}
	for name, s := range b.streams {
		if s == nil || len(s.Architectures) == 0 {
			return nil, fmt.Errorf("reading key %q: stream %q has no architectures", KeyStreams, name)
		}
	}
	if b.legacy != nil && len(b.legacy.Architectures) == 0 {
		return nil, fmt.Errorf("reading key %q: %w", KeyStream, errors.New("it has no architectures"))
	}
	return b, nil
}

// Names are the streams of KeyStreams.
func (b *BootImages) Names() []string { return slices.Sorted(maps.Keys(b.streams)) }

// find is the metadata of a stream, nil where there are none. Names may differ in how they are
// written, but not in major version and variant; a variant without boot images of its own starts
// from those of the plain stream. Without a name, only the metadata of KeyStream can be meant.
func (b *BootImages) find(name string) *stream.Stream {
	if s := b.streams[name]; s != nil {
		return s
	}
	wanted := b.major(name)
	if name == "" || wanted == 0 && len(b.streams) == 0 {
		return b.legacy
	}
	if wanted == 0 {
		return nil
	}
	if variant := b.variant(name); variant != "" {
		if found := b.like(wanted, variant); len(found) > 0 {
			return only(found)
		}
	}
	found := b.like(wanted, "")
	if len(found) == 0 && b.legacy != nil && majorOf(b.legacy, b.major) == wanted {
		return b.legacy
	}
	return only(found)
}

// isSame reports whether two names are of the same stream, written differently.
func (b *BootImages) isSame(one, other string) bool {
	return b.major(one) != 0 && b.major(one) == b.major(other) && b.variant(one) == b.variant(other)
}

// like are the streams of KeyStreams whose names say a major version and a variant.
func (b *BootImages) like(major int, variant string) []*stream.Stream {
	var found []*stream.Stream
	for _, name := range b.Names() {
		if b.major(name) == major && b.variant(name) == variant {
			found = append(found, b.streams[name])
		}
	}
	return found
}

// only is the one that there is; nil where there are several.
func only(found []*stream.Stream) *stream.Stream {
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// all are the metadata of all streams.
func (b *BootImages) all() []*stream.Stream {
	var out []*stream.Stream
	if b.legacy != nil {
		out = append(out, b.legacy)
	}
	for _, name := range b.Names() {
		out = append(out, b.streams[name])
	}
	return out
}

// majorOf is the major version of a stream: what its name says, or the releases of its artifacts
// where all agree.
func majorOf(s *stream.Stream, major func(string) int) int {
	if m := major(s.Stream); m != 0 {
		return m
	}
	found := 0
	for _, arch := range s.Architectures {
		for _, artifact := range arch.Artifacts {
			switch m := ParseVersion(artifact.Release).RHEL.Major; {
			case m == 0 || found != 0 && m != found:
				return 0
			default:
				found = m
			}
		}
	}
	return found
}

// architectures are the names of architectures, as Kubernetes has them and as streams do.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}

// annotationLabels is where the autoscaler, and who makes machine resources, says which labels the
// nodes will have.
const annotationLabels = "capacity.cluster-autoscaler.kubernetes.io/labels"

// architectureOf is the architecture of the machines, as streams name it. It is the one of the
// cluster's nodes where the resource says nothing, and there is only one.
func architectureOf(annotations map[string]string, ofCluster string) (string, *Problem) {
	named := ofCluster
	for label := range strings.SplitSeq(annotations[annotationLabels], ",") {
		if key, value, _ := strings.Cut(strings.TrimSpace(label), "="); key == "kubernetes.io/arch" {
			named = value
		}
	}
	if named == "" {
		return "", skip(ReasonNoArchitecture, "no architecture is known that all nodes of the cluster have, and annotation %s has no kubernetes.io/arch", annotationLabels)
	}
	arch, isKnown := architectures[named]
	if !isKnown {
		return "", failed(ReasonUnknownArchitecture, "architecture %q is unknown; correct annotation %s", named, annotationLabels)
	}
	return arch, nil
}
