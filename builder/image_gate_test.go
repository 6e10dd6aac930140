package builder

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
)

const policyMap = "trust"

// trusting makes a Builder go by the trust policy of the ConfigMap "trust".
func (w *world) trusting(o *settings) {
	o.TrustPolicy = trust.NewConfigMap(w, apitypes.NamespacedName{Namespace: namespace, Name: policyMap})
}

// policy is a ConfigMap with a trust policy.
func policy(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: policyMap}, Data: map[string]string{trust.PolicyKey: text}}
}

// trusts is the entry of a policy that trusts a key in a repository of the world's registry, with
// further fields.
func (w *world) trusts(repository string, key keyPair, more ...string) string {
	text := fmt.Sprintf("  - repository: %s/%s\n    publicKeys: %q\n", w.registry.host, repository, key.Public)
	for _, line := range more {
		text += "    " + line + "\n"
	}
	return text
}

func policyOf(entries ...string) *corev1.ConfigMap {
	return policy("repositories:\n" + strings.Join(entries, ""))
}

// repolicy changes the policy.
func (w *world) repolicy(to *corev1.ConfigMap) {
	w.t.Helper()
	w.quietly(func() error {
		object := &corev1.ConfigMap{}
		if err := w.Get(w.t.Context(), apitypes.NamespacedName{Namespace: namespace, Name: policyMap}, object); err != nil {
			return err
		}
		object.Data = to.Data
		return w.Update(w.t.Context(), object)
	})
}

// imports makes a MachineOSImage as an administrator does, for an image in a repository of the
// registry that is pushed now.
func (w *world) imports(repository string) (object, pinned string) {
	w.t.Helper()
	object = "imported-" + strings.ReplaceAll(repository, "/", "-")
	pinned = w.registry.pushBase(w.t, repository, strings.ReplaceAll(repository, "/", "-"))
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: object}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(pinned), "worker"
	w.add(image)
	return object, pinned
}

func (w *world) signs(key keyPair, pinned string) {
	w.t.Helper()
	_, err := key.Signer().Sign(w.t.Context(), registry.New(registry.Options{}), pinned)
	require.NoError(w.t, err)
}

// attests states how an image was built, and when.
func (w *world) attests(key keyPair, pinned, builder string, at time.Time) {
	w.t.Helper()
	predicate := fmt.Sprintf(`{"buildDefinition":{"buildType":"x"},"runDetails":{"builder":{"id":%q},"metadata":{"finishedOn":%q}}}`, builder, at.UTC().Format(time.RFC3339))
	_, err := key.Signer().Attest(w.t.Context(), registry.New(registry.Options{}), pinned, sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: []byte(predicate)})
	require.NoError(w.t, err)
}

// attachedTag is the tag with what is attached to an image.
func attachedTag(pinned, suffix string) string {
	repository, digest, _ := strings.Cut(pinned, "@")
	return repository + ":" + strings.Replace(digest, ":", "-", 1) + "." + suffix
}

// unsign removes what is attached to an image.
func (w *world) unsign(pinned, suffix string) {
	w.t.Helper()
	tag := w.registry.parse(w.t, attachedTag(pinned, suffix))
	require.NoError(w.t, ggcr.Delete(tag.Context().Digest(w.registry.digestOf(w.t, tag.String()))))
	require.NoError(w.t, ggcr.Delete(tag))
}

// moveAttached gives an image what is attached to another one, as whoever may push can.
func (w *world) moveAttached(from, to, suffix string) {
	w.t.Helper()
	found, err := ggcr.Image(w.registry.parse(w.t, attachedTag(from, suffix)))
	require.NoError(w.t, err)
	require.NoError(w.t, ggcr.Write(w.registry.parse(w.t, attachedTag(to, suffix)), found))
}

