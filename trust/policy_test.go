package trust_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// pair is a key pair that is made once: encrypting and decrypting take their time.
type pair struct{ signtest.Pair }

var corp, others = sync.OnceValue(newPair), sync.OnceValue(newPair)

func newPair() pair { return pair{signtest.NewPair()} }

// indented is a key as a policy has it, below publicKeys.
func (p pair) indented() string {
	return strings.ReplaceAll(strings.TrimSpace(string(p.Public)), "\n", "\n      ")
}

// written is a policy in which <corp> and <others> stand for keys.
func written(text string) []byte {
	text = strings.ReplaceAll(text, "<corp>", "|\n      "+corp().indented())
	return []byte(strings.ReplaceAll(text, "<others>", "|\n      "+others().indented()))
}

func TestParse(t *testing.T) {
	t.Parallel()
	policy, err := trust.Parse(written(`
own:
  requireProvenance: true
  notOlderThan: 24h
repositories:
  - repository: quay.io/corp/os
    publicKeys: <corp>
      ` + others().indented() + `
    builders: [https://ci.example.com/os, https://ci.example.com/hotfix]
    notOlderThan: 720h
  - repository: registry.example.com:5000/mirror/*
    publicKeys: <others>
    requireProvenance: false
`))
	require.NoError(t, err)
	assert.Equal(t, trust.Demands{Provenance: true, NotOlderThan: 24 * time.Hour}, policy.Own)

	all := policy.Repositories()
	require.Len(t, all, 2)
	assert.Equal(t, "quay.io/corp/os", all[0].Name)
	assert.False(t, all[0].Below)
	assert.Len(t, all[0].Keys, 2)
	assert.Equal(t, "registry.example.com:5000/mirror", all[1].Name)
	assert.True(t, all[1].Below)

	rule, has := policy.For("quay.io/corp/os")
	require.True(t, has)
	assert.Equal(t, trust.Demands{
		Provenance: true, Builders: []string{"https://ci.example.com/os", "https://ci.example.com/hotfix"}, NotOlderThan: 720 * time.Hour,
	}, rule.Demands)
	require.Len(t, rule.Trusted.Keys, 2)
	assert.Equal(t, []string{corp().ID(), others().ID()}, []string{rule.Trusted.Keys[0].ID(), rule.Trusted.Keys[1].ID()})
	assert.Equal(t, "the trust policy's quay.io/corp/os", rule.Whose)

	rule, has = policy.For("registry.example.com:5000/mirror/deep/os")
	require.True(t, has)
	assert.Equal(t, trust.Demands{}, rule.Demands)
}

func TestAPolicyMayTrustNoOtherSigner(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"repositories: []", "{}", "own: {}\n"} {
		policy, err := trust.Parse([]byte(text))
		require.NoError(t, err, text)
		_, has := policy.For("quay.io/corp/os")
		assert.False(t, has)
		assert.Equal(t, trust.Demands{}, policy.Own)
	}
}

