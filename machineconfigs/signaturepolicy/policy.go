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
	PolicyPath   = "/etc/containers/policy.json"
	RegistryPath = "/etc/containers/registries.d/layerwright.yaml"
)

// Repository is a repository, and the keys of which one has to have signed what is pulled from it, or the identity. It is either keys or an identity:
// nodes have no way to say that one of both is enough.
type Repository struct {
	// Name is with the registry's host and without a tag, such as registry.example.com/os/worker.
	Name string
	// Keys are public keys in PEM. While keys are exchanged there are two.
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

// MakeFiles makes the files for repositories. The policy is what the node's /etc/containers/policy.json would be without them, empty where that is
// the usual one, which accepts everything: it is kept for all other images.
//
// A policy that accepts everything by default is written anew with the same meaning: every transport accepts everything, and the default, which then
// concerns none of them, is to reject. bootc and rpm-ostree refuse to enforce signatures where the default accepts anything.
func MakeFiles(policy []byte, repositories []Repository) (Files, error) {
	known, err := readPolicy(policy)
	if err != nil {
		return nil, err
	}
	known.narrowDefault()
	sigstore := map[string]map[string]bool{}
	for _, r := range repositories {
		if err := known.require(r); err != nil {
			return nil, fmt.Errorf("repository %q: %w", r.Name, err)
		}
		sigstore[r.Name] = map[string]bool{"use-sigstore-attachments": true}
	}
	text, err := known.encode()
	if err != nil {
		return nil, err
	}
	registries, err := yaml.Marshal(map[string]any{"docker": sigstore})
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", RegistryPath, err)
	}
	return Files{PolicyPath: text, RegistryPath: registries}, nil
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
	requirement := map[string]any{"type": sigstoreSigned, "signedIdentity": map[string]string{"type": matchRepository}}
	if err := r.trust(requirement); err != nil {
		return err
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