func TestTrustedForeignImageIsAccepted(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(policyOf(w.trusts("corp/os", firstKey())))
	b := w.builder(w.trusting)
	object, pinned := w.imports("corp/os")

	signed, ready := w.look(b, object)
	assert.Contains(t, signed, "False NotSigned")
	assert.Contains(t, signed, fmt.Sprintf("%q is not trusted: it has no signature; the trust policy's %s/corp/os accepts only the key %s", pinned, w.registry.host, firstKey().ID()[:16]))
	assert.Equal(t, signed, ready)
	image := read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Contains(t, text(image.Status.Conditions, status.Stalled), "True NotSigned")
	assert.Nil(t, image.Status.Signature)
	assert.Contains(t, strings.Join(w.told(), "\n"), "Warning ImageNotSigned NotSigned")

	w.signs(secondKey(), pinned)
	signed, ready = w.look(b, object)
	assert.Contains(t, signed, "False NotSigned")
	assert.Contains(t, signed, "none of its signatures is by a trusted key")
	assert.Equal(t, signed, ready)

	w.signs(firstKey(), pinned)
	signed, ready = w.look(b, object)
	assert.Equal(t, fmt.Sprintf("True Signed it is signed with the key %s, which is trusted for the trust policy's %s/corp/os", firstKey().ID(), w.registry.host), signed)
	assert.Contains(t, ready, "True Ready it is signed with the key")
	image = read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Equal(t, &mcfgv1alpha1.ImageSignature{Reference: attachedTag(pinned, "sig"), KeyID: firstKey().ID()}, image.Status.Signature)
	assert.Contains(t, strings.Join(w.told(), "\n"), "Normal ImageSigned")

	written := len(w.writes)
	result, err := w.lookAt(b, object)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, result.RequeueAfter, images.RecheckSignature)
	assert.Len(t, w.writes, written, "nothing is written where nothing changed")

	w.unsign(pinned, "sig")
	result, err = w.lookAt(b, object)
	require.NoError(t, err)
	assert.Equal(t, sign.DeniedAgain, result.RequeueAfter, "someone may sign it again")
	image = read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Contains(t, signedText(image), "False NotSigned")
	assert.Contains(t, text(image.Status.Conditions, status.Ready), "False NotSigned")
	assert.Nil(t, image.Status.Signature)
}

func TestRepositoryWithoutATrustedSigner(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		repository string
		options    func(*world) []func(*settings)
		want       string
	}{
		"a name that begins alike": {"corp/os-evil", func(w *world) []func(*settings) { return []func(*settings){w.trusting} }, "name it in the trust policy"},
		"a repository below":       {"corp/os/evil", func(w *world) []func(*settings) { return []func(*settings){w.trusting} }, "name it in the trust policy"},
		"no trust policy":          {"corp/os", func(w *world) []func(*settings) { return []func(*settings){w.signing} }, "write a trust policy with it"},
		"like the cluster's own":   {"host/os-evil", func(w *world) []func(*settings) { return []func(*settings){w.signing, w.trusting} }, "name it in the trust policy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(firstKey().secret(), policyOf(w.trusts("corp/os", firstKey())))
			object, pinned := w.imports(tt.repository)
			w.signs(firstKey(), pinned)
			signed, ready := w.look(w.builder(tt.options(w)...), object)
			assert.Contains(t, signed, fmt.Sprintf("False NotTrusted no trusted signer is configured for the repository %q; %s", w.registry.host+"/"+tt.repository, tt.want))
			assert.Equal(t, signed, ready)
		})
	}
}

func TestSignatureOfAnotherRepositoryIsIgnored(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(policyOf(w.trusts("corp/*", firstKey())))
	b := w.builder(w.trusting)
	object, pinned := w.imports("corp/os")
	w.signs(firstKey(), pinned)
	copied := w.registry.pushBase(t, "corp/os-evil", "corp-os")
	w.moveAttached(pinned, copied, "sig")
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "copied"}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(copied), "worker"
	w.add(image)
	signed, _ := w.look(b, object)
	assert.Contains(t, signed, "True Signed")
	signed, _ = w.look(b, "copied")
	assert.Contains(t, signed, "False NotSigned")
	assert.Contains(t, signed, "a trusted key has signed something else: it is about the repository")
}

