package streams

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// MaxStreams is how many streams an OSImageStream lists, and how many that can't be used.
const MaxStreams = 100

// Set are the streams of all sources.
type Set struct {
	// Available are those that pools can follow, by name.
	Available []mcfgv1.OSImageStreamSet
	// Unusable are the others, by name.
	Unusable []mcfgv1.UnusableOSImageStream
	// Problems are those of all sources, and those between them.
	Problems []Problem
	// Kept are the names of streams that are available as they were because a source that may have
	// them could not be read.
	Kept []string
}

// Merge joins what the sources give. Of several sources that have a stream the one of the highest
// precedence counts, among those that have it whole; each conflict is a problem of its own.
// Previous are the streams that have been available: one that a source of higher precedence may
// have, which could not be read or is in doubt, stays as it was.
func Merge(contributions []Contribution, previous []mcfgv1.OSImageStreamSet) Set {
	contributions = slices.SortedStableFunc(slices.Values(contributions), func(a, b Contribution) int { return cmp.Compare(a.Source, b.Source) })
	var set Set
	names := map[string]bool{}
	for _, c := range contributions {
		set.Problems = append(set.Problems, c.Problems...)
		for i := range c.Pairs {
			names[c.Pairs[i].Name] = true
		}
	}
	before := map[string]mcfgv1.OSImageStreamSet{}
	for _, stream := range previous {
		names[stream.Name], before[stream.Name] = true, stream
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		set.decide(name, contributions, before)
	}
	set.limit(before)
	return set
}

// decide finds the images of one stream.
func (s *Set) decide(name string, contributions []Contribution, before map[string]mcfgv1.OSImageStreamSet) {
	winner, spoiled := -1, (*Pair)(nil)
	isInDoubt := false
	for i := range contributions {
		pair := contributions[i].find(name)
		if pair != nil && pair.IsUsable() {
			s.tellConflict(contributions, winner, i, name)
			winner, isInDoubt = i, contributions[i].unsure[name]
			continue
		}
		if pair != nil {
			spoiled = pair
		}
		isInDoubt = isInDoubt || contributions[i].mayHave(name)
	}
	if old, had := before[name]; had && isInDoubt {
		s.Available = append(s.Available, mcfgv1.OSImageStreamSet{Name: name, OSImage: old.OSImage, OSExtensionsImage: old.OSExtensionsImage})
		s.Kept = append(s.Kept, name)
		return
	}
	switch {
	case winner >= 0:
		pair := contributions[winner].find(name)
		s.Available = append(s.Available, mcfgv1.OSImageStreamSet{
			Name: name, OSImage: mcfgv1.ImageDigestFormat(pair.OSImage), OSExtensionsImage: mcfgv1.ImageDigestFormat(pair.ExtensionsImage),
		})
	case spoiled != nil && name != "":
		s.Unusable = append(s.Unusable, spoiled.asUnusable())
	}
}

// tellConflict notes that two sources have different images.
func (s *Set) tellConflict(contributions []Contribution, lower, higher int, name string) {
	if lower < 0 {
		return
	}
	a, b := contributions[lower].find(name), contributions[higher].find(name)
	if digestOf(a.OSImage) == digestOf(b.OSImage) && digestOf(a.ExtensionsImage) == digestOf(b.ExtensionsImage) {
		return
	}
	s.Problems = append(s.Problems, Problem{
		mcfgv1.StreamSourcesConflict, mcfgv1.ReasonOverridden,
		fmt.Sprintf("stream %q: the images of %s are used, and not those of %s", name, contributions[higher].Source, contributions[lower].Source),
	})
}

// digestOf is what tells images apart: the same one may be in several registries.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

// limit keeps as many streams as there is room for: those that have been available first.
func (s *Set) limit(before map[string]mcfgv1.OSImageStreamSet) {
	if over := len(s.Available) - MaxStreams; over > 0 {
		message := fmt.Sprintf("there are %d streams, and an OSImageStream lists %d: %d are left out", len(s.Available), MaxStreams, over)
		s.Problems = append(s.Problems, Problem{mcfgv1.StreamTooMany, mcfgv1.ReasonTooManyStreams, message})
		kept := slices.Clone(s.Available)
		slices.SortStableFunc(kept, func(a, b mcfgv1.OSImageStreamSet) int {
			_, hadA := before[a.Name]
			_, hadB := before[b.Name]
			return cmp.Compare(rank(hadA), rank(hadB))
		})
		for _, stream := range kept[MaxStreams:] {
			s.Unusable = append(s.Unusable, mcfgv1.UnusableOSImageStream{
				Name: stream.Name, OSImage: string(stream.OSImage), OSExtensionsImage: string(stream.OSExtensionsImage),
				Reason: mcfgv1.ReasonTooManyStreams, Message: message,
			})
		}
		s.Available = kept[:MaxStreams]
		byName := func(a, b mcfgv1.OSImageStreamSet) int { return cmp.Compare(a.Name, b.Name) }
		slices.SortFunc(s.Available, byName)
	}
	slices.SortStableFunc(s.Unusable, func(a, b mcfgv1.UnusableOSImageStream) int { return cmp.Compare(a.Name, b.Name) })
	s.Unusable = slices.CompactFunc(s.Unusable, func(a, b mcfgv1.UnusableOSImageStream) bool { return a.Name == b.Name }) // cut names may be alike
	s.Unusable = s.Unusable[:min(len(s.Unusable), MaxStreams)]
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// Names are the names of streams, in their order.
func Names(available []mcfgv1.OSImageStreamSet) []string {
	names := make([]string, len(available))
	for i := range available {
		names[i] = available[i].Name
	}
	return names
}
