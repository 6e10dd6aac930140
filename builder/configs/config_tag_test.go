package configs_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// tagged is how often the pool's tag was set since the last call.
func tagged(w *worldtest.World) int {
	n := 0
	for _, r := range w.Registry.Forget() {
		if strings.HasPrefix(r, http.MethodPut) && strings.HasSuffix(r, worldtest.PoolTagPath) {
			n++
		}
	}
	return n
}

func quarantine(w *worldtest.World, image *mcfgv1alpha1.MachineOSImage, why *mcfgv1alpha1.ImageQuarantine) {
	w.T.Helper()
	w.Quietly(func() error {
		image = worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, image.Name)
		image.Status.Quarantine = why
		return w.Status().Update(w.T.Context(), image)
	})
}

func TestThePoolsTagWaitsForTheVerification(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.Builder()
	w.Settle(b)
	first := w.Newest()
	assert.Empty(t, w.PoolTag(), "no one knows yet whether it works")
	assert.Nil(t, w.OSConfig("worker").Status.PoolTag)
	assert.Equal(t, mcfgv1.PoolTagWhenReady, w.Builds()[0].Status.PoolTag)
	w.Verdict(first, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(w.Builder()) // another process
	w.RequireTag(first, "it was verified")
	assert.Equal(t, 1, tagged(w))

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	second := w.Newest()
	w.RequireTag(first, "the next one is not verified yet")
	w.Verdict(second, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationRunning, "")
	w.Settle(b)
	w.RequireTag(first, "its test runs")
	w.Verdict(second, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "no")
	w.Settle(b)
	w.RequireTag(first, "its test failed")
	assert.Zero(t, tagged(w))
	w.Verdict(second, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(b)
	w.RequireTag(second, "the test was mended")

	w.Use("worker", "rendered-worker-1")
	w.Settle(b)
	w.RequireTag(first, "it is wanted again")
	w.Use("worker", "rendered-worker-2")
	w.Settle(b)
	w.RequireTag(second, "and that again")
	assert.Equal(t, 3, tagged(w))
	for range 3 {
		w.Settle(w.Builder())
	}
	assert.Zero(t, tagged(w), "neither reconciles nor restarts set it again")

	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	assert.Zero(t, tagged(w))
	assert.False(t, w.Registry.Has(t, string(first.Spec.PullSpec)), "its images go with it, also the one that had the tag")
}

func TestThePoolsTagWaitsForSignatures(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder(w.Signing)
	for range 5 {
		_ = w.Round(b)
	}
	assert.NotEmpty(t, w.Newest().Spec.PullSpec, "it was pushed")
	assert.Empty(t, w.PoolTag(), "there is no key yet")
	w.Add(worldtest.FirstKey().Secret())
	w.Settle(b)
	first := w.Newest()
	w.RequireTag(first, "it was signed")

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	second := w.Newest()
	w.RequireTag(second, "it was signed")
	assert.Equal(t, 2, tagged(w))

	w.Use("worker", "rendered-worker-1")
	quarantine(w, first, &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Since: status.Second(worldtest.T0)})
	w.Settle(b)
	w.RequireTag(second, "the image that is wanted again is quarantined")
	quarantine(w, first, nil)
	w.Settle(b)
	w.RequireTag(first, "not any more")
	quarantine(w, first, &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Since: status.Second(worldtest.T0)})
	w.Settle(b)
	w.RequireTag(first, "what has the tag keeps it while no other one is ready")
}

// TestThePoolsTagWaitsForTheTrustPolicy where nothing is signed here.
func TestThePoolsTagWaitsForTheTrustPolicy(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.PolicyOf(w.Trusts("host/os", worldtest.FirstKey())))
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Retention = &mcfgv1.Retention{SuccessfulBuilds: new(int32(1))}
	})
	b := w.Builder(w.Trusting)
	w.Settle(b)
	first := w.Newest()
	signed, _ := w.Look(b, first.Name)
	assert.Contains(t, signed, "NotSigned")
	w.Settle(b)
	assert.Empty(t, w.PoolTag(), "no one has signed it")
	w.Signs(worldtest.FirstKey(), string(first.Spec.PullSpec))
	_, ready := w.Look(b, first.Name)
	assert.Contains(t, ready, "True Ready")
	w.Settle(b)
	w.RequireTag(first, "it is trusted")

	for _, content := range []string{"two", "three", "four"} {
		w.Rerender("worker", content, "/etc/motd", content)
		w.Settle(b)
		w.Look(b, w.Newest().Name)
		w.Settle(b)
		w.RequireTag(first, "retention keeps what has the tag")
	}
}

