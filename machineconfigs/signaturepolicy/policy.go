package signaturepolicy

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Paths of the files.
const (
	PolicyPath = "/etc/containers/policy.json"
	// RegistryPath is the name that OpenShift gives the file too, when it writes it for a ClusterImagePolicy. Two files that say something about
	// the same repository would make each pull on the node fail, whatever they say; of two files with one name the last one counts.
	RegistryPath = "/etc/containers/registries.d/sigstore-registries.yaml"
)

// Repository is a repository, and the keys of which one has to have signed what is pulled from it.
type Repository struct {
	// Name is with the registry's host and without a tag, such as registry.example.com/os/worker.
	Name string
	// Keys are public keys in PEM. While keys are exchanged there are two.
	Keys [][]byte
}

// Files are the content of the files, by path.
type Files map[string][]byte

// MakeFiles makes the files for repositories. What the node would have at their paths without them is kept for all other images; a policy that is
// not there accepts everything.
//
// What is there about one of the repositories is an error: neither of two can be meant. It is no error if it wants nothing but signatures of the
// repository's keys, as what a ClusterImagePolicy of ours became: then it is replaced.
//
// A policy that accepts everything by default is written anew with the same meaning: every transport accepts everything, and the default, which then
// concerns none of them, is to reject. bootc and rpm-ostree, told to insist on signatures, refuse every image where the default accepts anything.
func MakeFiles(there Files, repositories []Repository) (Files, error) {
	known, err := readPolicy(there[PolicyPath])
	if err != nil {
		return nil, err
	}
	registries, err := readRegistries(there[RegistryPath])
	if err != nil {
		return nil, err
	}
	known.narrowDefault()
	for _, r := range repositories {
		if err := known.require(r); err != nil {
			return nil, fmt.Errorf("repository %q: %w", r.Name, err)
		}
		registries.lookForSignatures(r.Name)
	}
	text, err := known.encode()
	if err != nil {
		return nil, err
	}
	list, err := yaml.Marshal(registries)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", RegistryPath, err)
	}
	return Files{PolicyPath: text, RegistryPath: list}, nil
}

// Accept makes a policy accept images, which are named by their digests, without a signature; it stays as it is for all others. It is for images that
// whoever asks knows to be the ones that are wanted.
func Accept(text []byte, images ...string) ([]byte, error) {
	known, err := readPolicy(text)
	if err != nil {
		return nil, err
	}
	for _, image := range images {
		if !strings.Contains(image, "@") {
			return nil, fmt.Errorf("image %q: it has to be named by its digest", image)
		}
		delete(known.transports[dockerTransport], image)
		known.set(dockerTransport, image, json.RawMessage(`[{"type":"`+acceptAnything+`"}]`))
	}
	return known.encode()
}

// Enforce tells whether files make nodes insist on a signature of one of the repository's keys, and look for it.
func Enforce(files Files, r Repository) bool {
	policy, err := readPolicy(files[PolicyPath])
	if err != nil || !isOfKeys(policy.transports[dockerTransport][r.Name], r.Keys) {
		return false
	}
	registries, err := readRegistries(files[RegistryPath])
	return err == nil && registries.looksForSignatures(r.Name)
}

// Types of requirements, and of how the name in a signature is compared (containers-policy.json(5)).
const (
	acceptAnything  = "insecureAcceptAnything"
	reject          = "reject"
	sigstoreSigned  = "sigstoreSigned"
	matchRepository = "matchRepository"
	dockerTransport = "docker"
)

// transports are those that a default is spelled out for.
var transports = []string{"containers-storage", "dir", dockerTransport, "docker-archive", "docker-daemon", "oci", "oci-archive"}

// policy is a policy.json. What is not understood in it is kept as it is.
type policy struct {
	fields     map[string]json.RawMessage
	standard   []json.RawMessage
	transports map[string]map[string]json.RawMessage
}

func readPolicy(text []byte) (*policy, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`)
	}
	p := &policy{transports: map[string]map[string]json.RawMessage{}}
	if err := json.Unmarshal(text, &p.fields); err != nil {
		return nil, fmt.Errorf("reading %s: %w", PolicyPath, err)
	}
	if err := json.Unmarshal(p.fields["default"], &p.standard); err != nil || len(p.standard) == 0 {
		return nil, fmt.Errorf("reading %s: it has no requirements as its default", PolicyPath)
	}
	if raw, has := p.fields["transports"]; has {
		if err := json.Unmarshal(raw, &p.transports); err != nil {
			return nil, fmt.Errorf("reading %s: transports: %w", PolicyPath, err)
		}
	}
	return p, nil
}

// narrowDefault spells out a default that accepts everything, transport by transport.
func (p *policy) narrowDefault() {
	for _, requirement := range p.standard { // all of them have to be met
		if typeOf(requirement) != acceptAnything {
			return
		}
	}
	for _, transport := range transports {
		p.set(transport, "", json.RawMessage(`[{"type":"`+acceptAnything+`"}]`))
	}
	p.standard = []json.RawMessage{json.RawMessage(`{"type":"` + reject + `"}`)}
}

func typeOf(requirement json.RawMessage) string {
	var typed struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(requirement, &typed) != nil {
		return ""
	}
	return typed.Type
}

// set sets the requirements of a scope, and tells whether it did: what is there stays.
func (p *policy) set(transport, scope string, requirements json.RawMessage) bool {
	if p.transports[transport] == nil {
		p.transports[transport] = map[string]json.RawMessage{}
	}
	if _, has := p.transports[transport][scope]; has {
		return false
	}
	p.transports[transport][scope] = requirements
	return true
}

// require makes signatures necessary in a repository.
func (p *policy) require(r Repository) error {
	if r.Name == "" || strings.ContainsAny(r.Name, "@ *") || strings.HasSuffix(r.Name, "/") || !strings.Contains(r.Name, "/") {
		return errors.New("it has to be a repository with its registry's host, such as registry.example.com/os/worker")
	}
	if _, tag, has := strings.Cut(r.Name[strings.LastIndex(r.Name, "/"):], ":"); has {
		return fmt.Errorf("it must not have the tag %q", tag)
	}
	if len(r.Keys) == 0 {
		return errors.New("without a key it would accept no image")
	}
	for _, key := range r.Keys {
		if block, rest := pem.Decode(key); block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
			return errors.New("each key has to be one public key in PEM")
		}
	}
	if isOfKeys(p.transports[dockerTransport][r.Name], r.Keys) {
		delete(p.transports[dockerTransport], r.Name)
	}
	requirement := map[string]any{"type": sigstoreSigned, "signedIdentity": map[string]string{"type": matchRepository}}
	if len(r.Keys) == 1 {
		requirement["keyData"] = r.Keys[0]
	} else {
		requirement["keyDatas"] = r.Keys
	}
	text, err := json.Marshal([]any{requirement})
	if err != nil {
		return err
	}
	if !p.set(dockerTransport, r.Name, text) {
		return fmt.Errorf("%s says something about it already; remove that", PolicyPath)
	}
	return nil
}

// isOfKeys tells whether requirements are met by signatures of the keys alone, for the repository that they name.
func isOfKeys(requirements json.RawMessage, keys [][]byte) bool {
	var list []struct {
		Type           string            `json:"type"`
		KeyData        []byte            `json:"keyData"`
		KeyDatas       [][]byte          `json:"keyDatas"`
		SignedIdentity map[string]string `json:"signedIdentity"`
	}
	decoder := json.NewDecoder(bytes.NewReader(requirements))
	decoder.DisallowUnknownFields() // whatever it is, it asks for something else
	if err := decoder.Decode(&list); err != nil || len(list) == 0 {
		return false
	}
	for _, one := range list {
		if one.KeyData != nil {
			one.KeyDatas = append(one.KeyDatas, one.KeyData)
		}
		if one.Type != sigstoreSigned || len(one.KeyDatas) == 0 || one.SignedIdentity["type"] != matchRepository {
			return false
		}
		for _, key := range one.KeyDatas {
			if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(bytes.TrimSpace(k), bytes.TrimSpace(key)) }) {
				return false
			}
		}
	}
	return true
}

func (p *policy) encode() ([]byte, error) {
	fields := map[string]any{}
	for key, value := range p.fields {
		fields[key] = value
	}
	fields["default"], fields["transports"] = p.standard, p.transports
	text, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", PolicyPath, err)
	}
	return append(text, '\n'), nil
}

// Paths are those of the files, sorted.
func (f Files) Paths() []string { return slices.Sorted(maps.Keys(f)) }
