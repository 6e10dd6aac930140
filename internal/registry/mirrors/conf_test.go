package mirrors_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/layerwright/layerwright/internal/registry/mirrors"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// confs are files that container engines take.
var confs = map[string]string{
	"nothing":     "unqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"enforcing\"\n",
	"a registry":  registry("quay.io", "", "a.example.com", "b.example.com/quay"),
	"a namespace": registry("quay.io/team", "", "a.example.com/mirrored/"),
	"a repository under another name": "[[registry]]\nprefix = \"quay.io/team/os\"\nlocation = \"other.example.com/os\"\n" +
		"[[registry.mirror]]\nlocation = \"a.example.com:5000/os\"\n",
	"the longest prefix": registry("quay.io/team", "", "b.example.com/t") + registry("quay.io", "", "a.example.com"),
	"digests only":       registry("quay.io", "mirror-by-digest-only = true", "a.example.com"),
	"each its use": "[[registry]]\nlocation = \"quay.io\"\n" + mirror("t.example.com", "tag-only") + mirror("d.example.com", "digest-only") +
		mirror("a.example.com", "all"),
	"subdomains":                             "[[registry]]\nprefix = \"*.example.org\"\n" + mirror("a.example.com/org", ""),
	"subdomains of two depths":               "[[registry]]\nprefix = \"*.org\"\n" + mirror("b.example.com", "") + "[[registry]]\nprefix = \"*.example.org\"\n" + mirror("a.example.com", ""),
	"a prefix twice":                         registry("quay.io", "", "a.example.com") + registry("quay.io", "", "b.example.com"),
	"docker.io":                              registry("docker.io/library", "", "a.example.com/hub"),
	"a registry without mirrors in one with": registry("quay.io", "", "a.example.com") + "[[registry]]\nlocation = \"quay.io/team\"\n",
}

func registry(location, more string, mirrors ...string) string {
	text := "[[registry]]\nlocation = \"" + location + "\"\n" + more + "\n"
	for _, m := range mirrors {
		text += mirror(m, "")
	}
	return text
}

func mirror(location, use string) string {
	text := "[[registry.mirror]]\nlocation = \"" + location + "\"\ninsecure = true\n"
	if use != "" {
		text += "pull-from-mirror = \"" + use + "\"\n"
	}
	return text
}

// TestConfLikeContainerEngines compares with the library that builds, podman and CRI-O use.
func TestConfLikeContainerEngines(t *testing.T) {
	t.Parallel()
	var images []string
	for _, name := range []string{
		"quay.io/team/os", "quay.io/team/os/more", "quay.io/teams/os", "quay.io/os", "quay.io:443/team/os", "registry.example.org/os", "a.b.example.org:5000/x/os",
		"example.org/os", "notexample.org/os", "here.example.com/registry.example.org/os", "docker.io/library/fedora", "quay.io.evil.example/team/os",
	} {
		images = append(images, name+":1", name+digest)
	}
	for name, text := range confs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, err := mirrors.ParseConf([]byte(text))
			require.NoError(t, err)
			system := systemOf(t, text)
			for _, image := range images {
				places, blocked := mirrors.Table{rules}.Places(image)
				if want, ok := engineSources(t, system, image); ok {
					assert.Equal(t, want, places, image)
				}
				assert.Empty(t, blocked)
			}
		})
	}
}

func TestConfsThatContainerEnginesRefuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"no TOML":                    {"[[registry]\n", "line 2: "},
		"a location of another type": {"[[registry]]\nlocation = 1\n", "incompatible types"},
		"version 1":                  {"[registries.search]\nregistries = [\"docker.io\"]\n", "version 1 of its format"},
		"neither name":               {"[[registry]]\nblocked = true\n", "neither a prefix nor a location"},
		"a prefix alone":             {"[[registry]]\nprefix = \"quay.io\"\n", `the prefix "quay.io" has no location`},
		"a wildcard with a path":     {"[[registry]]\nprefix = \"*.example.org/os\"\n", `has to be "*." and a domain`},
		"a URL":                      {registry("https://quay.io", ""), "without the scheme"},
		"a mirror that is a URL":     {registry("quay.io", "", "http://a.example.com"), "without the scheme"},
		"a mirror without location":  {registry("quay.io", "", ""), `a [[registry.mirror]] of "quay.io" has no location`},
		"use of a source":            {registry("quay.io", `pull-from-mirror = "all"`), "for a [[registry.mirror]] only"},
		"use said twice":             {registry("quay.io", "mirror-by-digest-only = true") + mirror("a.example.com", "all"), "only one of them may be set"},
		"an unknown use":             {registry("quay.io", "") + mirror("a.example.com", "never"), `is "never"; it has to be`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mirrors.ParseConf([]byte(tt.text))
			require.ErrorContains(t, err, tt.want)
			_, err = sysregistriesv2.FindRegistry(systemOf(t, tt.text), "quay.io/os")
			require.Error(t, err)
		})
	}
}

func systemOf(t *testing.T, text string) *types.SystemContext {
	t.Helper()
	file := filepath.Join(t.TempDir(), "registries.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return &types.SystemContext{SystemRegistriesConfPath: file, SystemRegistriesConfDirPath: filepath.Join(t.TempDir(), "none")}
}

// engineSources are where the library would ask; false where it can make no name of them, as for
// registries with ports.
func engineSources(t *testing.T, system *types.SystemContext, image string) ([]string, bool) {
	t.Helper()
	found, err := sysregistriesv2.FindRegistry(system, image)
	require.NoError(t, err)
	if found == nil {
		return []string{image}, true
	}
	ref, err := reference.ParseNamed(image)
	require.NoError(t, err)
	sources, err := found.PullSourcesFromReference(ref)
	var out []string
	for _, source := range sources {
		out = append(out, source.Reference.String())
	}
	return out, err == nil
}
