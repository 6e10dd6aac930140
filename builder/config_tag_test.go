package builder

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
)

const poolTagPath = "/v2/host/os/manifests/worker"

// poolTag is the digest that the pool's tag stands for; empty where there is none.
func (w *world) poolTag() string { return w.registry.tags(w.t, "host/os")["worker"] }

// tagged is how often the pool's tag was set since the last call.
func (w *world) tagged() int {
	n := 0
	for _, r := range w.registry.requests() {
		if strings.HasPrefix(r, http.MethodPut) && strings.HasSuffix(r, poolTagPath) {
			n++
		}
	}
	return n
}

// newest is the image of the wanted build.
func (w *world) newest() *mcfgv1alpha1.MachineOSImage {
	w.t.Helper()
	build := read(w, &mcfgv1.MachineOSBuild{}, w.osConfig("worker").Status.MachineOSBuild.Name)
	for _, image := range w.images() {
		if image.Spec.PullSpec == build.Status.DigestedImagePushSpec {
			return &image
		}
	}
	require.Fail(w.t, "the build has no image")
	return nil
}

// judge writes of all images that were not judged that their verification passed.
func (w *world) judge() {
	w.t.Helper()
	for _, image := range w.images() {
		if status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified) == nil {
			w.verdict(&image, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
		}
	}
}

func (w *world) quarantine(image *mcfgv1alpha1.MachineOSImage, why *mcfgv1alpha1.ImageQuarantine) {
	w.t.Helper()
	w.quietly(func() error {
		image = read(w, &mcfgv1alpha1.MachineOSImage{}, image.Name)
		image.Status.Quarantine = why
		return w.Status().Update(w.t.Context(), image)
	})
}

// requireTag demands that the pool's tag is on an image, and that the status says so.
func (w *world) requireTag(image *mcfgv1alpha1.MachineOSImage, why string) {
	w.t.Helper()
	require.Equal(w.t, image.Spec.PullSpec.Digest(), w.poolTag(), why)
	require.NotNil(w.t, w.osConfig("worker").Status.PoolTag, why)
	require.Equal(w.t, image.Spec.PullSpec, w.osConfig("worker").Status.PoolTag.PullSpec, why)
}

func TestThePoolsTagWaitsForTheVerification(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.builder()
	w.settle(b)
	first := w.newest()
	assert.Empty(t, w.poolTag(), "no one knows yet whether it works")
	assert.Nil(t, w.osConfig("worker").Status.PoolTag)
	assert.Equal(t, mcfgv1.PoolTagWhenReady, w.builds()[0].Status.PoolTag)
	w.verdict(first, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(w.builder()) // another process
	w.requireTag(first, "it was verified")
	assert.Equal(t, 1, w.tagged())

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	second := w.newest()
	w.requireTag(first, "the next one is not verified yet")
	w.verdict(second, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationRunning, "")
	w.settle(b)
	w.requireTag(first, "its test runs")
	w.verdict(second, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "no")
	w.settle(b)
	w.requireTag(first, "its test failed")
	assert.Zero(t, w.tagged())
	w.verdict(second, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(b)
	w.requireTag(second, "the test was mended")

	w.use("worker", "rendered-worker-1")
	w.settle(b)
	w.requireTag(first, "it is wanted again")
	w.use("worker", "rendered-worker-2")
	w.settle(b)
	w.requireTag(second, "and that again")
	assert.Equal(t, 3, w.tagged())
	for range 3 {
		w.settle(w.builder())
	}
	assert.Zero(t, w.tagged(), "neither reconciles nor restarts set it again")

	w.remove(w.osConfig("worker"))
	w.settle(b)
	assert.Zero(t, w.tagged())
	assert.False(t, w.registry.has(t, string(first.Spec.PullSpec)), "its images go with it, also the one that had the tag")
}

func TestThePoolsTagWaitsForSignatures(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder(w.signing)
	for range 5 {
		_ = w.round(b)
	}
	assert.NotEmpty(t, w.newest().Spec.PullSpec, "it was pushed")
	assert.Empty(t, w.poolTag(), "there is no key yet")
	w.add(firstKey().secret())
	w.settle(b)
	first := w.newest()
	w.requireTag(first, "it was signed")

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	second := w.newest()
	w.requireTag(second, "it was signed")
	assert.Equal(t, 2, w.tagged())

	w.use("worker", "rendered-worker-1")
	w.quarantine(first, &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Since: status.Second(t0)})
	w.settle(b)
	w.requireTag(second, "the image that is wanted again is quarantined")
	w.quarantine(first, nil)
	w.settle(b)
	w.requireTag(first, "not any more")
	w.quarantine(first, &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Since: status.Second(t0)})
	w.settle(b)
	w.requireTag(first, "what has the tag keeps it while no other one is ready")
}