// TestWhereNothingHoldsImagesBack the tag is set together with the image, and nothing is asked
// besides.
func TestWhereNothingHoldsImagesBack(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	first := w.Newest()
	w.RequireTag(first, "its build has set it")
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	second := w.Newest()
	w.RequireTag(second, "its build has set it")
	assert.Equal(t, 2, tagged(w))
	assert.Empty(t, w.Builds()[0].Status.PoolTag)
	for i, rendered := range []string{"rendered-worker-1", "rendered-worker-2", "rendered-worker-1"} {
		w.Use("worker", rendered)
		w.Settle(w.Builder())
		w.RequireTag([]*mcfgv1alpha1.MachineOSImage{first, second}[i%2], "it is wanted again")
		assert.Equal(t, 1, tagged(w))
	}
}

// TestThePoolsTagWhenTheGateChanges follows the image, whoever had to set it when it was built.
func TestThePoolsTagWhenTheGateChanges(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Settle(w.Builder())
	first := w.Newest()
	w.Add(worldtest.FirstKey().Secret())
	signing := w.Builder(w.Signing)
	w.Look(signing, first.Name)
	w.Settle(signing)
	w.RequireTag(first, "it has it from before")
	assert.Equal(t, 1, tagged(w))

	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
	})
	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(signing)
	second := w.Newest()
	w.RequireTag(first, "the next one is signed and not verified")
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Verification = nil })
	w.Settle(signing)
	w.RequireTag(second, "no one asks any more")

	w.Rerender("worker", "3", "/etc/motd", "three")
	w.Settle(w.Builder())
	third := w.Newest()
	w.RequireTag(third, "nothing is signed any more")
	w.Use("worker", "rendered-worker-2")
	w.Settle(signing)
	w.RequireTag(second, "the image before is wanted, and counts")
}

// TestTheTagThatCannotBeMoved keeps the image from no one.
func TestTheTagThatCannotBeMoved(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden, http.StatusConflict} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			w := verifying(t)
			b := w.Builder()
			w.Settle(b)
			w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut || r.URL.Path != worldtest.PoolTagPath {
					return false
				}
				rw.WriteHeader(code)
				return true
			})
			w.Judge()
			w.Told()
			_, err := w.ReconcileConfig(b, "worker")
			require.ErrorContains(t, err, `moving the tag "worker" to image "`+w.Registry.Host, "so that it is tried again, and later each time")
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			config := w.OSConfig("worker")
			assert.Equal(t, w.Newest().Spec.PullSpec, config.Status.CurrentImagePullSpec)
			assert.Equal(t, config.Generation, config.Status.ObservedGeneration)
			assert.Nil(t, config.Status.PoolTag)
			assert.Contains(t, strings.Join(w.Told(), "\n"), `Warning PoolTagNotMoved The tag "worker" could not be moved to the image `)
			written := len(w.Writes)
			_, err = w.ReconcileConfig(b, "worker")
			require.Error(t, err)
			assert.Len(t, w.Writes, written, "nothing is written again and again")

			w.Registry.Answer(nil)
			_, err = w.ReconcileConfig(b, "worker")
			require.NoError(t, err)
			w.RequireTag(w.Newest(), "the registry takes it")
		})
	}
}

