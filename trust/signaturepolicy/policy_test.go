package signaturepolicy_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

const (
	firstKey  = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"
	secondKey = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAF\n-----END PUBLIC KEY-----\n"
	private   = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
)

func worker(keys ...string) signaturepolicy.Repository {
	r := signaturepolicy.Repository{Name: "registry.example.com:5000/os/worker"}
	for _, key := range keys {
		r.Keys = append(r.Keys, []byte(key))
	}
	return r
}

const root = "-----BEGIN CERTIFICATE-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END CERTIFICATE-----\n"

// by is worker for an identity, changed as a test wants it.
func by(change func(*signaturepolicy.Repository)) signaturepolicy.Repository {
	r := worker()
	r.Identity = &signaturepolicy.Identity{
		Email: "builder@example.com", Issuer: "https://issuer.example.com", Roots: []byte(root), LogKeys: [][]byte{[]byte(firstKey)},
	}
	if change != nil {
		change(&r)
	}
	return r
}

type requirement struct {
	Type           string   `json:"type"`
	KeyData        []byte   `json:"keyData"`
	KeyDatas       [][]byte `json:"keyDatas"`
	SignedIdentity struct {
		Type string `json:"type"`
	} `json:"signedIdentity"`
}

type document struct {
	Default    []requirement                       `json:"default"`
	Transports map[string]map[string][]requirement `json:"transports"`
}

func read(t *testing.T, files signaturepolicy.Files) document {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal(files[signaturepolicy.PolicyPath], &d))
	return d
}

func TestMakeFiles(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{worker(firstKey)})
	require.NoError(t, err)
	assert.Equal(t, []string{"/etc/containers/policy.json", "/etc/containers/registries.d/sigstore-registries.yaml"}, files.Paths())
	d := read(t, files)
	assert.Equal(t, []requirement{{Type: "reject"}}, d.Default, "bootc, told to insist on signatures, refuses everything where the default accepts anything")
	for _, transport := range []string{"containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive"} {
		assert.Equal(t, []requirement{{Type: "insecureAcceptAnything"}}, d.Transports[transport][""], "other images are accepted as before: %s", transport)
	}
	got := d.Transports["docker"]["registry.example.com:5000/os/worker"]
	require.Len(t, got, 1)
	assert.Equal(t, "sigstoreSigned", got[0].Type)
	assert.Equal(t, "matchRepository", got[0].SignedIdentity.Type)
	assert.Equal(t, firstKey, string(got[0].KeyData))
	assert.Empty(t, got[0].KeyDatas)
	assert.Equal(t, "docker:\n  registry.example.com:5000/os/worker:\n    use-sigstore-attachments: true\n", string(files[signaturepolicy.RegistryPath]))

	again, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{worker(firstKey)})
	require.NoError(t, err)
	assert.Equal(t, files, again)
}

func TestKeysAreRotatedWithAnOverlap(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{worker(firstKey, secondKey)})
	require.NoError(t, err)
	got := read(t, files).Transports["docker"]["registry.example.com:5000/os/worker"]
	require.Len(t, got, 1, "several requirements would all have to be met")
	assert.Empty(t, got[0].KeyData)
	assert.Equal(t, [][]byte{[]byte(firstKey), []byte(secondKey)}, got[0].KeyDatas)
}

func TestAnAdministratorsPolicyIsKept(t *testing.T) {
	t.Parallel()
	const own = `{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/k"}]}},"extra":1}`
	files, err := signaturepolicy.MakeFiles(signaturepolicy.Files{signaturepolicy.PolicyPath: []byte(own)}, []signaturepolicy.Repository{worker(firstKey)})
	require.NoError(t, err)
	var d map[string]any
	require.NoError(t, json.Unmarshal(files[signaturepolicy.PolicyPath], &d))
	assert.InDelta(t, 1, d["extra"], 0)
	kept := read(t, files)
	assert.Equal(t, []requirement{{Type: "reject"}}, kept.Default)
	assert.Len(t, kept.Transports, 1)
	assert.Len(t, kept.Transports["docker"], 2)
	assert.Contains(t, string(files[signaturepolicy.PolicyPath]), `"keyPath": "/k"`)
}

