package compose

import (
	"encoding/json"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
)

// FuzzChange changes images whose config is anything. What comes out is consistent, and is what it
// was when the layer is taken off again.
func FuzzChange(f *testing.F) {
	f.Add(`{"architecture":"amd64","os":"linux","history":[{"created_by":"x"}],"config":{"Labels":{"a":"b"}}}`, uint8(1), true)
	f.Add(`{"history":[{"empty_layer":true},{"created_by":"layerwright: configuration","comment":"sha256:0"}],"created":"2025-01-02T03:04:05Z"}`, uint8(3), false)
	f.Add(`{"history":null,"config":null,"created":null,"rootfs":null}`, uint8(0), true)
	f.Add(`{"history":[null,{"comment":"\ud800"}],"config":{"Labels":null},"x":1e999}`, uint8(2), true)
	f.Add(`{"config":{"labels":{"a":"b"}},"history":[{"EMPTY_layer":true}]}`, uint8(2), false)
	f.Add(`{"Config":{"labels":{"a":"b"}},"History":[{"Empty_Layer":true}]}`, uint8(2), false)
	layer, err := random.Layer(64, types.OCILayer)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, config string, layers uint8, timed bool) {
		c, ok := anyContent(t, config, int(layers%8))
		if !ok {
			return
		}
		ch := Change{Labels: map[string]string{"ours": "1"}, Annotations: map[string]string{"ours": "2"}, Layer: layer}
		if timed {
			ch.Created = time.Unix(1700000000, 0)
		}
		below, _, err := c.Stripped()
		if err != nil {
			require.True(t, fault.IsTerminal(err), err)
			return
		}
		made, err := below.Changed(ch)
		if err != nil {
			require.True(t, fault.IsTerminal(err), err)
			return
		}
		requireConsistent(t, made, len(below.Layers)+1)

		again := contentOf(t, made)
		back, replaced, err := again.Stripped()
		require.NoError(t, err)
		require.True(t, replaced)
		twice, err := back.Changed(ch)
		require.NoError(t, err)
		require.Equal(t, string(made.config), string(twice.config))
		require.Equal(t, string(made.Text), string(twice.Text))
	})
}

// anyContent is an image of some layers with the given config; false where that is refused earlier.
func anyContent(t *testing.T, config string, layers int) (*Content, bool) {
	t.Helper()
	c := &Content{MediaType: types.OCIManifestSchema1, manifest: &v1.Manifest{MediaType: types.OCIManifestSchema1}}
	fields, err := object(json.RawMessage(config))
	if err != nil {
		return nil, false
	}
	var ids []v1.Hash
	for range layers {
		layer, err := random.Layer(16, types.OCILayer)
		require.NoError(t, err)
		id, err := layer.DiffID()
		require.NoError(t, err)
		ids, c.Layers = append(ids, id), append(c.Layers, layer)
		c.manifest.Layers = append(c.manifest.Layers, v1.Descriptor{MediaType: types.OCILayer, Digest: id})
	}
	fields["rootfs"], err = json.Marshal(v1.RootFS{Type: "layers", DiffIDs: ids})
	require.NoError(t, err)
	if c.RawConfig, err = json.Marshal(fields); err != nil {
		return nil, false
	}
	if c.ReadConfig() != nil {
		return nil, false
	}
	return c, true
}

// contentOf is a made image as someone reads it back.
func contentOf(t *testing.T, made *Image) *Content {
	t.Helper()
	manifest, err := made.Manifest()
	require.NoError(t, err)
	config, err := made.ConfigFile()
	require.NoError(t, err)
	return &Content{MediaType: made.Type, manifest: manifest, Raw: made.Text, RawConfig: made.config, Config: config, Layers: made.layers}
}

func requireConsistent(t *testing.T, made *Image, layers int) {
	t.Helper()
	config, err := made.ConfigFile()
	require.NoError(t, err)
	manifest, err := made.Manifest()
	require.NoError(t, err)
	require.Len(t, config.RootFS.DiffIDs, layers)
	require.Len(t, manifest.Layers, layers)
	require.Equal(t, "1", config.Config.Labels["ours"])
	require.Equal(t, "2", manifest.Annotations["ours"])
	entries := 0
	for _, h := range config.History {
		if !h.EmptyLayer {
			entries++
		}
	}
	require.Equal(t, layers, entries)
	name, err := made.ConfigName()
	require.NoError(t, err)
	require.Equal(t, name, manifest.Config.Digest)
}