// TestARegistryWithImmutableTags takes images by digest. Its tag of the pool stays where it is, and
// someone is told.
func TestARegistryWithImmutableTags(t *testing.T) {
	t.Parallel()
	for name, refusal := range registrytest.Immutables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.Layered(t, "worker")
			w.Registry.FixTags(refusal)
			b := w.Builder()
			w.Settle(b)
			first := w.OSConfig("worker").Status.CurrentImagePullSpec
			w.Rerender("worker", "2", "/etc/motd", "two")
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
			second := w.OSConfig("worker").Status.CurrentImagePullSpec
			assert.NotEqual(t, first, second)
			assert.Equal(t, "two", w.Unpacked(string(second), "amd64", "etc/motd"))
			assert.Equal(t, first.Digest(), w.Registry.Tags(t, "host/os")["worker"])
			assert.Contains(t, strings.Join(w.Told(), "\n"), `Warning PoolTagNotMoved The tag "worker" could not be moved to the image `+string(second))
			_, err := w.ReconcileConfig(b, "worker")
			require.NoError(t, err, "only a person can do something about that")
		})
	}
}

// TestContentThatIsRebuiltThere is what later configuration goes onto, and goes with its build
// where the registry lets it.
func TestContentThatIsRebuiltThere(t *testing.T) {
	t.Parallel()
	for name, refusal := range registrytest.Immutables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
			b := w.Builder(use)
			w.Registry.FixTags(refusal)
			w.Settle(b)
			for i, text := range []string{"one", "two"} {
				w.Installs = map[string]string{"usr/share/rebuilt": text}
				w.Annotate("worker", mcfgv1.AnnotationRebuild)
				w.Settle(b)
				assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
				assert.Equal(t, text, w.Unpacked(w.Current(), "amd64", "usr/share/rebuilt"))
				w.Rerender("worker", text, "/etc/motd", text)
				w.Settle(b)
				assert.Equal(t, text, w.Unpacked(w.Current(), "amd64", "usr/share/rebuilt"))
				assert.Equal(t, text, w.Unpacked(w.Current(), "amd64", "etc/motd"))
				assert.Equal(t, i+2, s.Begun, "another file is no reason to build")
				if refusal.Keeps {
					assert.Len(t, contentTags(w), i+2)
				}
			}
			w.Remove(w.OSConfig("worker"))
			w.Settle(b)
			assert.Equal(t, refusal.Keeps, len(contentTags(w)) > 0)
		})
	}
}

// contentTags are those tags in the registry.
func contentTags(w *worldtest.World) []string {
	return slices.DeleteFunc(w.Tags("host/os"), func(tag string) bool { return !strings.HasPrefix(tag, "content-") })
}

// TestTagOfARebuiltImage is set again: who deletes an image deletes its tags.
func TestTagOfARebuiltImage(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.Builder()
	w.Settle(b)
	w.Judge()
	w.Settle(b)
	w.RequireTag(w.Newest(), "it was verified")
	for _, reference := range []string{w.Registry.Host + "/host/os:worker", string(w.Builds()[0].Spec.RenderedImagePushSpec), string(w.Newest().Spec.PullSpec)} {
		require.NoError(t, ggcr.Delete(w.Registry.Parse(t, reference)))
	}
	require.Empty(t, w.PoolTag())
	w.Clock.SetTime(w.Clock.Now().Add(2 * wanted.Idle))
	w.Settle(b)
	w.Judge()
	w.Settle(b)
	w.RequireTag(w.Newest(), "it was made again")

	tagged(w)
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	w.RequireTag(w.Newest(), "it was rebuilt, and is the same")
	assert.LessOrEqual(t, tagged(w), 1)
}

// TestTheImageBeforeARebuild has the same build, and stays while it is in use: it is not taken for
// the wanted one.
func TestTheImageBeforeARebuild(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.Builder()
	w.Settle(b)
	wanted := w.OnlyImage()
	for _, name := range []string{"worker-0", "worker-z"} { // they are listed by name
		before := wanted.DeepCopy()
		before.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: wanted.Labels, OwnerReferences: wanted.OwnerReferences}
		before.Spec.PullSpec = mcfgv1.ImageDigestFormat(w.Base)
		w.Add(before)
	}
	w.Verdict(wanted, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(b)
	assert.Equal(t, wanted.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
	w.RequireTag(wanted, "it was verified")
}
