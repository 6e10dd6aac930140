package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/compose"
)

func TestAConfigurationLayerIsReplaced(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	for name, base := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := push(t, host+"/base/"+name, base)
			straight := ordinary(t, content, host+"/os/"+name)
			straight.Platforms = platformsOf(base)
			want := appended(t, client(t), straight)

			first := straight
			first.Layer, first.Labels, first.Annotations = configuration(t, "an older one"), nil, nil
			older := appended(t, client(t), first)
			again := straight
			again.Content = older.Image
			again.Layer = func(ctx context.Context, p v1.Platform, below v1.Image) (registry.Opener, error) {
				requireContent(t, base, p, below)
				return straight.Layer(ctx, p, below)
			}
			got := appended(t, client(t), again)
			assert.NotEqual(t, older.Digest, got.Digest)
			assert.Equal(t, want.Digest, got.Digest, "over an older configuration, it is the same as over the content itself")
			for i, p := range got.Platforms {
				assert.True(t, p.Replaced)
				assert.False(t, want.Platforms[i].Replaced)
			}

			none := again
			none.Layer = nil
			kept := appended(t, client(t), none)
			for i, p := range kept.Platforms {
				assert.False(t, p.Replaced)
				assert.Empty(t, p.Layer)
				image := repositoryIn(t, kept.Image) + "@"
				assert.Equal(t, layersOf(t, image+older.Platforms[i].Digest.String()), layersOf(t, image+p.Digest.String()), "nothing is taken away")
			}
		})
	}
}

func repositoryIn(t *testing.T, pinned string) string {
	t.Helper()
	ref, err := name.NewDigest(pinned)
	require.NoError(t, err)
	return ref.Context().String()
}

func layersOf(t *testing.T, image string) []v1.Descriptor {
	t.Helper()
	manifest, err := getImage(t, image).Manifest()
	require.NoError(t, err)
	return manifest.Layers
}

func TestImagesAreJoined(t *testing.T) {
	t.Parallel()
	host := serve(t, inMemory())
	for _, mediaType := range []types.MediaType{types.OCIManifestSchema1, types.DockerManifestSchema2} {
		t.Run(slug(string(mediaType)), func(t *testing.T) {
			t.Parallel()
			layers := []types.MediaType{types.OCILayer}
			if mediaType == types.DockerManifestSchema2 {
				layers = []types.MediaType{types.DockerLayer}
			}
			one := shape{mediaType: mediaType, layers: layers, arch: "amd64"}
			other := shape{mediaType: mediaType, layers: layers, arch: "arm64", body: "arm"}
			many := indexOf(t, types.OCIImageIndex, other, shape{arch: "s390x"})
			request := registry.AppendRequest{
				Images: []registry.PlatformImage{
					{Platform: amd64, Image: push(t, host+"/built/amd64", one.make(t))},
					{Platform: arm64, Image: push(t, host+"/base/os", many)},
				},
				Repository: host + "/os/joined-" + slug(string(mediaType)), Tags: []string{"content"},
				Labels: map[string]string{"pool": "worker"},
			}
			got := appended(t, client(t), request)
			list := getIndex(t, got.Image)
			manifest, err := list.IndexManifest()
			require.NoError(t, err)
			require.Len(t, manifest.Manifests, 2)
			assert.Equal(t, mediaType == types.DockerManifestSchema2, manifest.MediaType == types.DockerManifestList)
			for i, platform := range []v1.Platform{amd64, arm64} {
				assert.Equal(t, platform, *manifest.Manifests[i].Platform)
				image, err := list.Image(manifest.Manifests[i].Digest)
				require.NoError(t, err)
				requireSound(t, image)
				config, err := image.ConfigFile()
				require.NoError(t, err)
				assert.Equal(t, platform.Architecture, config.Architecture)
				assert.Equal(t, "worker", config.Config.Labels["pool"])
			}
			again := appended(t, client(t), request)
			assert.Equal(t, got.Image, again.Image)
			assert.True(t, again.Reused)

			request.Images[1].Image = request.Images[0].Image
			_, err = client(t).Append(t.Context(), request)
			require.ErrorContains(t, err, "arm64", "an image of another architecture is none for this")
		})
	}
}

