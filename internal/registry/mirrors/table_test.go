package mirrors_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

func entry(source string, places ...string) mirrors.Entry {
	return mirrors.Entry{Source: source, Mirrors: places}
}

func closed(source string, places ...string) mirrors.Entry {
	return mirrors.Entry{Source: source, Mirrors: places, MirrorSourcePolicy: "NeverContactSource"}
}

func TestPlacesOfMirrorSets(t *testing.T) {
	t.Parallel()
	const pinned, tagged = "quay.io/team/os@sha256:0123", "quay.io/team/os:stable"
	type entries []mirrors.Entry
	tests := map[string]struct {
		digests, tags entries
		image         string
		want, blocked []string
	}{
		"without mirrors":                 {image: pinned, want: []string{pinned}},
		"of a registry":                   {digests: entries{entry("quay.io", "here:5000/quay")}, image: pinned, want: []string{"here:5000/quay/team/os@sha256:0123", pinned}},
		"of a repository":                 {digests: entries{entry("quay.io/team/os", "here:5000/os")}, image: pinned, want: []string{"here:5000/os@sha256:0123", pinned}},
		"the longest source wins":         {digests: entries{entry("quay.io", "a.io"), entry("quay.io/team", "b.io/x")}, image: pinned, want: []string{"b.io/x/os@sha256:0123", pinned}},
		"several mirrors in their order":  {digests: entries{entry("quay.io/team", "a.io", "b.io")}, image: pinned, want: []string{"a.io/os@sha256:0123", "b.io/os@sha256:0123", pinned}},
		"several entries of a source":     {digests: entries{entry("quay.io/team", "a.io"), entry("quay.io/team", "b.io", "a.io")}, image: pinned, want: []string{"a.io/os@sha256:0123", "b.io/os@sha256:0123", pinned}},
		"half a name is none":             {digests: entries{entry("quay.io/te", "a.io"), entry("quay.i", "a.io")}, image: pinned, want: []string{pinned}},
		"another registry":                {digests: entries{entry("docker.io", "a.io")}, image: pinned, want: []string{pinned}},
		"subdomains":                      {tags: entries{entry("*.redhat.io", "a.io")}, image: "registry.redhat.io/os:1", want: []string{"a.io/os:1", "registry.redhat.io/os:1"}},
		"not the domain itself":           {tags: entries{entry("*.redhat.io", "a.io")}, image: "redhat.io/os:1", want: []string{"redhat.io/os:1"}},
		"a tag":                           {tags: entries{entry("quay.io/team/os", "a.io/os")}, image: tagged, want: []string{"a.io/os:stable", tagged}},
		"mirrors of digests have no tags": {digests: entries{entry("quay.io", "a.io")}, image: tagged, want: []string{tagged}},
		"mirrors of tags have no digests": {tags: entries{entry("quay.io", "a.io")}, image: pinned, want: []string{pinned}},
		"a source that is never asked":    {digests: entries{closed("quay.io/team", "a.io")}, image: pinned, want: []string{"a.io/os@sha256:0123"}, blocked: []string{pinned}},
		"and for no tag either":           {digests: entries{closed("quay.io/team", "a.io")}, image: tagged, blocked: []string{tagged}},
		"a mirror that is a closed source": {
			digests: entries{entry("quay.io", "a.io"), closed("a.io", "b.io")}, image: pinned,
			want: []string{pinned}, blocked: []string{"a.io/team/os@sha256:0123"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := mirrors.Rules{}.Add(mirrors.DigestsOnly, tt.digests...).Add(mirrors.TagsOnly, tt.tags...)
			places, blocked := mirrors.Table{rules}.Places(tt.image)
			assert.Equal(t, tt.want, places)
			assert.Equal(t, tt.blocked, blocked)
		})
	}
}

func TestPoolBeforeCluster(t *testing.T) {
	t.Parallel()
	pool := mirrors.Rules{{Prefix: "quay.io", Location: "quay.io", Mirrors: []mirrors.Mirror{{Location: "pool.io", Use: mirrors.All}}}}
	cluster := mirrors.Rules{}.Add(mirrors.DigestsOnly, entry("quay.io/team", "cluster.io"), entry("docker.io", "cluster.io"))
	table := mirrors.Table{pool, cluster}
	places, _ := table.Places("quay.io/team/os@sha256:0")
	assert.Equal(t, []string{"pool.io/team/os@sha256:0", "quay.io/team/os@sha256:0"}, places, "the cluster's longer prefix does not count")
	places, _ = table.Places("docker.io/os@sha256:0")
	assert.Equal(t, []string{"cluster.io/os@sha256:0", "docker.io/os@sha256:0"}, places)
}

func TestBlockedWithoutMirrors(t *testing.T) {
	t.Parallel()
	rules, err := mirrors.ParseConf([]byte("[[registry]]\nprefix = \"quay.io/old\"\nlocation = \"quay.io/new\"\nblocked = true\n"))
	require.NoError(t, err)
	places, blocked := mirrors.Table{rules}.Places("quay.io/old/os:1")
	assert.Empty(t, places)
	assert.Equal(t, []string{"quay.io/new/os:1"}, blocked)
}

func TestVersionOfTables(t *testing.T) {
	t.Parallel()
	one, other := mirrors.Rules{}.Add(mirrors.DigestsOnly, entry("quay.io", "a.io")), mirrors.Rules{}.Add(mirrors.TagsOnly, entry("quay.io", "a.io"))
	assert.Empty(t, mirrors.Table{nil, {}}.Version(), "whoever has no mirrors has asked with the same credentials before")
	assert.NotEqual(t, mirrors.Table{one}.Version(), mirrors.Table{other}.Version())
	assert.NotEqual(t, mirrors.Table{one, other}.Version(), mirrors.Table{other, one}.Version())
	assert.Equal(t, mirrors.Table{one}.Version(), mirrors.Table{nil, one}.Version())
}

func TestParseEntries(t *testing.T) {
	t.Parallel()
	parsed, err := mirrors.ParseEntries([]byte("- source: quay.io\n  mirrors: [here:5000]\n"))
	require.NoError(t, err)
	assert.Equal(t, []mirrors.Entry{entry("quay.io", "here:5000")}, parsed)
	for _, text := range []string{"no list", "- source: quay.io", "- mirrors: [a]", "- {source: a, mirrors: [b], extra: 1}"} {
		_, err := mirrors.ParseEntries([]byte(text))
		require.Error(t, err, text)
	}
}
