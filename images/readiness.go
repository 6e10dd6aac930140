package images

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/status"
)

// Readiness is what Ready of an image says, which is what a rollout waits for: that it is not
// quarantined, that it is signed where images are gated (the cluster signs images, or has a trust
// policy), and that the administrator's verification passed where one is asked for. Of several
// reasons why it is not, the first of these is reported.
func Readiness(image *mcfgv1alpha1.MachineOSImage, gated, asked bool) status.Summary {
	conditions := image.Status.Conditions
	if q := image.Quarantined(); q != nil {
		return status.Summary{State: status.StateStalled, Reason: mcfgv1alpha1.ReasonQuarantined, Message: fmt.Sprintf("%s: %s", q.Reason, q.Message)}
	}
	ready := status.Summary{State: status.StateReady, Reason: mcfgv1alpha1.ReasonReady}
	if gated {
		signed := status.Find(conditions, mcfgv1alpha1.ImageSigned)
		if signed == nil {
			return status.Summary{State: status.StateReconciling, Reason: status.ReasonNotYetObserved, Message: "whether it is signed is not known yet"}
		}
		if signed.Status != metav1.ConditionTrue {
			return summaryOf(signed)
		}
		ready.Message = signed.Message
	} else {
		ready.Message = "nothing is verified: this cluster neither signs images (--signing-secret) nor has a trust policy (--trust-policy)"
	}
	verified := status.Find(conditions, mcfgv1alpha1.ImageVerified)
	switch {
	case verified != nil && verified.Status != metav1.ConditionTrue:
		return summaryOf(verified)
	case asked && (verified == nil || verified.Reason != mcfgv1alpha1.ReasonVerified): // what is said may be from before it was asked for
		return status.Summary{
			State: status.StateReconciling, Reason: mcfgv1alpha1.ReasonVerificationPending, Message: "the verification of the image has not begun",
		}
	}
	return ready
}

// summaryOf is what a condition that is not True means: that it is not known yet; that someone
// has to act; or that Layerwright is at it.
func summaryOf(c *metav1.Condition) status.Summary {
	s := status.Summary{State: status.StateFailing, Reason: c.Reason, Message: c.Message}
	switch c.Reason {
	case mcfgv1alpha1.ReasonNotSigned, mcfgv1alpha1.ReasonNotTrusted, mcfgv1alpha1.ReasonImageGone, mcfgv1alpha1.ReasonBuiltElsewhere,
		mcfgv1alpha1.ReasonVerificationFailed, mcfgv1alpha1.ReasonInvalidVerification, mcfgv1alpha1.ReasonVerificationUnavailable, mcfgv1.ReasonControllerKilled:
		s.State = status.StateStalled
	case mcfgv1alpha1.ReasonVerificationPending, mcfgv1alpha1.ReasonVerificationRunning:
		s.State = status.StateReconciling
	}
	if c.Status == metav1.ConditionUnknown {
		s.State = status.StateReconciling
	}
	return s
}

// ReadyReconciler says of images whether they are ready, by what their other conditions say. It
// asks no one else.
type ReadyReconciler struct{ *Keeper }

// Reconcile reconciles one image.
func (r *ReadyReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	image := &mcfgv1alpha1.MachineOSImage{}
	if err := r.client.Get(ctx, req.NamespacedName, image); err != nil || !image.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	asked, err := r.isVerificationAsked(ctx, image)
	if err != nil {
		return reconcile.Result{}, err
	}
	patch := status.NewPatcher(r.client, image, status.Owning(mcfgv1alpha1.ImageQuarantined, status.Ready, status.Reconciling, status.Stalled))
	conditions := image.GetConditions()
	now := status.NotBefore(r.clock.Now(), conditions)
	status.Set(&conditions, now, quarantined(image))
	status.SetSummary(&conditions, now, image.Generation, Readiness(image, r.IsGated(), asked))
	image.SetConditions(conditions)
	describeImported(image)
	return patch.Finish(ctx, image, reconcile.Result{}, nil)
}

// quarantined is the condition Quarantined: what status.quarantine says of the image with its
// present configuration.
func quarantined(image *mcfgv1alpha1.MachineOSImage) metav1.Condition {
	c := metav1.Condition{
		Type: mcfgv1alpha1.ImageQuarantined, Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonNotQuarantined,
		ObservedGeneration: image.Generation,
	}
	if q := image.Quarantined(); q != nil {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, q.Reason, q.Message
	}
	return c
}

// describeImported writes down of an image that no build of this cluster makes what people compare.
// Its origin stays with it, whatever owner it is given later. The object of an image that is being
// built has its owner from the beginning, and is described by its build.
func describeImported(image *mcfgv1alpha1.MachineOSImage) {
	if image.Status.ShortDigest == "" && owner.Of(image) == nil {
		image.Status.ShortDigest, image.Status.Origin = image.Spec.PullSpec.Short(), mcfgv1alpha1.ImageImported
	}
}

// isVerificationAsked reports whether an image has to pass a test of the administrator's. One that
// the installer had built has not.
func (r *ReadyReconciler) isVerificationAsked(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) (bool, error) {
	if owner.IsPreBuilt(image) {
		return false, nil
	}
	config, err := owner.Config(ctx, r.client, image)
	return config != nil && config.Spec.Verification != nil, err
}
