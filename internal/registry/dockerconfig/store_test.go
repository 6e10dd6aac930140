package dockerconfig_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
)

// of makes a store whose servers have themselves as the name to log in with.
func of(t *testing.T, servers ...string) *dockerconfig.Store {
	t.Helper()
	auths := map[string]map[string]string{}
	for _, server := range servers {
		auths[server] = map[string]string{"auth": auth("at " + clean(server) + ":" + password)}
	}
	content, err := json.Marshal(map[string]any{"auths": auths})
	require.NoError(t, err)
	return parse(t, newer(string(content)))
}

// clean takes the colons out, which a name may not have.
func clean(server string) string {
	return string(bytes.ReplaceAll([]byte(server), []byte(":"), []byte("_")))
}

func TestResolveFollowsTheKubelet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		servers    []string
		repository string
		want       string // a server, empty for none
	}{
		"the host":                         {servers: []string{"quay.io"}, repository: "quay.io/team/os", want: "quay.io"},
		"another host":                     {servers: []string{"quay.io"}, repository: "ghcr.io/team/os"},
		"a host's end is another host":     {servers: []string{"quay.io"}, repository: "evil-quay.io/team/os"},
		"a host's begin is another host":   {servers: []string{"quay.io"}, repository: "quay.io.evil.example/team/os"},
		"with a scheme":                    {servers: []string{"https://quay.io"}, repository: "quay.io/team/os", want: "https://quay.io"},
		"with a version":                   {servers: []string{"https://quay.io/v2/"}, repository: "quay.io/team/os", want: "https://quay.io/v2/"},
		"with a version and a path":        {servers: []string{"quay.io/v1/team"}, repository: "quay.io/team/os", want: "quay.io/v1/team"},
		"capitals":                         {servers: []string{"Quay.IO"}, repository: "quay.io/team/os", want: "Quay.IO"},
		"a slash at the end":               {servers: []string{"quay.io/"}, repository: "quay.io/team/os", want: "quay.io/"},
		"the port":                         {servers: []string{"reg.example:5000"}, repository: "reg.example:5000/os", want: "reg.example:5000"},
		"another port":                     {servers: []string{"reg.example:5000"}, repository: "reg.example:5001/os"},
		"no port is no pattern for ports":  {servers: []string{"reg.example"}, repository: "reg.example:5000/os"},
		"an address":                       {servers: []string{"10.0.0.1:5000"}, repository: "10.0.0.1:5000/os", want: "10.0.0.1:5000"},
		"an IPv6 address":                  {servers: []string{"[::1]:5000"}, repository: "[::1]:5000/os", want: "[::1]:5000"},
		"an IPv6 address, no port":         {servers: []string{"[fe80::1]"}, repository: "[fe80::1]/os", want: "[fe80::1]"},
		"a path":                           {servers: []string{"quay.io/team"}, repository: "quay.io/team/os", want: "quay.io/team"},
		"a whole repository":               {servers: []string{"quay.io/team/os"}, repository: "quay.io/team/os", want: "quay.io/team/os"},
		"another path":                     {servers: []string{"quay.io/team"}, repository: "quay.io/other/os"},
		"the longest path":                 {servers: []string{"quay.io", "quay.io/team", "quay.io/team/os"}, repository: "quay.io/team/os/x", want: "quay.io/team/os"},
		"the path that fits":               {servers: []string{"quay.io", "quay.io/team/os"}, repository: "quay.io/team/other", want: "quay.io"},
		"half a path, as the kubelet does": {servers: []string{"quay.io/team"}, repository: "quay.io/team-two/os", want: "quay.io/team"},
		"half a path is the last resort":   {servers: []string{"quay.io/team", "quay.io"}, repository: "quay.io/team-two/os", want: "quay.io"},
		"a glob":                           {servers: []string{"*.example.com"}, repository: "a.example.com/os", want: "*.example.com"},
		"a glob is one label":              {servers: []string{"*.example.com"}, repository: "a.b.example.com/os"},
		"two globs":                        {servers: []string{"*.*.example.com"}, repository: "a.b.example.com/os", want: "*.*.example.com"},
		"half a label":                     {servers: []string{"app*.example.com"}, repository: "app1.example.com/os", want: "app*.example.com"},
		"the top label":                    {servers: []string{"k8s.*"}, repository: "k8s.io/os", want: "k8s.*"},
		"a glob with a port":               {servers: []string{"*.example.com:5000"}, repository: "a.example.com:5000/os", want: "*.example.com:5000"},
		"a glob with another port":         {servers: []string{"*.example.com:5000"}, repository: "a.example.com/os"},
		"a glob with a path":               {servers: []string{"*.example.com/team"}, repository: "a.example.com/team/os", want: "*.example.com/team"},
		"no glob in a path":                {servers: []string{"a.example.com/*"}, repository: "a.example.com/team/os"},
		"a host before a glob":             {servers: []string{"*.example.com/team", "a.example.com"}, repository: "a.example.com/team/os", want: "a.example.com"},
		"a label's glob before a whole":    {servers: []string{"*.example.com", "a*.example.com"}, repository: "ab.example.com/os", want: "a*.example.com"},
		"Docker Hub, by its old address":   {servers: []string{"https://index.docker.io/v1/"}, repository: "nginx", want: "https://index.docker.io/v1/"},
		"Docker Hub, by its name":          {servers: []string{"docker.io"}, repository: "library/nginx", want: "docker.io"},
		"Docker Hub, by its server":        {servers: []string{"registry-1.docker.io"}, repository: "docker.io/library/nginx", want: "registry-1.docker.io"},
		"Docker Hub, one name":             {servers: []string{"docker.io/team", "docker.io"}, repository: "team/os", want: "docker.io/team"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := authn.AuthConfig{}
			if tt.want != "" {
				want = authn.AuthConfig{Username: "at " + clean(tt.want), Password: password}
			}
			assert.Equal(t, want, login(t, of(t, tt.servers...), tt.repository))
		})
	}
}

