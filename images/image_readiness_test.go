package images_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	is := func(conditionType string, state metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: state, Reason: reason, Message: message}
	}
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	signed := is(mcfgv1alpha1.ImageSigned, yes, mcfgv1alpha1.ReasonSigned, "")
	verified := is(mcfgv1alpha1.ImageVerified, yes, mcfgv1alpha1.ReasonVerified, "")
	halted := &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Message: "3 nodes failed"}
	tests := map[string]struct {
		conditions []metav1.Condition
		quarantine *mcfgv1alpha1.ImageQuarantine
		ungated    bool
		asked      bool
		want       status.Summary
	}{
		"signed": {conditions: []metav1.Condition{signed}, want: status.Summary{State: status.StateReady, Reason: "Ready"}},
		"signed, and says of whom": {
			conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, yes, mcfgv1alpha1.ReasonSigned, "by corp")},
			want:       status.Summary{State: status.StateReady, Reason: "Ready", Message: "by corp"},
		},
		"a verification is asked for and has passed": {asked: true, conditions: []metav1.Condition{signed, verified}, want: status.Summary{State: status.StateReady, Reason: "Ready"}},
		"a verification is asked for":                {asked: true, conditions: []metav1.Condition{signed}, want: status.Summary{State: status.StateReconciling, Reason: "VerificationPending", Message: "the verification of the image has not begun"}},
		"none was asked for before": {
			asked: true, conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, yes, "NotRequested", "")},
			want: status.Summary{State: status.StateReconciling, Reason: "VerificationPending", Message: "the verification of the image has not begun"},
		},
		"signed and verified":   {conditions: []metav1.Condition{signed, verified}, want: status.Summary{State: status.StateReady, Reason: "Ready"}},
		"verified and unsigned": {conditions: []metav1.Condition{verified}, want: status.Summary{State: status.StateReconciling, Reason: "NotYetObserved", Message: "whether it is signed is not known yet"}},
		"no one has looked":     {want: status.Summary{State: status.StateReconciling, Reason: "NotYetObserved", Message: "whether it is signed is not known yet"}},
		"not signed":            {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "NotSigned", "why")}, want: status.Summary{State: status.StateStalled, Reason: "NotSigned", Message: "why"}},
		"not trusted":           {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "NotTrusted", "why")}, want: status.Summary{State: status.StateStalled, Reason: "NotTrusted", Message: "why"}},
		"gone":                  {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "ImageGone", "why"), verified}, want: status.Summary{State: status.StateStalled, Reason: "ImageGone", Message: "why"}},
		"the installer's":       {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "BuiltElsewhere", "why")}, want: status.Summary{State: status.StateStalled, Reason: "BuiltElsewhere", Message: "why"}},
		"waiting for the key":   {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "WaitingForKey", "why")}, want: status.Summary{State: status.StateFailing, Reason: "WaitingForKey", Message: "why"}},
		"signing fails":         {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "SigningFailed", "why")}, want: status.Summary{State: status.StateFailing, Reason: "SigningFailed", Message: "why"}},
		"unreachable":           {conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, unknown, "Unreachable", "why")}, want: status.Summary{State: status.StateReconciling, Reason: "Unreachable", Message: "why"}},
		"verification runs":     {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, no, "VerificationRunning", "why")}, want: status.Summary{State: status.StateReconciling, Reason: "VerificationRunning", Message: "why"}},
		"verification failed":   {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, no, "VerificationFailed", "why")}, want: status.Summary{State: status.StateStalled, Reason: "VerificationFailed", Message: "why"}},
		"verification waits":    {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, no, "VerificationPending", "why")}, want: status.Summary{State: status.StateReconciling, Reason: "VerificationPending", Message: "why"}},
		"no test":               {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, no, "WaitingForConfigMap", "why")}, want: status.Summary{State: status.StateFailing, Reason: "WaitingForConfigMap", Message: "why"}},
		"a test that is none":   {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, no, "InvalidVerification", "why")}, want: status.Summary{State: status.StateStalled, Reason: "InvalidVerification", Message: "why"}},
		"a test of no kind":     {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, no, "VerificationUnavailable", "why")}, want: status.Summary{State: status.StateStalled, Reason: "VerificationUnavailable", Message: "why"}},
		"verification unknown":  {conditions: []metav1.Condition{signed, is(mcfgv1alpha1.ImageVerified, unknown, "NotYetObserved", "")}, want: status.Summary{State: status.StateReconciling, Reason: "NotYetObserved"}},
		"quarantined":           {conditions: []metav1.Condition{signed, verified}, quarantine: halted, want: status.Summary{State: status.StateStalled, Reason: "Quarantined", Message: "RolloutHalted: 3 nodes failed"}},
		"nothing is verified": {ungated: true, want: status.Summary{
			State: status.StateReady, Reason: "Ready",
			Message: "nothing is verified: this cluster neither signs images (--signing-secret) nor has a trust policy (--trust-policy)",
		}},
		"the administrator's verification counts all the same": {
			ungated: true, conditions: []metav1.Condition{is(mcfgv1alpha1.ImageVerified, no, "VerificationFailed", "why")},
			want: status.Summary{State: status.StateStalled, Reason: "VerificationFailed", Message: "why"},
		},
		"signing was turned off": {
			ungated: true, conditions: []metav1.Condition{is(mcfgv1alpha1.ImageSigned, no, "NotSigned", "why")},
			want: status.Summary{
				State: status.StateReady, Reason: "Ready",
				Message: "nothing is verified: this cluster neither signs images (--signing-secret) nor has a trust policy (--trust-policy)",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := &mcfgv1alpha1.MachineOSImage{}
			image.Status.Conditions, image.Status.Quarantine = tt.conditions, tt.quarantine
			assert.Equal(t, tt.want, images.Readiness(image, !tt.ungated, tt.asked))
		})
	}
}