func TestInvalidPolicies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"nothing":               {"", "it is empty; to trust no other signer, write `repositories: []`"},
		"comments alone":        {"# later\n", "it is empty"},
		"no YAML":               {"own:\n\trequireProvenance: true", "line 2: found character that cannot start any token"},
		"two documents":         {"own: {}\n---\nown: {}\n", "it has more than one document"},
		"an unknown field":      {"own:\n  requireProvenence: true\n", `line 2: there is no field "requireProvenence"`},
		"an unknown kind":       {"repository: quay.io/corp/os\n", `line 1: there is no field "repository"`},
		"an unknown field deep": {"repositories:\n  - repository: quay.io/corp/os\n    keys: x\n", `line 3: there is no field "keys"`},
		"a field twice":         {"own: {}\nown: {}\n", `line 2: mapping key "own" already defined at line 1`},
		"another type":          {"own:\n  requireProvenance: maybe\n", "line 2: cannot unmarshal"},
		"an alias of itself":    {"own: &a\n  requireProvenance: *a\n", "line 1: cannot unmarshal"},
		"no repository":         {"repositories:\n  - publicKeys: <corp>\n", `line 2: repository "": repository: it is no name of a repository`},
		"the second of two": {
			"repositories:\n  - repository: quay.io/a\n    publicKeys: <corp>\n  - repository: quay.io/b\n",
			`repository "quay.io/b": publicKeys: it has to have a public key in PEM`,
		},
		"a tag":                      {"repositories:\n  - repository: quay.io/corp/os:latest\n    publicKeys: <corp>\n", "leave out the tag and the digest"},
		"no registry":                {"repositories:\n  - repository: corp/os\n    publicKeys: <corp>\n", `write it with its registry, "docker.io/corp/os"`},
		"no registry, and all below": {"repositories:\n  - repository: corp/*\n    publicKeys: <corp>\n", `write it with its registry, "docker.io/corp/*"`},
		"everything":                 {"repositories:\n  - repository: /*\n    publicKeys: <corp>\n", "it is no name of a repository"},
		"a star in between":          {"repositories:\n  - repository: quay.io/*/os\n    publicKeys: <corp>\n", "it is no name of a repository"},
		"a star in a name":           {"repositories:\n  - repository: quay.io/corp/os*\n    publicKeys: <corp>\n", "it is no name of a repository"},
		"capitals":                   {"repositories:\n  - repository: quay.io/Corp/os\n    publicKeys: <corp>\n", "it is no name of a repository"},
		"no PEM":                     {"repositories:\n  - repository: quay.io/corp/os\n    publicKeys: hello\n", "publicKeys: reading public keys: there is something that is no PEM"},
		"no public key":              {"repositories:\n  - repository: quay.io/corp/os\n    publicKeys: |\n      -----BEGIN PUBLIC KEY-----\n      AAAA\n      -----END PUBLIC KEY-----\n", "publicKeys: reading a public key in a block"},
		"an age without unit":        {"own:\n  notOlderThan: \"30\"\n", `own: notOlderThan: "30" is no time such as 720h`},
		"an age below zero":          {"own:\n  notOlderThan: -1h\n", "own: notOlderThan"},
		"an age of provenance that is not wanted": {"own:\n  notOlderThan: 1h\n  requireProvenance: false\n", "own: requireProvenance: it must not be false"},
		"an empty builder":                        {"repositories:\n  - repository: quay.io/corp/os\n    publicKeys: <corp>\n    builders: [\"\"]\n", "builders: an ID is empty"},
		"the same twice":                          {"repositories:\n  - repository: quay.io/corp/os\n    publicKeys: <corp>\n  - repository: quay.io/corp/os\n    publicKeys: <others>\n", "it is there twice"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := trust.Parse(written(tt.text))
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "trust.", "no type of Go's is in it")
		})
	}
}

func TestWhichEntryCounts(t *testing.T) {
	t.Parallel()
	policy, err := trust.Parse([]byte(strings.ReplaceAll(`
repositories:
  - {repository: quay.io/*, publicKeys: PEM}
  - {repository: quay.io/a/*, publicKeys: PEM}
  - {repository: quay.io/a/b, publicKeys: PEM}
  - {repository: quay.io/a/b/*, publicKeys: PEM}
  - {repository: docker.io/library/os, publicKeys: PEM}
  - {repository: docker.io/*, publicKeys: PEM}
  - {repository: "registry.example.com:5000/x", publicKeys: PEM}
`, "PEM", `"`+strings.ReplaceAll(string(corp().Public), "\n", `\n`)+`"`)))
	require.NoError(t, err)
	for repository, want := range map[string]string{
		"quay.io/a/b":                      "quay.io/a/b",
		"quay.io/a/b-evil":                 "quay.io/a/*",
		"quay.io/a/b/c":                    "quay.io/a/b/*",
		"quay.io/a/b/c/d":                  "quay.io/a/b/*",
		"quay.io/a":                        "quay.io/*",
		"quay.io/a-evil/b":                 "quay.io/*",
		"quay.io":                          "",
		"quay.io.evil.example.com/a/b":     "",
		"evil.example.com/quay.io/a/b":     "",
		"docker.io/library/os":             "docker.io/library/os",
		"docker.io/library/os-evil":        "docker.io/*",
		"docker.io/library/os/below":       "docker.io/*",
		"docker.io/corp/os":                "docker.io/*",
		"docker.io.evil.example.com/os":    "",
		"registry.example.com:5000/x":      "registry.example.com:5000/x",
		"registry.example.com/x":           "",
		"registry.example.com:5000/x/evil": "",
	} {
		rule, has := policy.For(repository)
		assert.Equal(t, want != "", has, repository)
		if has {
			assert.Equal(t, "the trust policy's "+want, rule.Whose, repository)
		}
	}
}

func TestNamesAreComparedWithTheirRegistry(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]string{
		"quay.io/corp/os" + digest: "quay.io/corp/os", "os" + digest: "docker.io/library/os", "corp/os" + digest: "docker.io/corp/os",
		"localhost:5000/os" + digest: "localhost:5000/os",
	} {
		got, err := trust.RepositoryOf(image)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := trust.RepositoryOf("quay.io/Corp" + digest)
	require.ErrorContains(t, err, "reading the name of image")
}

func FuzzParse(f *testing.F) {
	f.Add("own:\n  notOlderThan: 1h\nrepositories:\n  - repository: quay.io/a/*\n    publicKeys: x\n")
	f.Add("repositories: [{repository: a}]")
	f.Fuzz(func(t *testing.T, text string) {
		policy, err := trust.Parse([]byte(text))
		if (policy == nil) == (err == nil) {
			t.Fatal("either a policy or an error")
		}
	})
}
