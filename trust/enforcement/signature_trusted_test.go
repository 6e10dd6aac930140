package enforcement_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/sigstore"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/enforcement"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// keysOf are the keys that a policy.json wants in each scope of registries, as the names that the
// test has for them. Scopes that want something else are left out.
func keysOf(t *testing.T, policy string) map[string]string {
	t.Helper()
	var read struct {
		Transports map[string]map[string][]struct {
			KeyData        []byte            `json:"keyData"`
			KeyDatas       [][]byte          `json:"keyDatas"`
			SignedIdentity map[string]string `json:"signedIdentity"`
		} `json:"transports"`
	}
	require.NoError(t, json.Unmarshal([]byte(policy), &read))
	out := map[string]string{}
	for scope, requirements := range read.Transports["docker"] {
		for _, r := range requirements {
			if r.KeyData != nil {
				r.KeyDatas = append(r.KeyDatas, r.KeyData)
			}
			if len(r.KeyDatas) > 0 {
				assert.Equal(t, "matchRepository", r.SignedIdentity["type"])
				out[scope] += named(r.KeyDatas)
			}
		}
	}
	return out
}

// named are keys by their names in these tests, sorted.
func named(keys [][]byte) string {
	var out []string
	for _, key := range keys {
		switch string(key) {
		case string(worldtest.FirstKey().Public):
			out = append(out, "first")
		case string(worldtest.SecondKey().Public):
			out = append(out, "second")
		default:
			out = append(out, "another")
		}
	}
	slices.Sort(out)
	return strings.Join(out, "+")
}

func TestAcceptedSignaturesOfNodes(t *testing.T) {
	t.Parallel()
	const mine, theirs = "r.example.com/os/worker", "r.example.com/os/infra"
	first, second := entryOf(worldtest.FirstKey()), entryOf(worldtest.SecondKey())
	both := entryOf(worldtest.FirstKey(), worldtest.SecondKey())
	tests := map[string]struct {
		policy string
		own    string // r.example.com/os/worker by default
		want   map[string]string
		err    string
	}{
		"no trust policy":                {"", "", map[string]string{mine: "first"}, ""},
		"a repository":                   {second("r.example.com/os/hotfix"), "", map[string]string{mine: "first", "r.example.com/os/hotfix": "second"}, ""},
		"with two keys":                  {both("r.example.com/os/hotfix"), "", map[string]string{mine: "first", "r.example.com/os/hotfix": "first+second"}, ""},
		"all of a registry":              {second("quay.io/*"), "", map[string]string{mine: "first", "quay.io": "second"}, ""},
		"one and all of a registry":      {second("quay.io/*") + first("quay.io/a/b"), "", map[string]string{mine: "first", "quay.io": "second", "quay.io/a/b": "first"}, ""},
		"a name that begins alike":       {second("r.example.com/os/worker-evil"), "", map[string]string{mine: "first", "r.example.com/os/worker-evil": "second"}, ""},
		"the pool's own repository":      {second(mine), "", map[string]string{mine: "first+second"}, ""},
		"the own one with the same key":  {first(mine), "", map[string]string{mine: "first"}, ""},
		"the own one is below another":   {second("r.example.com/os/*"), "", map[string]string{mine: "first+second", "r.example.com/os": "second", theirs: "first+second"}, ""},
		"that of another pool":           {second(theirs), "", map[string]string{mine: "first", theirs: "first+second"}, ""},
		"the exact one counts, alone":    {first("r.example.com/os/*") + second(mine), "", map[string]string{mine: "first+second", "r.example.com/os": "first", theirs: "first"}, ""},
		"a repository and those below":   {second("q.io/a") + second("q.io/a/*"), "", map[string]string{mine: "first", "q.io/a": "second"}, ""},
		"other keys for those below":     {second("q.io/a") + first("q.io/a/*"), "", nil, `different keys for "q.io/a" and for "q.io/a/*"`},
		"the other way round":            {second("q.io/a/*") + both("q.io/a"), "", nil, `different keys for "q.io/a" and for "q.io/a/*"`},
		"others below the own one":       {second(mine + "/*"), "", nil, `"r.example.com/os/worker" is the repository of a MachineOSConfig`},
		"others below another pool's":    {second(theirs + "/*"), "", nil, `"r.example.com/os/infra" is the repository of a MachineOSConfig`},
		"the same below the own one":     {first(mine + "/*"), "", map[string]string{mine: "first"}, ""},
		"a registry's name in full":      {second("docker.io/corp/os"), "docker.io/corp/os", map[string]string{"docker.io/corp/os": "first+second"}, ""},
		"all below where the own one is": {second("r.example.com/os/worker/*") + second(mine), "", nil, "is the repository of a MachineOSConfig"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written, err := trust.Parse([]byte("repositories: [" + tt.policy + "]"))
			require.NoError(t, err)
			own := tt.own
			if own == "" {
				own = mine
			}
			got, err := enforcement.Accept(written, worldtest.Must((&trusted{[]worldtest.KeyPair{worldtest.FirstKey()}}).Trusted(t.Context())), own, map[string]string{"infra": theirs})
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, own, got.Own.Name)
			files, err := signaturepolicy.MakeFiles(nil, got.All())
			require.NoError(t, err)
			text := string(files[signaturepolicy.PolicyPath])
			assert.Equal(t, tt.want, keysOf(t, text))
			for scope := range tt.want {
				assert.Contains(t, string(files[signaturepolicy.RegistryPath]), "  "+scope+":\n    use-sigstore-attachments: true\n", "else no one looks for the signatures")
			}
		})
	}
}

