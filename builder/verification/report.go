package verification

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

// write writes what a reconcile found out, and tells about it.
func (v *Verifier) write(ctx context.Context, s *scope, o *outcome) (ctrl.Result, error) {
	image := s.image
	before := image.DeepCopy()
	patch := status.NewPatcher(v.client, before, status.Owning(mcfgv1alpha1.ImageVerified), status.KeepGeneration())
	image.Status.Verification = o.result
	conditions := image.GetConditions()
	status.Set(&conditions, status.NotBefore(v.clock.Now(), conditions), metav1.Condition{
		Type: mcfgv1alpha1.ImageVerified, Status: o.status, Reason: o.reason, Message: o.message, ObservedGeneration: image.Generation,
	})
	image.SetConditions(conditions)
	res, err := patch.Finish(ctx, image, ctrl.Result{RequeueAfter: o.after}, nil)
	if err == nil && image.ResourceVersion != before.ResourceVersion {
		v.report(ctx, before, s)
	}
	return res, err
}

// report tells about a transition that has been written.
func (v *Verifier) report(ctx context.Context, before *mcfgv1alpha1.MachineOSImage, s *scope) {
	after := s.image
	is := status.Find(after.Status.Conditions, mcfgv1alpha1.ImageVerified)
	was := status.Find(before.Status.Conditions, mcfgv1alpha1.ImageVerified)
	pool, pinned := after.Spec.MachineConfigPool, string(after.Spec.PullSpec)
	result := after.Status.Verification
	switch is.Reason {
	case mcfgv1alpha1.ReasonVerificationRunning:
		if old := before.Status.Verification; old == nil || old.Job != result.Job || old.CompletionTime != nil && result.CompletionTime == nil {
			v.publish(s, events.VerificationStarted(pinned, s.kind(), result.Job))
		}
		return
	case mcfgv1alpha1.ReasonVerified, mcfgv1alpha1.ReasonVerificationFailed:
		if was != nil && was.Reason == is.Reason {
			return
		}
		end := metrics.VerificationFailed
		if is.Reason == mcfgv1alpha1.ReasonVerified {
			end = metrics.VerificationPassed
		}
		v.options.Metrics.Ended(pool, end, tookOf(result))
	default:
		if was != nil && was.Reason == is.Reason && was.Message == is.Message {
			return
		}
	}
	ctrl.LoggerFrom(ctx).Info("Verification of an image", "image", pinned, "reason", is.Reason, "message", is.Message)
	switch is.Reason {
	case mcfgv1alpha1.ReasonVerified:
		v.publish(s, events.ImageVerified(pinned, s.kind(), result.Job))
	case mcfgv1alpha1.ReasonVerificationFailed, mcfgv1alpha1.ReasonInvalidVerification, mcfgv1alpha1.ReasonVerificationUnavailable:
		v.publish(s, events.ImageVerificationFailed(pinned, is.Reason, is.Message))
	}
}

func (v *Verifier) publish(s *scope, e events.Event) {
	v.events.Publish(s.image, e)
	if s.config != nil {
		v.events.Publish(s.config, e)
	}
}

// tookOf is how long a test took that has ended.
func tookOf(result *mcfgv1alpha1.ImageVerificationResult) time.Duration {
	if result == nil || result.StartTime == nil || result.CompletionTime == nil {
		return 0
	}
	return result.CompletionTime.Sub(result.StartTime.Time)
}