func TestProvenanceCounts(t *testing.T) {
	t.Parallel()
	const ci = "https://ci.example.com/os"
	demands := []string{"builders: [" + ci + "]", "notOlderThan: 24h"}
	tests := map[string]struct {
		attach func(w *world, pinned string)
		want   string
	}{
		"none":       {func(*world, string) {}, "it has none"},
		"as it is":   {func(w *world, pinned string) { w.attests(firstKey(), pinned, ci, t0) }, ""},
		"too old":    {func(w *world, pinned string) { w.attests(firstKey(), pinned, ci, t0.Add(-25*time.Hour)) }, "and is older than 24h0m0s"},
		"elsewhere":  {func(w *world, pinned string) { w.attests(firstKey(), pinned, ci+"-evil", t0) }, `it was built by "https://ci.example.com/os-evil"`},
		"by another": {func(w *world, pinned string) { w.attests(secondKey(), pinned, ci, t0) }, "none that is attached is by a trusted key"},
		"of another image": {func(w *world, pinned string) {
			other := w.registry.pushBase(w.t, "corp/os", "other")
			w.attests(firstKey(), other, ci, t0)
			w.moveAttached(other, pinned, "att")
		}, "about another image"},
		"one of two": {func(w *world, pinned string) {
			w.attests(secondKey(), pinned, ci, t0)
			w.attests(firstKey(), pinned, ci, t0)
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(policyOf(w.trusts("corp/os", firstKey(), demands...)))
			object, pinned := w.imports("corp/os")
			w.signs(firstKey(), pinned)
			tt.attach(w, pinned)
			signed, ready := w.look(w.builder(w.trusting), object)
			if tt.want == "" {
				assert.Contains(t, signed, "True Signed")
				assert.Contains(t, ready, "True Ready")
				return
			}
			assert.Contains(t, signed, "False NotTrusted")
			assert.Contains(t, signed, tt.want)
			assert.Equal(t, signed, ready)
		})
	}
}

func TestAVerifiedImageGrowsTooOld(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(policyOf(w.trusts("corp/os", firstKey(), "notOlderThan: 24h")))
	b := w.builder(w.trusting)
	object, pinned := w.imports("corp/os")
	w.signs(firstKey(), pinned)
	w.attests(firstKey(), pinned, "x", t0)
	signed, _ := w.look(b, object)
	assert.Contains(t, signed, "True Signed")
	w.clock.SetTime(t0.Add(25 * time.Hour))
	_, ready := w.look(b, object)
	assert.Contains(t, ready, "False NotTrusted")
}

