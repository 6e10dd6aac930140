package registry_test

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/compose"
)

func TestWithoutConfiguration(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	for name, base := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := ordinary(t, push(t, host+"/base/"+name, base), host+"/os/"+name)
			request.Platforms = platformsOf(base)
			made := appended(t, client(t), request)
			for _, platform := range request.Platforms {
				found, err := client(t).Image(t.Context(), made.Image, platform)
				require.NoError(t, err)
				below, err := compose.WithoutConfiguration(found)
				require.NoError(t, err)
				requireContent(t, base, platform, below)

				again, err := compose.WithoutConfiguration(below)
				require.NoError(t, err)
				assert.Same(t, below, again, "an image without configuration is returned as it is")
				layers, err := below.Layers()
				require.NoError(t, err)
				for _, layer := range layers {
					mediaType, err := layer.MediaType()
					require.NoError(t, err)
					if !mediaType.IsDistributable() {
						continue // it is elsewhere
					}
					content, err := layer.Uncompressed()
					require.NoError(t, err)
					require.NoError(t, content.Close())
				}
			}
		})
	}
}

// misspelled is an image whose config means two things.
type misspelled struct{ v1.Image }

// RawConfigFile is the config, spelled so that Go and other programs disagree.
func (m misspelled) RawConfigFile() ([]byte, error) {
	text, err := m.Image.RawConfigFile()
	return []byte(strings.Replace(string(text), `"history"`, `"History"`, 1)), err
}

func TestWithoutConfigurationRefuses(t *testing.T) {
	t.Parallel()
	_, err := compose.WithoutConfiguration(misspelled{shape{layers: []types.MediaType{types.OCILayer}}.make(t)})
	require.ErrorContains(t, err, `"History"`)
	assert.True(t, fault.IsTerminal(err))
}