func platformsOf(base remote.Taggable) []v1.Platform {
	if _, ok := base.(v1.ImageIndex); ok {
		return []v1.Platform{amd64, arm64}
	}
	return []v1.Platform{amd64}
}

// requireContent checks that what a configuration layer goes on top of has the content's layers and
// no other.
func requireContent(t *testing.T, base remote.Taggable, platform v1.Platform, below v1.Image) {
	t.Helper()
	if list, ok := base.(v1.ImageIndex); ok {
		manifest, err := list.IndexManifest()
		require.NoError(t, err)
		i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == platform.Architecture })
		base, err = list.Image(manifest.Manifests[i].Digest)
		require.NoError(t, err)
	}
	want, err := base.(v1.Image).ConfigFile()
	require.NoError(t, err)
	got, err := below.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, append([]v1.Hash{}, want.RootFS.DiffIDs...), append([]v1.Hash{}, got.RootFS.DiffIDs...))
	layers, err := below.Layers()
	require.NoError(t, err)
	assert.Len(t, layers, len(want.RootFS.DiffIDs))
	manifest, err := below.Manifest()
	require.NoError(t, err)
	name, err := below.ConfigName()
	require.NoError(t, err)
	assert.Equal(t, name, manifest.Config.Digest)
}

// mark is the entry of the history that marks a layer.
func mark(diffID v1.Hash) v1.History {
	return v1.History{Created: v1.Time{Time: epoch}, CreatedBy: compose.LayerCreatedBy, Comment: diffID.String()}
}

func TestOnlyTheMarkedLayerOnTopIsReplaced(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	plain := func(t *testing.T) (v1.Image, []v1.Hash) {
		t.Helper()
		img := three.make(t)
		config, err := img.ConfigFile()
		require.NoError(t, err)
		return img, config.RootFS.DiffIDs
	}
	line := v1.History{CreatedBy: "RUN x"}
	empty := v1.History{CreatedBy: "LABEL a=b", EmptyLayer: true}
	tests := map[string]struct {
		history  func(ids []v1.Hash) []v1.History
		replaced bool
		entries  []string // created_by of the result, "-" in front of those without a layer
	}{
		"marked, on top": {
			history:  func(ids []v1.Hash) []v1.History { return []v1.History{line, line, mark(ids[2])} },
			replaced: true, entries: []string{"RUN x", "RUN x"},
		},
		"entries without layers above it do not matter": {
			history:  func(ids []v1.Hash) []v1.History { return []v1.History{line, line, mark(ids[2]), empty, empty} },
			replaced: true, entries: []string{"RUN x", "RUN x", "-LABEL a=b", "-LABEL a=b"},
		},
		"below something else it stays": {
			history: func(ids []v1.Hash) []v1.History { return []v1.History{line, mark(ids[1]), line} },
			entries: []string{"RUN x", compose.LayerCreatedBy, "RUN x"},
		},
		"of another layer, it marks nothing": {
			history: func(ids []v1.Hash) []v1.History { return []v1.History{line, line, mark(ids[1])} },
			entries: []string{"RUN x", "RUN x", compose.LayerCreatedBy},
		},
		"without the layer's name it marks nothing": {
			history: func([]v1.Hash) []v1.History { return []v1.History{line, line, {CreatedBy: compose.LayerCreatedBy}} },
			entries: []string{"RUN x", "RUN x", compose.LayerCreatedBy},
		},
		"another tool's entry marks nothing": {
			history: func(ids []v1.Hash) []v1.History {
				return []v1.History{line, line, {CreatedBy: "RUN y", Comment: ids[2].String()}}
			},
			entries: []string{"RUN x", "RUN x", "RUN y"},
		},
		"squashed, with the history of before": {
			history: func([]v1.Hash) []v1.History {
				return []v1.History{line, line, line, line, mark(v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)})}
			},
			entries: []string{"-RUN x", "-RUN x", "RUN x", "RUN x", compose.LayerCreatedBy},
		},
		"marked, and the rest has no history": {
			history:  func(ids []v1.Hash) []v1.History { return []v1.History{mark(ids[2])} },
			replaced: true, entries: []string{"", ""},
		},
		"marked, and the rest has too much history": {
			history:  func(ids []v1.Hash) []v1.History { return []v1.History{line, line, line, empty, line, mark(ids[2])} },
			replaced: true, entries: []string{"-RUN x", "-RUN x", "RUN x", "-LABEL a=b", "RUN x"},
		},
		"half a history": {
			history: func([]v1.Hash) []v1.History { return []v1.History{empty, line} },
			entries: []string{"", "", "-LABEL a=b", "RUN x"},
		},
		"entries without layers only": {
			history: func([]v1.Hash) []v1.History { return []v1.History{empty} },
			entries: []string{"", "", "", "-LABEL a=b"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img, ids := plain(t)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			config = config.DeepCopy()
			config.History = tt.history(ids)
			img, err = mutate.ConfigFile(img, config)
			require.NoError(t, err)
			repository := host + "/" + slug(name)
			result := appended(t, client(t), ordinary(t, push(t, repository+"/base", img), repository+"/os"))
			assert.Equal(t, tt.replaced, result.Platforms[0].Replaced)
			final := getImage(t, result.Image)
			requireTop(t, final)
			config, err = final.ConfigFile()
			require.NoError(t, err)
			var entries []string
			for _, h := range config.History[:len(config.History)-1] {
				entries = append(entries, map[bool]string{true: "-"}[h.EmptyLayer]+h.CreatedBy)
			}
			assert.Equal(t, tt.entries, entries)
			kept := 3
			if tt.replaced {
				kept = 2
			}
			assert.Equal(t, ids[:kept], config.RootFS.DiffIDs[:kept])
			assert.Len(t, config.RootFS.DiffIDs, kept+1)
		})
	}
}

func TestHistoriesThatAreNone(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	for name, tt := range map[string]struct{ history, want string }{
		"null":           {history: `null`},
		"null entries":   {history: `[null,{"created_by":"x"},null]`},
		"odd entries":    {history: `[{"x":1},{"empty_layer":null},{}]`},
		"odd spelling":   {history: `[{"Empty_Layer":true}]`, want: `its history can't be read: it has the field "Empty_Layer", which has to be "empty_layer"`},
		"an object":      {history: `{}`, want: "its config can't be read"},
		"numbers inside": {history: `[1]`, want: "its config can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := three.make(t)
			raw, err := img.RawConfigFile()
			require.NoError(t, err)
			var fields map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(raw, &fields))
			fields["history"] = json.RawMessage(tt.history)
			raw, err = json.Marshal(fields)
			require.NoError(t, err)
			repository := host + "/" + slug(name)
			content := pushRaw(t, repository, img, raw)
			result, err := client(t).Append(t.Context(), ordinary(t, content, repository+"/os"))
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				assert.Equal(t, mcfgv1.ReasonInvalid, fault.Reason(err))
				return
			}
			require.NoError(t, err)
			got, err := get(t, result.Image).Image()
			require.NoError(t, err)
			raw, err = got.RawConfigFile()
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &fields))
			var entries []map[string]any
			require.NoError(t, json.Unmarshal(fields["history"], &entries))
			assert.Len(t, entries, 4)
		})
	}
}

