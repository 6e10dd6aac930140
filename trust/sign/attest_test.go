package sign_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

func provenance(text string) sign.Statement {
	return sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: json.RawMessage(`{"buildType":"` + text + `"}`)}
}

func sbom(text string) sign.Statement {
	return sign.Statement{PredicateType: sign.PredicateSPDX, Predicate: json.RawMessage(`{"name":"` + text + `"}`)}
}

func (w *world) attest(key *sign.Key, image string, statements ...sign.Statement) []sign.Attestation {
	w.t.Helper()
	out, err := sign.NewSigner(signtest.Keys{One: key}).Attest(w.t.Context(), w.client, image, statements...)
	require.NoError(w.t, err)
	return out
}

// stated are the trusted provenances of an image, as one text.
func (w *world) stated(image string, pairs ...signtest.Pair) (string, error) {
	found, err := w.trusts("os/worker", pairs...).VerifyAttestation(w.t.Context(), w.client, image, sign.PredicateProvenance)
	return string(bytes.Join(rawOf(found), []byte(" "))), err
}

func rawOf(messages []json.RawMessage) [][]byte {
	var out [][]byte
	for _, m := range messages {
		out = append(out, m)
	}
	return out
}

func attestationTag(image string) string {
	return strings.TrimSuffix(signatureTag(image), "sig") + "att"
}

// replaceAttestations puts other layers under the tag of an image's attestations.
func (w *world) replaceAttestations(image string, layers ...registry.Attachment) {
	w.t.Helper()
	all := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range layers {
		var err error
		all, err = mutate.Append(all, mutate.Addendum{
			Layer: static.NewLayer(layer.Content, sign.Attestations.MediaType), MediaType: sign.Attestations.MediaType, Annotations: layer.Annotations,
		})
		require.NoError(w.t, err)
	}
	require.NoError(w.t, remote.Write(w.ref(attestationTag(image)), all, w.options()...))
}

func (w *world) attached(image string) []registry.Attachment {
	w.t.Helper()
	there, err := w.client.Attachments(w.t.Context(), image, sign.Attestations)
	require.NoError(w.t, err)
	return there
}

func (w *world) removeAttestations(image string) {
	w.t.Helper()
	tag := attestationTag(image)
	require.NoError(w.t, remote.Delete(w.ref(tag).Context().Digest(w.digestOf(tag)), w.options()...))
}

func TestAttestAndVerify(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *world{"tags alone": newWorld, "referrers beside": withReferrers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			image := w.push("os/worker", "one")
			_, err := w.stated(image, ours())
			require.ErrorContains(t, err, "it has none")

			made := w.attest(ours().Key, image, provenance("one"), sbom("packages"))
			assert.Equal(t, []sign.Attestation{
				{PredicateType: sign.PredicateProvenance, Reference: attestationTag(image), Added: 1},
				{PredicateType: sign.PredicateSPDX, Reference: attestationTag(image), Added: 1},
			}, made)
			said, err := w.stated(image, others(), ours())
			require.NoError(t, err)
			assert.JSONEq(t, `{"buildType":"one"}`, said)
			require.ErrorContains(t, w.verify(w.trusts("os/worker", ours()), image), "it has no signature", "no node takes a statement for a signature")

			there, err := ours().Signer().Attested(t.Context(), w.client, image)
			require.NoError(t, err)
			assert.Equal(t, map[string]bool{sign.PredicateProvenance: true, sign.PredicateSPDX: true}, there)
		})
	}
}

func TestNothingIsAttestedTwice(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *world{"tags alone": newWorld, "referrers beside": withReferrers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			image, _ := w.pushIndex("os/worker")
			w.pushes()
			w.attest(ours().Key, image, provenance("one"), sbom("packages"))
			require.NotEmpty(t, w.pushes())
			for _, again := range w.attest(ours().Key, image, provenance("made at another time"), sbom("packages")) {
				assert.Zero(t, again.Added)
			}
			assert.Empty(t, w.pushes())
			said, err := w.stated(image, ours())
			require.NoError(t, err)
			assert.JSONEq(t, `{"buildType":"one"}`, said)
		})
	}
}

