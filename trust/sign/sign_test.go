package sign_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

func TestSignAndVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	policy := w.trusts("os/worker", ours())
	require.ErrorContains(t, w.verify(policy, image), "it has no signature")

	signed := w.sign(ours().Key, image)
	assert.Equal(t, signatureTag(image), signed.Reference)
	assert.Equal(t, ours().ID(), signed.KeyID)
	assert.Len(t, signed.KeyID, 64)
	assert.Equal(t, 1, signed.Added)
	verified, err := policy.Verify(t.Context(), w.client, image)
	require.NoError(t, err)
	assert.Equal(t, sign.Verified{KeyID: signed.KeyID}, verified)
}

func TestNothingIsSignedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.sign(ours().Key, image)
	require.NotEmpty(t, w.pushes())
	again := w.sign(ours().Key, image)
	assert.Zero(t, again.Added)
	assert.Equal(t, signatureTag(image), again.Reference)
	assert.Empty(t, w.pushes())
}

func TestAnotherKeySignsBeside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.sign(others().Key, image)
	w.sign(ours().Key, image)
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), image))
	require.NoError(t, w.verify(w.trusts("os/worker", others()), image), "the signature before stays")
	require.NoError(t, w.verify(w.trusts("os/worker", others(), ours()), image))
	assert.Zero(t, w.sign(others().Key, image).Added)
	assert.Zero(t, w.sign(ours().Key, image).Added)
}

func TestOfAnIndexEverythingIsSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	index, children := w.pushIndex("os/worker")
	require.Len(t, children, 2)
	signed := w.sign(ours().Key, index)
	assert.Equal(t, 3, signed.Added)
	assert.Equal(t, signatureTag(index), signed.Reference)
	policy := w.trusts("os/worker", ours())
	for _, image := range append(children, index) {
		require.NoError(t, w.verify(policy, image))
	}

	w.pushes()
	require.NoError(t, remote.Delete(w.ref(signatureTag(children[1])).Context().Digest(w.digestOf(signatureTag(children[1]))), w.options()...))
	require.ErrorContains(t, w.verify(policy, index), "it has no signature", "nodes verify the image that they pull of it")
	assert.Equal(t, 1, w.sign(ours().Key, index).Added, "what is missing alone is signed again")
	require.NoError(t, w.verify(policy, index))
}

func TestReferrersWhereTheRegistryListsThem(t *testing.T) {
	t.Parallel()
	w := withReferrers(t)
	image := w.push("os/worker", "one")
	w.sign(ours().Key, image)
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), image))
	digest, err := w.client.Resolve(t.Context(), image)
	require.NoError(t, err)
	index, err := remote.Referrers(w.ref(image).Context().Digest(digest.Digest.String()), w.options()...)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	assert.Equal(t, "application/vnd.dev.cosign.artifact.sig.v1+json", manifest.Manifests[0].ArtifactType)

	tags, err := w.client.Tags(t.Context(), w.host+"/os/worker")
	require.NoError(t, err)
	tag := signatureTag(image)
	assert.ElementsMatch(t, []string{"one", tag[strings.LastIndex(tag, ":")+1:]}, tags, "no tag that stands in for the API")
	w.pushes()
	w.sign(ours().Key, image)
	assert.Empty(t, w.pushes())
}

// requests are those since the last call that are about referrers, and pushes.
func (w *world) referring() (asked int, pushed []string) {
	for _, request := range w.registry.Requests() {
		if strings.Contains(request, "/referrers/") {
			asked++
		}
	}
	return asked, w.pushes()
}

func (w *world) referrers(image string) []v1.Descriptor {
	w.t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	index, err := remote.Referrers(w.ref(image).Context().Digest(digest), w.options()...)
	require.NoError(w.t, err)
	manifest, err := index.IndexManifest()
	require.NoError(w.t, err)
	return manifest.Manifests
}