func TestInvalidPolicies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		policy     string
		repository signaturepolicy.Repository
		want       string
	}{
		"no JSON":                 {"{", worker(firstKey), "reading /etc/containers/policy.json"},
		"no default":              {"{}", worker(firstKey), "it has no requirements as its default"},
		"an empty default":        {`{"default":[]}`, worker(firstKey), "it has no requirements as its default"},
		"odd transports":          {`{"default":[{"type":"reject"}],"transports":[]}`, worker(firstKey), "transports"},
		"the repository is there": {`{"default":[{"type":"reject"}],"transports":{"docker":{"registry.example.com:5000/os/worker":[]}}}`, worker(firstKey), "says something about it already"},
		"no key":                  {"", worker(), "without a key"},
		"a private key":           {"", worker(private), "one public key in PEM"},
		"two keys in one":         {"", worker(firstKey + secondKey), "one public key in PEM"},
		"a tag":                   {"", signaturepolicy.Repository{Name: "r.example.com/os/worker:latest", Keys: [][]byte{[]byte(firstKey)}}, `it must not have the tag "latest"`},
		"a digest":                {"", signaturepolicy.Repository{Name: "r.example.com/os@sha256:00", Keys: [][]byte{[]byte(firstKey)}}, "it has to be a repository"},
		"no registry":             {"", signaturepolicy.Repository{Name: "worker", Keys: [][]byte{[]byte(firstKey)}}, "it has to be a repository"},
		"a pattern":               {"", signaturepolicy.Repository{Name: "*.example.com/os", Keys: [][]byte{[]byte(firstKey)}}, "it has to be a repository"},
		"all of a folder":         {"", signaturepolicy.Repository{Name: "r.example.com/os/", Keys: [][]byte{[]byte(firstKey)}}, "it has to be a repository"},
		"keys and an identity": {
			"", by(func(r *signaturepolicy.Repository) { r.Keys = [][]byte{[]byte(firstKey)} }), "both keys and an identity",
		},
		"an account": {
			"", by(func(r *signaturepolicy.Repository) {
				r.Identity.Email = "https://kubernetes.io/namespaces/a/serviceaccounts/b"
			}),
			"nodes know signers by email address alone",
		},
		"no issuer":          {"", by(func(r *signaturepolicy.Repository) { r.Identity.Issuer = "" }), "an identity needs an issuer"},
		"no roots":           {"", by(func(r *signaturepolicy.Repository) { r.Identity.Roots = nil }), "an identity needs an issuer"},
		"no log":             {"", by(func(r *signaturepolicy.Repository) { r.Identity.LogKeys = nil }), "an identity needs an issuer"},
		"a log that is none": {"", by(func(r *signaturepolicy.Repository) { r.Identity.LogKeys[0] = []byte(private) }), "one public key in PEM"},
		"nothing":            {"", signaturepolicy.Repository{Keys: [][]byte{[]byte(firstKey)}}, "it has to be a repository"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := signaturepolicy.MakeFiles(signaturepolicy.Files{signaturepolicy.PolicyPath: []byte(tt.policy)}, []signaturepolicy.Repository{tt.repository})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestMachineConfig(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{worker(firstKey)})
	require.NoError(t, err)
	mc, err := signaturepolicy.MachineConfig("infra", files)
	require.NoError(t, err)
	assert.Equal(t, "99-infra-layerwright-signature-policy", mc.Name)
	assert.Equal(t, map[string]string{"machineconfiguration.openshift.io/role": "infra"}, mc.Labels)
	config, err := machineconfigs.Parse(mc)
	require.NoError(t, err)
	require.Len(t, config.Ignition.Storage.Files, 2)
	assert.Equal(t, "/etc/containers/policy.json", config.Ignition.Storage.Files[0].Path)
	assert.Equal(t, 0o644, *config.Ignition.Storage.Files[0].Mode)
}

func TestClusterImagePolicy(t *testing.T) {
	t.Parallel()
	object := signaturepolicy.ClusterImagePolicy("layerwright-worker", "v1", worker(firstKey))
	text, err := json.Marshal(object)
	require.NoError(t, err)
	key, err := json.Marshal([]byte(firstKey))
	require.NoError(t, err)
	assert.JSONEq(t, `{"apiVersion":"config.openshift.io/v1","kind":"ClusterImagePolicy","metadata":{"name":"layerwright-worker"},"spec":{
		"scopes":["registry.example.com:5000/os/worker"],"policy":{
			"rootOfTrust":{"policyType":"PublicKey","publicKey":{"keyData":`+string(key)+`}},"signedIdentity":{"matchPolicy":"MatchRepository"}}}}`, string(text))
	assert.Nil(t, signaturepolicy.ClusterImagePolicy("layerwright-worker", "v1", worker(firstKey, secondKey)), "two objects would want both signatures")
	assert.Nil(t, signaturepolicy.ClusterImagePolicy("layerwright-worker", "v1", worker()))
}

// theirs is what OpenShift makes of a ClusterImagePolicy with a key, beside one of its own.
func theirs(key string) signaturepolicy.Files {
	data := base64.StdEncoding.EncodeToString([]byte(key))
	return signaturepolicy.Files{
		signaturepolicy.PolicyPath: []byte(`{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker":{
			"quay.io/openshift-release-dev/ocp-release":[{"type":"sigstoreSigned","keyData":"AAAA","signedIdentity":{"type":"matchRepoDigestOrExact"}}],
			"registry.example.com:5000/os/worker":[{"type":"sigstoreSigned","keyData":"` + data + `","signedIdentity":{"type":"matchRepository"}}]}}}`),
		signaturepolicy.RegistryPath: []byte("docker:\n  quay.io/openshift-release-dev/ocp-release:\n    use-sigstore-attachments: true\n" +
			"  registry.example.com:5000/os/worker:\n    lookaside: https://example.com/\n    use-sigstore-attachments: true\n"),
	}
}

func TestOldClusterImagePolicyIsReplaced(t *testing.T) {
	t.Parallel()
	there := theirs(firstKey)
	assert.True(t, signaturepolicy.Enforce(there, worker(firstKey)))
	assert.False(t, signaturepolicy.Enforce(there, worker(secondKey)))
	files, err := signaturepolicy.MakeFiles(there, []signaturepolicy.Repository{worker(firstKey, secondKey)})
	require.NoError(t, err)
	d := read(t, files)
	assert.Equal(t, [][]byte{[]byte(firstKey), []byte(secondKey)}, d.Transports["docker"]["registry.example.com:5000/os/worker"][0].KeyDatas)
	assert.Len(t, d.Transports["docker"]["registry.example.com:5000/os/worker"], 1)
	assert.Contains(t, d.Transports["docker"], "quay.io/openshift-release-dev/ocp-release")
	assert.Equal(t, string(there[signaturepolicy.RegistryPath]), string(files[signaturepolicy.RegistryPath]), "what others need stays")
	assert.True(t, signaturepolicy.Enforce(files, worker(firstKey, secondKey)))
	assert.False(t, signaturepolicy.Enforce(files, worker(firstKey)), "it takes what the second key has signed too")
}

func TestAccept(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{worker(firstKey)})
	require.NoError(t, err)
	const image = "registry.example.com:5000/os/worker@sha256:00"
	text, err := signaturepolicy.Accept(files[signaturepolicy.PolicyPath], image)
	require.NoError(t, err)
	before, after := read(t, files), read(t, signaturepolicy.Files{signaturepolicy.PolicyPath: text})
	assert.Equal(t, []requirement{{Type: "insecureAcceptAnything"}}, after.Transports["docker"][image])
	delete(after.Transports["docker"], image)
	assert.Equal(t, before, after)
	for what, tt := range map[string][2]string{
		"named by its digest":                 {"", "registry.example.com:5000/os/worker:one"},
		"reading /etc/containers/policy.json": {"{", image},
	} {
		_, err := signaturepolicy.Accept([]byte(tt[0]), tt[1])
		require.ErrorContains(t, err, what)
	}
}

