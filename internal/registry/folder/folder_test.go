package folder_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/folder"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

const repository = "registry.example.com/os/worker"

// open opens a folder, with a client for it that reaches nothing else.
func open(t *testing.T, path string) (*folder.Folder, *registry.Client) {
	t.Helper()
	f, err := folder.Open(t.Context(), path, repository)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f, registry.New(registry.Options{Transport: f.Wrap(http.DefaultTransport), PlainHTTP: []string{"registry.example.com"}})
}

func image(t *testing.T) v1.Image {
	t.Helper()
	made, err := random.Image(100, 2)
	require.NoError(t, err)
	config, err := made.ConfigFile()
	require.NoError(t, err)
	config.OS, config.Architecture = "linux", "amd64"
	made, err = mutate.ConfigFile(made, config)
	require.NoError(t, err)
	return made
}

func TestWhatIsPushedIsInTheFolder(t *testing.T) {
	t.Parallel()
	server, path := registrytest.New(t, nil), filepath.Join(t.TempDir(), "image")
	one := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: image(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	})
	source := registry.New(registry.Options{})

	f, client := open(t, path)
	content := server.Push(t, "os:1", one)
	result, err := client.Append(t.Context(), registry.AppendRequest{Content: content, Source: source, Repository: repository, Tags: []string{"a", "b"}})
	require.NoError(t, err)
	require.NoError(t, f.Save(t.Context()))

	index, err := layout.ImageIndexFromPath(path)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index), "all that it lists is there and whole")
	list, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, list.Manifests, 2)
	for i, tag := range []string{"a", "b"} {
		assert.Equal(t, tag, list.Manifests[i].Annotations["org.opencontainers.image.ref.name"])
		assert.Equal(t, result.Digest, list.Manifests[i].Digest)
	}

	again, other := open(t, path)
	digest, found, err := other.Exists(t.Context(), repository, "b")
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, result.Digest, digest)
	moved, err := other.Append(t.Context(), registry.AppendRequest{Content: server.Push(t, "os:2", image(t)), Source: source, Repository: repository, Tags: []string{"b"}})
	require.NoError(t, err)
	require.NoError(t, again.Save(t.Context()))
	_, third := open(t, path)
	for tag, want := range map[string]v1.Hash{"a": result.Digest, "b": moved.Digest} {
		digest, _, err := third.Exists(t.Context(), repository, tag)
		require.NoError(t, err)
		assert.Equal(t, want, digest)
	}
}

func TestOtherRegistriesAreReached(t *testing.T) {
	t.Parallel()
	server := registrytest.New(t, nil)
	pinned := server.Push(t, "os:1", image(t))
	_, client := open(t, t.TempDir())
	_, err := client.Resolve(t.Context(), pinned)
	require.NoError(t, err)
}

func TestFoldersThatAreNone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := folder.Open(t.Context(), file, repository)
	require.ErrorContains(t, err, `opening the folder "`+file+`"`)

	broken := t.TempDir()
	written, err := layout.Write(broken, empty.Index)
	require.NoError(t, err)
	require.NoError(t, written.AppendImage(image(t)))
	require.NoError(t, os.RemoveAll(filepath.Join(broken, "blobs")))
	_, err = folder.Open(t.Context(), broken, repository)
	require.ErrorContains(t, err, `reading the images of the folder "`+broken+`"`)
}

// TestAnIndexThatListsItself has a folder whose content is not what its digest says.
func TestAnIndexThatListsItself(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "image")
	made, err := layout.Write(path, empty.Index)
	require.NoError(t, err)
	self := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	listed := v1.Descriptor{MediaType: types.OCIImageIndex, Digest: self, Size: 1}
	text, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{listed}})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(path, "blobs", "sha256"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(path, "blobs", "sha256", self.Hex), text, 0o600))
	require.NoError(t, made.AppendDescriptor(listed))
	_, err = folder.Open(t.Context(), path, repository)
	require.ErrorContains(t, err, "is damaged: its content has another digest")
}
