package signaturepolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Demand is what nodes ask of the images of a repository.
type Demand struct {
	// Scope is the entry of the policy that decides: the repository, a name above it, or empty for
	// the default.
	Scope string
	// AcceptsAnything reports whether nodes ask for nothing, and Rejects whether they take no image
	// whatever signs it.
	AcceptsAnything, Rejects bool
	// Signed are those who have to have signed: each of them.
	Signed []Repository
	// Looks reports whether nodes look for signatures that are attached to images. Where they do
	// not, what has to be signed is refused.
	Looks bool
}

// DemandOf is what files make nodes ask of an image, which is named with its registry and pulled by
// digest; of a repository alone, it is what they ask of its images unless the policy names one of
// them. Requirements of other kinds than the ones that are made here are an error.
func DemandOf(files Files, pinned string) (Demand, error) {
	repository, _, _ := strings.Cut(pinned, "@")
	p, err := readPolicy(files[PolicyPath])
	if err != nil {
		return Demand{}, err
	}
	var d Demand
	list := p.standard
	for _, scope := range append(scopesOf(pinned), "") {
		raw, has := p.transports[dockerTransport][scope]
		if !has {
			continue
		}
		if d.Scope, list = scope, nil; json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return d, fmt.Errorf("reading %s: the requirements for %q are no list, or an empty one, with which nodes pull nothing", PolicyPath, scope)
		}
		break
	}
	d.AcceptsAnything = true
	for _, raw := range list {
		switch typeOf(raw) {
		case acceptAnything:
		case reject:
			d.Rejects, d.AcceptsAnything = true, false
		default:
			signed, err := readRequirement(raw)
			if err != nil {
				return d, fmt.Errorf("reading %s: the requirements for %q are of another kind than can be verified here: %w", PolicyPath, d.Scope, err)
			}
			signed.Name = repository
			d.Signed, d.AcceptsAnything = append(d.Signed, signed), false
		}
	}
	d.Looks, err = files.looks(pinned)
	return d, err
}

// readRequirement reads what setKeys and trust write, and what means the same.
func readRequirement(raw json.RawMessage) (Repository, error) {
	var r struct {
		Type     string   `json:"type"`
		KeyData  []byte   `json:"keyData"`
		KeyDatas [][]byte `json:"keyDatas"`
		Fulcio   *struct {
			CAData       []byte `json:"caData"`
			OIDCIssuer   string `json:"oidcIssuer"`
			SubjectEmail string `json:"subjectEmail"`
		} `json:"fulcio"`
		RekorKey       []byte            `json:"rekorPublicKeyData"`
		RekorKeys      [][]byte          `json:"rekorPublicKeyDatas"`
		SignedIdentity map[string]string `json:"signedIdentity"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields() // it would be left out of what is verified
	if err := decoder.Decode(&r); err != nil {
		return Repository{}, err
	}
	if r.Type != sigstoreSigned {
		return Repository{}, fmt.Errorf("type %q", r.Type)
	}
	// Of what is pulled by digest, both compare the repository.
	if identity := r.SignedIdentity["type"]; identity != "" && identity != matchRepository && identity != "matchRepoDigestOrExact" {
		return Repository{}, fmt.Errorf("signedIdentity of type %q", identity)
	}
	out := Repository{Keys: r.KeyDatas}
	if r.KeyData != nil {
		out.Keys = append(out.Keys, r.KeyData)
	}
	if (r.Fulcio == nil) != (len(out.Keys) > 0) {
		return Repository{}, errors.New("it has to have either keys or fulcio")
	}
	if r.Fulcio == nil && (r.RekorKey != nil || len(r.RekorKeys) > 0) {
		return Repository{}, errors.New("keys with rekorPublicKeyData: an entry of the transparency log is asked for too")
	}
	if r.Fulcio == nil {
		return out, nil
	}
	logs := r.RekorKeys
	if r.RekorKey != nil {
		logs = append(logs, r.RekorKey)
	}
	out.Identity = &Identity{Email: r.Fulcio.SubjectEmail, Issuer: r.Fulcio.OIDCIssuer, Roots: r.Fulcio.CAData, LogKeys: logs}
	return out, nil
}

// scopesOf are the scopes of an image, the closest first (containers-policy.json(5)).
func scopesOf(pinned string) []string {
	var scopes []string
	repository, _, hasDigest := strings.Cut(pinned, "@")
	if hasDigest {
		scopes = append(scopes, pinned)
	}
	for at := repository; at != "."; at = path.Dir(at) {
		scopes = append(scopes, at)
	}
	host, _, _ := strings.Cut(repository, "/")
	host, _, _ = strings.Cut(host, ":")
	for {
		_, rest, found := strings.Cut(host, ".")
		if !found {
			return scopes
		}
		host = rest
		scopes = append(scopes, "*."+rest)
	}
}

// looks reports whether nodes look for signatures of an image. What two files say twice is an
// error, as it is for nodes, which then pull nothing.
func (f Files) looks(pinned string) (bool, error) {
	docker := map[string]any{}
	var standard any
	for _, file := range f.Paths() {
		if file == PolicyPath {
			continue
		}
		r, err := readRegistries(f[file])
		if err != nil {
			return false, err
		}
		if there := r["default-docker"]; there != nil {
			if standard != nil {
				return false, fmt.Errorf("reading %s: another file has default-docker too", file)
			}
			standard = there
		}
		settings, _ := r[dockerField].(map[string]any)
		for scope := range settings {
			if _, has := docker[scope]; has {
				return false, fmt.Errorf("reading %s: another file has docker: %s too", file, scope)
			}
			docker[scope] = settings[scope]
		}
	}
	for _, at := range scopesOf(pinned) {
		if settings, has := docker[at].(map[string]any); has && settings[attachmentsField] != nil {
			return settings[attachmentsField] == true, nil
		}
	}
	settings, _ := standard.(map[string]any)
	return settings[attachmentsField] == true, nil
}
