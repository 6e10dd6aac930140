package signaturepolicy

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Paths of the files.
const (
	PolicyPath = "/etc/containers/policy.json"
	// RegistryPath is the name that OpenShift gives the file too, when it writes it for a
	// ClusterImagePolicy. Two files that say something about the same repository would make each
	// pull on the node fail, whatever they say; of two files with one name the last one counts.
	RegistryPath = RegistriesDir + "/sigstore-registries.yaml"
	// RegistriesDir is where other files of its kind are.
	RegistriesDir = "/etc/containers/registries.d"
)

// Repository is a repository, and the keys of which one has to have signed what is pulled from it,
// or the identity. It is either keys or an identity: nodes have no way to say that one of both is
// enough.
type Repository struct {
	// Name is with the registry's host and without a tag, such as registry.example.com/os/worker.
	// Nodes go by it for the repositories below too.
	Name string
	// Below reports whether those below are meant, and not Name itself: then Name may be a
	// registry's host alone.
	Below bool
	// Keys are public keys in PEM. While keys are rotated there are two.
	Keys [][]byte
	// Identity is who signs without a key.
	Identity *Identity
}

// Identity is who has to have signed with a certificate of Fulcio's, in Rekor.
type Identity struct {
	// Email is the address that the certificate is for. Nodes know no other subjects.
	Email string
	// Issuer is the URL of the OpenID Connect provider that said so to Fulcio.
	Issuer string
	// Roots are Fulcio's root certificates in PEM, one after another.
	Roots []byte
	// LogKeys are the public keys of Rekor in PEM. While they are exchanged there are two.
	LogKeys [][]byte
}

// Files are the content of the files, by path.
type Files map[string][]byte

// MakeFiles makes the files for repositories. What the node would have at their paths without them
// is kept for all other images; a policy that is not there accepts everything.
//
// What is there about one of the repositories is an error: neither of two can be meant. It is no
// error if it wants nothing but signatures of the repository's keys, as what a ClusterImagePolicy
// of ours became: then it is replaced.
//
// A policy that accepts everything by default is written anew with the same meaning: every
// transport accepts everything, and the default, which then concerns none of them, is to reject.
// bootc and rpm-ostree, told to insist on signatures, refuse every image where the default accepts
// anything.
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

// Accept makes a policy accept images, which are named by their digests, without a signature; it
// stays as it is for all others. It is for images that whoever asks knows to be the ones that are
// wanted.
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

// Enforce reports whether files make nodes insist on a signature of one of the repository's keys,
// or of its identity, and look for it.
func Enforce(files Files, r Repository) bool {
	policy, err := readPolicy(files[PolicyPath])
	if err != nil {
		return false
	}
	wanted, err := r.requirements()
	if there := policy.transports[dockerTransport][r.Name]; err != nil || !isOfKeys(there, r.Keys) && !isSame(there, wanted) {
		return false
	}
	registries, err := readRegistries(files[RegistryPath])
	return err == nil && registries.looksForSignatures(r.Name)
}

// Says reports whether a policy has something to say about a repository itself.
func Says(policy []byte, r Repository) bool {
	p, err := readPolicy(policy)
	if err != nil {
		return false
	}
	_, has := p.transports[dockerTransport][r.Name]
	return has
}

// Types of requirements, and of how the name in a signature is compared
// (containers-policy.json(5)).
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

// set sets the requirements of a scope, and reports whether it did: what is there stays.
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
	slash := strings.LastIndex(r.Name, "/")
	if r.Name == "" || strings.ContainsAny(r.Name, "@ *") || slash == len(r.Name)-1 || slash < 0 && !r.Below {
		return errors.New("it has to be a repository with its registry's host, such as registry.example.com/os/worker")
	}
	if _, tag, has := strings.Cut(r.Name[max(slash, 0):], ":"); has && slash >= 0 { // that of a host alone is its port
		return fmt.Errorf("it must not have the tag %q", tag)
	}
	text, err := r.requirements()
	if err != nil {
		return err
	}
	if there := p.transports[dockerTransport][r.Name]; isOfKeys(there, r.Keys) || isSame(there, text) {
		delete(p.transports[dockerTransport], r.Name)
	}
	if !p.set(dockerTransport, r.Name, text) {
		return fmt.Errorf("%s says something about it already; remove that", PolicyPath)
	}
	return nil
}

// isOfKeys reports whether requirements are met by signatures of the keys alone, for the repository
// that they name.
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

// isSame reports whether two texts are the same JSON.
func isSame(x, y []byte) bool {
	var first, second any
	return json.Unmarshal(x, &first) == nil && json.Unmarshal(y, &second) == nil && reflect.DeepEqual(first, second)
}

// requirements are what has to be met by what is pulled from it.
func (r Repository) requirements() (json.RawMessage, error) {
	requirement := map[string]any{"type": sigstoreSigned, "signedIdentity": map[string]string{"type": matchRepository}}
	if err := r.trust(requirement); err != nil {
		return nil, err
	}
	return json.Marshal([]any{requirement})
}

// trust says in a requirement who has to have signed.
func (r Repository) trust(requirement map[string]any) error {
	if r.Identity == nil {
		if len(r.Keys) == 0 {
			return errors.New("without a key it would accept no image")
		}
		return setKeys(requirement, "keyData", r.Keys)
	}
	if len(r.Keys) > 0 {
		return errors.New("it can't have both keys and an identity: nodes would want the signatures of both")
	}
	i := r.Identity
	if !strings.Contains(i.Email, "@") || strings.Contains(i.Email, "://") {
		return fmt.Errorf("nodes know signers by email address alone, and %q is none", i.Email)
	}
	if block, _ := pem.Decode(i.Roots); i.Issuer == "" || block == nil || block.Type != "CERTIFICATE" || len(i.LogKeys) == 0 {
		return errors.New("an identity needs an issuer, root certificates in PEM and the public key of the transparency log")
	}
	requirement["fulcio"] = map[string]any{"caData": i.Roots, "oidcIssuer": i.Issuer, "subjectEmail": i.Email}
	return setKeys(requirement, "rekorPublicKeyData", i.LogKeys)
}

// setKeys sets a field to a key, or the one with an s to several.
func setKeys(requirement map[string]any, field string, keys [][]byte) error {
	for _, key := range keys {
		if block, rest := pem.Decode(key); block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
			return errors.New("each key has to be one public key in PEM")
		}
	}
	if len(keys) == 1 {
		requirement[field] = keys[0]
	} else {
		requirement[field+"s"] = keys
	}
	return nil
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
