package signing_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/cosign"
	"github.com/layerwright/layerwright/trust/sign"
)

// layersOf are the layers of what is attached to an image under a tag.
func (c *cluster) layersOf(tag string) []v1.Descriptor {
	c.t.Helper()
	image, err := remote.Image(c.ref(tag), c.options()...)
	require.NoError(c.t, err)
	manifest, err := image.Manifest()
	require.NoError(c.t, err)
	return manifest.Layers
}

// damage has the registry's disk lose a layer, or change it.
func (c *cluster) damage(layer v1.Hash, content ...string) {
	c.t.Helper()
	file := filepath.Join(c.dir, "docker/registry/v2/blobs", layer.Algorithm, layer.Hex[:2], layer.Hex, "data")
	require.FileExists(c.t, file)
	if len(content) == 0 {
		require.NoError(c.t, os.Remove(file))
		return
	}
	require.NoError(c.t, os.WriteFile(file, []byte(content[0]), 0o600))
}

// addLayer adds something to what is attached to an image under a tag.
func (c *cluster) addLayer(tag string, mediaType types.MediaType, content string) v1.Hash {
	c.t.Helper()
	before, err := remote.Image(c.ref(tag), c.options()...)
	require.NoError(c.t, err)
	layer := static.NewLayer([]byte(content), mediaType)
	after, err := mutate.Append(before, mutate.Addendum{Layer: layer, MediaType: mediaType, Annotations: map[string]string{"is": "another's"}})
	require.NoError(c.t, err)
	require.NoError(c.t, remote.Write(c.ref(tag), after, c.options()...))
	digest, err := layer.Digest()
	require.NoError(c.t, err)
	return digest
}

// TestNodesRefuseUnreadableSignatures is how nodes judge: they read all that has the tag
// of signatures before they look at one. So does the controller, and signing puts it in order.
func TestNodesRefuseUnreadableSignatures(t *testing.T) {
	t.Parallel()
	const other = types.MediaType("text/plain")
	payload := func(c *cluster, tag string) v1.Hash { return c.layersOf(tag)[0].Digest }
	tests := map[string]struct {
		damage func(c *cluster, tag string)
		nodes  string
		says   string
	}{
		"the payload is lost": {
			func(c *cluster, tag string) { c.damage(payload(c, tag)) }, "blob unknown", "it is lost",
		},
		"the payload is another one": {
			func(c *cluster, tag string) { c.damage(payload(c, tag), "changed") }, "digest mismatch", "it is damaged",
		},
		"the payload was cut to nothing": {
			func(c *cluster, tag string) { c.damage(payload(c, tag), "") }, "digest mismatch", "it is damaged",
		},
		"the payload of someone else's signature is lost": {
			func(c *cluster, tag string) { c.damage(c.addLayer(tag, sign.Signatures.MediaType, "{}")) }, "blob unknown", "it is lost",
		},
		"something else that has the tag is lost": {
			func(c *cluster, tag string) { c.damage(c.addLayer(tag, other, "else")) }, "blob unknown", "it is lost",
		},
		"something else that has the tag is larger than nodes read": {
			func(c *cluster, tag string) { c.addLayer(tag, other, strings.Repeat("x", 4<<20+1)) }, "exceeded maximum allowed size", "it has 4194305 bytes",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			image := c.push("os/worker", "one")
			c.sign(ours(), image)
			c.addLayer(signatureTag(image), other, "something that can be read harms no one")
			require.NoError(t, c.pull(image, ours()))
			require.NoError(t, c.verify(image, ours()))

			tt.damage(c, signatureTag(image))
			require.ErrorContains(t, c.pull(image, ours()), tt.nodes)
			require.ErrorContains(t, c.verify(image, ours()), tt.says)

			signed, err := ours().Signer().Sign(t.Context(), c.client, image)
			require.NoError(t, err)
			assert.Equal(t, 1, signed.Added)
			require.NoError(t, c.verify(image, ours()))
			require.NoError(t, c.pull(image, ours()))
			c.cosign(ours().Public).Run(cosign.Documented(t, image, "verify")...)
			signed, err = ours().Signer().Sign(t.Context(), c.client, image)
			require.NoError(t, err)
			assert.Zero(t, signed.Added)
			assert.Len(t, c.layersOf(signatureTag(image)), 2, "the signature, and what can be read")
		})
	}
}

// TestUnreadableAttestationsAreReplaced: cosign counts those that it can read, whatever is
// beside them.
func TestUnreadableAttestationsAreReplaced(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]string{"lost": nil, "changed": {"changed"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			image := c.push("os/worker", "one")
			signer, s := ours().Signer(), predicates["slsaprovenance1"]
			attest := func() int {
				made, err := signer.Attest(t.Context(), c.client, image, s)
				require.NoError(t, err)
				return made[0].Added
			}
			require.Equal(t, 1, attest())
			tag, err := c.client.AttachmentTag(image, sign.Attestations)
			require.NoError(t, err)
			program := c.cosign(ours().Public)
			verify := cosign.Documented(t, image, "verify-attestation", "--type", "slsaprovenance1")
			program.Run(verify...)

			c.damage(c.layersOf(tag)[0].Digest, content...)
			_, err = program.Try(t.Context(), verify...)
			require.Error(t, err)
			has, err := signer.Attested(t.Context(), c.client, image)
			require.NoError(t, err)
			assert.False(t, has[s.PredicateType])
			require.Equal(t, 1, attest())
			program.Run(verify...)
			assert.Len(t, c.layersOf(tag), 1)

			c.damage(c.addLayer(tag, sign.Attestations.MediaType, "someone else's"), content...)
			program.Run(verify...)
			require.Zero(t, attest())
		})
	}
}
