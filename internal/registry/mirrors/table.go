package mirrors

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Rule says where the images below a prefix are read.
type Rule struct {
	// Prefix is a registry, a namespace or a repository, or "*." with the domain of registries.
	Prefix string
	// Location takes the place of the prefix where the source itself is asked; empty leaves it.
	Location string
	// Blocked forbids to ask the source: only mirrors are.
	Blocked bool
	// Mirrors are asked first, in this order.
	Mirrors []Mirror
}

// Mirror is another place for the images of a Rule.
type Mirror struct {
	// Location takes the place of the prefix.
	Location string
	// Use says for which images it is.
	Use Use
}

// Use is what a mirror is asked for, in the words of registries.conf.
type Use string

// Uses of mirrors. A mirror of tags says what an image is, one of digests can't.
const (
	All         Use = "all"
	DigestsOnly Use = "digest-only"
	TagsOnly    Use = "tag-only"
)

func (u Use) serves(isPinned bool) bool {
	switch u {
	case DigestsOnly:
		return isPinned
	case TagsOnly:
		return !isPinned
	default:
		return true
	}
}

// Rules are those of one source of configuration. The longest prefix decides.
type Rules []Rule

// Table are rules of several sources. The first that has a rule for an image decides.
type Table []Rules

// Places are where an image may be read, the best first, and places that may not be asked. The name
// of the image has to be whole, with registry, and tag or digest.
func (t Table) Places(image string) (places, blocked []string) {
	rule, rest := t.find(image)
	if rule == nil {
		return []string{image}, nil
	}
	add := func(place string, isBlocked bool) {
		switch {
		case slices.Contains(places, place) || slices.Contains(blocked, place):
		case isBlocked || t.blocks(place):
			blocked = append(blocked, place)
		default:
			places = append(places, place)
		}
	}
	for _, mirror := range rule.Mirrors {
		if mirror.Use.serves(strings.Contains(image, "@")) {
			add(mirror.Location+rest, false)
		}
	}
	if rule.Location != "" {
		add(rule.Location+rest, rule.Blocked)
	} else {
		add(image, rule.Blocked)
	}
	return places, blocked
}

// blocks reports whether a place may not be asked, be it a source or the mirror of another one.
func (t Table) blocks(place string) bool {
	rule, _ := t.find(place)
	return rule != nil && rule.Blocked
}

// find is the rule for an image, and what comes behind its prefix; nil where there is none.
func (t Table) find(image string) (found *Rule, rest string) {
	for _, rules := range t {
		for i := range rules {
			rule := &rules[i]
			if end, ok := matched(image, rule.Prefix); ok && (found == nil || len(rule.Prefix) > len(found.Prefix)) {
				found, rest = rule, image[end:]
			}
		}
		if found != nil {
			return found, rest
		}
	}
	return nil, ""
}

// matched is the length of what a prefix stands for in an image's name.
func matched(image, prefix string) (int, bool) {
	end := len(prefix)
	if domain, isWildcard := strings.CutPrefix(prefix, "*"); isWildcard {
		begin := strings.Index(image, domain)
		if begin < 0 || strings.Contains(image[:begin], "/") {
			return 0, false
		}
		end = begin + len(domain)
	} else if !strings.HasPrefix(image, prefix) {
		return 0, false
	}
	return end, end == len(image) || strings.ContainsAny(image[end:end+1], ":/@")
}

// Version identifies what a table says; empty where that is nothing.
func (t Table) Version() string {
	t = slices.DeleteFunc(slices.Clone(t), func(rules Rules) bool { return len(rules) == 0 })
	if len(t) == 0 {
		return ""
	}
	text, _ := json.Marshal(t) //nolint:errchkjson // strings and bools
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
