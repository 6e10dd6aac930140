package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

// TestImmutableTags has registries that let no tag be moved, with what they answer.
func TestImmutableTags(t *testing.T) {
	t.Parallel()
	for name, refusal := range registrytest.Immutables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := registrytest.New(t, nil)
			server.FixTags(refusal)
			repository := server.Host + "/os"
			base := push(t, server.Host+"/base", shape{}.make(t))
			c := client(t)
			ask := registry.AppendRequest{Content: base, Repository: repository, Tags: []string{"worker-1", "worker"}, Layer: configuration(t, "one")}
			first := appended(t, c, ask)
			assert.Empty(t, first.Immutable)
			ask.Tags, ask.Layer = []string{"worker-2", "worker"}, configuration(t, "two")
			second := appended(t, c, ask)
			assert.NotEqual(t, first.Digest, second.Digest)
			assert.Equal(t, []string{"worker"}, second.Immutable, "the image is there all the same")
			digest, found, err := c.Exists(t.Context(), repository, "worker-2")
			require.NoError(t, err)
			assert.True(t, found)
			assert.Equal(t, second.Digest, digest)

			err = c.Tag(t.Context(), second.Image, "worker")
			assert.True(t, registry.IsImmutable(err), "%v", err)
			assert.True(t, fault.IsTerminal(err))
			require.ErrorContains(t, err, "the tag stands for another image, and the registry's tags are immutable")

			statements := registry.AttachmentKind{Suffix: "att", MediaType: types.MediaType("application/json")}
			for _, content := range []string{"a", "b", "c"} {
				_, err = c.Attach(t.Context(), second.Image, statements, registry.Attachment{Content: []byte(content), Annotations: map[string]string{"about": content}})
				require.NoError(t, err)
			}
			there, err := c.Attachments(t.Context(), second.Image, statements)
			require.NoError(t, err)
			require.Len(t, there, 3)
			for i, content := range []string{"c", "b", "a"} { // the newest first
				assert.Equal(t, content, string(there[i].Content))
			}
			statements.Only = map[string]string{"about": "b"}
			there, err = c.Attachments(t.Context(), second.Image, statements)
			require.NoError(t, err)
			require.Len(t, there, 1)

			signatures := registry.AttachmentKind{Suffix: "sig", MediaType: types.MediaType("application/json"), Whole: true}
			_, err = c.Attach(t.Context(), second.Image, signatures, registry.Attachment{Content: []byte("a")})
			require.NoError(t, err)
			_, err = c.Attach(t.Context(), second.Image, signatures, registry.Attachment{Content: []byte("b")})
			assert.True(t, registry.IsImmutable(err), "nodes would not find another tag: %v", err)
			tag := strings.Replace(second.Digest.String(), ":", "-", 1) + ".sig"
			require.ErrorContains(t, err, `nodes look for signatures under the tag "`+tag+`" alone, which has one by another key`)
			require.ErrorContains(t, err, tag+`": the tag stands for another image, and the registry's tags are immutable`)
			require.ErrorContains(t, err, "except it from that rule of the registry")
		})
	}
}

// TestImagesWithImmutableTagsMayStay where the registry deletes none of them.
func TestImagesWithImmutableTagsMayStay(t *testing.T) {
	t.Parallel()
	for name, refusal := range registrytest.Immutables {
		server := registrytest.New(t, nil)
		server.FixTags(refusal)
		image := push(t, server.Host+"/os", shape{}.make(t))
		require.NoError(t, client(t).Tag(t.Context(), image, "1"))
		deletion, err := client(t).DeleteManifest(t.Context(), image)
		require.NoError(t, err, name)
		if !refusal.Keeps {
			assert.Equal(t, registry.Deleted, deletion.Outcome, name)
			continue
		}
		assert.Equal(t, registry.Unsupported, deletion.Outcome, name)
		assert.Contains(t, deletion.Detail, "immutable", name)
	}
}

// TestDenialsAreNotAboutTags has answers in which the word is part of a name.
func TestDenialsAreNotAboutTags(t *testing.T) {
	t.Parallel()
	server := registrytest.New(t, nil)
	image := push(t, server.Host+"/immutable/os", shape{}.make(t))
	server.FixTags(registrytest.Refusal{Status: 403, Body: `{"errors":[{"code":"DENIED","message":"access to immutable/os is denied"}]}`})
	c := client(t)
	require.NoError(t, c.Tag(t.Context(), image, "a"))
	other := push(t, server.Host+"/immutable/os", shape{arch: "arm64"}.make(t))
	err := c.Tag(t.Context(), other, "a")
	assert.True(t, registry.IsDenied(err), "%v", err)
	assert.False(t, registry.IsImmutable(err))
}