// TestWhatHasToBeSaidIsAdded has something stated that what was stated before does not say.
func TestWhatHasToBeSaidIsAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image, children := w.pushIndex("os/worker")
	w.attest(ours().Key, image, provenance("one"))
	two := provenance("two")
	two.Says = func(predicate json.RawMessage) bool { return strings.Contains(string(predicate), "two") }
	assert.Equal(t, 3, w.attest(ours().Key, image, two)[0].Added)
	assert.Zero(t, w.attest(ours().Key, image, two)[0].Added, "it is said now")
	assert.Zero(t, w.attest(ours().Key, image, provenance("any"))[0].Added)
	for _, about := range append(children, image) {
		said, err := w.trusts("os/worker", ours()).VerifyAttestation(t.Context(), w.client, about, sign.PredicateProvenance)
		require.NoError(t, err)
		require.Len(t, said, 2, "what was stated before stays")
		assert.JSONEq(t, `{"buildType":"two"}`, string(said[0]), "the newest comes first")
	}
}

func TestOneAttestationOfAnIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	index, children := w.pushIndex("os/worker")
	assert.Equal(t, 3, w.attest(ours().Key, index, provenance("one"))[0].Added)
	before := w.attached(index)
	require.Len(t, before, 1)
	for _, child := range children {
		assert.Equal(t, before, w.attached(child))
	}

	w.removeAttestations(index) // and with it those of the others, which are the same
	w.replaceAttestations(children[1], before...)
	signer := ours().Signer()
	there, err := signer.Attested(t.Context(), w.client, index)
	require.NoError(t, err)
	assert.False(t, there[sign.PredicateProvenance])
	assert.Equal(t, 2, w.attest(ours().Key, index, provenance("made anew"))[0].Added)
	assert.Equal(t, before, w.attached(index), "what one of them still has is taken over")
}

