package host

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// requirement is what a policy asks of an image.
type requirement struct{ Type string }

// signaturePolicy is a containers-policy.json.
type signaturePolicy struct {
	Default    []requirement
	Transports map[string]map[string][]requirement
}

const insecureAcceptAnything = "insecureAcceptAnything"

// Admits reports whether a policy may let an image through whose signature is to be verified. bootc
// and rpm-ostree refuse any such image where the policy accepts everything by default, and all
// programs one that the policy rejects. That a policy accepts everything of the image's registry
// or repository, bootc and rpm-ostree do not mind: so the agent has to.
func Admits(policy []byte, image mcfgv1.ImageDigestFormat) (bool, error) {
	var p signaturePolicy
	if err := json.Unmarshal(policy, &p); err != nil {
		return false, fmt.Errorf("reading the host's policy for signatures of images: %w", err)
	}
	isA := func(kind string) func(requirement) bool {
		return func(r requirement) bool { return r.Type == kind }
	}
	asks := p.of(string(image))
	isAsked := slices.ContainsFunc(asks, func(r requirement) bool { return r.Type != insecureAcceptAnything })
	return isAsked && !slices.ContainsFunc(p.Default, isA(insecureAcceptAnything)) && !slices.ContainsFunc(asks, isA("reject")), nil
}

// of is what the policy asks of an image: by the image, or else by the names above it, by patterns
// of hosts, and by default.
func (p *signaturePolicy) of(image string) []requirement {
	scopes := p.Transports["docker"]
	name, _, _ := strings.Cut(image, "@")
	for _, scope := range []string{image, name} {
		if asks, has := scopes[scope]; has {
			return asks
		}
	}
	for at := strings.LastIndexByte(name, '/'); at >= 0; at = strings.LastIndexByte(name, '/') {
		name = name[:at]
		if asks, has := scopes[name]; has {
			return asks
		}
	}
	name, _, _ = strings.Cut(name, ":") // patterns have no port
	for at := strings.IndexByte(name, '.'); at >= 0; at = strings.IndexByte(name, '.') {
		if asks, has := scopes["*"+name[at:]]; has {
			return asks
		}
		name = name[at+1:]
	}
	if asks, has := scopes[""]; has {
		return asks
	}
	return p.Default
}
