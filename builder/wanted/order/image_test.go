package order

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/registry"
)

func TestWhatNodesPull(t *testing.T) {
	t.Parallel()
	platform := func(name string, fresh *int64, layers ...int64) registry.PlatformResult {
		return registry.PlatformResult{Platform: v1.Platform{OS: "linux", Architecture: name}, New: fresh, Layers: layers}
	}
	base := recipe.Base{Image: "base"}
	for _, name := range []string{"amd64", "arm64"} {
		base.Platforms = append(base.Platforms, recipe.Platform{Platform: v1.Platform{OS: "linux", Architecture: name}})
	}
	tests := map[string]struct {
		platforms []registry.PlatformResult
		previous  string
		pulls     []int64
	}{
		"beside the image before": {[]registry.PlatformResult{platform("amd64", new(int64(7)), 1, 2), platform("arm64", new(int64(0)), 1, 2)}, "before", []int64{7, 0}},
		"it is not known of all":  {[]registry.PlatformResult{platform("amd64", new(int64(7)), 1, 2), platform("arm64", nil, 1, 2)}, "", nil},
		"nothing is known":        {[]registry.PlatformResult{platform("s390x", nil, 1, 2)}, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&Image{Platforms: tt.platforms}).Compare(&Order{Recipe: recipe.Recipe{Base: &base}, Before: "before"})
			assert.Equal(t, tt.previous, got.Previous)
			assert.Equal(t, tt.pulls, got.Pulls)
		})
	}
}