func TestTheStatementIsInTotos(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.attest(ours().Key, image, provenance("one"))
	there := w.attached(image)
	require.Len(t, there, 1)
	assert.Equal(t, map[string]string{"predicateType": sign.PredicateProvenance, "dev.cosignproject.cosign/signature": ""}, there[0].Annotations)
	var envelope struct {
		PayloadType, Payload string
		Signatures           []map[string]string
	}
	require.NoError(t, json.Unmarshal(there[0].Content, &envelope))
	assert.Equal(t, "application/vnd.in-toto+json", envelope.PayloadType)
	require.Len(t, envelope.Signatures, 1)
	assert.Empty(t, envelope.Signatures[0]["keyid"])
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	require.NoError(t, err)
	repository, digest, _ := strings.Cut(image, "@sha256:")
	assert.JSONEq(t, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"`+repository+`","digest":{"sha256":"`+digest+
		`"}}],"predicateType":"https://slsa.dev/provenance/v1","predicate":{"buildType":"one"}}`, string(payload))
}

func TestIgnoredAttestations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// attack changes what is attached to an image that has been attested.
		attack func(w *world, image string)
		want   string
		// repaired reports whether attesting it again helps: where nothing of ours is left.
		repaired bool
	}{
		"the tag is deleted": {func(w *world, image string) { w.removeAttestations(image) }, "it has none", true},
		"that of another image": {func(w *world, image string) {
			other := w.push("os/worker", "other")
			w.attest(ours().Key, other, provenance("other"))
			w.replaceAttestations(image, w.attached(other)...)
		}, "by a trusted key, and about another image: ", true},
		"by a wrong key": {func(w *world, image string) {
			w.removeAttestations(image)
			w.attest(others().Key, image, provenance("evil"))
		}, "none that is attached is by a trusted key", true},
		"replaced in the envelope": {func(w *world, image string) {
			there := w.attached(image)
			there[0].Content = reseal(w.t, there[0].Content, func(e map[string]any) {
				payload, err := base64.StdEncoding.DecodeString(e["payload"].(string))
				require.NoError(w.t, err)
				e["payload"] = base64.StdEncoding.EncodeToString(bytes.Replace(payload, []byte(`"one"`), []byte(`"two"`), 1))
			})
			w.replaceAttestations(image, there...)
		}, "none that is attached is by a trusted key", true},
		"another payload type": {func(w *world, image string) {
			there := w.attached(image)
			there[0].Content = reseal(w.t, there[0].Content, func(e map[string]any) { e["payloadType"] = "text/plain" })
			w.replaceAttestations(image, there...)
		}, "none that is attached is by a trusted key", true},
		"no signature": {func(w *world, image string) {
			there := w.attached(image)
			there[0].Content = reseal(w.t, there[0].Content, func(e map[string]any) { e["signatures"] = []any{} })
			w.replaceAttestations(image, there...)
		}, "none that is attached is by a trusted key", true},
		"another type under this one's annotation": {func(w *world, image string) {
			w.removeAttestations(image)
			w.attest(ours().Key, image, sbom("packages"))
			there := w.attached(image)
			there[0].Annotations["predicateType"] = sign.PredicateProvenance
			w.replaceAttestations(image, there...)
		}, "none that is attached is by a trusted key", true},
		"no JSON": {func(w *world, image string) {
			w.replaceAttestations(image, registry.Attachment{Content: []byte("{")})
		}, "none that is attached is by a trusted key", true},
		"a signature of the image": {func(w *world, image string) {
			w.sign(ours().Key, image)
			found, err := remote.Image(w.ref(signatureTag(image)), w.options()...)
			require.NoError(w.t, err)
			require.NoError(w.t, remote.Write(w.ref(attestationTag(image)), found, w.options()...))
		}, "it has none", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			image := w.push("os/worker", "one")
			w.attest(ours().Key, image, provenance("one"))
			tt.attack(w, image)
			_, err := w.stated(image, ours())
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, mcfgv1alpha1.ReasonNotAttested, fault.Reason(err))
			assert.Equal(t, fault.Terminal, fault.ClassOf(err))
			there, err := ours().Signer().Attested(t.Context(), w.client, image)
			require.NoError(t, err)
			assert.False(t, there[sign.PredicateProvenance])
			assert.Equal(t, 1, w.attest(ours().Key, image, provenance("one"))[0].Added)
			said, err := w.stated(image, ours())
			require.NoError(t, err)
			assert.JSONEq(t, `{"buildType":"one"}`, said)
		})
	}
}

func reseal(t *testing.T, content []byte, change func(map[string]any)) []byte {
	t.Helper()
	envelope := map[string]any{}
	require.NoError(t, json.Unmarshal(content, &envelope))
	change(envelope)
	out, err := json.Marshal(envelope)
	require.NoError(t, err)
	return out
}

func TestAttestationsByKeysOfOtherRepositories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker-evil", "one")
	w.attest(ours().Key, image, provenance("one"))
	_, err := w.trusts("os/worker", ours()).VerifyAttestation(t.Context(), w.client, image, sign.PredicateProvenance)
	require.ErrorContains(t, err, "no key is trusted for the repository")
	_, err = w.trusts("os/worker-evil", ours()).VerifyAttestation(t.Context(), w.client, "os/worker-evil:one", sign.PredicateProvenance)
	require.ErrorContains(t, err, "has no digest")
}

func TestAttestationsOfTrustedKeysAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.attest(others().Key, image, provenance("before"))
	signer := ours().Signer()
	_, err := signer.Statements(t.Context(), w.client, image, sign.PredicateProvenance)
	require.ErrorContains(t, err, "none that is attached is by a trusted key")

	signer = sign.NewSigner(signtest.Keys{One: ours().Key, More: []*sign.PublicKey{others().Key.Public()}})
	found, err := signer.Statements(t.Context(), w.client, image, sign.PredicateProvenance)
	require.NoError(t, err)
	require.Len(t, found, 1)
	made, err := signer.Attest(t.Context(), w.client, image, sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: found[0]})
	require.NoError(t, err)
	assert.Equal(t, 1, made[0].Added, "the other key's stays, and ours goes beside")
	assert.Len(t, w.attached(image), 2)
}