// TestThePoolsTagWaitsForTheTrustPolicy where nothing is signed here.
func TestThePoolsTagWaitsForTheTrustPolicy(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(policyOf(w.trusts("host/os", firstKey())))
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Retention = &mcfgv1.Retention{SuccessfulBuilds: new(int32(1))}
	})
	b := w.builder(w.trusting)
	w.settle(b)
	first := w.newest()
	signed, _ := w.look(b, first.Name)
	assert.Contains(t, signed, "NotSigned")
	w.settle(b)
	assert.Empty(t, w.poolTag(), "no one has signed it")
	w.signs(firstKey(), string(first.Spec.PullSpec))
	_, ready := w.look(b, first.Name)
	assert.Contains(t, ready, "True Ready")
	w.settle(b)
	w.requireTag(first, "it is trusted")

	for _, content := range []string{"two", "three", "four"} {
		w.rerender("worker", content, "/etc/motd", content)
		w.settle(b)
		w.look(b, w.newest().Name)
		w.settle(b)
		w.requireTag(first, "retention keeps what has the tag")
	}
}

// TestWhereNothingHoldsImagesBack the tag is set together with the image, and nothing is asked
// besides.
func TestWhereNothingHoldsImagesBack(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder()
	w.settle(b)
	first := w.newest()
	w.requireTag(first, "its build has set it")
	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	second := w.newest()
	w.requireTag(second, "its build has set it")
	assert.Equal(t, 2, w.tagged())
	assert.Empty(t, w.builds()[0].Status.PoolTag)
	for i, rendered := range []string{"rendered-worker-1", "rendered-worker-2", "rendered-worker-1"} {
		w.use("worker", rendered)
		w.settle(w.builder())
		w.requireTag([]*mcfgv1alpha1.MachineOSImage{first, second}[i%2], "it is wanted again")
		assert.Equal(t, 1, w.tagged())
	}
}

// TestThePoolsTagWhenTheGateChanges follows the image, whoever had to set it when it was built.
func TestThePoolsTagWhenTheGateChanges(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.settle(w.builder())
	first := w.newest()
	w.add(firstKey().secret())
	signing := w.builder(w.signing)
	w.look(signing, first.Name)
	w.settle(signing)
	w.requireTag(first, "it has it from before")
	assert.Equal(t, 1, w.tagged())

	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
	})
	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(signing)
	second := w.newest()
	w.requireTag(first, "the next one is signed and not verified")
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Verification = nil })
	w.settle(signing)
	w.requireTag(second, "no one asks any more")

	w.rerender("worker", "3", "/etc/motd", "three")
	w.settle(w.builder())
	third := w.newest()
	w.requireTag(third, "nothing is signed any more")
	w.use("worker", "rendered-worker-2")
	w.settle(signing)
	w.requireTag(second, "the image before is wanted, and counts")
}

