package trust

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/distribution/reference"
	"go.yaml.in/yaml/v3"

	"github.com/layerwright/layerwright/trust/sign"
)

// below is the end of an entry that means all repositories below a name.
const below = "/*"

// Policy is an administrator's trust policy. Its zero value trusts no one, and asks nothing more
// than a signature of the cluster's own images.
type Policy struct {
	// Own is what images in the repositories of MachineOSConfigs have to have beside the cluster's
	// signature.
	Own Demands
	// entries are those of other repositories, or of the same with other keys.
	entries []entry
}

// Demands are what an image has to have beside a signature.
type Demands struct {
	// Provenance reports whether there has to be provenance at all: it is set where any of the
	// others is.
	Provenance bool
	// Builders are the runDetails.builder.id of which the provenance has to have one; empty takes
	// any.
	Builders []string
	// NotOlderThan is how long ago the image may have been built; 0 takes any age.
	NotOlderThan time.Duration
}

// entry is what the policy says of a repository.
type entry struct {
	// name is the entry as it was written, repository that without the end that means all below.
	name, repository string
	below            bool
	keys             []*sign.PublicKey
	demands          Demands
}

// document is the policy as it is written.
type document struct {
	Own          demandsText `yaml:"own"`
	Repositories []entryText `yaml:"repositories"`
}

type demandsText struct {
	RequireProvenance *bool  `yaml:"requireProvenance"`
	NotOlderThan      string `yaml:"notOlderThan"`
}

type entryText struct {
	Repository  string   `yaml:"repository"`
	PublicKeys  string   `yaml:"publicKeys"`
	Builders    []string `yaml:"builders"`
	demandsText `yaml:",inline"`
}

// Parse reads a policy. What it does not know it refuses, with the line: a field that was mistyped
// must not open the cluster.
func Parse(text []byte) (*Policy, error) {
	var written document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	err := decoder.Decode(&written)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty; to trust no other signer, write `repositories: []`")
	}
	if err != nil {
		return nil, plainly(err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	policy := &Policy{}
	if policy.Own, err = written.Own.demands(nil); err != nil {
		return nil, fmt.Errorf("own: %w", err)
	}
	lines := linesOf(text)
	for i, e := range written.Repositories {
		at := fmt.Sprintf("repositories[%d]", i)
		if i < len(lines) {
			at = fmt.Sprintf("line %d: repository %q", lines[i], e.Repository)
		}
		parsed, err := e.parse()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		for _, other := range policy.entries {
			if other.name == parsed.name {
				return nil, fmt.Errorf("%s: it is there twice; write all its keys into one entry", at)
			}
		}
		policy.entries = append(policy.entries, parsed)
	}
	return policy, nil
}

// unknownField is how the YAML library says that it does not know a field.
var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainly is the first complaint of the YAML library, in words that know nothing of Go.
func plainly(err error) error {
	var wrong *yaml.TypeError
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if errors.As(err, &wrong) && len(wrong.Errors) > 0 {
		text = wrong.Errors[0]
	}
	return errors.New(unknownField.ReplaceAllString(text, `there is no field "$1"`))
}

// linesOf are the lines that the entries begin at; nil where there are none.
func linesOf(text []byte) []int {
	var root struct {
		Repositories []yaml.Node `yaml:"repositories"`
	}
	if yaml.Unmarshal(text, &root) != nil {
		return nil
	}
	lines := make([]int, len(root.Repositories))
	for i := range root.Repositories {
		lines[i] = root.Repositories[i].Line
	}
	return lines
}

func (e entryText) parse() (entry, error) {
	out := entry{name: e.Repository}
	out.repository, out.below = strings.CutSuffix(e.Repository, below)
	if err := checkRepository(out.repository, out.below); err != nil {
		return entry{}, err
	}
	var err error
	if out.keys, err = sign.ParsePublicKeys([]byte(e.PublicKeys)); err != nil {
		return entry{}, fmt.Errorf("publicKeys: %w", err)
	}
	if len(out.keys) == 0 {
		return entry{}, errors.New("publicKeys: it has to have a public key in PEM, or more of them after each other")
	}
	out.demands, err = e.demands(e.Builders)
	return out, err
}

func (d demandsText) demands(builders []string) (Demands, error) {
	out := Demands{Builders: builders, Provenance: len(builders) > 0 || d.NotOlderThan != ""}
	for _, id := range builders {
		if strings.TrimSpace(id) == "" {
			return Demands{}, errors.New("builders: an ID is empty")
		}
	}
	if d.NotOlderThan != "" {
		age, err := time.ParseDuration(d.NotOlderThan)
		if err != nil || age <= 0 {
			return Demands{}, fmt.Errorf("notOlderThan: %q is no time such as 720h", d.NotOlderThan)
		}
		out.NotOlderThan = age
	}
	if d.RequireProvenance != nil {
		if !*d.RequireProvenance && out.Provenance {
			return Demands{}, errors.New("requireProvenance: it must not be false with builders or notOlderThan, which need the provenance")
		}
		out.Provenance = *d.RequireProvenance
	}
	return out, nil
}

// checkRepository refuses what no image can be in, and what is written otherwise than images are
// compared. All below a registry is fine.
func checkRepository(name string, isPrefix bool) error {
	full, end := name, ""
	if isPrefix {
		full, end = name+"/x/x", "/x/x" // of a single one below docker.io the library would be meant
	}
	parsed, err := reference.ParseNormalizedNamed(full)
	switch {
	case name == "" || err != nil:
		return errors.New("repository: it is no name of a repository, such as quay.io/corp/os, or quay.io/corp/* for all below that")
	case parsed.Name() != full && !reference.IsNameOnly(parsed):
		return errors.New("repository: leave out the tag and the digest; an entry is about all images of the repository")
	case parsed.Name() != full:
		written := strings.TrimSuffix(parsed.Name(), end)
		if isPrefix {
			written += below
		}
		return fmt.Errorf("repository: write it with its registry, %q", written)
	}
	return nil
}

// covers reports whether the entry is about a repository.
func (e *entry) covers(repository string) bool {
	if e.below {
		return strings.HasPrefix(repository, e.repository+"/")
	}
	return repository == e.repository
}

// For is what the policy says of a repository, which is named with its registry: the entry with
// exactly this name, or else the longest one of those that it is below. False where there is none.
func (p *Policy) For(repository string) (Rule, bool) {
	var best *entry
	for i := range p.entries {
		e := &p.entries[i]
		if e.covers(repository) && (best == nil || !e.below || best.below && len(e.repository) > len(best.repository)) {
			best = e
		}
	}
	if best == nil {
		return Rule{}, false
	}
	return Rule{Whose: fmt.Sprintf("the trust policy's %s", best.name), Trusted: sign.Trusted{Keys: best.keys}, Demands: best.demands}, true
}

// Repository is an entry of a policy: who is trusted for a repository, or for all repositories
// below a name.
type Repository struct {
	// Name is with the registry, and without the end that means all below. Below reports whether it
	// had that: then it is not about Name itself.
	Name  string
	Below bool
	// Keys are those of which one has to have signed.
	Keys []*sign.PublicKey
}

// Repositories are the entries of the policy, as they were written.
func (p *Policy) Repositories() []Repository {
	out := make([]Repository, len(p.entries))
	for i, e := range p.entries {
		out[i] = Repository{Name: e.repository, Below: e.below, Keys: e.keys}
	}
	return out
}