func TestIndexHasTheWantedPlatforms(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	layers := three.layers
	content := push(t, host+"/base", indexOf(t, types.OCIImageIndex,
		shape{arch: "amd64", layers: layers}, shape{arch: "arm64", layers: layers, body: "arm"}, shape{arch: "s390x", layers: layers, body: "z"}))
	single := push(t, host+"/single", three.make(t))
	tests := map[string]struct {
		content string
		wanted  []v1.Platform
		want    []string
		fails   string
	}{
		"all, where none is named":         {content: content, want: []string{"amd64", "arm64", "s390x"}},
		"two, in the content's order":      {content: content, wanted: []v1.Platform{s390x, amd64}, want: []string{"amd64", "s390x"}},
		"one stays an index":               {content: content, wanted: []v1.Platform{arm64}, want: []string{"arm64"}},
		"twice the same":                   {content: content, wanted: []v1.Platform{arm64, {Architecture: "arm64", Variant: "v8"}}, want: []string{"arm64"}},
		"one that is not there":            {content: content, wanted: []v1.Platform{amd64, {OS: "linux", Architecture: "ppc64le"}}, fails: "it has no image for linux/ppc64le, only for linux/amd64, linux/arm64, linux/s390x"},
		"a single image":                   {content: single, wanted: []v1.Platform{amd64}, want: []string{"amd64"}},
		"a single image, none named":       {content: single, want: []string{"amd64"}},
		"a single image, two wanted":       {content: single, wanted: []v1.Platform{amd64, arm64}, fails: "it is a single image, and both linux/amd64 and linux/arm64 are wanted"},
		"a single image, another one":      {content: single, wanted: []v1.Platform{arm64}, fails: "it is an image for linux/amd64, and linux/arm64 is wanted"},
		"a single image, wanted twice":     {content: single, wanted: []v1.Platform{amd64, amd64}, want: []string{"amd64"}},
		"the operating system goes unsaid": {content: content, wanted: []v1.Platform{{Architecture: "amd64"}}, want: []string{"amd64"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := ordinary(t, tt.content, host+"/os/"+slug(name))
			request.Platforms = tt.wanted
			result, err := client(t).Append(t.Context(), request)
			if tt.fails != "" {
				require.ErrorContains(t, err, fmt.Sprintf("reading image %q: %s", tt.content, tt.fails))
				assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))
				return
			}
			require.NoError(t, err)
			var got []string
			for _, p := range result.Platforms {
				got = append(got, p.Platform.Architecture)
			}
			assert.Equal(t, tt.want, got)
			if tt.content == single {
				getImage(t, result.Image)
				return
			}
			manifest, err := getIndex(t, result.Image).IndexManifest()
			require.NoError(t, err)
			var platforms []string
			for i, desc := range manifest.Manifests {
				platforms = append(platforms, desc.Platform.Architecture)
				assert.Equal(t, result.Platforms[i].Digest, desc.Digest)
				assert.Empty(t, desc.ArtifactType)
			}
			assert.Equal(t, tt.want, platforms, "and no attestation of what was there before")
			assert.Equal(t, "os/base", manifest.Annotations["org.opencontainers.image.base.name"])
		})
	}
}

func TestFirstImageOfAPlatformIsUsed(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	gzip, zstd := three.make(t), shape{layers: []types.MediaType{types.OCILayerZStd}}.make(t)
	arm7, arm6 := shape{arch: "arm", body: "7"}.make(t), shape{arch: "arm", body: "6"}.make(t)
	list := indexOf(t, types.OCIImageIndex)
	for _, add := range []mutate.IndexAddendum{
		{Add: gzip, Descriptor: v1.Descriptor{Platform: &amd64, Annotations: map[string]string{"kept": "yes"}}},
		{Add: zstd, Descriptor: v1.Descriptor{Platform: &amd64, Annotations: map[string]string{"io.github.containers.compression.zstd": "true"}}},
		{Add: arm7, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm", Variant: "v7"}}},
		{Add: arm6, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm", Variant: "v6"}}},
	} {
		list = mutate.AppendManifests(list, add)
	}
	request := ordinary(t, push(t, host+"/base", list), host+"/os")
	request.Platforms = []v1.Platform{amd64, {OS: "linux", Architecture: "arm", Variant: "v6"}}
	result := appended(t, client(t), request)
	require.Len(t, result.Platforms, 2)
	assert.Equal(t, types.OCILayer, result.Platforms[0].Layer.MediaType)
	assert.Equal(t, "v6", result.Platforms[1].Platform.Variant)
	manifest, err := getIndex(t, result.Image).IndexManifest()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"kept": "yes"}, manifest.Manifests[0].Annotations)

	request.Platforms = nil
	assert.Len(t, appended(t, client(t), request).Platforms, 3, "both variants, and one image for amd64")
}

