package mirrors

import (
	"errors"
	"slices"

	"sigs.k8s.io/yaml"
)

// Entry says where the images of a source are besides, in the words of OpenShift's
// ImageDigestMirrorSet.
type Entry struct {
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

// ParseEntries reads a list of Entries, as YAML. Each has to have a source and mirrors.
func ParseEntries(text []byte) ([]Entry, error) {
	var entries []Entry
	if err := yaml.UnmarshalStrict(text, &entries); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(entries, func(e Entry) bool { return e.Source == "" || len(e.Mirrors) == 0 }) {
		return nil, errors.New("each entry has to have a source and mirrors")
	}
	return entries, nil
}

// Add adds entries. Those for one source add up, as on nodes: a source that one of them never
// contacts is asked for no image.
func (r Rules) Add(use Use, entries ...Entry) Rules {
	for _, entry := range entries {
		i := slices.IndexFunc(r, func(rule Rule) bool { return rule.Prefix == entry.Source })
		if i < 0 {
			i = len(r)
			r = append(r, Rule{Prefix: entry.Source})
		}
		for _, location := range entry.Mirrors {
			r[i].Mirrors = append(r[i].Mirrors, Mirror{Location: location, Use: use})
		}
		r[i].Blocked = r[i].Blocked || entry.MirrorSourcePolicy == neverContactSource
	}
	return r
}