// TestTheTagThatCannotBeMoved keeps the image from no one.
func TestTheTagThatCannotBeMoved(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden, http.StatusConflict} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			w := verifying(t)
			b := w.builder()
			w.settle(b)
			w.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut || r.URL.Path != poolTagPath {
					return false
				}
				rw.WriteHeader(code)
				return true
			})
			w.judge()
			w.told()
			_, err := w.reconcileConfig(b, "worker")
			require.ErrorContains(t, err, `moving the tag "worker" to image "`+w.registry.host, "so that it is tried again, and later each time")
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			config := w.osConfig("worker")
			assert.Equal(t, w.newest().Spec.PullSpec, config.Status.CurrentImagePullSpec)
			assert.Equal(t, config.Generation, config.Status.ObservedGeneration)
			assert.Nil(t, config.Status.PoolTag)
			assert.Contains(t, strings.Join(w.told(), "\n"), `Warning PoolTagNotMoved The tag "worker" could not be moved to the image `)
			written := len(w.writes)
			_, err = w.reconcileConfig(b, "worker")
			require.Error(t, err)
			assert.Len(t, w.writes, written, "nothing is written again and again")

			w.registry.answering(nil)
			_, err = w.reconcileConfig(b, "worker")
			require.NoError(t, err)
			w.requireTag(w.newest(), "the registry takes it")
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
			w := layered(t, "worker")
			w.registry.FixTags(refusal)
			b := w.builder()
			w.settle(b)
			first := w.osConfig("worker").Status.CurrentImagePullSpec
			w.rerender("worker", "2", "/etc/motd", "two")
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
			second := w.osConfig("worker").Status.CurrentImagePullSpec
			assert.NotEqual(t, first, second)
			assert.Equal(t, "two", w.unpacked(string(second), "amd64", "etc/motd"))
			assert.Equal(t, first.Digest(), w.registry.tags(t, "host/os")["worker"])
			assert.Contains(t, strings.Join(w.told(), "\n"), `Warning PoolTagNotMoved The tag "worker" could not be moved to the image `+string(second))
			_, err := w.reconcileConfig(b, "worker")
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
			w, s, use := withContent(t, cheapFile)
			b := w.builder(use)
			w.registry.FixTags(refusal)
			w.settle(b)
			for i, text := range []string{"one", "two"} {
				w.installs = map[string]string{"usr/share/rebuilt": text}
				w.annotate("worker", mcfgv1.AnnotationRebuild)
				w.settle(b)
				assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
				assert.Equal(t, text, w.unpacked(w.current(), "amd64", "usr/share/rebuilt"))
				w.rerender("worker", text, "/etc/motd", text)
				w.settle(b)
				assert.Equal(t, text, w.unpacked(w.current(), "amd64", "usr/share/rebuilt"))
				assert.Equal(t, text, w.unpacked(w.current(), "amd64", "etc/motd"))
				assert.Equal(t, i+2, s.ensure, "another file is no reason to build")
				if refusal.Keeps {
					assert.Len(t, w.contentTags(), i+2)
				}
			}
			w.remove(w.osConfig("worker"))
			w.settle(b)
			assert.Equal(t, refusal.Keeps, len(w.contentTags()) > 0)
		})
	}
}

// contentTags are those tags in the registry.
func (w *world) contentTags() []string {
	return slices.DeleteFunc(w.tags("host/os"), func(tag string) bool { return !strings.HasPrefix(tag, "content-") })
}

// TestTagOfARebuiltImage is set again: who deletes an image deletes its tags.
func TestTagOfARebuiltImage(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.builder()
	w.settle(b)
	w.judge()
	w.settle(b)
	w.requireTag(w.newest(), "it was verified")
	for _, reference := range []string{w.registry.host + "/host/os:worker", string(w.builds()[0].Spec.RenderedImagePushSpec), string(w.newest().Spec.PullSpec)} {
		require.NoError(t, ggcr.Delete(w.registry.parse(t, reference)))
	}
	require.Empty(t, w.poolTag())
	w.clock.SetTime(w.clock.Now().Add(2 * wanted.Idle))
	w.settle(b)
	w.judge()
	w.settle(b)
	w.requireTag(w.newest(), "it was made again")

	w.tagged()
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
	w.requireTag(w.newest(), "it was rebuilt, and is the same")
	assert.LessOrEqual(t, w.tagged(), 1)
}

// TestTheImageBeforeARebuild has the same build, and stays while it is in use: it is not taken for
// the wanted one.
func TestTheImageBeforeARebuild(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.builder()
	w.settle(b)
	wanted := w.onlyImage()
	for _, name := range []string{"worker-0", "worker-z"} { // they are listed by name
		before := wanted.DeepCopy()
		before.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: wanted.Labels, OwnerReferences: wanted.OwnerReferences}
		before.Spec.PullSpec = mcfgv1.ImageDigestFormat(w.base)
		w.add(before)
	}
	w.verdict(wanted, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(b)
	assert.Equal(t, wanted.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
	w.requireTag(wanted, "it was verified")
}
