package signaturepolicy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

func TestDemandOf(t *testing.T) {
	t.Parallel()
	const repository = "registry.example.com:5000/os/worker"
	made, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{worker(firstKey, secondKey)})
	require.NoError(t, err)
	demand, err := signaturepolicy.DemandOf(made, repository)
	require.NoError(t, err)
	assert.Equal(t, signaturepolicy.Demand{Scope: repository, Signed: []signaturepolicy.Repository{worker(firstKey, secondKey)}, Looks: true}, demand)

	signless, err := signaturepolicy.MakeFiles(nil, []signaturepolicy.Repository{by(nil)})
	require.NoError(t, err)
	demand, err = signaturepolicy.DemandOf(signless, repository)
	require.NoError(t, err)
	assert.Equal(t, []signaturepolicy.Repository{by(nil)}, demand.Signed, "by an identity")

	below, err := signaturepolicy.DemandOf(made, repository+"/gpu")
	require.NoError(t, err)
	assert.Equal(t, repository, below.Scope, "what is below is meant too")
	assert.True(t, below.Looks)

	delete(made, signaturepolicy.RegistryPath)
	demand, err = signaturepolicy.DemandOf(made, repository)
	require.NoError(t, err)
	assert.False(t, demand.Looks)
}

func TestDemandsOfOtherPolicies(t *testing.T) {
	t.Parallel()
	const anything, reject = `[{"type":"insecureAcceptAnything"}]`, `[{"type":"reject"}]`
	const signed = `[{"type":"sigstoreSigned","keyData":"AAAA"}]`
	for name, test := range map[string]struct {
		policy  string
		scope   string
		accepts bool
		rejects bool
		signed  int
		err     string
	}{
		"none":                     {policy: "", accepts: true},
		"the default rejects":      {policy: `{"default":` + reject + `}`, rejects: true},
		"of the transport":         {policy: `{"default":` + reject + `,"transports":{"docker":{"":` + anything + `}}}`, accepts: true},
		"of the host":              {policy: `{"default":` + anything + `,"transports":{"docker":{"quay.io":` + reject + `}}}`, scope: "quay.io", rejects: true},
		"of a wildcard":            {policy: `{"default":` + anything + `,"transports":{"docker":{"*.io":` + signed + `}}}`, scope: "*.io", signed: 1},
		"the closest":              {policy: `{"default":` + anything + `,"transports":{"docker":{"quay.io/os":` + signed + `,"quay.io":` + reject + `}}}`, scope: "quay.io/os", signed: 1},
		"of another transport":     {policy: `{"default":` + reject + `,"transports":{"oci":{"":` + anything + `}}}`, rejects: true},
		"a name that begins alike": {policy: `{"default":` + anything + `,"transports":{"docker":{"quay.io/o":` + reject + `}}}`, accepts: true},
		"another kind":             {policy: `{"default":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/x"}]}`, err: "another kind"},
		"a key in a file":          {policy: `{"default":[{"type":"sigstoreSigned","keyPath":"/x"}]}`, err: "keyPath"},
		"a name of its own":        {policy: `{"default":[{"type":"sigstoreSigned","keyData":"AAAA","signedIdentity":{"type":"exactReference"}}]}`, err: "signedIdentity"},
		"of one image":             {policy: `{"default":` + anything + `,"transports":{"docker":{"quay.io/os/worker":` + signed + `,"quay.io/os/worker@sha256:1":` + reject + `}}}`, scope: "quay.io/os/worker@sha256:1", rejects: true},
		"of another image":         {policy: `{"default":` + anything + `,"transports":{"docker":{"quay.io/os/worker":` + signed + `,"quay.io/os/worker@sha256:2":` + reject + `}}}`, scope: "quay.io/os/worker", signed: 1},
		"nothing at all":           {policy: `{"default":` + anything + `,"transports":{"docker":{"quay.io":[]}}}`, err: "an empty one"},
		"a log's entry too":        {policy: `{"default":[{"type":"sigstoreSigned","keyData":"AAAA","rekorPublicKeyData":"AAAA"}]}`, err: "transparency log"},
		"a key and an identity":    {policy: `{"default":[{"type":"sigstoreSigned","keyData":"AAAA","fulcio":{"caData":"AAAA"}}]}`, err: "either keys or fulcio"},
		"no one":                   {policy: `{"default":[{"type":"sigstoreSigned"}]}`, err: "either keys or fulcio"},
		"broken":                   {policy: `{`, err: "reading /etc/containers/policy.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demand, err := signaturepolicy.DemandOf(signaturepolicy.Files{signaturepolicy.PolicyPath: []byte(test.policy)}, "quay.io/os/worker@sha256:1")
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.scope, demand.Scope)
			assert.Equal(t, test.accepts, demand.AcceptsAnything)
			assert.Equal(t, test.rejects, demand.Rejects)
			assert.Len(t, demand.Signed, test.signed)
		})
	}
}

func TestNodesThatLookForSignatures(t *testing.T) {
	t.Parallel()
	for text, looks := range map[string]bool{
		"docker: {quay.io: {use-sigstore-attachments: true}}":                                                    true,
		"docker: {quay.io/os: {use-sigstore-attachments: false}, quay.io: {use-sigstore-attachments: true}}":     false,
		"docker: {quay.io/os: {lookaside: 'https://x'}, quay.io: {use-sigstore-attachments: true}}":              true,
		"default-docker: {use-sigstore-attachments: true}":                                                       true,
		"docker: {quay.io: {use-sigstore-attachments: false}}\ndefault-docker: {use-sigstore-attachments: true}": false,
		"docker: {'*.io': {use-sigstore-attachments: false}}\ndefault-docker: {use-sigstore-attachments: true}":  false,
		"docker: {registry.example.com: {use-sigstore-attachments: true}}":                                       false,
	} {
		demand, err := signaturepolicy.DemandOf(signaturepolicy.Files{signaturepolicy.RegistriesDir + "/mine.yaml": []byte(text)}, "quay.io/os/worker")
		require.NoError(t, err, text)
		assert.Equal(t, looks, demand.Looks, strings.ReplaceAll(text, "\n", "; "))
	}
}

func TestNodesRefuseWhatTwoFilesSay(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"docker: {quay.io: {use-sigstore-attachments: true}}", "default-docker: {use-sigstore-attachments: true}"} {
		_, err := signaturepolicy.DemandOf(signaturepolicy.Files{
			signaturepolicy.RegistriesDir + "/a.yaml": []byte(text), signaturepolicy.RegistriesDir + "/b.yaml": []byte(text),
		}, "quay.io/os/worker")
		require.ErrorContains(t, err, "reading "+signaturepolicy.RegistriesDir+"/b.yaml: another file has ", text)
	}
}