func TestPoliciesThatAreNotEnforced(t *testing.T) {
	t.Parallel()
	const scope = `{"default":[{"type":"reject"}],"transports":{"docker":{"registry.example.com:5000/os/worker":`
	data := base64.StdEncoding.EncodeToString([]byte(firstKey))
	tests := map[string]string{
		"accepts anything":        `[{"type":"insecureAcceptAnything"}]`,
		"rejects":                 `[{"type":"reject"}]`,
		"wants nothing":           `[]`,
		"no key":                  `[{"type":"sigstoreSigned","signedIdentity":{"type":"matchRepository"}}]`,
		"a file with the key":     `[{"type":"sigstoreSigned","keyPath":"/k","signedIdentity":{"type":"matchRepository"}}]`,
		"another identity":        `[{"type":"sigstoreSigned","keyData":"` + data + `","signedIdentity":{"type":"exactRepository"}}]`,
		"the log's key besides":   `[{"type":"sigstoreSigned","keyData":"` + data + `","rekorPublicKeyData":"AAAA","signedIdentity":{"type":"matchRepository"}}]`,
		"another's key too":       `[{"type":"sigstoreSigned","keyData":"` + data + `","signedIdentity":{"type":"matchRepository"}},{"type":"reject"}]`,
		"one of two is another's": `[{"type":"sigstoreSigned","keyDatas":["` + data + `","AAAA"],"signedIdentity":{"type":"matchRepository"}}]`,
	}
	for name, requirements := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			there := theirs(firstKey)
			there[signaturepolicy.PolicyPath] = []byte(scope + requirements + "}}}")
			assert.False(t, signaturepolicy.Enforce(there, worker(firstKey)))
			_, err := signaturepolicy.MakeFiles(there, []signaturepolicy.Repository{worker(firstKey)})
			require.ErrorContains(t, err, "says something about it already", "it is someone's will")
		})
	}
	there := theirs(firstKey)
	delete(there, signaturepolicy.RegistryPath)
	assert.False(t, signaturepolicy.Enforce(there, worker(firstKey)), "no one looks for the signatures")
	there[signaturepolicy.RegistryPath] = []byte("docker: []")
	assert.False(t, signaturepolicy.Enforce(there, worker(firstKey)))
	_, err := signaturepolicy.MakeFiles(there, []signaturepolicy.Repository{worker(firstKey)})
	require.ErrorContains(t, err, "reading /etc/containers/registries.d/sigstore-registries.yaml: docker")
	there[signaturepolicy.RegistryPath] = []byte("\t")
	_, err = signaturepolicy.MakeFiles(there, []signaturepolicy.Repository{worker(firstKey)})
	require.ErrorContains(t, err, "reading /etc/containers/registries.d/sigstore-registries.yaml")
}