func TestDeletedReferrerIsRestored(t *testing.T) {
	t.Parallel()
	w := withReferrers(t)
	image := w.push("os/worker", "one")
	w.sign(others().Key, image)
	w.sign(ours().Key, image)
	before := w.referrers(image)
	require.Len(t, before, 2)
	w.referring()
	w.sign(ours().Key, image)
	asked, pushed := w.referring()
	assert.Equal(t, 1, asked, "one request tells that they are there")
	assert.Empty(t, pushed)

	tag := w.digestOf(signatureTag(image))
	require.NoError(t, remote.Delete(w.ref(image).Context().Digest(before[0].Digest.String()), w.options()...))
	require.NoError(t, remote.Delete(w.ref(image).Context().Digest(before[1].Digest.String()), w.options()...))
	w.referring()
	assert.Zero(t, w.sign(ours().Key, image).Added, "it is signed, and not signed again")
	_, pushed = w.referring()
	assert.Len(t, pushed, 1)
	require.Len(t, w.referrers(image), 1)
	assert.Contains(t, []v1.Hash{before[0].Digest, before[1].Digest}, w.referrers(image)[0].Digest, "the same signature")
	w.sign(others().Key, image)
	assert.ElementsMatch(t, before, w.referrers(image))
	assert.Equal(t, tag, w.digestOf(signatureTag(image)), "the tag stays as it is")
}

func TestWithoutReferrersNothingIsReferred(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.sign(ours().Key, image)
	w.referring()
	w.sign(ours().Key, image)
	asked, pushed := w.referring()
	assert.Equal(t, 1, asked)
	assert.Empty(t, pushed)
}

func (w *world) digestOf(reference string) string {
	w.t.Helper()
	found, err := remote.Head(w.ref(reference), w.options()...)
	require.NoError(w.t, err)
	return found.Digest.String()
}

func TestAttacks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// attack changes the registry, where good has been signed, and gives the image to verify
		// and whom to trust.
		attack func(w *world, good string) (string, sign.Policy)
		want   string
	}{
		"an image that no one signed": {
			func(w *world, _ string) (string, sign.Policy) {
				return w.push("os/worker", "evil"), w.trusts("os/worker", ours())
			},
			"it has no signature",
		},
		"a signature by another key": {
			func(w *world, _ string) (string, sign.Policy) {
				evil := w.push("os/worker", "evil")
				w.sign(others().Key, evil)
				return evil, w.trusts("os/worker", ours())
			},
			"none of its signatures is by a trusted key",
		},
		"the signature of another image": {
			func(w *world, good string) (string, sign.Policy) {
				evil := w.push("os/worker", "evil")
				w.copySignatures(good, evil)
				return evil, w.trusts("os/worker", ours())
			},
			"a trusted key has signed something else: it is about the image sha256:",
		},
		"the signature was deleted": {
			func(w *world, good string) (string, sign.Policy) {
				tag := w.ref(signatureTag(good))
				require.NoError(w.t, remote.Delete(tag.Context().Digest(w.digestOf(tag.String())), w.options()...))
				return good, w.trusts("os/worker", ours())
			},
			"it has no signature",
		},
		"something else has the tag of the signatures": {
			func(w *world, good string) (string, sign.Policy) {
				index, err := random.Index(64, 1, 1)
				require.NoError(w.t, err)
				require.NoError(w.t, remote.WriteIndex(w.ref(signatureTag(good)), index, w.options()...))
				return good, w.trusts("os/worker", ours())
			},
			"it has no signature",
		},
		"image and signature in a repository whose name begins alike": {
			func(w *world, good string) (string, sign.Policy) {
				return w.copyTo(good, "os/worker-evil"), w.trusts("os/worker", ours())
			},
			"no key is trusted for the repository",
		},
		"the image and its signature in a repository below": {
			func(w *world, good string) (string, sign.Policy) {
				return w.copyTo(good, "os/worker/evil"), w.trusts("os/worker", ours())
			},
			"no key is trusted for the repository",
		},
		"image and signature in another repository of the same key": {
			func(w *world, good string) (string, sign.Policy) {
				return w.copyTo(good, "os/infra"), append(w.trusts("os/worker", ours()), w.trusts("os/infra", ours())...)
			},
			"a trusted key has signed something else: it is about the repository",
		},
		"a key that is trusted elsewhere": {
			func(w *world, _ string) (string, sign.Policy) {
				evil := w.push("os/worker", "evil")
				w.sign(others().Key, evil)
				return evil, append(w.trusts("os/worker", ours()), w.trusts("os/infra", others())...)
			},
			"none of its signatures is by a trusted key",
		},
		"no signer is trusted": {
			func(_ *world, good string) (string, sign.Policy) { return good, nil },
			"no key is trusted for the repository",
		},
		"no digest": {
			func(w *world, _ string) (string, sign.Policy) {
				return w.host + "/os/worker:one", w.trusts("os/worker", ours())
			},
			"has no digest",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			good := w.push("os/worker", "one")
			w.sign(ours().Key, good)
			require.NoError(t, w.verify(w.trusts("os/worker", ours()), good))
			image, policy := tt.attack(w, good)
			err := w.verify(policy, image)
			require.ErrorContains(t, err, tt.want)
			assert.True(t, fault.IsTerminal(err))
			assert.Equal(t, mcfgv1alpha1.ReasonNotSigned, fault.Reason(err))
		})
	}
}

