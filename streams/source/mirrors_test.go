package source

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCandidates(t *testing.T) {
	t.Parallel()
	const pinned = "quay.io/team/os@sha256:0123"
	m := func(source string, mirrors ...string) Mirror { return Mirror{Source: source, Mirrors: mirrors} }
	closed := func(source string, mirrors ...string) Mirror {
		return Mirror{Source: source, Mirrors: mirrors, MirrorSourcePolicy: neverContactSource}
	}
	tests := map[string]struct {
		mirrors []Mirror
		image   string
		want    []string
	}{
		"without mirrors":                  {image: pinned, want: []string{pinned}},
		"of a registry":                    {[]Mirror{m("quay.io", "here:5000/quay")}, pinned, []string{"here:5000/quay/team/os@sha256:0123", pinned}},
		"of a repository":                  {[]Mirror{m("quay.io/team/os", "here:5000/os")}, pinned, []string{"here:5000/os@sha256:0123", pinned}},
		"the longest source wins":          {[]Mirror{m("quay.io", "a.io"), m("quay.io/team", "b.io/x")}, pinned, []string{"b.io/x/os@sha256:0123", pinned}},
		"several mirrors in their order":   {[]Mirror{m("quay.io/team", "a.io", "b.io")}, pinned, []string{"a.io/os@sha256:0123", "b.io/os@sha256:0123", pinned}},
		"several entries of a source":      {[]Mirror{m("quay.io/team", "a.io"), m("quay.io/team", "b.io")}, pinned, []string{"a.io/os@sha256:0123", "b.io/os@sha256:0123", pinned}},
		"a source that is never contacted": {[]Mirror{closed("quay.io/team", "a.io")}, pinned, []string{"a.io/os@sha256:0123"}},
		"half a name is none":              {[]Mirror{m("quay.io/te", "a.io"), m("quay.i", "a.io")}, pinned, []string{pinned}},
		"another registry":                 {[]Mirror{m("docker.io", "a.io")}, pinned, []string{pinned}},
		"subdomains":                       {[]Mirror{m("*.redhat.io", "a.io")}, "registry.redhat.io/os:1", []string{"a.io/os:1", "registry.redhat.io/os:1"}},
		"not the domain itself":            {[]Mirror{m("*.redhat.io", "a.io")}, "redhat.io/os:1", []string{"redhat.io/os:1"}},
		"a tag":                            {[]Mirror{m("quay.io/team/os", "a.io/os")}, "quay.io/team/os:stable", []string{"a.io/os:stable", "quay.io/team/os:stable"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Mirrors{Digests: tt.mirrors, Tags: tt.mirrors}.candidates(tt.image))
		})
	}
	assert.Equal(t, []string{pinned}, Mirrors{Tags: []Mirror{m("quay.io", "a.io")}}.candidates(pinned), "mirrors of tags are not those of digests")
}

func TestParseMirrors(t *testing.T) {
	t.Parallel()
	parsed, problem := ParseMirrors("registry-mirrors", map[string]string{KeyMirrors: "- source: quay.io\n  mirrors: [here:5000]\n"})
	require.Nil(t, problem)
	assert.Equal(t, []Mirror{{Source: "quay.io", Mirrors: []string{"here:5000"}}}, parsed.Digests)
	assert.Empty(t, parsed.Tags, "it may not say what a tag is")
	for _, text := range []string{"no list", "- source: quay.io", "- mirrors: [a]", "- {source: a, mirrors: [b], extra: 1}"} {
		_, problem := ParseMirrors("registry-mirrors", map[string]string{KeyMirrors: text})
		require.NotNil(t, problem, text)
		assert.Equal(t, "ConfigMapInvalid", problem.Type)
		assert.Contains(t, problem.Message, `ConfigMap "registry-mirrors": key "mirrors.yaml"`)
	}
}
