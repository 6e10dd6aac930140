package dockerconfig

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// Store has the credentials of one secret. It is a keychain for go-containerregistry, never
// changes, and may be used by several goroutines. Printing, logging or marshalling it shows the
// names of the servers and nothing more.
type Store struct {
	entries []entry
	empty   []emptyEntry
	ignored []string
}

// emptyEntry is a server without credentials.
type emptyEntry struct {
	pattern pattern
	problem *problem
	err     error
}

// entry has the credentials of one server.
type entry struct {
	server  string // as it is spelled in the secret
	pattern pattern
	login   *Login
}

var _ authn.Keychain = (*Store)(nil)

// Resolve finds the credentials for a repository or a registry by the kubelet's rules: the host has
// to match label by label, where a label may have globs, the port has to be the same, and the
// repository has to begin with the path. The most specific entry wins: a host before a glob, then
// the longest path. Where there is none, it is authn.Anonymous, or an [Error] where the secret
// names the registry and has no credentials. Unlike the kubelet, which tries every entry that
// matches, it prefers "quay.io" to "quay.io/team" for the repository "quay.io/team-two".
func (s *Store) Resolve(target authn.Resource) (authn.Authenticator, error) {
	host := canonicalHost(target.RegistryStr())
	repository := strings.TrimPrefix(target.String(), target.RegistryStr())
	for _, below := range []func(pattern, string) bool{pattern.holds, pattern.begins} {
		for _, e := range s.entries {
			if e.pattern.matchesHost(host) && below(e.pattern, repository) {
				return e.login, nil
			}
		}
	}
	for _, e := range s.empty {
		if e.pattern.matchesHost(host) && e.pattern.holds(repository) {
			return nil, e.err
		}
	}
	return authn.Anonymous, nil
}

// Servers are the servers that there are credentials for, in the order in which Resolve looks.
func (s *Store) Servers() []string {
	servers := make([]string, len(s.entries))
	for i, e := range s.entries {
		servers[i] = e.server
	}
	return servers
}

// Ignored are the fields of the secret that were left out, such as "credsStore": they are settings
// of programs on the machine where the file was written.
func (s *Store) Ignored() []string { return slices.Clone(s.ignored) }

// DockerConfigJSON REVEALS the credentials: it is the file for those who can't take a keychain, as
// it goes under the key ".dockerconfigjson" of a secret. The same credentials give the same bytes,
// whatever the secret looked like.
func (s *Store) DockerConfigJSON() ([]byte, error) {
	type server struct {
		Auth          string `json:"auth,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}
	auths := map[string]server{}
	for _, e := range s.entries {
		config := e.login.reveal()
		auth := ""
		if config.Username != "" || config.Password != "" {
			auth = base64.StdEncoding.EncodeToString([]byte(config.Username + ":" + config.Password))
		}
		auths[e.pattern.String()] = server{Auth: auth, IdentityToken: config.IdentityToken, RegistryToken: config.RegistryToken}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(map[string]any{fieldAuths: auths}); err != nil {
		return nil, fmt.Errorf("writing registry credentials: %w", err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// String is the place as every client spells it.
func (p pattern) String() string {
	if p.host == name.DefaultRegistry && p.path == "" {
		return authn.DefaultAuthKey
	}
	if p.host == name.DefaultRegistry {
		return "docker.io" + p.path // which is what tools with paths in their keys say
	}
	return p.host + p.path
}

// sort puts the entries into the order in which Resolve looks.
func (s *Store) sort() {
	slices.SortFunc(s.entries, func(a, b entry) int { return a.pattern.compare(b.pattern) })
}

// String names the servers.
func (s *Store) String() string { return "registry credentials for " + strings.Join(s.Servers(), ", ") }

// GoString is String.
func (s *Store) GoString() string { return s.String() }

// Format writes String, whichever way it is asked for.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue is the servers, for log/slog.
func (s *Store) LogValue() slog.Value { return slog.AnyValue(s.Servers()) }

// MarshalLog is the servers, for logr.
func (s *Store) MarshalLog() any { return s.Servers() }

// MarshalJSON is the servers.
func (s *Store) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string][]string{"servers": s.Servers()})
}

// Login has the credentials for one server. Printing, logging or marshalling it shows that it is
// there, and nothing more.
type Login struct {
	// reveal is a function and no value, so that what walks through memory by reflection finds no
	// credential.
	reveal func() authn.AuthConfig
}

var _ authn.Authenticator = (*Login)(nil)

// hidden stands for a login.
const hidden = "REDACTED"

func newLogin(config authn.AuthConfig) *Login {
	return &Login{reveal: func() authn.AuthConfig { return config }}
}

// Authorization REVEALS the credentials. go-containerregistry calls it to log in.
func (l *Login) Authorization() (*authn.AuthConfig, error) {
	config := l.reveal()
	return &config, nil
}

func (l *Login) equal(other *Login) bool { return l.reveal() == other.reveal() }

// String shows nothing.
func (l *Login) String() string { return hidden }

// GoString shows nothing.
func (l *Login) GoString() string { return hidden }

// Format shows nothing, whichever way it is asked for.
func (l *Login) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue shows nothing, for log/slog.
func (l *Login) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalLog shows nothing, for logr.
func (l *Login) MarshalLog() any { return hidden }

// MarshalJSON shows nothing.
func (l *Login) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }
