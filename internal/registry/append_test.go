package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/compose"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// ordinary is a request as the builder makes it.
func ordinary(t *testing.T, content, repository string) registry.AppendRequest {
	t.Helper()
	return registry.AppendRequest{
		Content: content, Repository: repository, Tags: []string{"worker-0a1b", "worker"}, Layer: configuration(t, "hello"),
		Labels:      map[string]string{"pool": "worker", "stays": "no, it is ours now"},
		Annotations: map[string]string{"org.opencontainers.image.base.name": "os/base"},
	}
}

// shapes are the formats that base images come in.
func shapes(t *testing.T) map[string]remote.Taggable {
	t.Helper()
	docker := shape{mediaType: types.DockerManifestSchema2, layers: []types.MediaType{types.DockerLayer, types.DockerLayer}}
	oci := shape{layers: []types.MediaType{types.OCILayer, types.OCIUncompressedLayer, types.OCILayer}}
	arm := func(s shape) shape { s.arch, s.body = "arm64", "arm"; return s }
	x86 := func(s shape) shape { s.arch = "amd64"; return s }
	return map[string]remote.Taggable{
		"docker":       docker.make(t),
		"oci":          oci.make(t),
		"zstd":         shape{layers: []types.MediaType{types.OCILayerZStd, types.OCILayer, types.OCILayerZStd}}.make(t),
		"mixed":        shape{layers: []types.MediaType{types.OCILayerZStd, types.OCILayer}}.make(t),
		"scratch":      shape{}.make(t),
		"foreign":      shape{layers: []types.MediaType{types.OCIRestrictedLayer, types.OCILayer}}.make(t),
		"no-history":   shape{layers: three.layers, noHistory: true}.make(t),
		"oci-index":    indexOf(t, types.OCIImageIndex, x86(oci), arm(oci), shape{arch: "s390x"}),
		"docker-index": indexOf(t, types.DockerManifestList, x86(docker), arm(docker), shape{mediaType: types.DockerManifestSchema2, arch: "s390x"}),
	}
}

// TestAppendToEveryShape compares manifests and configs with what was approved, and every byte of
// the result with its digests.
func TestAppendToEveryShape(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	for name, base := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := ordinary(t, push(t, host+"/base/"+name, base), host+"/os/"+name)
			if strings.HasSuffix(name, "index") {
				request.Platforms = []v1.Platform{arm64, amd64}
			}
			result := appended(t, client(t), request)
			for _, tag := range request.Tags {
				digest, there, err := client(t).Exists(t.Context(), request.Repository, tag)
				require.NoError(t, err)
				assert.True(t, there)
				assert.Equal(t, result.Digest, digest)
			}
			golden(t, name, written(t, result))
		})
	}
}

// written is everything that names things in an image: index, manifests and configs.
func written(t *testing.T, result *registry.Result) []byte {
	t.Helper()
	documents := map[string]json.RawMessage{}
	add := func(prefix string, img v1.Image) {
		manifest, err := img.RawManifest()
		require.NoError(t, err)
		config, err := img.RawConfigFile()
		require.NoError(t, err)
		documents[prefix+"manifest"], documents[prefix+"config"] = manifest, config
		requireTop(t, img)
	}
	if desc := get(t, result.Image); desc.MediaType.IsIndex() {
		list := getIndex(t, result.Image)
		raw, err := list.RawManifest()
		require.NoError(t, err)
		documents["index"] = raw
		for _, p := range result.Platforms {
			img, err := list.Image(p.Digest)
			require.NoError(t, err)
			add(p.Platform.Architecture+" ", img)
		}
	} else {
		require.Len(t, result.Platforms, 1)
		assert.Equal(t, result.Digest, result.Platforms[0].Digest)
		img, err := desc.Image()
		require.NoError(t, err)
		requireSound(t, img)
		add("", img)
	}
	out := &bytes.Buffer{}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(documents))
	return out.Bytes()
}

// requireTop checks that the configuration is on top.
func requireTop(t *testing.T, img v1.Image) {
	t.Helper()
	assert.Equal(t, []file{{"etc/motd", "hello"}}, topFiles(t, img))
	config, err := img.ConfigFile()
	require.NoError(t, err)
	last := config.History[len(config.History)-1]
	assert.Equal(t, compose.LayerCreatedBy, last.CreatedBy)
	assert.Equal(t, config.RootFS.DiffIDs[len(config.RootFS.DiffIDs)-1].String(), last.Comment)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), string(got)))
}

func TestAppendGivesTheSameDigest(t *testing.T) {
	t.Parallel()
	for name, base := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var digests []v1.Hash
			for range 3 { // in registries that have never seen it
				host := serveDirect(t, inMemory())
				digests = append(digests, appended(t, client(t), ordinary(t, push(t, host+"/base", base), host+"/os")).Digest)
			}
			assert.Equal(t, digests[0], digests[1])
			assert.Equal(t, digests[0], digests[2])
		})
	}
}

func TestAppendDependsOnItsInputs(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	content := push(t, host+"/base", three.make(t))
	seen := map[v1.Hash]string{}
	for name, change := range map[string]func(r *registry.AppendRequest){
		"nothing":       func(*registry.AppendRequest) {},
		"layer":         func(r *registry.AppendRequest) { r.Layer = configuration(t, "bye") },
		"no layer":      func(r *registry.AppendRequest) { r.Layer = nil },
		"a label":       func(r *registry.AppendRequest) { r.Labels = map[string]string{"pool": "master"} },
		"an annotation": func(r *registry.AppendRequest) { r.Annotations = nil },
		"the time":      func(r *registry.AppendRequest) { r.Created = epoch.Add(time.Hour) },
	} {
		request := ordinary(t, content, host+"/os")
		change(&request)
		result := appended(t, client(t), request)
		assert.Empty(t, seen[result.Digest], name)
		seen[result.Digest] = name
	}
}

func TestAppendKeepsTheTimeOfItsContent(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	content := push(t, host+"/base", three.make(t))
	for want, created := range map[time.Time]time.Time{
		epoch: {}, time.Unix(1700000000, 0).UTC(): time.Unix(1700000000, 999).In(time.FixedZone("x", 3600)),
	} {
		request := ordinary(t, content, host+"/os")
		request.Created = created
		config, err := getImage(t, appended(t, client(t), request).Image).ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, want, config.Created.UTC())
		assert.Equal(t, want, config.History[3].Created.UTC())
		assert.Equal(t, epoch, config.History[2].Created.UTC())
	}
}

func TestAppendKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	base := three.make(t)
	config, err := base.RawConfigFile()
	require.NoError(t, err)
	odd := bytes.Replace(config, []byte(`"config":{`), []byte(`"x-big":12345678901234567890.10,"moby.buildkit.x":{"b":1,"a":2},"config":{"X-Unknown":[1,{"z":"<&>"}],`), 1)
	odd = bytes.Replace(odd, []byte(`"created_by":"layer 0"`), []byte(`"created_by":"layer 0","x-entry":true`), 1)
	content := pushRaw(t, host+"/base", base, odd)
	got, err := getImage(t, appended(t, client(t), ordinary(t, content, host+"/os")).Image).RawConfigFile()
	require.NoError(t, err)
	var fields struct {
		Big     json.RawMessage `json:"x-big"`
		Unknown json.RawMessage `json:"moby.buildkit.x"`
		Config  struct {
			Unknown json.RawMessage `json:"X-Unknown"`
			Cmd     []string
			Labels  map[string]string
		}
		History []struct {
			Extra bool `json:"x-entry"`
		}
	}
	require.NoError(t, json.Unmarshal(got, &fields))
	assert.Equal(t, "12345678901234567890.10", string(fields.Big))
	assert.JSONEq(t, `{"b":1,"a":2}`, string(fields.Unknown))
	assert.JSONEq(t, `[1,{"z":"<&>"}]`, string(fields.Config.Unknown))
	assert.Equal(t, []string{"/sbin/init"}, fields.Config.Cmd)
	assert.Equal(t, map[string]string{"containers.bootc": "1", "pool": "worker", "stays": "no, it is ours now"}, fields.Config.Labels)
	assert.True(t, fields.History[0].Extra)
}

func TestAppendFollowsTheFixture(t *testing.T) {
	t.Parallel()
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(t, err)
	host := serveDirect(t, strictest(t))
	login := remote.WithAuth(pusher.Login())
	refs, err := maker.Push(t.Context(), fixtures.Tiny, host+"/streams", login, remote.WithTransport(transport(t)))
	require.NoError(t, err)
	result := appended(t, client(t), ordinary(t, refs.OS[fixtures.RHEL9].String(), host+"/os/worker"))
	img := getImage(t, result.Image)
	requireTop(t, img)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, string(fixtures.RHEL9), config.Config.Labels[fixtures.LabelStream])
	assert.Equal(t, []v1.Platform{amd64}, []v1.Platform{result.Platforms[0].Platform})
}

func TestAppendReusesAnEqualImage(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(strictest(t)))
	for name, base := range map[string]remote.Taggable{"image": three.make(t), "index": shapes(t)["oci-index"]} {
		content := push(t, host+"/base/"+name, base)
		request := ordinary(t, content, host+"/os/"+name)
		first := appended(t, client(t), request)
		assert.False(t, first.Reused)
		assert.Positive(t, first.Traffic.BytesUp)

		calls.reset()
		again := appended(t, client(t), request)
		assert.True(t, again.Reused)
		assert.Equal(t, first.Image, again.Image)
		assert.Equal(t, first.Platforms, again.Platforms)
		assert.Zero(t, again.Traffic.BytesUp)
		assert.Zero(t, calls.count("PUT")+calls.count("POST")+calls.count("PATCH"))

		request.Tags = append(request.Tags, "third")
		calls.reset()
		again = appended(t, client(t), request)
		assert.True(t, again.Reused)
		assert.Equal(t, 1, calls.count("PUT"))
		assert.Equal(t, 1, calls.count("PUT", "/manifests/third"))
		_, there, err := client(t).Exists(t.Context(), request.Repository, "third")
		require.NoError(t, err)
		assert.True(t, there)
	}
}

func TestAppendMovesTheTag(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
	one := appended(t, client(t), request)
	request.Layer = configuration(t, "two")
	two := appended(t, client(t), request)
	require.NotEqual(t, one.Digest, two.Digest)
	request.Layer = configuration(t, "hello") // back to what is there
	back := appended(t, client(t), request)
	assert.True(t, back.Reused)
	got, _, err := client(t).Exists(t.Context(), request.Repository, "worker")
	require.NoError(t, err)
	assert.Equal(t, one.Digest, got)
}

func TestAppendReportsTraffic(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(strictest(t)))
	content := push(t, host+"/base", three.make(t))
	calls.reset()
	meter := &wire.Meter{}
	result := appended(t, client(t, func(o *registry.Options) { o.Transport = meter.Wrap(transport(t)) }), ordinary(t, content, host+"/os"))
	assert.Equal(t, meter.Traffic(), result.Traffic)
	assert.GreaterOrEqual(t, int(result.Traffic.Requests), calls.count(""), "attempts to find TLS never arrive")
	assert.Positive(t, result.Duration)
	assert.Equal(t, 1, calls.count("GET", "/manifests/"), "the content's")
	assert.Equal(t, 1, calls.count("GET", "/blobs/"), "its config")
	assert.Equal(t, 3, calls.count("POST", "mount="))
	assert.Equal(t, 2, calls.count("PATCH"), "layer and config")
	config, err := getImage(t, result.Image).RawConfigFile()
	require.NoError(t, err)
	manifest := get(t, result.Image).Size
	up := result.Platforms[0].Layer.Size + int64(len(config)) + 3*manifest // by digest, and for two tags
	assert.Equal(t, up, result.Traffic.BytesUp)
}

func TestAppendPassesTheLayersErrorsOn(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
	broken := fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, errors.New("the file can't be placed"))
	request.Layer = func(context.Context, v1.Platform, v1.Image) (registry.Opener, error) { return nil, broken }
	_, err := client(t).Append(t.Context(), request)
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "making the configuration layer for linux/amd64: the file can't be placed")
	assert.Equal(t, mcfgv1.ReasonInvalidMachineConfig, fault.Reason(err))
}

func TestAppendWithoutATag(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, inMemory())
	request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
	request.Tags = nil
	getImage(t, appended(t, client(t), request).Image)
	tags, err := client(t).Tags(t.Context(), host+"/os")
	require.NoError(t, err)
	assert.Empty(t, tags)
}

// pushRaw pushes an image with another config than its own.
func pushRaw(t *testing.T, repository string, img v1.Image, config []byte) string {
	t.Helper()
	return push(t, repository, &rawConfig{Image: img, config: config})
}

// rawConfig is an image with a config of any bytes.
type rawConfig struct {
	v1.Image
	config []byte
}

func (r *rawConfig) RawConfigFile() ([]byte, error) { return r.config, nil }
func (r *rawConfig) ConfigName() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(r.config))
	return h, err
}

func (r *rawConfig) ConfigFile() (*v1.ConfigFile, error) {
	return v1.ParseConfigFile(bytes.NewReader(r.config))
}

// Manifest names the config.
func (r *rawConfig) Manifest() (*v1.Manifest, error) {
	manifest, err := r.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	manifest.Config.Digest, manifest.Config.Size, err = v1.SHA256(bytes.NewReader(r.config))
	return manifest, err
}

// RawManifest is the bytes of Manifest.
func (r *rawConfig) RawManifest() ([]byte, error) {
	manifest, err := r.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}

// Digest is that of RawManifest.
func (r *rawConfig) Digest() (v1.Hash, error) {
	raw, err := r.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(bytes.NewReader(raw))
	return h, err
}

// Size is that of RawManifest.
func (r *rawConfig) Size() (int64, error) {
	raw, err := r.RawManifest()
	return int64(len(raw)), err
}

func tagged(t *testing.T, repository, tag string) (v1.Hash, bool) {
	t.Helper()
	ref, err := name.NewTag(repository + ":" + tag)
	require.NoError(t, err)
	digest, there, err := client(t).Exists(t.Context(), ref.Context().String(), tag)
	require.NoError(t, err)
	return digest, there
}

func TestAppendAsksBeforeItTags(t *testing.T) {
	t.Parallel()
	host := serve(t, strictest(t))
	request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
	refused := errors.New("another process has ended it")
	request.BeforeTags = func(context.Context) error { return refused }
	_, err := client(t).Append(t.Context(), request)
	require.ErrorIs(t, err, refused)
	for _, tag := range request.Tags {
		_, there := tagged(t, request.Repository, tag)
		assert.False(t, there)
	}
	request.BeforeTags = func(context.Context) error { return nil }
	result := appended(t, client(t), request)
	assert.True(t, result.Reused, "everything else was there")
	for _, tag := range request.Tags {
		digest, there := tagged(t, request.Repository, tag)
		assert.True(t, there)
		assert.Equal(t, result.Digest, digest)
	}
}
