package dockerconfig_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
)

// password is in every secret of these tests, and in no text.
const password = "hunter2-hunter2"

func auth(login string) string { return base64.StdEncoding.EncodeToString([]byte(login)) }

// newer is a secret of today's type.
func newer(content string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "push"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(content)},
	}
}

// older is a secret of the legacy type.
func older(content string) *corev1.Secret {
	secret := newer("")
	secret.Type = corev1.SecretTypeDockercfg
	secret.Data = map[string][]byte{corev1.DockerConfigKey: []byte(content)}
	return secret
}

func parse(t *testing.T, secret *corev1.Secret) *dockerconfig.Store {
	t.Helper()
	store, err := dockerconfig.Parse(secret)
	require.NoError(t, err)
	return store
}

// login is what the store sends to a repository.
func login(t *testing.T, store *dockerconfig.Store, repository string) authn.AuthConfig {
	t.Helper()
	target, err := name.NewRepository(repository)
	require.NoError(t, err)
	found, err := store.Resolve(target)
	require.NoError(t, err)
	config, err := found.Authorization()
	require.NoError(t, err)
	return *config
}

func TestParseReadsEveryForm(t *testing.T) {
	t.Parallel()
	quay := authn.AuthConfig{Username: "bot", Password: password}
	tests := map[string]struct {
		secret    *corev1.Secret
		want      authn.AuthConfig
		canonical string
		ignored   []string
	}{
		"auth":              {secret: newer(`{"auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `"}}}`), want: quay},
		"auth, no padding":  {secret: newer(`{"auths":{"quay.io":{"auth":"Ym90Omh1bnRlcjItaHVudGVyMg"}}}`), want: quay},
		"auth, line break":  {secret: newer(`{"auths":{"quay.io":{"auth":"Ym90Omh1bnRlcjItaHVudGVyMg==\n"}}}`), want: quay},
		"auth, zeros":       {secret: newer(`{"auths":{"quay.io":{"auth":"` + auth("bot:"+password+"\x00\x00") + `"}}}`), want: quay},
		"name and password": {secret: newer(`{"auths":{"quay.io":{"username":"bot","password":"` + password + `"}}}`), want: quay},
		"both, and an email": {
			secret: newer(`{"auths":{"quay.io":{"username":"bot","password":"` + password + `","email":"a@b.c","auth":"` + auth("bot:"+password) + `"}}}`), want: quay,
		},
		"the legacy type":               {secret: older(`{"quay.io":{"auth":"` + auth("bot:"+password) + `"}}`), want: quay},
		"the newer form, legacy type":   {secret: older(`{"auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `"}}}`), want: quay},
		"the legacy form, newer type":   {secret: newer(`{"quay.io":{"auth":"` + auth("bot:"+password) + `"}}`), want: quay},
		"fields spelled as Go takes it": {secret: newer(`{"Auths":{"quay.io":{"Auth":"` + auth("bot:"+password) + `"}}}`), want: quay},
		"fields of docker are left out": {
			secret: newer(`{"HttpHeaders":{"User-Agent":"Docker-Client/27.0"},"auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `"}},"currentContext":"x"}`),
			want:   quay, ignored: []string{"HttpHeaders", "currentContext"},
		},
		"an email that is null, and an address": {
			secret: newer(`{"auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `","email":null,"serveraddress":"https://quay.io"}}}`), want: quay,
		},
		"other servers are empty": {
			secret: newer(`{"auths":{"https://index.docker.io/v1/":{},"quay.io":{"auth":"` + auth("bot:"+password) + `"},"quay.io/other":{"auth":""}}}`), want: quay,
		},
		"helpers are left out": {
			secret: newer(`{"credsStore":"desktop","auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `"}},"credHelpers":{"gcr.io":"gcloud"}}`),
			want:   quay, ignored: []string{"credsStore", "credHelpers"},
		},
		"the same place twice": {
			secret: newer(`{"auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `"},"https://QUAY.io/v2/":{"username":"bot","password":"` + password + `"}}}`),
			want:   quay,
		},
		"identity token": {
			secret: newer(`{"auths":{"quay.io":{"auth":"` + auth("0000:") + `","identitytoken":"` + password + `"}}}`),
			want:   authn.AuthConfig{Username: "0000", IdentityToken: password}, canonical: `{"auths":{"quay.io":{"auth":"MDAwMDo=","identitytoken":"` + password + `"}}}`,
		},
		"registry token": {
			secret: newer(`{"auths":{"quay.io":{"registrytoken":"` + password + `"}}}`),
			want:   authn.AuthConfig{RegistryToken: password}, canonical: `{"auths":{"quay.io":{"registrytoken":"` + password + `"}}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := parse(t, tt.secret)
			assert.Equal(t, tt.want, login(t, store, "quay.io/team/os"))
			assert.Equal(t, tt.ignored, store.Ignored())
			canonical, err := store.DockerConfigJSON()
			require.NoError(t, err)
			if tt.canonical == "" {
				tt.canonical = `{"auths":{"quay.io":{"auth":"` + auth("bot:"+password) + `"}}}`
			}
			assert.Equal(t, tt.canonical, string(canonical))
			again, err := parse(t, newer(string(canonical))).DockerConfigJSON()
			require.NoError(t, err)
			assert.Equal(t, string(canonical), string(again))
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := `{"auth":"` + auth("bot:"+password) + `"}`
	with := func(change func(s *corev1.Secret)) *corev1.Secret {
		secret := newer(`{"auths":{"quay.io":` + good + `}}`)
		change(secret)
		return secret
	}
	tests := map[string]struct {
		secret            *corev1.Secret
		key, server, want string
	}{
		"no type":        {secret: with(func(s *corev1.Secret) { s.Type = "" }), want: `its type is ""`},
		"another type":   {secret: with(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), want: `its type is "Opaque"`},
		"no key":         {secret: with(func(s *corev1.Secret) { s.Data = nil }), key: ".dockerconfigjson", want: "it lacks the key"},
		"another key":    {secret: with(func(s *corev1.Secret) { s.Type = corev1.SecretTypeDockercfg }), want: `it has the key ".dockerconfigjson"`},
		"both keys":      {secret: with(func(s *corev1.Secret) { s.Data[corev1.DockerConfigKey] = []byte("{}") }), want: `it has the key ".dockercfg"`},
		"no bytes":       {secret: newer(""), key: ".dockerconfigjson", want: "the content is empty"},
		"space":          {secret: newer(" \n"), key: ".dockerconfigjson", want: "the content is empty"},
		"null":           {secret: newer("null"), key: ".dockerconfigjson", want: "the content is null"},
		"null, legacy":   {secret: older("null"), key: ".dockercfg", want: "the content is null"},
		"an array":       {secret: newer(`[{"quay.io":` + good + `}]`), key: ".dockerconfigjson", want: "the content is an array"},
		"a string":       {secret: newer(`"` + password + `"`), key: ".dockerconfigjson", want: "the content is a string"},
		"a number":       {secret: newer(`1`), key: ".dockerconfigjson", want: "the content is a number"},
		"a boolean":      {secret: newer(`true`), key: ".dockerconfigjson", want: "the content is a boolean"},
		"no JSON":        {secret: newer(password), key: ".dockerconfigjson", want: "the content is no valid JSON from byte"},
		"half of it":     {secret: newer(`{"auths":{"quay.io":`), key: ".dockerconfigjson", want: "no valid JSON"},
		"its end":        {secret: newer(`{"auths":{"quay.io":` + good + `}`), key: ".dockerconfigjson", want: "no valid JSON"},
		"twice":          {secret: newer(`{"auths":{}}{"auths":{}}`), key: ".dockerconfigjson", want: "the content goes on after its end"},
		"nothing":        {secret: newer(`{}`), key: ".dockerconfigjson", want: "it has no servers"},
		"no servers":     {secret: newer(`{"auths":{}}`), key: ".dockerconfigjson", want: "it has no servers"},
		"helpers alone":  {secret: newer(`{"credHelpers":{"quay.io":"x"}}`), key: ".dockerconfigjson", want: "it has no servers"},
		"null servers":   {secret: newer(`{"auths":null}`), key: ".dockerconfigjson", want: `"auths" is null`},
		"listed servers": {secret: newer(`{"auths":[]}`), key: ".dockerconfigjson", want: `"auths" is an array`},
		"auths twice":    {secret: newer(`{"auths":{},"auths":{}}`), key: ".dockerconfigjson", want: `the content has "auths" twice`},
		"null server":    {secret: newer(`{"auths":{"quay.io":null}}`), key: ".dockerconfigjson", server: "quay.io", want: "the server is null"},
		"listed server":  {secret: newer(`{"auths":{"quay.io":["` + password + `"]}}`), key: ".dockerconfigjson", server: "quay.io", want: "the server is an array"},
		"bare server":    {secret: newer(`{"auths":{"quay.io":"` + password + `"}}`), key: ".dockerconfigjson", server: "quay.io", want: "the server is a string"},
		"empty server":   {secret: newer(`{"auths":{"quay.io":{}}}`), key: ".dockerconfigjson", server: "quay.io", want: "it has no credentials"},
		"server twice":   {secret: newer(`{"auths":{"quay.io":` + good + `,"quay.io":` + good + `}}`), key: ".dockerconfigjson", want: `"auths" has "quay.io" twice`},
		"misspelled": {
			secret: newer(`{"auths":{"quay.io":{"username":"bot","pasword":"` + password + `"}}}`), key: ".dockerconfigjson", server: "quay.io", want: `the unknown field "pasword"`,
		},
		"a secret as a field": {
			secret: newer(`{"auths":{"quay.io":{"` + auth("bot:"+password) + `":""}}}`), key: ".dockerconfigjson", server: "quay.io", want: `the unknown field "Ym90Omh1bnRlcjItaHVu..."`,
		},
		"a number as password": {secret: newer(`{"auths":{"quay.io":{"username":"bot","password":12345678}}}`), key: ".dockerconfigjson", server: "quay.io", want: `"password" is no string`},
		"null password":        {secret: newer(`{"auths":{"quay.io":{"username":"bot","password":null}}}`), key: ".dockerconfigjson", server: "quay.io", want: `"password" is no string`},
		"no base64":            {secret: newer(`{"auths":{"quay.io":{"auth":"` + password + `!"}}}`), key: ".dockerconfigjson", server: "quay.io", want: `"auth" is no base64`},
		"no colon":             {secret: older(`{"quay.io":{"auth":"` + auth(password) + `"}}`), key: ".dockercfg", server: "quay.io", want: `"auth" is not the base64 of name:password`},
		"another name": {
			secret: newer(`{"auths":{"quay.io":{"username":"me","auth":"` + auth("bot:"+password) + `"}}}`), key: ".dockerconfigjson", server: "quay.io", want: `"auth" has another name or password`,
		},
		"another password": {
			secret: newer(`{"auths":{"quay.io":{"username":"bot","password":"x","auth":"` + auth("bot:"+password) + `"}}}`), key: ".dockerconfigjson", server: "quay.io", want: `"auth" has another name or password`,
		},
		"a name alone":          {secret: newer(`{"auths":{"quay.io":{"username":"bot"}}}`), key: ".dockerconfigjson", server: "quay.io", want: "it has a name and no password"},
		"a password alone":      {secret: newer(`{"auths":{"quay.io":{"password":"` + password + `"}}}`), key: ".dockerconfigjson", server: "quay.io", want: "it has a password and no name"},
		"auth without password": {secret: newer(`{"auths":{"quay.io":{"auth":"` + auth("bot:") + `"}}}`), key: ".dockerconfigjson", server: "quay.io", want: "it has a name and no password"},
		"a colon in the name":   {secret: newer(`{"auths":{"quay.io":{"username":"a:b","password":"` + password + `"}}}`), key: ".dockerconfigjson", server: "quay.io", want: "its user name has a colon"},
		"the same place, another login": {
			secret: newer(`{"auths":{"docker.io":` + good + `,"https://index.docker.io/v1/":{"auth":"` + auth("me:x") + `"}}}`), key: ".dockerconfigjson",
			server: "https://index.docker.io/v1/", want: `it has other credentials than "docker.io"`,
		},
		"a login in the server": {
			secret: newer(`{"auths":{"https://bot:` + password + `@quay.io":` + good + `}}`), key: ".dockerconfigjson", server: "quay.io", want: "the server's name has a login in it",
		},
		"a login as the server":   {secret: newer(`{"auths":{"bot:` + password + `":` + good + `}}`), key: ".dockerconfigjson", want: "a server's port is no number"},
		"another scheme":          {secret: newer(`{"auths":{"docker://quay.io":` + good + `}}`), key: ".dockerconfigjson", want: "another scheme than https"},
		"a server without a name": {secret: newer(`{"auths":{"":` + good + `}}`), key: ".dockerconfigjson", want: "the server has no host"},
		"a port without a host":   {secret: newer(`{"auths":{":5000":` + good + `}}`), key: ".dockerconfigjson", server: ":5000", want: "the server has no host"},
		"a server with a query":   {secret: newer(`{"auths":{"quay.io?x=1":` + good + `}}`), key: ".dockerconfigjson", server: "quay.io?x=1", want: "a query, a fragment or space"},
		"a broken glob":           {secret: newer(`{"auths":{"[a.quay.io":` + good + `}}`), key: ".dockerconfigjson", server: "[a.quay.io", want: "no valid pattern"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := dockerconfig.Parse(tt.secret)
			require.Nil(t, store)
			var got *dockerconfig.Error
			require.ErrorAs(t, err, &got)
			assert.Equal(t, "layerwright", got.Namespace)
			assert.Equal(t, "push", got.Secret)
			assert.Equal(t, tt.key, got.Key)
			assert.Equal(t, tt.server, got.Server)
			assert.NotEmpty(t, got.Fix)
			require.ErrorContains(t, err, `reading registry secret "layerwright/push"`)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "; "+got.Fix)
			assertNoCredential(t, err.Error())
			assert.True(t, fault.IsWaiting(err))
			assert.Equal(t, mcfgv1.ReasonWaitingForSecret, fault.Reason(err))
			assert.Positive(t, fault.After(err))
		})
	}
}

func assertNoCredential(t *testing.T, text string) {
	t.Helper()
	assert.NotContains(t, text, password)
	assert.NotContains(t, text, auth("bot:"+password))
}

func FuzzParse(f *testing.F) {
	f.Add(`{"auths":{"quay.io":{"auth":"Ym90OnNlY3JldA=="}}}`, false)
	f.Add(`{"quay.io":{"username":"bot","password":"secret"}}`, true)
	f.Add(`{"auths":{"*.example.com:5000/a":{"identitytoken":"x"}},"credsStore":{}}`, false)
	f.Add(`{"auths":{"[::1]:5000":{"registrytoken":"x"},"docker.io/library":{"auth":"YTo="}}}`, false)
	f.Add(`{"auths":{"https://index.docker.io/v1/":{"auth":"////"}}}`, true)
	f.Add(`nul`, false)
	f.Fuzz(func(t *testing.T, content string, legacy bool) {
		secret := newer(content)
		if legacy {
			secret = older(content)
		}
		store, err := dockerconfig.Parse(secret)
		if err != nil {
			var typed *dockerconfig.Error
			require.ErrorAs(t, err, &typed)
			return
		}
		require.NotEmpty(t, store.Servers())
		canonical, err := store.DockerConfigJSON()
		require.NoError(t, err)
		require.True(t, json.Valid(canonical))
		again, err := dockerconfig.Parse(newer(string(canonical)))
		require.NoError(t, err, "%s", canonical)
		twice, err := again.DockerConfigJSON()
		require.NoError(t, err)
		require.Equal(t, string(canonical), string(twice))
	})
}

// FuzzErrorsHoldNoPassword puts a password where passwords are, with anything around it.
func FuzzErrorsHoldNoPassword(f *testing.F) {
	f.Add(`{"auths":{"quay.io":{"password":"`, `"}}}`)
	f.Add(`{"auths":{"quay.io":{"username":"x","password":"`, `","auth":"Yg=="}}}`)
	f.Add(`{"auths":{"quay.io":{"auth":"`, `!"}}}`)
	f.Add(`{"auths":{"https://bot:`, `@quay.io":{}}}`)
	f.Add(`{"auths":{"bot:`, `":{}}}`)
	f.Add(`{"auths":["`, `"]}`)
	f.Add(``, ``)
	f.Fuzz(func(t *testing.T, before, after string) {
		// A password that stands where a field's or a server's name belongs can't be told from one.
		if !json.Valid([]byte(before + password + after)) {
			_, err := dockerconfig.Parse(newer(before + password + after))
			require.Error(t, err)
			require.NotContains(t, err.Error(), password)
		}
	})
}