func TestResultStaysWhileTheRegistryFails(t *testing.T) {
	t.Parallel()
	down := func(code int) func(*world) {
		return func(w *world) {
			w.registry.answering(func(rw http.ResponseWriter, _ *http.Request) bool {
				rw.WriteHeader(code)
				return true
			})
		}
	}
	tests := map[string]struct {
		happens func(*world)
		reason  string
		want    string
	}{
		"the registry is down":      {down(http.StatusServiceUnavailable), "Unreachable", "503"},
		"the registry lets none in": {down(http.StatusForbidden), "Unreachable", "the registry denies read access"},
		"the policy is gone":        {func(w *world) { w.remove(policy("")) }, "WaitingForTrustPolicy", `the ConfigMap "trust" in namespace "layerwright" with the trust policy does not exist`},
		"the policy is broken":      {func(w *world) { w.repolicy(policy("own: {}\nrepositories:\n  - repo: x\n")) }, "InvalidTrustPolicy", `line 3: there is no field "repo"`},
		"a secret is gone":          {func(w *world) { w.remove(w.secret("pull", "")) }, "WaitingForSecret", `the secret "pull" does not exist`},
		"the policy is empty":       {func(w *world) { w.repolicy(policy("")) }, "InvalidTrustPolicy", "it is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(policyOf(w.trusts("corp/*", firstKey())))
			b := w.builder(w.trusting)
			known, pinned := w.imports("corp/os")
			w.signs(firstKey(), pinned)
			signed, _ := w.look(b, known)
			require.Contains(t, signed, "True Signed")
			fresh, pinned := w.imports("corp/new")
			w.signs(firstKey(), pinned)

			tt.happens(w)
			result, err := w.lookAt(b, known)
			assert.True(t, err != nil || result.RequeueAfter > 0 && result.RequeueAfter <= sign.DeniedAgain, "it is looked at soon")
			image := read(w, &mcfgv1alpha1.MachineOSImage{}, known)
			assert.Contains(t, signedText(image), "True Signed it was trusted at the last successful check; it can't be checked now")
			assert.Contains(t, signedText(image), tt.want)
			assert.Contains(t, text(image.Status.Conditions, status.Ready), "True Ready it was trusted at the last successful check")
			assert.NotNil(t, image.Status.Signature)

			signed, ready := w.look(b, fresh)
			assert.Contains(t, signed, "Unknown "+tt.reason)
			assert.Contains(t, signed, tt.want)
			assert.Equal(t, signed, ready)
		})
	}
}

func TestImagesThatTheRegistryLost(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret(), policyOf(w.trusts("corp/os", firstKey())))
	b := w.builder(w.signing, w.trusting)
	w.settle(b)
	own := w.onlyImage().Name
	object, pinned := w.imports("corp/os")
	w.signs(firstKey(), pinned)
	for _, name := range []string{own, object} {
		_, ready := w.look(b, name)
		require.Contains(t, ready, "True Ready")

		// Someone moves the tag: what counts is the digest.
		reference := string(read(w, &mcfgv1alpha1.MachineOSImage{}, name).Spec.PullSpec)
		repository, _, _ := strings.Cut(reference, "@")
		for _, tag := range []string{"worker", "corp-os"} {
			require.NoError(t, ggcr.Write(w.registry.parse(t, repository+":"+tag), osImage(t, "evil", "amd64")))
		}
		_, ready = w.look(b, name)
		require.Contains(t, ready, "True Ready")

		require.NoError(t, ggcr.Delete(w.registry.parse(t, reference)))
		signed, ready := w.look(b, name)
		assert.Contains(t, signed, "False ImageGone")
		assert.Contains(t, signed, "it does not exist")
		assert.Contains(t, ready, "False ImageGone")
	}
}

func TestHostileAndLargeAttachments(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("large amounts are for the run without the race detector")
	}
	attached := func(content []byte, media types.MediaType, n int) v1.Image {
		var layers []mutate.Addendum
		for range n {
			layers = append(layers, mutate.Addendum{
				Layer: static.NewLayer(content, media), MediaType: media,
				Annotations: map[string]string{"dev.cosignproject.cosign/signature": "AAAA", "predicateType": sign.PredicateProvenance},
			})
		}
		return must(mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layers...))
	}
	sig, att := sign.Signatures.MediaType, sign.Attestations.MediaType
	for name, hostile := range map[string][2]v1.Image{
		"no JSON":       {attached([]byte("<html>"), sig, 1), attached([]byte("<html>"), att, 1)},
		"nothing":       {attached(nil, sig, 1), attached(nil, att, 1)},
		"another type":  {attached([]byte("{}"), "text/html", 1), attached([]byte("{}"), "text/html", 1)},
		"huge":          {attached(bytes.Repeat([]byte("{"), 5<<20), sig, 1), attached(bytes.Repeat([]byte("{"), 33<<20), att, 1)},
		"hundreds":      {attached([]byte(`{"critical":{}}`), sig, 300), attached([]byte(`{"payload":"e30="}`), att, 300)},
		"nested deeply": {attached(bytes.Repeat([]byte("["), 1<<20), sig, 1), attached(bytes.Repeat([]byte("["), 1<<20), att, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(policyOf(w.trusts("corp/os", firstKey(), "requireProvenance: true")))
			b := w.builder(w.trusting)
			object, pinned := w.imports("corp/os")
			require.NoError(t, ggcr.Write(w.registry.parse(t, attachedTag(pinned, "sig")), hostile[0]))
			signed, _ := w.look(b, object)
			assert.Contains(t, signed, "False NotSigned")

			w.signs(firstKey(), pinned) // beside it
			require.NoError(t, ggcr.Write(w.registry.parse(t, attachedTag(pinned, "att")), hostile[1]))
			signed, _ = w.look(b, object)
			assert.Contains(t, signed, "False NotTrusted")
		})
	}
}

func TestASignatureManifestThatIsNoManifest(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(policyOf(w.trusts("corp/os", firstKey())))
	object, _ := w.imports("corp/os")
	w.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		rw.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		_, _ = rw.Write([]byte("<html>"))
		return true
	})
	signed, _ := w.look(w.builder(w.trusting), object)
	assert.Contains(t, signed, "False NotSigned")
}

func TestAPolicyForTheClustersOwnImages(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret(), policy("own: {notOlderThan: 24h}"))
	b := w.builder(w.signing, w.trusting)
	w.settle(b)
	image := w.onlyImage()
	pinned := string(image.Spec.PullSpec)
	assert.Contains(t, signedText(image), "False NotTrusted")
	assert.Contains(t, signedText(image), "is signed but not trusted by this cluster")
	build := w.builds()[0]
	assert.Equal(t, mcfgv1.BuildStageBuilding, status.BuildStageOf(build.Status.Conditions), "no other build would end otherwise")
	assert.Contains(t, text(build.Status.Conditions, status.Reconciling), "WaitingForSignature the image was pushed and is not trusted yet")
	assert.Empty(t, w.osConfig("worker").Status.CurrentImagePullSpec)
	require.NoError(t, w.verify(pinned, firstKey()), "it is signed all the same")

	w.attests(firstKey(), pinned, "layerwright", w.clock.Now().Add(-25*time.Hour))
	w.settle(b)
	assert.Contains(t, signedText(w.onlyImage()), "and is older than")
	w.unsign(pinned, "att")
	w.attests(firstKey(), pinned, "layerwright", w.clock.Now())
	w.settle(b)
	assert.Equal(t, "True Signed", signedText(w.onlyImage()))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))

	w.remove(policy(""))
	_, ready := w.look(b, image.Name)
	assert.Contains(t, ready, "True Ready it was trusted at the last successful check")
	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	assert.Equal(t, pinned, string(w.osConfig("worker").Status.CurrentImagePullSpec), "a new image waits")
	w.add(policy("{}"))
	w.settle(b)
	assert.NotEqual(t, pinned, string(w.osConfig("worker").Status.CurrentImagePullSpec))
}

// TestAPolicyOfAgesWithSharedContent has an image made of content that is there already: its build
// begins and ends in one reconcile.
func TestAPolicyOfAgesWithSharedContent(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	w.add(firstKey().secret(), policy("own: {notOlderThan: 24h}"))
	b := w.builder(use, w.attesting(nil), w.signing, w.trusting)
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	first := w.osConfig("worker").Status.CurrentImagePullSpec
	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	assert.Equal(t, 1, s.ensure, "the content is not built again")
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.NotEqual(t, first, w.osConfig("worker").Status.CurrentImagePullSpec)
}

// TestRebuildOfAnImageThatIsTooOld rebuilds one, as docs/policies.md advises: it is the same
// image again, and provenance says that it was made again.
func TestRebuildOfAnImageThatIsTooOld(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret(), policy("own: {notOlderThan: 24h}"))
	b := w.builder(w.signing, w.attesting(&sboms{}), w.trusting)
	w.settle(b)
	image := w.onlyImage()
	w.clock.SetTime(w.clock.Now().Add(25 * time.Hour))
	_, ready := w.look(b, image.Name)
	require.Contains(t, ready, "False "+mcfgv1alpha1.ReasonNotTrusted)
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, image.Spec.PullSpec, w.onlyImage().Spec.PullSpec, "the same image was made")
	_, ready = w.look(b, image.Name)
	assert.Contains(t, ready, "True ")
}

func TestSignatureIsReadBack(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	gone := true
	w.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool { // it takes the signature, and has none
		if gone && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".sig") {
			rw.WriteHeader(http.StatusCreated)
			return true
		}
		return false
	})
	b := w.builder(w.signing)
	w.settle(b)
	assert.Contains(t, signedText(w.onlyImage()), "False NotSigned")
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.Reconciling), "it has no signature")
	gone = false
	w.settle(b)
	assert.Equal(t, "True Signed", signedText(w.onlyImage()))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

func TestWithATrustPolicyAlone(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(policyOf(w.trusts("host/os", firstKey())))
	b := w.builder(w.trusting)
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready), "what someone else signs is signed when it is there")
	image := w.onlyImage()
	signed, ready := w.look(b, image.Name)
	assert.Contains(t, ready, "False NotSigned")
	assert.NotContains(t, signed, mcfgv1.AnnotationRebuild, "where nothing is signed, a rebuild is no help")
	w.signs(firstKey(), string(image.Spec.PullSpec))
	_, ready = w.look(b, image.Name)
	assert.Contains(t, ready, "True Ready")
}

// giveToCluster makes an image one of the MachineOSConfig's, as whoever may change objects can.
func (w *world) giveToCluster(object string) {
	w.t.Helper()
	w.quietly(func() error {
		image := read(w, &mcfgv1alpha1.MachineOSImage{}, object)
		image.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.osConfig("worker"), mcfgv1.SchemeGroupVersion.WithKind(owner.Kind))}
		return w.Update(w.t.Context(), image)
	})
}

// staysUnsigned looks at an image more than once: nothing that the first look wrote makes it one to
// sign.
func (w *world) staysUnsigned(b *process, object, pinned string) {
	w.t.Helper()
	for range 2 {
		signed, _ := w.look(b, object)
		assert.Contains(w.t, signed, "False NotSigned")
		require.ErrorContains(w.t, w.verify(pinned, firstKey()), "it has no signature")
	}
}

func TestForeignImageUnderOurTagIsNotSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	object, pinned := w.imports("host/os")
	w.giveToCluster(object)
	w.staysUnsigned(b, object, pinned)
}

func TestImportedImage(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	object, pinned := w.imports("host/os")
	w.look(b, object)
	image := read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Equal(t, mcfgv1.ImageDigestFormat(pinned).Short(), image.Status.ShortDigest)
	assert.Equal(t, mcfgv1alpha1.ImageImported, image.Status.Origin)

	w.giveToCluster(object)
	w.staysUnsigned(b, object, pinned)
}

func TestImagesOfEarlierVersionsStaySigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	w.settle(b)
	image := w.onlyImage()
	assert.Equal(t, mcfgv1alpha1.ImageBuilt, image.Status.Origin)
	image.Status.Origin = ""
	w.quietly(func() error { return w.Status().Update(t.Context(), image) })
	w.look(b, image.Name)
	assert.Empty(t, w.onlyImage().Status.Origin, "no one says of it that it was imported")
	w.remove(firstKey().secret())
	w.add(secondKey().secret())
	signed, _ := w.look(b, image.Name)
	assert.Equal(t, "True Signed", signed)
	require.NoError(t, w.verify(string(image.Spec.PullSpec), secondKey()))
}

// TestTakenImageNameIsNotSigned has an object under the name that a build is going to use,
// which names another image.
func TestTakenImageNameIsNotSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	b := w.builder(w.signing)
	w.settle(b)
	made := w.onlyImage()
	_, evil := w.imports("host/os")
	w.remove(read(w, &mcfgv1alpha1.MachineOSImage{}, "imported-host-os"))
	w.remove(made)
	w.remove(&w.builds()[0])
	taken := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: made.Name}}
	taken.Spec.PullSpec, taken.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(evil), "worker"
	w.add(taken)
	for range 6 {
		_ = w.round(b)
	}
	require.ErrorContains(t, w.verify(evil, firstKey()), "it has no signature")
	assert.Contains(t, w.says("worker", status.Ready), `needs its name; delete it`)
	w.remove(taken)
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

// TestForeignObjectIsNotAdopted has the object of an image there before the
// build that makes the image.
func TestForeignObjectIsNotAdopted(t *testing.T) {
	t.Parallel()
	first := layered(t, "worker")
	first.add(firstKey().secret())
	first.settle(first.builder(first.signing))
	made := first.onlyImage()
	owned := func(w *world, image *mcfgv1alpha1.MachineOSImage) {
		image.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.osConfig("worker"), mcfgv1.SchemeGroupVersion.WithKind(owner.Kind))}
	}
	tests := map[string]func(*world, *mcfgv1alpha1.MachineOSImage){
		"no one's, of which no test is asked": func(*world, *mcfgv1alpha1.MachineOSImage) {},
		"one that says that the installer had it built": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: ""}
		},
		"one of another pool": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.Spec.MachineConfigPool = "infra"
		},
		"one with another base image, which the SBOM would go by": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.Spec.BaseOSImagePullSpec = image.Spec.PullSpec
		},
		"one of the MachineOSConfig before": func(w *world, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.OwnerReferences[0].UID = "before"
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sameAs(first)
			w.t = t
			w.add(firstKey().secret())
			b := w.builder(w.signing)
			taken := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: made.Name}, Spec: made.Spec}
			change(w, taken)
			w.add(taken)
			for range 6 {
				_ = w.round(b)
			}
			assert.Empty(t, w.osConfig("worker").Status.CurrentImagePullSpec)
			assert.Contains(t, w.says("worker", status.Ready), "is there already, and was not made by the MachineOSConfig \"worker\"; delete it")
			w.remove(taken)
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			assert.Equal(t, mcfgv1alpha1.ImageBuilt, w.onlyImage().Status.Origin)
		})
	}
}

func TestImagesInTheClustersOwnRepository(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	object, pinned := w.imports("host/os")
	w.signs(firstKey(), pinned)
	signed, ready := w.look(w.builder(w.signing), object)
	assert.Contains(t, signed, "which is trusted for this cluster")
	assert.Contains(t, ready, "True Ready")
}

func TestPullSecretOfImportedImages(t *testing.T) {
	t.Parallel()
	reference := func(name string) *mcfgv1.ImageSecretObjectReference {
		return &mcfgv1.ImageSecretObjectReference{Name: name}
	}
	tests := map[string]struct {
		change func(*world, *mcfgv1.MachineOSConfig)
		pool   string
		want   string // the password
	}{
		"what nodes pull with":  {func(_ *world, c *mcfgv1.MachineOSConfig) { c.Spec.CurrentImagePullSecret = reference("nodes") }, "worker", "nodes"},
		"what builds pull with": {func(*world, *mcfgv1.MachineOSConfig) {}, "worker", "hunter2"},
		"the cluster's": {func(w *world, c *mcfgv1.MachineOSConfig) {
			w.add(w.secret(names.GlobalPullSecret, "global"))
			c.Spec.BaseImagePullSecret = nil
		}, "worker", "global"},
		"nothing":                   {func(_ *world, c *mcfgv1.MachineOSConfig) { c.Spec.BaseImagePullSecret = nil }, "worker", ""},
		"nothing of another pool's": {func(*world, *mcfgv1.MachineOSConfig) {}, "infra", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			w.add(policyOf(w.trusts("corp/os", firstKey())), w.secret("nodes", "nodes"))
			w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { tt.change(w, c) })
			_, pinned := w.imports("corp/os")
			w.signs(firstKey(), pinned)
			image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
			image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(pinned), tt.pool
			w.add(image)
			w.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool {
				_, password, _ := r.BasicAuth()
				if tt.want == "" || password == tt.want {
					return password != "" && tt.want == "" // whoever logs in where no one should fails
				}
				rw.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				rw.WriteHeader(http.StatusUnauthorized)
				return true
			})
			signed, _ := w.look(w.builder(w.trusting), "one")
			assert.Contains(t, signed, "True Signed")
		})
	}
}

func TestAnotherTrustPolicyMeansAnotherLook(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.imports("corp/os")
	w.imports("corp/other")
	b := w.builder(w.trusting)
	assert.Len(t, b.keeper.ImagesOfPolicy(t.Context(), policy("")), 2)
	other := policy("")
	other.Name = "other"
	assert.Empty(t, b.keeper.ImagesOfPolicy(t.Context(), other))
	assert.Empty(t, w.builder(w.signing).keeper.ImagesOfPolicy(t.Context(), policy("")))
}

func TestSignedImagesAreReused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// happens to the image that has the tag, which another cluster has made from the same
		// before.
		happens func(w *world, tag, pinned string)
		key     keyPair
		reused  bool
	}{
		"signed with our key": {func(w *world, _, pinned string) { w.signs(firstKey(), pinned) }, firstKey(), true},
		"unsigned":            {func(*world, string, string) {}, firstKey(), false},
		"signed by another":   {func(w *world, _, pinned string) { w.signs(secondKey(), pinned) }, firstKey(), false},
		"the tag was moved to an older image of ours": {func(w *world, tag, pinned string) {
			w.signs(firstKey(), pinned)
			older := osImage(w.t, "older", "amd64")
			repository, _, _ := strings.Cut(pinned, "@")
			require.NoError(w.t, ggcr.Write(w.registry.parse(w.t, tag), older))
			w.signs(firstKey(), repository+"@"+must(older.Digest()).String())
		}, firstKey(), false},
		"a signature that was moved": {func(w *world, _, pinned string) {
			other := w.registry.pushBase(w.t, "host/os", "other")
			w.signs(firstKey(), other)
			w.moveAttached(other, pinned, "sig")
		}, firstKey(), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := layered(t, "worker")
			first.settle(first.builder())
			image, build := string(first.onlyImage().Spec.PullSpec), first.builds()[0]

			again := sameAs(first)
			again.add(tt.key.secret())
			tt.happens(again, string(build.Spec.RenderedImagePushSpec), image)
			again.settle(again.builder(again.signing))
			reason, _ := objects.FinalOf(again.builds()[0].Status.Conditions)
			assert.Equal(t, tt.reused, reason == mcfgv1.ReasonReused, reason)
			assert.Equal(t, image, string(again.onlyImage().Spec.PullSpec), "made again, it is the same")
			assert.Equal(t, "True Signed", signedText(again.onlyImage()))
			require.NoError(t, again.verify(image, firstKey()))
		})
	}
}

func TestKeysOfBeforeAreNotEnoughForReuse(t *testing.T) {
	t.Parallel()
	first := layered(t, "worker")
	first.settle(first.builder())
	image := string(first.onlyImage().Spec.PullSpec)
	again := sameAs(first)
	secret := firstKey().secret()
	secret.Data[sign.SecretTrusted] = secondKey().Public
	again.add(secret)
	again.signs(secondKey(), image)
	again.settle(again.builder(again.signing))
	reason, _ := objects.FinalOf(again.builds()[0].Status.Conditions)
	assert.NotEqual(t, mcfgv1.ReasonReused, reason)
}

func TestReuseAsksAgainWhereTheRegistryFails(t *testing.T) {
	t.Parallel()
	first := layered(t, "worker")
	first.settle(first.builder())
	again := sameAs(first)
	again.add(firstKey().secret())
	again.signs(firstKey(), string(first.onlyImage().Spec.PullSpec))
	again.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		rw.WriteHeader(http.StatusBadGateway)
		return true
	})
	b := again.builder(again.signing)
	for range 4 {
		_ = again.round(b)
	}
	assert.Empty(t, again.builds()[0].Status.DigestedImagePushSpec, "what can't be looked at is neither taken nor made anew")
	again.registry.answering(nil)
	again.settle(b)
	reason, _ := objects.FinalOf(again.builds()[0].Status.Conditions)
	assert.Equal(t, mcfgv1.ReasonReused, reason)
}

// sameAs is another cluster with the same objects and the same registry, in which nothing was built
// yet.
func sameAs(first *world) *world {
	again := layered(first.t, "worker")
	again.registry, again.base = first.registry, first.base
	again.quietly(func() error {
		ctx := again.t.Context()
		return errors.Join(again.Delete(ctx, again.osConfig("worker")), again.Delete(ctx, again.secret("push", "")), again.Delete(ctx, again.secret("pull", "")),
			again.Delete(ctx, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"}}))
	})
	again.add(again.secret("push", "hunter2"), again.secret("pull", "hunter2"), again.rendered("worker", "1", "/etc/motd", "one"), again.config("worker"))
	return again
}

// TestAnImageThatNodesKeptIsTakenOver: its MachineOSConfig was deleted and is made again, and asks
// for the same image. What is known of it stays known.
func TestAnImageThatNodesKeptIsTakenOver(t *testing.T) {
	t.Parallel()
	first := layered(t, "worker")
	first.settle(first.builder())
	kept := first.onlyImage()
	require.Len(t, kept.OwnerReferences, 2, "its MachineOSConfig's and its pool's")

	w := sameAs(first)
	kept.ResourceVersion, kept.UID = "", "kept"
	kept.OwnerReferences = slices.DeleteFunc(kept.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == owner.Kind }) // the garbage collector did that
	kept.Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Message: "1 of 3 nodes failed"}
	w.add(kept)
	w.settle(w.builder())
	image := w.onlyImage()
	assert.Equal(t, kept.UID, image.UID)
	assert.True(t, metav1.IsControlledBy(image, w.osConfig("worker")))
	assert.Len(t, image.OwnerReferences, 2)
	assert.Equal(t, "1 of 3 nodes failed", image.Status.Quarantine.Message)
}
