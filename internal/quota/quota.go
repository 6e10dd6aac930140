package quota

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Place is what a refusal is about.
type Place struct {
	Namespace string
	// Field has the resources of the containers, such as spec.buildResources, and Owner is what it
	// is a field of.
	Field, Owner string
	// LimitRanges are the names of those in the namespace: the API server does not say which one it
	// was.
	LimitRanges []string
}

var (
	exceeded = regexp.MustCompile(`exceeded quota: ([^,\s]+), requested: (\S+), used: (\S+), limited: ([^\s.]\S*)`)
	failed   = regexp.MustCompile(`failed quota: ([^:\s]+): must specify (.+)`)
	// bound is a limit of a LimitRange, ratio one between limit and request, and below a default
	// limit that is less than what a container asks for.
	bound = regexp.MustCompile(`(minimum|maximum) (\S+) usage per (\w+) is (\S+?)(?:, but (request|limit) is ([^\s,\]]+)|\.\s+No (request|limit) is specified)`)
	ratio = regexp.MustCompile(`(\S+) max limit to request ratio per (\w+) is (\S+?), but`)
	below = regexp.MustCompile(`resources\.requests: Invalid value: "?([^":\s]+)"?: must be less than or equal to (\S+) limit of ([^\s,\]]+)`)
)

// IsOfLimitRange reports whether a LimitRange refuses a pod, so that the names of those in its
// namespace help.
func IsOfLimitRange(message string) bool {
	return bound.MatchString(message) || ratio.MatchString(message) || below.MatchString(message)
}

// Explain says which quota or LimitRange refuses a pod, and what to do. It is empty for a message
// about something else.
func (p *Place) Explain(message string) string {
	if m := exceeded.FindStringSubmatch(message); m != nil {
		return p.exceeded(m[1], m[2], m[3], m[4])
	}
	if m := failed.FindStringSubmatch(message); m != nil {
		return p.unspecified(m[1], m[2])
	}
	return p.limitRange(message)
}

// exceeded is about a quota that has no room. Where the whole of it is not enough, waiting does not
// help.
func (p *Place) exceeded(name, requested, used, limited string) string {
	has, most := amounts(used), amounts(limited)
	var facts, fields []string
	isTooMuch := false
	for _, pair := range strings.Split(requested, ",") {
		key, amount, _ := strings.Cut(pair, "=")
		facts = append(facts, fmt.Sprintf("%s=%s is needed, and %s of %s are used", key, amount, cmp.Or(has[key], "0"), cmp.Or(most[key], "0")))
		isTooMuch = isTooMuch || isMore(amount, most[key])
		if field := p.field(key); field != "" {
			fields = append(fields, field)
		}
	}
	text := fmt.Sprintf("ResourceQuota %q of namespace %q has no room: %s; ", name, p.Namespace, strings.Join(facts, ", "))
	if !isTooMuch {
		text += "it goes on by itself when there is room; to make room, "
	}
	text += "raise spec.hard of the ResourceQuota"
	if len(fields) > 0 {
		text += ", or lower " + p.of(fields)
	}
	return text
}

// unspecified is about a quota that counts what a container does not say. Newer API servers name
// the containers after each resource.
func (p *Place) unspecified(name, rest string) string {
	var resources, fields []string
	isTektons := false
	for part := range strings.SplitSeq(rest, ";") {
		keys, containers, _ := strings.Cut(part, " for: ")
		for key := range strings.SplitSeq(strings.TrimSpace(keys), ",") {
			resources = append(resources, key)
			if field := p.field(key); field != "" {
				fields = append(fields, field)
			}
		}
		isTektons = isTektons || slices.ContainsFunc(strings.FieldsFunc(containers, isBetweenNames), isOfTekton)
	}
	text := fmt.Sprintf("ResourceQuota %q of namespace %q counts %s, which not every container has: set %s",
		name, p.Namespace, strings.Join(resources, ", "), p.of(fields))
	if isTektons {
		text += ", and for Tekton's own containers default-container-resource-requirements in Tekton's ConfigMap config-defaults"
	}
	return text
}

func isBetweenNames(r rune) bool { return r == ',' || r == ' ' || r == '.' }

// isOfTekton reports whether Tekton adds a container of that name to its pods.
func isOfTekton(container string) bool {
	return slices.Contains([]string{"prepare", "place-scripts", "working-dir-initializer"}, container)
}

// limitRange is about everything in a message that a LimitRange refuses.
func (p *Place) limitRange(message string) string {
	var facts, fixes []string
	for _, m := range bound.FindAllStringSubmatch(message, -1) {
		what, to := m[5], "at least"
		if m[1] == "maximum" {
			to = "at most"
		}
		fact := fmt.Sprintf("%s %s per %s is %s, and the %s is %s", m[1], m[2], m[3], m[4], what, m[6])
		if what == "" {
			what = m[7]
			fact = fmt.Sprintf("%s %s per %s is %s, and there is no %s", m[1], m[2], m[3], m[4], what)
		}
		facts, fixes = append(facts, fact), append(fixes, fmt.Sprintf("%s.%ss.%s to %s %s", p.Field, what, m[2], to, m[4]))
	}
	for _, m := range ratio.FindAllStringSubmatch(message, -1) {
		facts = append(facts, fmt.Sprintf("the limit of %s per %s is at most %s times the request", m[1], m[2], m[3]))
		fixes = append(fixes, fmt.Sprintf("%s.requests.%s to at least 1/%s of the limit", p.Field, m[1], m[3]))
	}
	for _, m := range below.FindAllStringSubmatch(message, -1) {
		facts = append(facts, fmt.Sprintf("containers have a %s limit of %s by default, and the request is %s", m[2], m[3], m[1]))
		fixes = append(fixes, fmt.Sprintf("%s.limits.%s to at least %s", p.Field, m[2], m[1]))
	}
	if len(facts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of namespace %q: %s; in %s, set %s",
		p.limitRanges(), p.Namespace, strings.Join(unique(facts), ", "), p.Owner, strings.Join(unique(fixes), " and "))
}

func (p *Place) limitRanges() string {
	switch len(p.LimitRanges) {
	case 0:
		return "a LimitRange"
	case 1:
		return fmt.Sprintf("LimitRange %q", p.LimitRanges[0])
	}
	return fmt.Sprintf("one of the LimitRanges %q", p.LimitRanges)
}

// field is the field that says how much of a resource there is to be; empty for what is counted
// otherwise, such as pods.
func (p *Place) field(key string) string {
	switch {
	case strings.HasPrefix(key, "limits."), strings.HasPrefix(key, "requests."):
		return p.Field + "." + key
	case key == "cpu", key == "memory", key == "ephemeral-storage":
		return p.Field + ".requests." + key
	}
	return ""
}

func (p *Place) of(fields []string) string {
	return strings.Join(unique(fields), " and ") + " of " + p.Owner
}

// unique keeps the first of each: every container of a pod is refused for the same.
func unique(all []string) []string {
	var out []string
	for _, one := range all {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// amounts reads a list such as limits.cpu=1,pods=3.
func amounts(list string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(list, ",") {
		key, amount, _ := strings.Cut(pair, "=")
		out[key] = amount
	}
	return out
}

func isMore(amount, most string) bool {
	a, errA := resource.ParseQuantity(amount)
	b, errB := resource.ParseQuantity(most)
	return errA == nil && errB == nil && a.Cmp(b) > 0
}