// copyTo copies an image and its signatures into another repository.
func (w *world) copyTo(image, repository string) string {
	w.t.Helper()
	found, err := remote.Image(w.ref(image), w.options()...)
	require.NoError(w.t, err)
	_, digest, _ := strings.Cut(image, "@")
	there := w.host + "/" + repository + "@" + digest
	require.NoError(w.t, remote.Write(w.ref(there), found, w.options()...))
	w.copySignatures(image, there)
	return there
}

func TestATagThatMovesBetweenPushAndSign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	observed := w.push("os/worker", "newest")
	moved := w.push("os/worker", "newest")
	w.sign(ours().Key, observed)
	policy := w.trusts("os/worker", ours())
	require.NoError(t, w.verify(policy, observed))
	require.ErrorContains(t, w.verify(policy, moved), "it has no signature")

	_, err := ours().Signer().Sign(t.Context(), w.client, w.host+"/os/worker:newest")
	require.Error(t, err, "a tag is never signed")
	assert.True(t, fault.IsTerminal(err))
}

func TestSigningReplacesAForeignTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	index, err := random.Index(64, 1, 1)
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(w.ref(signatureTag(image)), index, w.options()...))
	assert.Equal(t, 1, w.sign(ours().Key, image).Added)
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), image))
}

// Nodes read signatures from an OCI manifest alone, and refuse the image where it is another.
func TestSignatureThatNodesIgnoreIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.sign(ours().Key, image)
	tag := w.ref(signatureTag(image))
	signatures, err := remote.Image(tag, w.options()...)
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, mutate.ConfigMediaType(mutate.MediaType(signatures, types.DockerManifestSchema2), types.DockerConfigJSON), w.options()...))
	require.ErrorContains(t, w.verify(w.trusts("os/worker", ours()), image), "it has no signature")
	assert.Equal(t, 1, w.sign(ours().Key, image).Added)
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), image))
}

