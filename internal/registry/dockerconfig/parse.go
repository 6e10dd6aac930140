package dockerconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
)

// keys are the keys that the types of secrets keep their content under.
var keys = map[corev1.SecretType]string{
	corev1.SecretTypeDockerConfigJson: corev1.DockerConfigJsonKey,
	corev1.SecretTypeDockercfg:        corev1.DockerConfigKey,
}

// Parse reads a registry secret. Either type may hold either format, as
// openshift/machine-config-operator allows: the newer one has its servers below "auths", the older
// one has nothing else. The other fields beside "auths" are settings of programs on the machine
// where the file was written; they are left out, and [Store.Ignored] has them. A server without
// credentials, which a credential helper leaves there, is an error once it is asked for.
//
// Every failure is an [Error], of the class Waiting: it is someone else who has to change the
// secret.
func Parse(secret *corev1.Secret) (*Store, error) {
	key, known := keys[secret.Type]
	if !known {
		return nil, (&problem{what: fmt.Sprintf("its type is %q, which is not a registry secret's", secret.Type), fix: fixType}).in(secret, "")
	}
	for _, other := range keys {
		if _, there := secret.Data[other]; there && other != key {
			p := &problem{what: fmt.Sprintf("it has the key %q, which does not go with its type %q", other, secret.Type), fix: fixType}
			return nil, p.in(secret, "")
		}
	}
	data, there := secret.Data[key]
	if !there {
		return nil, (&problem{what: "it lacks the key", fix: fixType}).in(secret, key)
	}
	store, err := parse(data)
	var p *problem
	if errors.As(err, &p) {
		return nil, p.in(secret, key)
	}
	for i := range store.empty {
		store.empty[i].err = store.empty[i].problem.in(secret, key)
	}
	return store, err
}

// parse reads the content of a secret. All its errors are problems.
func parse(data []byte) (*Store, error) {
	top, err := membersOf(data, "the content")
	if err != nil {
		return nil, err
	}
	store := &Store{}
	servers := top
	if slices.ContainsFunc(top, isTopLevel) {
		if servers, err = store.parseTop(top); err != nil {
			return nil, err
		}
	}
	if len(servers) == 0 {
		return nil, &problem{what: "it has no servers", fix: fixFormat}
	}
	for _, m := range servers {
		if err := store.add(m); err != nil {
			return nil, err
		}
	}
	if len(store.entries) == 0 {
		return nil, store.empty[0].problem
	}
	store.sort()
	return store, nil
}

// Fields beside the servers of the newer format.
const (
	fieldAuths       = "auths"
	fieldCredsStore  = "credsStore"
	fieldCredHelpers = "credHelpers"
)

func isTopLevel(m member) bool {
	return slices.ContainsFunc([]string{fieldAuths, fieldCredsStore, fieldCredHelpers}, m.is)
}

// parseTop gives the servers of the newer format.
func (s *Store) parseTop(top []member) (servers []member, err error) {
	for _, m := range top {
		switch {
		case m.is(fieldAuths):
			if servers, err = membersOf(m.value, "\""+fieldAuths+"\""); err != nil {
				return nil, err
			}
		default:
			s.ignored = append(s.ignored, cut(m.name))
		}
	}
	return servers, nil
}

// add reads the credentials of one server.
func (s *Store) add(m member) error {
	about, err := parsePattern(m.name)
	if err != nil {
		return err
	}
	login, err := parseLogin(m)
	if err != nil {
		var p *problem
		if !errors.As(err, &p) {
			return err
		}
		p.server = m.name
		if p.what == hasNone {
			s.empty = append(s.empty, emptyEntry{pattern: about, problem: p})
			return nil
		}
		return p
	}
	for _, other := range s.entries {
		if other.pattern != about {
			continue
		}
		if !other.login.equal(login) {
			return &problem{server: m.name, what: fmt.Sprintf("it has other credentials than %q, which names the same registry", other.server), fix: fixOne}
		}
		return nil
	}
	s.entries = append(s.entries, entry{server: m.name, pattern: about, login: login})
	return nil
}

// Fields of a server.
const (
	fieldAuth          = "auth"
	fieldUsername      = "username"
	fieldPassword      = "password"
	fieldEmail         = "email"
	fieldAddress       = "serveraddress"
	fieldIdentityToken = "identitytoken"
	fieldRegistryToken = "registrytoken"
)

// parseLogin reads the credentials of a server.
func parseLogin(server member) (*Login, error) {
	fields, err := membersOf(server.value, "the server")
	if err != nil {
		return nil, err
	}
	config, auth := authn.AuthConfig{}, ""
	targets := map[string]*string{
		fieldAuth: &auth, fieldUsername: &config.Username, fieldPassword: &config.Password, fieldEmail: nil, fieldAddress: nil,
		fieldIdentityToken: &config.IdentityToken, fieldRegistryToken: &config.RegistryToken,
	}
	for _, field := range fields {
		target, known := targets[strings.ToLower(field.name)]
		if !known {
			return nil, &problem{what: fmt.Sprintf("it has the unknown field %q", cut(field.name)), fix: "remove the field"}
		}
		if target == nil { // no one needs it
			continue
		}
		if *target, err = field.text(); err != nil {
			return nil, err
		}
	}
	if err := mergeAuth(&config, auth); err != nil {
		return nil, err
	}
	if err := checkComplete(config); err != nil {
		return nil, err
	}
	return newLogin(config), nil
}

// mergeAuth takes name and password from auth, which must not say anything else than the fields for
// them do.
func mergeAuth(config *authn.AuthConfig, auth string) error {
	if auth == "" {
		return nil
	}
	name, password, err := decodeAuth(auth)
	if err != nil {
		return err
	}
	if config.Username != "" && config.Username != name || config.Password != "" && config.Password != password {
		return &problem{what: "\"auth\" has another name or password than \"username\" and \"password\"", fix: fixOne}
	}
	config.Username, config.Password = name, password
	return nil
}

// decodeAuth reads the base64 of name:password, with or without padding.
func decodeAuth(auth string) (name, password string, err error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil { // its text tells where the bad character is, and no one needs that
		return "", "", &problem{what: "\"auth\" is no base64", fix: fixEntry}
	}
	name, password, found := strings.Cut(string(plain), ":")
	if !found {
		return "", "", &problem{what: "\"auth\" is not the base64 of name:password", fix: fixEntry}
	}
	return name, strings.TrimRight(password, "\x00"), nil // Docker used to pad with zeros
}

// hasNone is what is wrong with an empty server.
const hasNone = "it has no credentials"

// checkComplete refuses what no registry could accept. A name without a password goes with an
// identity token, as Azure's registry wants it.
func checkComplete(config authn.AuthConfig) error {
	tokens := config.IdentityToken != "" || config.RegistryToken != ""
	switch {
	case strings.Contains(config.Username, ":"):
		return &problem{what: "its user name has a colon, which HTTP basic authentication does not allow", fix: fixEntry}
	case tokens:
		return nil
	case config.Username == "" && config.Password == "":
		return &problem{what: hasNone, fix: fixEntry}
	case config.Username == "":
		return &problem{what: "it has a password and no name", fix: fixEntry}
	case config.Password == "":
		return &problem{what: "it has a name and no password", fix: fixEntry}
	}
	return nil
}
