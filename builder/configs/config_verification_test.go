package configs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// verifying is a world with a pool whose images have to pass a test.
func verifying(t *testing.T) *worldtest.World {
	t.Helper()
	w := worldtest.Layered(t, "worker")
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
	})
	return w
}

func TestOnlyAVerifiedImageIsTheCurrentOne(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.Builder()
	w.Settle(b)
	require.Len(t, w.Builds(), 1)
	assert.Contains(t, w.States(), w.Builds()[0].Name)
	assert.True(t, status.IsTrue(w.Builds()[0].Status.Conditions, status.BuildSucceeded), "the build itself succeeds")
	image := w.OnlyImage()

	waits := "Unknown VerificationPending the image of build \"" + w.Builds()[0].Name + "\" is not rolled out yet: the verification of the image has not begun"
	assert.Equal(t, waits, w.Says("worker", status.Ready))
	assert.Empty(t, w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Contains(t, worldtest.Text(w.Pool("worker").GetConditions(), string(mcfgv1.PoolBuilding)), "True VerificationPending Image built for pool worker waits for its verification")

	w.Verdict(image, metav1.ConditionTrue, mcfgv1alpha1.ReasonNotRequested, "")
	w.Settle(b)
	assert.Equal(t, waits, w.Says("worker", status.Ready), "that was written before someone asked")

	w.Verdict(image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationRunning, "Job tests")
	w.Settle(b)
	assert.Contains(t, w.Says("worker", status.Reconciling), "True VerificationRunning")
	assert.Empty(t, w.OSConfig("worker").Status.CurrentImagePullSpec)

	w.Verdict(image, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, image.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Contains(t, worldtest.Text(w.Pool("worker").GetConditions(), string(mcfgv1.PoolBuildSuccess)), "True BuildSuccess")
}

func TestFailedVerificationKeepsTheOlderImage(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.Builder()
	w.Settle(b)
	first := w.OnlyImage()
	w.Verdict(first, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(b)

	for n, content := range []string{"two", "three", "four", "five", "six"} {
		w.Rerender("worker", content, "/etc/motd", content)
		w.Settle(b)
		for _, image := range w.Images() {
			if status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified) == nil {
				w.Verdict(&image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "Job \"verify-it\": exit code 3")
			}
		}
		w.Settle(b)
		assert.Equal(t, first.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec, n)
		assert.True(t, w.Registry.Has(t, string(first.Spec.PullSpec)), "however many follow, what nodes have stays")
	}
	said := w.Says("worker", status.Stalled)
	assert.True(t, strings.HasPrefix(said, "True VerificationFailed the image of build \"worker-"), said)
	assert.Contains(t, said, `is not rolled out: Job "verify-it": exit code 3; fix the image's inputs or the test, or delete Job "verify-it" to run the test again`)
	assert.Contains(t, worldtest.Text(w.Pool("worker").GetConditions(), string(mcfgv1.PoolImageBuildDegraded)),
		"True VerificationFailed Image built for pool worker is not verified: VerificationFailed: Job \"verify-it\": exit code 3")
	assert.Contains(t, worldtest.Text(w.Pool("worker").GetConditions(), string(mcfgv1.PoolBuildFailed)), "True VerificationFailed")

	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Verification = nil })
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready), "no one asks any more")
	assert.NotEqual(t, first.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
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
			b := w.Builder()
			w.Settle(b)
			w.Verdict(w.OnlyImage(), metav1.ConditionFalse, reason, "because")
			w.Settle(b)
			assert.Contains(t, w.Says("worker", want), "True "+reason)
			assert.Contains(t, w.Says("worker", status.Ready), ": because")
			assert.Empty(t, w.OSConfig("worker").Status.CurrentImagePullSpec)
		})
	}
}

// TestATestThatIsAskedForLater is one of an image that is the current one already.
func TestATestThatIsAskedForLater(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	image := w.OnlyImage()
	require.Equal(t, image.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: "test"}}
	})
	w.Verdict(image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationRunning, "Job tests")
	w.Settle(b)
	assert.Contains(t, w.Says("worker", status.Reconciling), "stays current, but is not rolled out to more nodes: Job tests")
	w.Verdict(image, metav1.ConditionFalse, mcfgv1alpha1.ReasonVerificationFailed, "it failed")
	w.Settle(b)
	assert.Contains(t, w.Says("worker", status.Stalled), "stays current, but is not rolled out to more nodes: it failed")
	assert.Equal(t, image.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
}

// TestImagesBesideTheWantedOne has objects that say that the same build made them: of the image
// that it had made before it was made again, and of others.
func TestImagesBesideTheWantedOne(t *testing.T) {
	t.Parallel()
	w := verifying(t)
	b := w.Builder()
	w.Settle(b)
	image := w.OnlyImage()
	lax := image.DeepCopy()
	lax.ObjectMeta = metav1.ObjectMeta{Name: "worker-zzz", Labels: image.Labels}
	w.Add(lax)
	w.Verdict(lax, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(b)
	assert.Contains(t, w.Says("worker", status.Ready), "VerificationPending", "it has passed the test of someone else")

	before := image.DeepCopy()
	before.ObjectMeta = metav1.ObjectMeta{Name: "worker-zzzz", Labels: image.Labels, OwnerReferences: image.OwnerReferences}
	before.Spec.PullSpec = mcfgv1.ImageDigestFormat(w.Base)
	w.Add(before)
	w.Verdict(image, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, image.Spec.PullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
}