func TestImagesAreReadyWhereNothingIsVerified(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	w.Settle(b)
	image := w.OnlyImage()
	signed, ready := w.Look(b, image.Name)
	assert.Equal(t, "none", signed)
	assert.Contains(t, ready, "True Ready nothing is verified")
	assert.Equal(t, w.OnlyImage().Generation, w.OnlyImage().Status.ObservedGeneration)
	written := len(w.Writes)
	w.Look(b, image.Name)
	assert.Len(t, w.Writes, written, "nothing is written where nothing changed")
}

func TestReadyFollowsTheOtherConditions(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	b := w.Builder(w.Signing)
	w.Settle(b)
	name := w.OnlyImage().Name
	_, ready := w.Look(b, name)
	assert.Equal(t, "True Ready", ready)
	assert.Equal(t, "False NotQuarantined", worldtest.Text(w.OnlyImage().Status.Conditions, mcfgv1alpha1.ImageQuarantined))

	w.Quietly(func() error {
		image := w.OnlyImage()
		image.Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: mcfgv1alpha1.ReasonRolloutHalted, Message: "2 nodes failed", Since: status.Second(worldtest.T0)}
		return w.Status().Update(t.Context(), image)
	})
	_, ready = w.Look(b, name)
	assert.Equal(t, "False Quarantined RolloutHalted: 2 nodes failed", ready)
	assert.Equal(t, "True Quarantined RolloutHalted: 2 nodes failed", worldtest.Text(w.OnlyImage().Status.Conditions, status.Stalled))
	assert.Equal(t, "True RolloutHalted 2 nodes failed", worldtest.Text(w.OnlyImage().Status.Conditions, mcfgv1alpha1.ImageQuarantined))

	w.Quietly(func() error {
		image := w.OnlyImage()
		image.Status.Quarantine = nil
		conditions := image.Status.Conditions
		status.Set(&conditions, worldtest.T0, metav1.Condition{Type: mcfgv1alpha1.ImageVerified, Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonVerificationRunning})
		image.Status.Conditions = conditions
		return w.Status().Update(t.Context(), image)
	})
	_, ready = w.Look(b, name)
	assert.Equal(t, "Unknown VerificationRunning", ready)
	assert.Contains(t, worldtest.Text(w.OnlyImage().Status.Conditions, mcfgv1alpha1.ImageVerified), "False", "whose it is keeps it")
}

func TestReadyOfAMissingImage(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	b := w.Builder()
	_, err := (&images.ReadyReconciler{Keeper: b.Keeper}).Reconcile(t.Context(), worldtest.Request("none"))
	require.NoError(t, err)
	going := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "going", Finalizers: []string{"example.com/f"}}}
	going.Spec.PullSpec, going.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(w.Base), "worker"
	w.Add(going)
	w.Remove(going)
	_, err = (&images.ReadyReconciler{Keeper: b.Keeper}).Reconcile(t.Context(), worldtest.Request("going"))
	require.NoError(t, err)
	assert.Empty(t, worldtest.Read(w, &mcfgv1alpha1.MachineOSImage{}, "going").Status.Conditions)
}