func TestResolveKnowsRegistriesToo(t *testing.T) {
	t.Parallel()
	registry, err := name.NewRegistry("quay.io")
	require.NoError(t, err)
	found, err := of(t, "quay.io", "quay.io/team").Resolve(registry)
	require.NoError(t, err)
	config, err := found.Authorization()
	require.NoError(t, err)
	assert.Equal(t, "at quay.io", config.Username)

	found, err = of(t, "quay.io/team").Resolve(registry)
	require.NoError(t, err)
	assert.Equal(t, authn.Anonymous, found)
}

func TestAnEmptyServerIsReportedToWhoNeedsIt(t *testing.T) {
	t.Parallel()
	store := parse(t, newer(`{"auths":{"docker.io":{},"ghcr.io/team":{},"quay.io":{"auth":"`+auth("bot:"+password)+`"},"quay.io/team":{}}}`))
	for repository, want := range map[string]string{
		"docker.io/library/os": `, key ".dockerconfigjson", server "docker.io": it has no credentials; give it "auth" (`,
		"ghcr.io/team/os":      `, key ".dockerconfigjson", server "ghcr.io/team": it has no credentials; give it "auth" (`,
		"ghcr.io/other/os":     "",
		"quay.io/team/os":      "",
		"registry.example/os":  "",
	} {
		target, err := name.NewRepository(repository)
		require.NoError(t, err)
		_, err = store.Resolve(target)
		if want == "" {
			require.NoError(t, err, repository)
			continue
		}
		require.ErrorContains(t, err, want)
		assert.Equal(t, fault.Waiting, fault.ClassOf(err))
	}
}

func TestCanonicalFormKeepsPlaces(t *testing.T) {
	t.Parallel()
	text, err := of(t, "docker.io", "docker.io/team", "https://QUAY.io/v2/", "*.example.com:5000/a/").DockerConfigJSON()
	require.NoError(t, err)
	var config struct{ Auths map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal(text, &config))
	var places []string
	for place := range config.Auths {
		places = append(places, place)
	}
	assert.ElementsMatch(t, []string{"https://index.docker.io/v1/", "docker.io/team", "quay.io", "*.example.com:5000/a"}, places)
}

func TestNothingPrintsCredentials(t *testing.T) {
	t.Parallel()
	store := of(t, "quay.io", "ghcr.io/team")
	target, err := name.NewRepository("quay.io/team/os")
	require.NoError(t, err)
	found, err := store.Resolve(target)
	require.NoError(t, err)
	inside := struct {
		Store    *dockerconfig.Store
		Login    authn.Authenticator
		keychain authn.Keychain
		byValue  dockerconfig.Store
	}{store, found, authn.NewMultiKeychain(store), *store}
	values := map[string]any{"store": store, "login": found, "inside others": inside, "pointer to others": &inside, "list": []any{store, found}}
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
				assertNoCredential(t, fmt.Sprintf(verb, value))
			}
			text, err := json.Marshal(value)
			require.NoError(t, err)
			assertNoCredential(t, string(text))
			logs := &bytes.Buffer{}
			slog.New(slog.NewTextHandler(logs, nil)).Info("Text", "value", value)
			slog.New(slog.NewJSONHandler(logs, nil)).Info("JSON", "value", value)
			funcr.NewJSON(func(line string) { logs.WriteString(line) }, funcr.Options{}).Info("logr", "value", value)
			funcr.New(func(_, line string) { logs.WriteString(line) }, funcr.Options{}).Info("logr", "value", value)
			require.NotEmpty(t, logs.String())
			assertNoCredential(t, logs.String())
		})
	}
	assert.Equal(t, "registry credentials for quay.io, ghcr.io/team", fmt.Sprintf("%+v", store))
	assert.Equal(t, fmt.Sprint(store), store.String())
	assert.Equal(t, fmt.Sprint(store), store.GoString())
	hidden, ok := found.(*dockerconfig.Login)
	require.True(t, ok)
	assert.Equal(t, []string{"REDACTED", "REDACTED"}, []string{hidden.String(), hidden.GoString()})
	text, err := json.Marshal(store)
	require.NoError(t, err)
	assert.JSONEq(t, `{"servers":["quay.io","ghcr.io/team"]}`, string(text))
}