func TestAnIdentity(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{by(nil)})
	require.NoError(t, err)
	var d struct {
		Transports map[string]map[string]json.RawMessage `json:"transports"`
	}
	require.NoError(t, json.Unmarshal(files[signaturepolicy.PolicyPath], &d))
	certificates, key := encoded(t, root), encoded(t, firstKey)
	assert.JSONEq(t, `[{"type":"sigstoreSigned","signedIdentity":{"type":"matchRepository"},"rekorPublicKeyData":`+key+`,
		"fulcio":{"caData":`+certificates+`,"oidcIssuer":"https://issuer.example.com","subjectEmail":"builder@example.com"}}]`,
		string(d.Transports["docker"]["registry.example.com:5000/os/worker"]))

	both := by(func(r *signaturepolicy.Repository) {
		r.Identity.LogKeys = append(r.Identity.LogKeys, []byte(secondKey))
	})
	files, err = signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{both})
	require.NoError(t, err)
	assert.Contains(t, string(files[signaturepolicy.PolicyPath]), `"rekorPublicKeyDatas"`)

	object := signaturepolicy.ClusterImagePolicy("layerwright-worker", "v1", by(nil))
	require.NotNil(t, object)
	text, err := json.Marshal(object)
	require.NoError(t, err)
	assert.JSONEq(t, `{"apiVersion":"config.openshift.io/v1","kind":"ClusterImagePolicy","metadata":{"name":"layerwright-worker"},"spec":{
		"scopes":["registry.example.com:5000/os/worker"],"policy":{"signedIdentity":{"matchPolicy":"MatchRepository"},
			"rootOfTrust":{"policyType":"FulcioCAWithRekor","fulcioCAWithRekor":{"fulcioCAData":`+certificates+`,"rekorKeyData":`+key+`,
				"fulcioSubject":{"oidcIssuer":"https://issuer.example.com","signedEmail":"builder@example.com"}}}}}}`, string(text))
	assert.Nil(t, signaturepolicy.ClusterImagePolicy("layerwright-worker", "v1", both), "it has room for one key of the log")
}

func TestAnIdentityThatIsInsistedOn(t *testing.T) {
	t.Parallel()
	files, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{by(nil)})
	require.NoError(t, err)
	assert.True(t, signaturepolicy.Enforce(files, by(nil)))
	assert.False(t, signaturepolicy.Enforce(files, by(func(r *signaturepolicy.Repository) { r.Identity.Email = "other@example.com" })))
	again, err := signaturepolicy.MakeFiles(files, []signaturepolicy.Repository{by(nil)})
	require.NoError(t, err, "what says the same is taken for ours")
	assert.JSONEq(t, string(files[signaturepolicy.PolicyPath]), string(again[signaturepolicy.PolicyPath]))
}

func encoded(t *testing.T, text string) string {
	t.Helper()
	out, err := json.Marshal([]byte(text))
	require.NoError(t, err)
	return string(out)
}