func TestLargeAttestations(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.pushes()
	text := strings.Repeat("a", sign.MaxPredicate-len(`{"name":""}`))
	signer := ours().Signer()
	_, err := signer.Attest(t.Context(), w.client, image, provenance("one"), sbom(text+"b"))
	var large *registry.TooLargeError
	require.ErrorAs(t, err, &large)
	assert.Equal(t, fault.Terminal, fault.ClassOf(err))
	require.ErrorContains(t, err, sign.PredicateSPDX)
	assert.Empty(t, w.pushes(), "the others are not attached by halves")

	assert.Equal(t, 1, w.attest(ours().Key, image, sbom(text))[0].Added, "the largest")
	found, err := signer.Statements(t.Context(), w.client, image, sign.PredicateSPDX)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Len(t, found[0], sign.MaxPredicate)
}

// TestLargeEnvelopesAreNotRead has the largest envelope that can be attached: before
// anything is verified, each signature of three bytes would take a hundred of memory.
func TestLargeEnvelopesAreNotRead(t *testing.T) { //nolint:paralleltest // it measures memory
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	w := newWorld(t)
	image := w.push("os/worker", "one")
	const begin, end = `{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[`, `{}]}`
	bomb := begin + strings.Repeat("{},", (15<<20)/3) + end
	w.attest(ours().Key, image, provenance("one"))
	w.replaceAttestations(image, append(w.attached(image), registry.Attachment{Content: []byte(bomb)})...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	said, err := w.stated(image, ours())
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.JSONEq(t, `{"buildType":"one"}`, said)
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(200), "MiB that were taken in all")
}

func TestInvalidAttestations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	for _, s := range []sign.Statement{{PredicateType: sign.PredicateSPDX, Predicate: json.RawMessage(`{`)}, {Predicate: json.RawMessage(`{}`)}} {
		_, err := ours().Signer().Attest(t.Context(), w.client, image, s)
		require.ErrorContains(t, err, "it is no JSON, or has no type")
	}
}

func TestFailingRegistryIsNoMissingAttestation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.attest(ours().Key, image, provenance("one"))
	w.answering(failingFor(".att"))
	_, err := w.stated(image, ours())
	require.ErrorContains(t, err, "500")
	assert.Equal(t, fault.Transient, fault.ClassOf(err))
	_, err = ours().Signer().Attest(t.Context(), w.client, image, provenance("one"))
	assert.Equal(t, fault.Transient, fault.ClassOf(err))
	_, err = ours().Signer().Attested(t.Context(), w.client, image)
	assert.Equal(t, fault.Transient, fault.ClassOf(err))
}

func TestWhatWasAttachedByHalvesIsCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	index, children := w.pushIndex("os/worker")
	last := attestationTag(index)
	w.answering(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, last[strings.LastIndex(last, ":")+1:]) {
			return false
		}
		rw.WriteHeader(http.StatusBadGateway)
		return true
	})
	_, err := ours().Signer().Attest(t.Context(), w.client, index, provenance("one"))
	require.Error(t, err)
	assert.Equal(t, fault.Transient, fault.ClassOf(err))
	require.Len(t, w.attached(children[1]), 1)

	w.answering(nil)
	assert.Equal(t, 1, w.attest(ours().Key, index, provenance("two"))[0].Added)
	said, err := w.stated(index, ours())
	require.NoError(t, err)
	assert.JSONEq(t, `{"buildType":"one"}`, said)
}

func TestOwnSignatureAmongMany(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	w := newWorld(t)
	image := w.push("os/worker", "one")
	w.attest(ours().Key, image, provenance("one"))
	ours1 := w.attached(image)
	var flood []registry.Attachment
	for range 100 {
		flood = append(flood, registry.Attachment{Content: []byte("{}"), Annotations: map[string]string{"predicateType": sign.PredicateSPDX}})
	}
	w.replaceAttestations(image, append(ours1, flood...)...)
	said, err := w.stated(image, ours())
	require.NoError(t, err, "those of other types are not counted")
	assert.JSONEq(t, `{"buildType":"one"}`, said)

	large := registry.Attachment{Content: bytes.Repeat([]byte(" "), 15<<20)}
	w.replaceAttestations(image, append(ours1, large, large, large)...)
	_, err = w.stated(image, ours())
	require.ErrorContains(t, err, "none that is attached is by a trusted key", "what is too much is not read")
	w.attest(ours().Key, image, provenance("one"))
	_, err = w.stated(image, ours())
	require.NoError(t, err, "and attested anew, it is the newest")
}