// What a manifest says of its config is no reason to read gigabytes.
func TestSignatureConfigIsNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	config := strings.Repeat("c", 64)
	tag := signatureTag(image)[strings.LastIndex(signatureTag(image), ":")+1:]
	w.answering(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut || !strings.HasSuffix(r.URL.Path, "/manifests/"+tag) {
			return false
		}
		manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"layers":[],"config":{"mediaType":%q,"digest":"sha256:%s","size":%d}}`,
			types.OCIManifestSchema1, types.OCIConfigJSON, config, 1<<40)
		rw.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		rw.Header().Set("Content-Length", strconv.Itoa(len(manifest)))
		rw.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(manifest))))
		_, _ = io.WriteString(rw, manifest)
		return true
	})
	w.registry.Forget()
	assert.Equal(t, 1, w.sign(ours().Key, image).Added)
	for _, request := range w.registry.Forget() {
		assert.NotContains(t, request, config)
	}
	w.answering(nil)
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), image))
}

// A registry may say anything. Those that are honest take manifests of 4 MiB.
func TestManifestsWithoutEndAreNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	var written atomic.Int64
	w.answering(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/manifests/sha256-") {
			return false
		}
		rw.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		for range 90 {
			n, _ := rw.Write(bytes.Repeat([]byte(" "), 1<<20))
			written.Add(int64(n))
		}
		return true
	})
	err := w.verify(w.trusts("os/worker", ours()), image)
	require.ErrorContains(t, err, "its manifest has more than 8388608 bytes")
	assert.Less(t, written.Load(), int64(64<<20))
}

func TestOwnSignatureAmongLargeOnes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.sign(ours().Key, image)
	before, err := remote.Image(w.ref(signatureTag(image)), w.options()...)
	require.NoError(t, err)
	flooded := flood(t, before, 100)
	require.NoError(t, remote.Write(w.ref(signatureTag(image)), flooded, w.options()...))
	require.Error(t, w.verify(w.trusts("os/worker", ours()), image), "what is too much is not read")
	w.sign(ours().Key, image)
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), image), "and signed anew, it is the newest")
}

func TestRegistriesThatFail(t *testing.T) {
	t.Parallel()
	refuse := func(code int, method string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method || r.URL.Path == "/v2/" {
				return false
			}
			w.WriteHeader(code)
			return true
		}
	}
	tests := map[string]struct {
		answer      func(http.ResponseWriter, *http.Request) bool
		signs       string
		verifyFails bool
		class       fault.Class
	}{
		"not at all":               {refuse(http.StatusServiceUnavailable, http.MethodGet), "503", true, fault.Transient},
		"when written to":          {refuse(http.StatusBadGateway, http.MethodPut), "502", false, fault.Transient},
		"too many requests":        {refuse(http.StatusTooManyRequests, http.MethodGet), "asked for a pause", true, fault.Transient},
		"no right to push":         {refuse(http.StatusForbidden, http.MethodPost), "the registry denies write access", false, fault.Terminal},
		"no right to pull":         {refuse(http.StatusUnauthorized, http.MethodGet), "the registry denies read access", true, fault.Terminal},
		"signatures can't be read": {failingFor(".sig"), "500", true, fault.Transient},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			image := w.push("os/worker", "one")
			if tt.verifyFails {
				w.sign(ours().Key, image)
			}
			w.answering(tt.answer)
			_, err := ours().Signer().Sign(t.Context(), w.client, image)
			require.Error(t, err)
			assert.Equal(t, tt.class, fault.ClassOf(err), err.Error())
			if tt.verifyFails {
				err := w.verify(w.trusts("os/worker", ours()), image)
				require.Error(t, err)
				assert.Equal(t, tt.class, fault.ClassOf(err))
				assert.NotEqual(t, mcfgv1alpha1.ReasonNotSigned, fault.Reason(err), "that it can't be found out says nothing about the image")
			}
			w.answering(nil)
			w.pushes()
			want := 1
			if tt.verifyFails {
				want = 0
			}
			assert.Equal(t, want, w.sign(ours().Key, image).Added)
			require.NoError(t, w.verify(w.trusts("os/worker", ours()), image))
		})
	}
}

func failingFor(suffix string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, suffix) {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
}

func TestWithoutAKeyTheRegistryIsNotAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.pushes()
	want := fault.NewWaiting(mcfgv1alpha1.ReasonWaitingForKey, time.Second, nil)
	_, err := sign.NewSigner(signtest.Keys{Err: want}).Sign(t.Context(), w.client, image)
	require.ErrorIs(t, err, want)
	assert.Empty(t, w.registry.Requests())
}

func TestAnImageThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	gone := image[:len(image)-8] + "00000000"
	_, err := ours().Signer().Sign(t.Context(), w.client, gone)
	require.ErrorContains(t, err, "it does not exist")
	assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))
}

func TestThePayloadIsWhatCosignWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.sign(ours().Key, image)
	there, err := w.client.Attachments(t.Context(), image, sign.Signatures)
	require.NoError(t, err)
	require.Len(t, there, 1)
	repository, digest, _ := strings.Cut(image, "@")
	assert.JSONEq(t, `{"critical":{"identity":{"docker-reference":"`+repository+`"},"image":{"docker-manifest-digest":"`+digest+
		`"},"type":"cosign container image signature"},"optional":null}`, string(there[0].Content))
	assert.True(t, json.Valid(there[0].Content))
}

// Nodes read all signatures of an image before they look at one, and refuse it where one can't be
// read.
func TestASignatureThatTheRegistryCannotGive(t *testing.T) {
	t.Parallel()
	const size = 400 // more than a payload has
	tests := map[string]struct {
		give func(http.ResponseWriter)
		// says is why it is not trusted; empty where that can't be known now.
		says string
	}{
		"lost":           {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, "it is lost"},
		"changed":        {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "changed") }, "it is damaged"},
		"empty":          {func(http.ResponseWriter) {}, "it is damaged"},
		"it fails":       {func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, ""},
		"an early end":   {func(w http.ResponseWriter) { w.Header().Set("Content-Length", strconv.Itoa(size)) }, ""},
		"access refused": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			image := w.push("os/worker", "one")
			w.sign(ours().Key, image)
			policy := w.trusts("os/worker", ours())
			require.NoError(t, w.verify(policy, image))
			there, err := w.client.Attachments(t.Context(), image, sign.Signatures)
			require.NoError(t, err)
			lost := fmt.Sprintf("%x", sha256.Sum256(there[0].Content))
			w.answering(func(rw http.ResponseWriter, r *http.Request) bool {
				is := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, lost)
				if is {
					tt.give(rw)
				}
				return is
			})
			err = w.verify(policy, image)
			if tt.says == "" {
				require.Error(t, err)
				assert.NotEqual(t, mcfgv1alpha1.ReasonNotSigned, fault.Reason(err), "the registry's trouble says nothing about the image")
				w.pushes()
				_, err = ours().Signer().Sign(t.Context(), w.client, image)
				require.Error(t, err)
				assert.Empty(t, w.pushes())
				return
			}
			require.ErrorContains(t, err, "the registry can't give sha256:"+lost+", which is attached to it: "+tt.says)
			assert.Equal(t, mcfgv1alpha1.ReasonNotSigned, fault.Reason(err))
			assert.Equal(t, 1, w.sign(ours().Key, image).Added)
			require.NoError(t, w.verify(policy, image), "with another payload, which the registry does not believe to have")
			assert.Zero(t, w.sign(ours().Key, image).Added)
		})
	}
}

func TestAnIndexThatListsTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := func(n int) string {
		index, err := random.Index(16, 1, 1)
		require.NoError(t, err)
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		manifest = manifest.DeepCopy()
		for len(manifest.Manifests) < n {
			manifest.Manifests = append(manifest.Manifests, manifest.Manifests[0])
		}
		text, err := json.Marshal(manifest)
		require.NoError(t, err)
		require.NoError(t, remote.WriteIndex(w.ref(w.host+"/os/worker:parts"), index, w.options()...))
		ref := w.ref(fmt.Sprintf("%s/os/worker:of%d", w.host, n))
		require.NoError(t, remote.Put(ref, raw{text}, w.options()...))
		return fmt.Sprintf("%s/os/worker@sha256:%x", w.host, sha256.Sum256(text))
	}
	most := list(100)
	assert.Equal(t, 2, w.sign(ours().Key, most).Added, "one image that is listed a hundred times, and the index")
	require.NoError(t, w.verify(w.trusts("os/worker", ours()), most))

	tooMany := list(101)
	w.pushes()
	_, err := ours().Signer().Sign(t.Context(), w.client, tooMany)
	require.ErrorContains(t, err, fmt.Sprintf("reading image %q: its index lists 101 manifests; the limit is 100", tooMany))
	assert.True(t, fault.IsTerminal(err))
	assert.Empty(t, w.pushes())
	require.ErrorContains(t, w.verify(w.trusts("os/worker", ours()), tooMany), "the limit is 100")
}

// raw is an index as it is.
type raw struct{ text []byte }

// RawManifest is the text.
func (r raw) RawManifest() ([]byte, error) { return r.text, nil }

// MediaType is an index's.
func (raw) MediaType() (types.MediaType, error) { return types.OCIImageIndex, nil }
