package maker

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/registry"
)

func TestImageChecks(t *testing.T) {
	t.Parallel()
	hash := func(c string) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: strings.Repeat(c, 64)} }
	labels := map[string]string{"key": "value"}
	good := func() *imageFacts {
		return &imageFacts{
			labels: map[string]string{"key": "value", "other": "x"}, digest: hash("d"), base: []v1.Hash{hash("1"), hash("2")},
			image: []v1.Hash{hash("1"), hash("2"), hash("3")}, baseBlobs: []v1.Hash{hash("4"), hash("5")}, imageBlobs: []v1.Hash{hash("4"), hash("5"), hash("a")},
			result: registry.PlatformResult{Digest: hash("d"), Layer: v1.Descriptor{Digest: hash("a")}},
		}
	}
	tests := map[string]struct {
		change func(*imageFacts)
		want   string
	}{
		"what was asked for":   {func(*imageFacts) {}, ""},
		"nothing but the base": {func(f *imageFacts) { f.image, f.imageBlobs, f.result.Layer = f.base, f.baseBlobs, v1.Descriptor{} }, ""},
		"a base with a configuration": {func(f *imageFacts) {
			f.image, f.imageBlobs, f.result.Replaced = []v1.Hash{hash("1"), hash("3")}, []v1.Hash{hash("4"), hash("a")}, true
		}, ""},
		"another label":                {func(f *imageFacts) { f.labels["key"] = "other" }, `its label key is "other" and not "value"`},
		"no labels":                    {func(f *imageFacts) { f.labels = nil }, "its label key"},
		"another base":                 {func(f *imageFacts) { f.image[1] = hash("9") }, "it is not built on the layers of its base image"},
		"the base packed anew":         {func(f *imageFacts) { f.imageBlobs[1] = hash("9") }, "it is not built on the layers of its base image"},
		"fewer layers than the base":   {func(f *imageFacts) { f.image = f.image[:1] }, "it is not built on the layers of its base image"},
		"no layers":                    {func(f *imageFacts) { f.image = nil }, "it is not built on the layers of its base image"},
		"another manifest":             {func(f *imageFacts) { f.digest = hash("e") }, "was pushed"},
		"another layer as the highest": {func(f *imageFacts) { f.imageBlobs[2] = hash("b") }, "and not the configuration"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := good()
			tt.change(f)
			err := f.check(labels)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestWhichPlatformsAnImageMustHave(t *testing.T) {
	t.Parallel()
	amd, arm := v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64"}
	one, two := []recipe.Platform{{Platform: amd}}, []recipe.Platform{{Platform: amd}, {Platform: arm}}
	require.NoError(t, checkPlatforms(one, nil, false))
	require.NoError(t, checkPlatforms(two, []v1.Platform{arm, amd}, true))
	require.ErrorContains(t, checkPlatforms(two, nil, false), "it is for one architecture, and 2 were asked for")
	require.ErrorContains(t, checkPlatforms(two, []v1.Platform{amd}, true), "it has 1 architectures, and 2 were asked for")
	require.ErrorContains(t, checkPlatforms(one, []v1.Platform{amd, arm}, true), "it has 2 architectures, and 1 were asked for")
	require.ErrorContains(t, checkPlatforms(two, []v1.Platform{amd, amd}, true), "it lacks linux/arm64")
}