// withoutReferrers deletes referrers of an image and leaves their tag.
func (w *world) withoutReferrers(image string, gone ...v1.Descriptor) {
	w.t.Helper()
	for _, one := range gone {
		require.NoError(w.t, remote.Delete(w.ref(image).Context().Digest(one.Digest.String()), w.options()...))
	}
}

func TestMissingReferrersAreRestored(t *testing.T) { //nolint:tparallel // its parts share the image
	t.Parallel()
	w := withReferrers(t)
	index, children := w.pushIndex("os/worker")
	w.attest(ours().Key, index, provenance("one"), sbom("packages"))
	before := map[string][]v1.Descriptor{}
	for _, image := range append([]string{index}, children...) {
		before[image] = w.referrers(image)
		require.Len(t, before[image], 2)
	}
	tag := w.digestOf(attestationTag(index))
	signer := ours().Signer()
	look := func() (asked int, pushed []string) {
		t.Helper()
		w.referring()
		there, err := signer.Attested(t.Context(), w.client, index)
		require.NoError(t, err)
		assert.Equal(t, map[string]bool{sign.PredicateProvenance: true, sign.PredicateSPDX: true}, there)
		return w.referring()
	}
	asked, pushed := look()
	assert.Equal(t, 3, asked, "one request for each manifest tells that they are there")
	assert.Empty(t, pushed)

	tests := map[string]struct {
		image string
		gone  []int
	}{
		"one of two":           {index, []int{1}},
		"the other one":        {index, []int{0}},
		"both":                 {index, []int{0, 1}},
		"of what an index has": {children[1], []int{0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, i := range tt.gone {
				w.withoutReferrers(tt.image, before[tt.image][i])
				want = append(want, before[tt.image][i].Digest.String())
			}
			_, pushed := look()
			assert.ElementsMatch(t, want, pushed, "the same envelopes, and no others")
			assert.ElementsMatch(t, before[tt.image], w.referrers(tt.image))
			_, pushed = look()
			assert.Empty(t, pushed, "once")
			assert.Equal(t, tag, w.digestOf(attestationTag(index)), "the tag stays as it is")
		})
	}
}

// TestForeignReferrersAreKept has statements and signatures of another key without referrers,
// which cosign before OCI 1.1 makes.
func TestForeignReferrersAreKept(t *testing.T) {
	t.Parallel()
	w := withReferrers(t)
	image := w.push("os/worker", "one")
	w.attest(others().Key, image, provenance("theirs"))
	w.sign(others().Key, image)
	w.withoutReferrers(image, w.referrers(image)...)
	w.attest(ours().Key, image, provenance("ours"))
	w.sign(ours().Key, image)
	require.Len(t, w.referrers(image), 2)
	w.referring()
	_, err := ours().Signer().Attested(t.Context(), w.client, image)
	require.NoError(t, err)
	w.sign(ours().Key, image)
	_, pushed := w.referring()
	assert.Empty(t, pushed, "what is listed is not pushed again")
}

func TestReferrersWhileTheRegistryFails(t *testing.T) {
	t.Parallel()
	w := withReferrers(t)
	image := w.push("os/worker", "one")
	w.attest(ours().Key, image, provenance("one"))
	before := w.referrers(image)
	w.withoutReferrers(image, before...)
	signer := ours().Signer()
	w.answering(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		rw.WriteHeader(http.StatusBadGateway)
		return true
	})
	_, err := signer.Attested(t.Context(), w.client, image)
	require.ErrorContains(t, err, "502")
	assert.True(t, fault.IsTransient(err))
	w.answering(nil)
	_, err = signer.Attested(t.Context(), w.client, image)
	require.NoError(t, err)
	assert.Equal(t, before, w.referrers(image))
}