// entryOf writes entries with the keys.
func entryOf(keys ...worldtest.KeyPair) func(string) string {
	return func(repository string) string { return entry(repository, keys...) + "," }
}

func TestNodesEnforceTheTrustPolicy(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	selecting(w)
	b := w.Builder(w.Signing, w.Enforcing, w.Trusting)
	w.Add(worldtest.FirstKey().Secret())
	own := w.Registry.Host + "/host/os"
	require.NoError(t, reconcilePolicy(w, b))
	assert.Empty(t, policyText(t, w))
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Warning SignaturePolicyFailed the signature policy of nodes is not changed: the ConfigMap")

	w.Add(worldtest.Policy("repositories: []"))
	require.NoError(t, reconcilePolicy(w, b))
	assert.Equal(t, map[string]string{own: "first"}, keysOf(t, policyText(t, w)))

	w.Repolicy(worldtest.Policy("repositories: [" + entry("r.example.com/os/*", worldtest.SecondKey()) + "]"))
	require.NoError(t, reconcilePolicy(w, b))
	trusting := policyText(t, w)
	assert.Equal(t, map[string]string{own: "first", "r.example.com/os": "second"}, keysOf(t, trusting))
	written := len(w.Writes)
	require.NoError(t, reconcilePolicy(w, b))
	assert.Len(t, w.Writes, written)

	w.Told()
	for wrong, says := range map[string]string{
		"repositories: [{repository: a}]": "is no trust policy",
		"repositories: [" + entry("q.io/a", worldtest.FirstKey()) + "," + entry("q.io/a/*", worldtest.SecondKey()) + "]": "which nodes cannot distinguish",
	} {
		w.Repolicy(worldtest.Policy(wrong))
		require.NoError(t, reconcilePolicy(w, b))
		assert.Equal(t, trusting, policyText(t, w), "nodes keep what they have")
		assert.Contains(t, strings.Join(w.Told(), "\n"), says)
	}

	w.Repolicy(worldtest.Policy("repositories: []"))
	require.NoError(t, reconcilePolicy(w, b))
	assert.Equal(t, map[string]string{own: "first"}, keysOf(t, policyText(t, w)), "it is named no more")
}

func TestConflictingRepositoryPolicy(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	selecting(w)
	w.Add(worldtest.FirstKey().Secret(), worldtest.Policy("repositories: ["+entry("r.example.com/os", worldtest.SecondKey())+"]"),
		ownPolicy("50-policy", inBase64(`{"default":[{"type":"reject"}],"transports":{"docker":{"r.example.com/os":[{"type":"insecureAcceptAnything"}]}}}`)))
	require.NoError(t, reconcilePolicy(w, w.Builder(w.Signing, w.Enforcing, w.Trusting)))
	assert.Empty(t, policyText(t, w))
	assert.Contains(t, strings.Join(w.Told(), "\n"), `repository "r.example.com/os": /etc/containers/policy.json says something about it already`)
}

func TestATrustPolicyBesideAnIdentity(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	selecting(w)
	own := w.Registry.Host + "/host/os"
	w.Add(worldtest.Policy("repositories: [" + entry(own, worldtest.SecondKey()) + "," + entry("r.example.com/os", worldtest.SecondKey()) + "]"))
	issuer, log := sigstore.NewIssuer(t), sigstore.NewLog(t)
	roots, key := filepath.Join(t.TempDir(), "roots.pem"), filepath.Join(t.TempDir(), "rekor.pub")
	require.NoError(t, os.WriteFile(key, log.PublicKey(), 0o600))
	require.NoError(t, os.WriteFile(roots, sigstore.NewAuthority(t, issuer).Roots(), 0o600))
	b := w.Builder(w.Signing, w.Trusting, func(o *worldtest.Settings) {
		o.Trust = sign.NewKeyless(sign.KeylessOptions{RootsFile: roots, LogKeyFile: key, Subject: "builder@example.com", Issuer: issuer.URL})
	})
	require.NoError(t, reconcilePolicy(w, b))
	text := policyText(t, w)
	assert.Contains(t, text, `"subjectEmail": "builder@example.com"`)
	assert.Equal(t, map[string]string{"r.example.com/os": "second"}, keysOf(t, text), "for its own repository nodes can't be told that one of both is enough")
	assert.Equal(t, 1, strings.Count(text, base64.StdEncoding.EncodeToString(worldtest.SecondKey().Public)))
}

func TestChangedTrustPolicyChecksNodesAgain(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker", "infra")
	b := w.Builder(w.Signing, w.Enforcing, w.Trusting)
	object := worldtest.Policy("repositories: []")
	assert.Len(t, b.Policies.ConfigsOfPolicy(t.Context(), object), 2)
	object.Name = "another"
	assert.Empty(t, b.Policies.ConfigsOfPolicy(t.Context(), object))
	assert.Empty(t, w.Builder(w.Signing, w.Enforcing).Policies.ConfigsOfPolicy(t.Context(), worldtest.Policy("")))
}
