package images_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/sign"
)

// imports makes a MachineOSImage as an administrator does, for an image in a repository of the
// registry that is pushed now.
func imports(w *worldtest.World, repository string) (object, pinned string) {
	w.T.Helper()
	object = "imported-" + strings.ReplaceAll(repository, "/", "-")
	pinned = w.Registry.PushBase(w.T, repository, strings.ReplaceAll(repository, "/", "-"))
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: object}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(pinned), "worker"
	w.Add(image)
	return object, pinned
}

// attests states how an image was built, and when.
func attests(w *worldtest.World, key worldtest.KeyPair, pinned, builder string, at time.Time) {
	w.T.Helper()
	predicate := fmt.Sprintf(`{"buildDefinition":{"buildType":"x"},"runDetails":{"builder":{"id":%q},"metadata":{"finishedOn":%q}}}`, builder, at.UTC().Format(time.RFC3339))
	_, err := key.Signer().Attest(w.T.Context(), registry.New(registry.Options{}), pinned, sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: []byte(predicate)})
	require.NoError(w.T, err)
}

// attachedTag is the tag with what is attached to an image.
func attachedTag(pinned, suffix string) string {
	repository, digest, _ := strings.Cut(pinned, "@")
	return repository + ":" + strings.Replace(digest, ":", "-", 1) + "." + suffix
}

// unsign removes what is attached to an image.
func unsign(w *worldtest.World, pinned, suffix string) {
	w.T.Helper()
	tag := w.Registry.Parse(w.T, attachedTag(pinned, suffix))
	require.NoError(w.T, ggcr.Delete(tag.Context().Digest(w.Registry.DigestOf(w.T, tag.String()))))
	require.NoError(w.T, ggcr.Delete(tag))
}

// moveAttached gives an image what is attached to another one, as whoever may push can.
func moveAttached(w *worldtest.World, from, to, suffix string) {
	w.T.Helper()
	found, err := ggcr.Image(w.Registry.Parse(w.T, attachedTag(from, suffix)))
	require.NoError(w.T, err)
	require.NoError(w.T, ggcr.Write(w.Registry.Parse(w.T, attachedTag(to, suffix)), found))
}

func TestTrustedForeignImageIsAccepted(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey())))
	b := w.Builder(w.Trusting)
	object, pinned := imports(w, "corp/os")

	signed, ready := w.Look(b, object)
	assert.Contains(t, signed, "False NotSigned")
	assert.Contains(t, signed, fmt.Sprintf("%q is not trusted: it has no signature; the trust policy's %s/corp/os accepts only the key %s", pinned, w.Registry.Host, worldtest.FirstKey().ID()[:16]))
	assert.Equal(t, signed, ready)
	image := worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Contains(t, worldtest.Text(image.Status.Conditions, status.Stalled), "True NotSigned")
	assert.Nil(t, image.Status.Signature)
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Warning ImageNotSigned NotSigned")

	w.Signs(worldtest.SecondKey(), pinned)
	signed, ready = w.Look(b, object)
	assert.Contains(t, signed, "False NotSigned")
	assert.Contains(t, signed, "none of its signatures is by a trusted key")
	assert.Equal(t, signed, ready)

	w.Signs(worldtest.FirstKey(), pinned)
	signed, ready = w.Look(b, object)
	assert.Equal(t, fmt.Sprintf("True Signed it is signed with the key %s, which is trusted for the trust policy's %s/corp/os", worldtest.FirstKey().ID(), w.Registry.Host), signed)
	assert.Contains(t, ready, "True Ready it is signed with the key")
	image = worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Equal(t, &mcfgv1alpha1.ImageSignature{Reference: attachedTag(pinned, "sig"), KeyID: worldtest.FirstKey().ID()}, image.Status.Signature)
	assert.Contains(t, strings.Join(w.Told(), "\n"), "Normal ImageSigned")

	written := len(w.Writes)
	result, err := w.LookAt(b, object)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, result.RequeueAfter, images.RecheckSignature)
	assert.Len(t, w.Writes, written, "nothing is written where nothing changed")

	unsign(w, pinned, "sig")
	result, err = w.LookAt(b, object)
	require.NoError(t, err)
	assert.Equal(t, sign.DeniedAgain, result.RequeueAfter, "someone may sign it again")
	image = worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Contains(t, worldtest.SignedText(image), "False NotSigned")
	assert.Contains(t, worldtest.Text(image.Status.Conditions, status.Ready), "False NotSigned")
	assert.Nil(t, image.Status.Signature)
}

