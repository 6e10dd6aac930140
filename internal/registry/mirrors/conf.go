package mirrors

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// conf is what is read of registries.conf. What else there is, is for those who use short names, or
// keep credentials on hosts.
type conf struct {
	Registries []registry     `toml:"registry"`
	V1         map[string]any `toml:"registries"`
}

type registry struct {
	endpoint

	Prefix             string     `toml:"prefix"`
	Mirrors            []endpoint `toml:"mirror"`
	Blocked            bool       `toml:"blocked"`
	MirrorByDigestOnly bool       `toml:"mirror-by-digest-only"`
}

type endpoint struct {
	Location       string `toml:"location"`
	PullFromMirror Use    `toml:"pull-from-mirror"`
}

// ParseConf reads registries.conf. Of several entries for a prefix, the first counts.
func ParseConf(text []byte) (Rules, error) {
	var parsed conf
	if err := toml.Unmarshal(text, &parsed); err != nil {
		var syntax toml.ParseError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("line %d: %s", syntax.Position.Line, syntax.Message)
		}
		return nil, err
	}
	if len(parsed.V1) > 0 {
		return nil, errors.New(`it has a table "registries", which is of version 1 of its format; write a [[registry]] for each registry`)
	}
	var rules Rules
	for i := range parsed.Registries {
		rule, err := parsed.Registries[i].rule()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rules, func(r Rule) bool { return r.Prefix == rule.Prefix }) {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

func (r *registry) rule() (Rule, error) {
	location, err := locationOf(r.Location)
	if err != nil {
		return Rule{}, err
	}
	prefix, err := locationOf(r.Prefix)
	if err != nil {
		return Rule{}, err
	}
	isWildcard := strings.HasPrefix(prefix, "*.")
	switch {
	case prefix == "" && location == "":
		return Rule{}, errors.New("a [[registry]] has neither a prefix nor a location")
	case prefix == "":
		prefix = location
	case location == "" && !isWildcard:
		return Rule{}, fmt.Errorf("the [[registry]] with the prefix %q has no location", prefix)
	case isWildcard && strings.ContainsAny(prefix, "/@:"):
		return Rule{}, fmt.Errorf(`the prefix %q has to be "*." and a domain`, prefix)
	}
	if r.PullFromMirror != "" {
		return Rule{}, fmt.Errorf("pull-from-mirror of the [[registry]] %q is for a [[registry.mirror]] only", prefix)
	}
	rule := Rule{Prefix: prefix, Location: location, Blocked: r.Blocked}
	for _, mirror := range r.Mirrors {
		parsed, err := r.mirror(prefix, mirror)
		if err != nil {
			return Rule{}, err
		}
		rule.Mirrors = append(rule.Mirrors, parsed)
	}
	return rule, nil
}

func (r *registry) mirror(prefix string, mirror endpoint) (Mirror, error) {
	location, err := locationOf(mirror.Location)
	if err != nil {
		return Mirror{}, err
	}
	use := mirror.PullFromMirror
	switch {
	case location == "":
		return Mirror{}, fmt.Errorf("a [[registry.mirror]] of %q has no location", prefix)
	case use != "" && r.MirrorByDigestOnly:
		return Mirror{}, fmt.Errorf("%q has mirror-by-digest-only, and its mirror %q pull-from-mirror; only one of them may be set", prefix, location)
	case use != "" && use != All && use != DigestsOnly && use != TagsOnly:
		return Mirror{}, fmt.Errorf("pull-from-mirror of the mirror %q is %q; it has to be %q, %q or %q", location, use, All, DigestsOnly, TagsOnly)
	case r.MirrorByDigestOnly:
		use = DigestsOnly
	case use == "":
		use = All
	}
	return Mirror{Location: location, Use: use}, nil
}

func locationOf(text string) (string, error) {
	text = strings.TrimRight(text, "/")
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		return "", fmt.Errorf("the location %q is a URL; write it without the scheme", text)
	}
	return text, nil
}