func TestEachPlatformHasItsOwnLayer(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	request := ordinary(t, push(t, host+"/base", shapes(t)["oci-index"]), host+"/os")
	request.Platforms = []v1.Platform{amd64, arm64}
	request.Layer = func(_ context.Context, p v1.Platform, below v1.Image) (registry.Opener, error) {
		config, err := below.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, p.Architecture, config.Architecture)
		if p.Architecture == "arm64" {
			return nil, nil
		}
		return opener(archive(t, file{"etc/arch", p.Architecture})), nil
	}
	result := appended(t, client(t), request)
	list := getIndex(t, result.Image)
	img, err := list.Image(result.Platforms[0].Digest)
	require.NoError(t, err)
	assert.Equal(t, []file{{"etc/arch", "amd64"}}, topFiles(t, img))
	assert.NotEmpty(t, result.Platforms[0].Layer)
	assert.Empty(t, result.Platforms[1].Layer)
	img, err = list.Image(result.Platforms[1].Digest)
	require.NoError(t, err)
	assert.Equal(t, "usr/lib/2", topFiles(t, img)[0].name)
}

func TestAppendDropsSubjectAndAnnotations(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	base := three.make(t)
	digest, err := base.Digest()
	require.NoError(t, err)
	img := mutate.Subject(base, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: 1}).(v1.Image)
	img = mutate.Annotations(img, map[string]string{"org.opencontainers.image.base.name": "older", "kept": "yes"}).(v1.Image)
	raw, err := getImage(t, appended(t, client(t), ordinary(t, push(t, host+"/base", img), host+"/os")).Image).RawManifest()
	require.NoError(t, err)
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &fields))
	assert.NotContains(t, fields, "subject")
	assert.JSONEq(t, `{"org.opencontainers.image.base.name":"os/base","kept":"yes"}`, string(fields["annotations"]))
	assert.False(t, bytes.Contains(raw, []byte("artifactType")))
}

func TestForeignLayersAreReported(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(inMemory()))
	content := push(t, host+"/base", shapes(t)["foreign"])
	result := appended(t, client(t), ordinary(t, content, host+"/os"))
	require.Len(t, result.Platforms[0].NotCopied, 1)
	foreign := result.Platforms[0].NotCopied[0]
	assert.Equal(t, types.OCIRestrictedLayer, foreign.MediaType)
	assert.Equal(t, []string{"https://example.test/foreign"}, foreign.URLs)
	assert.Zero(t, calls.count(foreign.Digest.String()))

	// The registry that most clusters run takes no such image. That ends with its reason.
	strict := serveDirect(t, strictest(t))
	_, err := client(t).Append(t.Context(), ordinary(t, content, strict+"/os"))
	require.ErrorContains(t, err, fmt.Sprintf("layer %s may not be distributed, and the registry takes no image with such a layer", foreign.Digest))
	assert.Equal(t, mcfgv1.ReasonInvalid, fault.Reason(err))
}

func TestImagesFindTheirLayers(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	img, err := client(t).Image(t.Context(), push(t, host+"/base", three.make(t)), amd64)
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		digest, err := layer.Digest()
		require.NoError(t, err)
		diffID, err := layer.DiffID()
		require.NoError(t, err)
		found, err := img.LayerByDigest(digest)
		require.NoError(t, err)
		assert.Equal(t, layer, found)
		found, err = img.LayerByDiffID(diffID)
		require.NoError(t, err)
		assert.Equal(t, layer, found)
	}
	config, err := img.ConfigName()
	require.NoError(t, err)
	found, err := img.LayerByDigest(config)
	require.NoError(t, err)
	digest, _ := hashOf(t, found.Compressed)
	assert.Equal(t, config, digest)
	_, err = img.LayerByDigest(v1.Hash{Algorithm: "sha256", Hex: "0"})
	require.ErrorContains(t, err, "finding layer sha256:0")
	_, err = img.LayerByDiffID(v1.Hash{})
	require.Error(t, err)
}