func TestRepositoryWithoutATrustedSigner(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		repository string
		options    func(*worldtest.World) []func(*worldtest.Settings)
		want       string
	}{
		"a name that begins alike": {"corp/os-evil", func(w *worldtest.World) []func(*worldtest.Settings) { return []func(*worldtest.Settings){w.Trusting} }, "name it in the trust policy"},
		"a repository below":       {"corp/os/evil", func(w *worldtest.World) []func(*worldtest.Settings) { return []func(*worldtest.Settings){w.Trusting} }, "name it in the trust policy"},
		"no trust policy":          {"corp/os", func(w *worldtest.World) []func(*worldtest.Settings) { return []func(*worldtest.Settings){w.Signing} }, "write a trust policy with it"},
		"like the cluster's own": {"host/os-evil", func(w *worldtest.World) []func(*worldtest.Settings) {
			return []func(*worldtest.Settings){w.Signing, w.Trusting}
		}, "name it in the trust policy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.FirstKey().Secret(), worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey())))
			object, pinned := imports(w, tt.repository)
			w.Signs(worldtest.FirstKey(), pinned)
			signed, ready := w.Look(w.Builder(tt.options(w)...), object)
			assert.Contains(t, signed, fmt.Sprintf("False NotTrusted no trusted signer is configured for the repository %q; %s", w.Registry.Host+"/"+tt.repository, tt.want))
			assert.Equal(t, signed, ready)
		})
	}
}

func TestSignatureOfAnotherRepositoryIsIgnored(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.PolicyOf(w.Trusts("corp/*", worldtest.FirstKey())))
	b := w.Builder(w.Trusting)
	object, pinned := imports(w, "corp/os")
	w.Signs(worldtest.FirstKey(), pinned)
	copied := w.Registry.PushBase(t, "corp/os-evil", "corp-os")
	moveAttached(w, pinned, copied, "sig")
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "copied"}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(copied), "worker"
	w.Add(image)
	signed, _ := w.Look(b, object)
	assert.Contains(t, signed, "True Signed")
	signed, _ = w.Look(b, "copied")
	assert.Contains(t, signed, "False NotSigned")
	assert.Contains(t, signed, "a trusted key has signed something else: it is about the repository")
}

func TestProvenanceCounts(t *testing.T) {
	t.Parallel()
	const ci = "https://ci.example.com/os"
	demands := []string{"builders: [" + ci + "]", "notOlderThan: 24h"}
	tests := map[string]struct {
		attach func(w *worldtest.World, pinned string)
		want   string
	}{
		"none":     {func(*worldtest.World, string) {}, "it has none"},
		"as it is": {func(w *worldtest.World, pinned string) { attests(w, worldtest.FirstKey(), pinned, ci, worldtest.T0) }, ""},
		"too old": {func(w *worldtest.World, pinned string) {
			attests(w, worldtest.FirstKey(), pinned, ci, worldtest.T0.Add(-25*time.Hour))
		}, "and is older than 24h0m0s"},
		"elsewhere": {func(w *worldtest.World, pinned string) {
			attests(w, worldtest.FirstKey(), pinned, ci+"-evil", worldtest.T0)
		}, `it was built by "https://ci.example.com/os-evil"`},
		"by another": {func(w *worldtest.World, pinned string) { attests(w, worldtest.SecondKey(), pinned, ci, worldtest.T0) }, "none that is attached is by a trusted key"},
		"of another image": {func(w *worldtest.World, pinned string) {
			other := w.Registry.PushBase(w.T, "corp/os", "other")
			attests(w, worldtest.FirstKey(), other, ci, worldtest.T0)
			moveAttached(w, other, pinned, "att")
		}, "about another image"},
		"one of two": {func(w *worldtest.World, pinned string) {
			attests(w, worldtest.SecondKey(), pinned, ci, worldtest.T0)
			attests(w, worldtest.FirstKey(), pinned, ci, worldtest.T0)
		}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey(), demands...)))
			object, pinned := imports(w, "corp/os")
			w.Signs(worldtest.FirstKey(), pinned)
			tt.attach(w, pinned)
			signed, ready := w.Look(w.Builder(w.Trusting), object)
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
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey(), "notOlderThan: 24h")))
	b := w.Builder(w.Trusting)
	object, pinned := imports(w, "corp/os")
	w.Signs(worldtest.FirstKey(), pinned)
	attests(w, worldtest.FirstKey(), pinned, "x", worldtest.T0)
	signed, _ := w.Look(b, object)
	assert.Contains(t, signed, "True Signed")
	w.Clock.SetTime(worldtest.T0.Add(25 * time.Hour))
	_, ready := w.Look(b, object)
	assert.Contains(t, ready, "False NotTrusted")
}

