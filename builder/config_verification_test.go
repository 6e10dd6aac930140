package builder

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
)

// verifying is a world with a pool whose images have to pass a test.
func verifying(t *testing.T) *world {
	t.Helper()
	w := layered(t, "worker")
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
	})
	return w
}

// verdict writes what the newest image's verification says, as its controller does.
func (w *world) verdict(of *mcfgv1alpha1.MachineOSImage, is metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	w.quietly(func() error {
		image := &mcfgv1alpha1.MachineOSImage{}
		require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(of), image))
		before := image.DeepCopy()
		status.Set(&image.Status.Conditions, w.clock.Now(), metav1.Condition{Type: mcfgv1alpha1.ImageVerified, Status: is, Reason: reason, Message: message})
		image.Status.Verification = &mcfgv1alpha1.ImageVerificationResult{Job: "verify-it"}
		return w.Status().Patch(w.t.Context(), image, client.MergeFrom(before))
	})
}

func TestOnlyAVerifiedImageIsTheCurrentOne(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.builder()
	w.settle(b)
	require.Len(t, w.builds(), 1)
	assert.Contains(t, w.states(), w.builds()[0].Name)
	assert.True(t, status.IsTrue(w.builds()[0].Status.Conditions, status.BuildSucceeded), "the build itself succeeds")
	image := w.onlyImage()

	waits := "Unknown VerificationPending the image of build \"" + w.builds()[0].Name + "\" is not rolled out yet: the verification of the image has not begun"
	assert.Equal(t, waits, w.says("worker", status.Ready))
	assert.Empty(t, w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Contains(t, text(w.pool("worker").GetConditions(), string(mcfgv1.PoolBuilding)), "True VerificationPending Image built for pool worker waits for its verification")

	w.verdict(image, metav1.ConditionTrue, mcfgv1alpha1.ReasonNotRequested, "")
	w.settle(b)
	assert.Equal(t, waits, w.says("worker", status.Ready), "that was written before someone asked")

	w.verdict(image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationRunning, "Job tests")
	w.settle(b)
	assert.Contains(t, w.says("worker", status.Reconciling), "True VerificationRunning")
	assert.Empty(t, w.osConfig("worker").Status.CurrentImagePullSpec)

	w.verdict(image, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, image.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Contains(t, text(w.pool("worker").GetConditions(), string(mcfgv1.PoolBuildSuccess)), "True BuildSuccess")
}

func TestFailedVerificationKeepsTheOlderImage(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.builder()
	w.settle(b)
	first := w.onlyImage()
	w.verdict(first, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(b)

	for n, content := range []string{"two", "three", "four", "five", "six"} {
		w.rerender("worker", content, "/etc/motd", content)
		w.settle(b)
		for _, image := range w.images() {
			if status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified) == nil {
				w.verdict(&image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "Job \"verify-it\": exit code 3")
			}
		}
		w.settle(b)
		assert.Equal(t, first.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec, n)
		assert.True(t, w.registry.has(t, string(first.Spec.PullSpec)), "however many follow, what nodes have stays")
	}
	said := w.says("worker", status.Stalled)
	assert.True(t, strings.HasPrefix(said, "True VerificationFailed the image of build \"worker-"), said)
	assert.Contains(t, said, `is not rolled out: Job "verify-it": exit code 3; fix the image's inputs or the test, or delete Job "verify-it" to run the test again`)
	assert.Contains(t, text(w.pool("worker").GetConditions(), string(mcfgv1.PoolImageBuildDegraded)),
		"True VerificationFailed Image built for pool worker is not verified: VerificationFailed: Job \"verify-it\": exit code 3")
	assert.Contains(t, text(w.pool("worker").GetConditions(), string(mcfgv1.PoolBuildFailed)), "True VerificationFailed")

	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Verification = nil })
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready), "no one asks any more")
	assert.NotEqual(t, first.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
}

func TestVerificationsThatCannotBeRun(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		mcfgv1alpha1.ReasonInvalidVerification:     status.Stalled,
		mcfgv1alpha1.ReasonVerificationUnavailable: status.Stalled,
		mcfgv1.ReasonWaitingForConfigMap:           status.Reconciling,
		mcfgv1alpha1.ReasonVerificationPending:     status.Reconciling,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := verifying(t)
			b := w.builder()
			w.settle(b)
			w.verdict(w.onlyImage(), metav1.ConditionFalse, reason, "because")
			w.settle(b)
			assert.Contains(t, w.says("worker", want), "True "+reason)
			assert.Contains(t, w.says("worker", status.Ready), ": because")
			assert.Empty(t, w.osConfig("worker").Status.CurrentImagePullSpec)
		})
	}
}

// TestATestThatIsAskedForLater is one of an image that is the current one already.
func TestATestThatIsAskedForLater(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	b := w.builder()
	w.settle(b)
	image := w.onlyImage()
	require.Equal(t, image.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
	})
	w.verdict(image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationRunning, "Job tests")
	w.settle(b)
	assert.Contains(t, w.says("worker", status.Reconciling), "stays current, but is not rolled out to more nodes: Job tests")
	w.verdict(image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "it failed")
	w.settle(b)
	assert.Contains(t, w.says("worker", status.Stalled), "stays current, but is not rolled out to more nodes: it failed")
	assert.Equal(t, image.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
}

// TestImagesBesideTheWantedOne has objects that say that the same build made them: of the image
// that it had made before it was made again, and of others.
func TestImagesBesideTheWantedOne(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.builder()
	w.settle(b)
	image := w.onlyImage()
	lax := image.DeepCopy()
	lax.ObjectMeta = metav1.ObjectMeta{Name: "worker-zzz", Labels: image.Labels}
	w.add(lax)
	w.verdict(lax, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(b)
	assert.Contains(t, w.says("worker", status.Ready), "VerificationPending", "it has passed the test of someone else")

	before := image.DeepCopy()
	before.ObjectMeta = metav1.ObjectMeta{Name: "worker-zzzz", Labels: image.Labels, OwnerReferences: image.OwnerReferences}
	before.Spec.PullSpec = mcfgv1.ImageDigestFormat(w.base)
	w.add(before)
	w.verdict(image, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, image.Spec.PullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
}