func TestResultStaysWhileTheRegistryFails(t *testing.T) {
	t.Parallel()
	down := func(code int) func(*worldtest.World) {
		return func(w *worldtest.World) {
			w.Registry.Answer(func(rw http.ResponseWriter, _ *http.Request) bool {
				rw.WriteHeader(code)
				return true
			})
		}
	}
	tests := map[string]struct {
		happens func(*worldtest.World)
		reason  string
		want    string
	}{
		"the registry is down":      {down(http.StatusServiceUnavailable), "Unreachable", "503"},
		"the registry lets none in": {down(http.StatusForbidden), "Unreachable", "the registry denies read access"},
		"the policy is gone":        {func(w *worldtest.World) { w.Remove(worldtest.Policy("")) }, "WaitingForTrustPolicy", `the ConfigMap "trust" in namespace "layerwright" with the trust policy does not exist`},
		"the policy is broken":      {func(w *worldtest.World) { w.Repolicy(worldtest.Policy("own: {}\nrepositories:\n  - repo: x\n")) }, "InvalidTrustPolicy", `line 3: there is no field "repo"`},
		"a secret is gone":          {func(w *worldtest.World) { w.Remove(w.Secret("pull", "")) }, "WaitingForSecret", `the secret "pull" does not exist`},
		"the policy is empty":       {func(w *worldtest.World) { w.Repolicy(worldtest.Policy("")) }, "InvalidTrustPolicy", "it is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.PolicyOf(w.Trusts("corp/*", worldtest.FirstKey())))
			b := w.Builder(w.Trusting)
			known, pinned := imports(w, "corp/os")
			w.Signs(worldtest.FirstKey(), pinned)
			signed, _ := w.Look(b, known)
			require.Contains(t, signed, "True Signed")
			fresh, pinned := imports(w, "corp/new")
			w.Signs(worldtest.FirstKey(), pinned)

			tt.happens(w)
			result, err := w.LookAt(b, known)
			assert.True(t, err != nil || result.RequeueAfter > 0 && result.RequeueAfter <= sign.DeniedAgain, "it is looked at soon")
			image := worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, known)
			assert.Contains(t, worldtest.SignedText(image), "True Signed it was trusted at the last successful check; it can't be checked now")
			assert.Contains(t, worldtest.SignedText(image), tt.want)
			assert.Contains(t, worldtest.Text(image.Status.Conditions, status.Ready), "True Ready it was trusted at the last successful check")
			assert.NotNil(t, image.Status.Signature)

			signed, ready := w.Look(b, fresh)
			assert.Contains(t, signed, "Unknown "+tt.reason)
			assert.Contains(t, signed, tt.want)
			assert.Equal(t, signed, ready)
		})
	}
}

func TestImagesThatTheRegistryLost(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret(), worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey())))
	b := w.Builder(w.Signing, w.Trusting)
	w.Settle(b)
	own := w.OnlyImage().Name
	object, pinned := imports(w, "corp/os")
	w.Signs(worldtest.FirstKey(), pinned)
	for _, name := range []string{own, object} {
		_, ready := w.Look(b, name)
		require.Contains(t, ready, "True Ready")

		// Someone moves the tag: what counts is the digest.
		reference := string(worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, name).Spec.PullSpec)
		repository, _, _ := strings.Cut(reference, "@")
		for _, tag := range []string{"worker", "corp-os"} {
			require.NoError(t, ggcr.Write(w.Registry.Parse(t, repository+":"+tag), worldtest.OSImage(t, "evil", "amd64")))
		}
		_, ready = w.Look(b, name)
		require.Contains(t, ready, "True Ready")

		require.NoError(t, ggcr.Delete(w.Registry.Parse(t, reference)))
		signed, ready := w.Look(b, name)
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
		return worldtest.Must(mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layers...))
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
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey(), "requireProvenance: true")))
			b := w.Builder(w.Trusting)
			object, pinned := imports(w, "corp/os")
			require.NoError(t, ggcr.Write(w.Registry.Parse(t, attachedTag(pinned, "sig")), hostile[0]))
			signed, _ := w.Look(b, object)
			assert.Contains(t, signed, "False NotSigned")

			w.Signs(worldtest.FirstKey(), pinned) // beside it
			require.NoError(t, ggcr.Write(w.Registry.Parse(t, attachedTag(pinned, "att")), hostile[1]))
			signed, _ = w.Look(b, object)
			assert.Contains(t, signed, "False NotTrusted")
		})
	}
}

func TestASignatureManifestThatIsNoManifest(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey())))
	object, _ := imports(w, "corp/os")
	w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		rw.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		_, _ = rw.Write([]byte("<html>"))
		return true
	})
	signed, _ := w.Look(w.Builder(w.Trusting), object)
	assert.Contains(t, signed, "False NotSigned")
}

func TestAPolicyForTheClustersOwnImages(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret(), worldtest.Policy("own: {notOlderThan: 24h}"))
	b := w.Builder(w.Signing, w.Trusting)
	w.Settle(b)
	image := w.OnlyImage()
	pinned := string(image.Spec.PullSpec)
	assert.Contains(t, worldtest.SignedText(image), "False NotTrusted")
	assert.Contains(t, worldtest.SignedText(image), "is signed but not trusted by this cluster")
	build := w.Builds()[0]
	assert.Equal(t, mcfgv1.BuildStageBuilding, status.BuildStageOf(build.Status.Conditions), "no other build would end otherwise")
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.Reconciling), "WaitingForSignature the image was pushed and is not trusted yet")
	assert.Empty(t, w.OSConfig("worker").Status.CurrentImagePullSpec)
	require.NoError(t, verify(w, pinned, worldtest.FirstKey()), "it is signed all the same")

	attests(w, worldtest.FirstKey(), pinned, "layerwright", w.Clock.Now().Add(-25*time.Hour))
	w.Settle(b)
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "and is older than")
	unsign(w, pinned, "att")
	attests(w, worldtest.FirstKey(), pinned, "layerwright", w.Clock.Now())
	w.Settle(b)
	assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))

	w.Remove(worldtest.Policy(""))
	_, ready := w.Look(b, image.Name)
	assert.Contains(t, ready, "True Ready it was trusted at the last successful check")
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	assert.Equal(t, pinned, string(w.OSConfig("worker").Status.CurrentImagePullSpec), "a new image waits")
	w.Add(worldtest.Policy("{}"))
	w.Settle(b)
	assert.NotEqual(t, pinned, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
}

// TestAPolicyOfAgesWithSharedContent has an image made of content that is there already: its build
// begins and ends in one reconcile.
func TestAPolicyOfAgesWithSharedContent(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Add(worldtest.FirstKey().Secret(), worldtest.Policy("own: {notOlderThan: 24h}"))
	b := w.Builder(use, w.Attesting(nil), w.Signing, w.Trusting)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	first := w.OSConfig("worker").Status.CurrentImagePullSpec
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	assert.Equal(t, 1, s.Begun, "the content is not built again")
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.NotEqual(t, first, w.OSConfig("worker").Status.CurrentImagePullSpec)
}

// TestRebuildOfAnImageThatIsTooOld rebuilds one, as docs/policies.md advises: it is the same
// image again, and provenance says that it was made again.
func TestRebuildOfAnImageThatIsTooOld(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret(), worldtest.Policy("own: {notOlderThan: 24h}"))
	b := w.Builder(w.Signing, w.Attesting(&worldtest.SBOMs{}), w.Trusting)
	w.Settle(b)
	image := w.OnlyImage()
	w.Clock.SetTime(w.Clock.Now().Add(25 * time.Hour))
	_, ready := w.Look(b, image.Name)
	require.Contains(t, ready, "False "+mcfgv1alpha1.ReasonNotTrusted)
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, image.Spec.PullSpec, w.OnlyImage().Spec.PullSpec, "the same image was made")
	_, ready = w.Look(b, image.Name)
	assert.Contains(t, ready, "True ")
}

func TestSignatureIsReadBack(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	gone := true
	w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool { // it takes the signature, and has none
		if gone && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".sig") {
			rw.WriteHeader(http.StatusCreated)
			return true
		}
		return false
	})
	b := w.Builder(w.Signing)
	w.Settle(b)
	assert.Contains(t, worldtest.SignedText(w.OnlyImage()), "False NotSigned")
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.Reconciling), "it has no signature")
	gone = false
	w.Settle(b)
	assert.Equal(t, "True Signed", worldtest.SignedText(w.OnlyImage()))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

func TestWithATrustPolicyAlone(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.PolicyOf(w.Trusts("host/os", worldtest.FirstKey())))
	b := w.Builder(w.Trusting)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready), "what someone else signs is signed when it is there")
	image := w.OnlyImage()
	signed, ready := w.Look(b, image.Name)
	assert.Contains(t, ready, "False NotSigned")
	assert.NotContains(t, signed, mcfgv1.AnnotationRebuild, "where nothing is signed, a rebuild is no help")
	w.Signs(worldtest.FirstKey(), string(image.Spec.PullSpec))
	_, ready = w.Look(b, image.Name)
	assert.Contains(t, ready, "True Ready")
}

// giveToCluster makes an image one of the MachineOSConfig's, as whoever may change objects can.
func giveToCluster(w *worldtest.World, object string) {
	w.T.Helper()
	w.Quietly(func() error {
		image := worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, object)
		image.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.OSConfig("worker"), mcfgv1.SchemeGroupVersion.WithKind(owner.Kind))}
		return w.Update(w.T.Context(), image)
	})
}

// staysUnsigned looks at an image more than once: nothing that the first look wrote makes it one to
// sign.
func staysUnsigned(w *worldtest.World, b *worldtest.Process, object, pinned string) {
	w.T.Helper()
	for range 2 {
		signed, _ := w.Look(b, object)
		assert.Contains(w.T, signed, "False NotSigned")
		require.ErrorContains(w.T, verify(w, pinned, worldtest.FirstKey()), "it has no signature")
	}
}

func TestForeignImageUnderOurTagIsNotSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	object, pinned := imports(w, "host/os")
	giveToCluster(w, object)
	staysUnsigned(w, b, object, pinned)
}

func TestImportedImage(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	object, pinned := imports(w, "host/os")
	w.Look(b, object)
	image := worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, object)
	assert.Equal(t, mcfgv1.ImageDigestFormat(pinned).Short(), image.Status.ShortDigest)
	assert.Equal(t, mcfgv1alpha1.ImageImported, image.Status.Origin)

	giveToCluster(w, object)
	staysUnsigned(w, b, object, pinned)
}

func TestImagesOfEarlierVersionsStaySigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	image := w.OnlyImage()
	assert.Equal(t, mcfgv1alpha1.ImageBuilt, image.Status.Origin)
	image.Status.Origin = ""
	w.Quietly(func() error { return w.Status().Update(t.Context(), image) })
	w.Look(b, image.Name)
	assert.Empty(t, w.OnlyImage().Status.Origin, "no one says of it that it was imported")
	w.Remove(worldtest.FirstKey().Secret())
	w.Add(worldtest.SecondKey().Secret())
	signed, _ := w.Look(b, image.Name)
	assert.Equal(t, "True Signed", signed)
	require.NoError(t, verify(w, string(image.Spec.PullSpec), worldtest.SecondKey()))
}

// TestTakenImageNameIsNotSigned has an object under the name that a build is going to use,
// which names another image.
func TestTakenImageNameIsNotSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	made := w.OnlyImage()
	_, evil := imports(w, "host/os")
	w.Remove(worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, "imported-host-os"))
	w.Remove(made)
	w.Remove(&w.Builds()[0])
	taken := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: made.Name}}
	taken.Spec.PullSpec, taken.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(evil), "worker"
	w.Add(taken)
	for range 6 {
		_ = w.Round(b)
	}
	require.ErrorContains(t, verify(w, evil, worldtest.FirstKey()), "it has no signature")
	assert.Contains(t, w.Says("worker", status.Ready), `needs its name; delete it`)
	w.Remove(taken)
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// TestForeignObjectIsNotAdopted has the object of an image there before the
// build that makes the image.
func TestForeignObjectIsNotAdopted(t *testing.T) {
	t.Parallel()
	first := worldtest.Layered(t, "worker")
	first.Add(worldtest.FirstKey().Secret())
	first.Settle(first.Builder(first.Signing))
	made := first.OnlyImage()
	owned := func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
		image.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.OSConfig("worker"), mcfgv1.SchemeGroupVersion.WithKind(owner.Kind))}
	}
	tests := map[string]func(*worldtest.World, *mcfgv1alpha1.MachineOSImage){
		"no one's, of which no test is asked": func(*worldtest.World, *mcfgv1alpha1.MachineOSImage) {},
		"one that says that the installer had it built": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.Annotations = map[string]string{mcfgv1.AnnotationPreBuiltImage: ""}
		},
		"one of another pool": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.Spec.MachineConfigPool = "infra"
		},
		"one with another base image, which the SBOM would go by": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.Spec.BaseOSImagePullSpec = image.Spec.PullSpec
		},
		"one of the MachineOSConfig before": func(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage) {
			owned(w, image)
			image.OwnerReferences[0].UID = "before"
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sameAs(first)
			w.T = t
			w.Add(worldtest.FirstKey().Secret())
			b := w.Builder(w.Signing)
			taken := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: made.Name}, Spec: made.Spec}
			change(w, taken)
			w.Add(taken)
			for range 6 {
				_ = w.Round(b)
			}
			assert.Empty(t, w.OSConfig("worker").Status.CurrentImagePullSpec)
			assert.Contains(t, w.Says("worker", status.Ready), "is there already, and was not made by the MachineOSConfig \"worker\"; delete it")
			w.Remove(taken)
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			assert.Equal(t, mcfgv1alpha1.ImageBuilt, w.OnlyImage().Status.Origin)
		})
	}
}

func TestImagesInTheClustersOwnRepository(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	object, pinned := imports(w, "host/os")
	w.Signs(worldtest.FirstKey(), pinned)
	signed, ready := w.Look(w.Builder(w.Signing), object)
	assert.Contains(t, signed, "which is trusted for this cluster")
	assert.Contains(t, ready, "True Ready")
}

func TestPullSecretOfImportedImages(t *testing.T) {
	t.Parallel()
	reference := func(name string) *mcfgv1.ImageSecretObjectReference {
		return &mcfgv1.ImageSecretObjectReference{Name: name}
	}
	tests := map[string]struct {
		change func(*worldtest.World, *mcfgv1.MachineOSConfig)
		pool   string
		want   string // the password
	}{
		"what nodes pull with": {func(_ *worldtest.World, c *mcfgv1.MachineOSConfig) {
			c.Spec.CurrentImagePullSecret = reference("nodes")
		}, "worker", "nodes"},
		"what builds pull with": {func(*worldtest.World, *mcfgv1.MachineOSConfig) {}, "worker", "hunter2"},
		"the cluster's": {func(w *worldtest.World, c *mcfgv1.MachineOSConfig) {
			w.Add(w.Secret(names.GlobalPullSecret, "global"))
			c.Spec.BaseImagePullSecret = nil
		}, "worker", "global"},
		"nothing":                   {func(_ *worldtest.World, c *mcfgv1.MachineOSConfig) { c.Spec.BaseImagePullSecret = nil }, "worker", ""},
		"nothing of another pool's": {func(*worldtest.World, *mcfgv1.MachineOSConfig) {}, "infra", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Add(worldtest.PolicyOf(w.Trusts("corp/os", worldtest.FirstKey())), w.Secret("nodes", "nodes"))
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { tt.change(w, c) })
			_, pinned := imports(w, "corp/os")
			w.Signs(worldtest.FirstKey(), pinned)
			image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
			image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(pinned), tt.pool
			w.Add(image)
			w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
				_, password, _ := r.BasicAuth()
				if tt.want == "" || password == tt.want {
					return password != "" && tt.want == "" // whoever logs in where no one should fails
				}
				rw.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				rw.WriteHeader(http.StatusUnauthorized)
				return true
			})
			signed, _ := w.Look(w.Builder(w.Trusting), "one")
			assert.Contains(t, signed, "True Signed")
		})
	}
}

func TestAnotherTrustPolicyMeansAnotherLook(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	imports(w, "corp/os")
	imports(w, "corp/other")
	b := w.Builder(w.Trusting)
	assert.Len(t, b.Keeper.ImagesOfPolicy(t.Context(), worldtest.Policy("")), 2)
	other := worldtest.Policy("")
	other.Name = "other"
	assert.Empty(t, b.Keeper.ImagesOfPolicy(t.Context(), other))
	assert.Empty(t, w.Builder(w.Signing).Keeper.ImagesOfPolicy(t.Context(), worldtest.Policy("")))
}

func TestSignedImagesAreReused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// happens to the image that has the tag, which another cluster has made from the same
		// before.
		happens func(w *worldtest.World, tag, pinned string)
		key     worldtest.KeyPair
		reused  bool
	}{
		"signed with our key": {func(w *worldtest.World, _, pinned string) { w.Signs(worldtest.FirstKey(), pinned) }, worldtest.FirstKey(), true},
		"unsigned":            {func(*worldtest.World, string, string) {}, worldtest.FirstKey(), false},
		"signed by another":   {func(w *worldtest.World, _, pinned string) { w.Signs(worldtest.SecondKey(), pinned) }, worldtest.FirstKey(), false},
		"the tag was moved to an older image of ours": {func(w *worldtest.World, tag, pinned string) {
			w.Signs(worldtest.FirstKey(), pinned)
			older := worldtest.OSImage(w.T, "older", "amd64")
			repository, _, _ := strings.Cut(pinned, "@")
			require.NoError(w.T, ggcr.Write(w.Registry.Parse(w.T, tag), older))
			w.Signs(worldtest.FirstKey(), repository+"@"+worldtest.Must(older.Digest()).String())
		}, worldtest.FirstKey(), false},
		"a signature that was moved": {func(w *worldtest.World, _, pinned string) {
			other := w.Registry.PushBase(w.T, "host/os", "other")
			w.Signs(worldtest.FirstKey(), other)
			moveAttached(w, other, pinned, "sig")
		}, worldtest.FirstKey(), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := worldtest.Layered(t, "worker")
			first.Settle(first.Builder())
			image, build := string(first.OnlyImage().Spec.PullSpec), first.Builds()[0]

			again := sameAs(first)
			again.Add(tt.key.Secret())
			tt.happens(again, string(build.Spec.RenderedImagePushSpec), image)
			again.Settle(again.Builder(again.Signing))
			reason, _ := objects.FinalOf(again.Builds()[0].Status.Conditions)
			assert.Equal(t, tt.reused, reason == mcfgv1.ReasonReused, reason)
			assert.Equal(t, image, string(again.OnlyImage().Spec.PullSpec), "made again, it is the same")
			assert.Equal(t, "True Signed", worldtest.SignedText(again.OnlyImage()))
			require.NoError(t, verify(again, image, worldtest.FirstKey()))
		})
	}
}

func TestKeysOfBeforeAreNotEnoughForReuse(t *testing.T) {
	t.Parallel()
	first := worldtest.Layered(t, "worker")
	first.Settle(first.Builder())
	image := string(first.OnlyImage().Spec.PullSpec)
	again := sameAs(first)
	secret := worldtest.FirstKey().Secret()
	secret.Data[sign.SecretTrusted] = worldtest.SecondKey().Public
	again.Add(secret)
	again.Signs(worldtest.SecondKey(), image)
	again.Settle(again.Builder(again.Signing))
	reason, _ := objects.FinalOf(again.Builds()[0].Status.Conditions)
	assert.NotEqual(t, mcfgv1.ReasonReused, reason)
}

func TestReuseAsksAgainWhereTheRegistryFails(t *testing.T) {
	t.Parallel()
	first := worldtest.Layered(t, "worker")
	first.Settle(first.Builder())
	again := sameAs(first)
	again.Add(worldtest.FirstKey().Secret())
	again.Signs(worldtest.FirstKey(), string(first.OnlyImage().Spec.PullSpec))
	again.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".sig") {
			return false
		}
		rw.WriteHeader(http.StatusBadGateway)
		return true
	})
	b := again.Builder(again.Signing)
	for range 4 {
		_ = again.Round(b)
	}
	assert.Empty(t, again.Builds()[0].Status.DigestedImagePushSpec, "what can't be looked at is neither taken nor made anew")
	again.Registry.Answer(nil)
	again.Settle(b)
	reason, _ := objects.FinalOf(again.Builds()[0].Status.Conditions)
	assert.Equal(t, mcfgv1.ReasonReused, reason)
}

// sameAs is another cluster with the same objects and the same registry, in which nothing was built
// yet.
func sameAs(first *worldtest.World) *worldtest.World {
	again := worldtest.Layered(first.T, "worker")
	again.Registry, again.Base = first.Registry, first.Base
	again.Quietly(func() error {
		ctx := again.T.Context()
		return errors.Join(again.Delete(ctx, again.OSConfig("worker")), again.Delete(ctx, again.Secret("push", "")), again.Delete(ctx, again.Secret("pull", "")),
			again.Delete(ctx, &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"}}))
	})
	again.Add(again.Secret("push", "hunter2"), again.Secret("pull", "hunter2"), again.Rendered("worker", "1", "/etc/motd", "one"), again.Config("worker"))
	return again
}

// TestAnImageThatNodesKeptIsTakenOver: its MachineOSConfig was deleted and is made again, and asks
// for the same image. What is known of it stays known.
func TestAnImageThatNodesKeptIsTakenOver(t *testing.T) {
	t.Parallel()
	first := worldtest.Layered(t, "worker")
	first.Settle(first.Builder())
	kept := first.OnlyImage()
	require.Len(t, kept.OwnerReferences, 2, "its MachineOSConfig's and its pool's")

	w := sameAs(first)
	kept.ResourceVersion, kept.UID = "", "kept"
	kept.OwnerReferences = slices.DeleteFunc(kept.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == owner.Kind }) // the garbage collector did that
	kept.Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Message: "1 of 3 nodes failed"}
	w.Add(kept)
	w.Settle(w.Builder())
	image := w.OnlyImage()
	assert.Equal(t, kept.UID, image.UID)
	assert.True(t, metav1.IsControlledBy(image, w.OSConfig("worker")))
	assert.Len(t, image.OwnerReferences, 2)
	assert.Equal(t, "1 of 3 nodes failed", image.Status.Quarantine.Message)
}
