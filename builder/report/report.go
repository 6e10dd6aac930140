package report

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
)

// Reporter tells about builds.
type Reporter struct {
	Clock  clock.PassiveClock
	Events events.Publisher
	// Metrics may be nil.
	Metrics *metrics.Builds
}

// Transition tells about the transition between two states that has been written.
func (r *Reporter) Transition(ctx context.Context, before, after *mcfgv1.MachineOSBuild) {
	was, is := status.BuildStageOf(before.Status.Conditions), status.BuildStageOf(after.Status.Conditions)
	ready := status.Find(after.Status.Conditions, status.Ready)
	pool := after.Spec.MachineOSConfig.Name
	if waits := objects.BeginsToWait(before.Status.Conditions, after.Status.Conditions); waits != nil {
		r.Events.Publish(after, events.Waiting(waits.Reason, waits.Message))
	}
	if was == is {
		if !isRetrying(status.Find(before.Status.Conditions, status.Reconciling)) && isRetrying(status.Find(after.Status.Conditions, status.Reconciling)) {
			r.Metrics.Retried(pool)
		}
		return
	}
	log := ctrl.LoggerFrom(ctx)
	if is == mcfgv1.BuildStageBuilding {
		log.Info("Build started", "why", after.Status.Why, "buildKey", after.Status.BuildKey)
		r.Metrics.Started(pool, after.CreationTimestamp.Time, r.Clock.Now())
		if len(after.Status.ChangedInputs) > 0 && after.Asked().Cause == "" {
			r.Metrics.Changed(pool)
		}
		r.Events.Publish(after, events.BuildStarted(after.Status.Why))
		return
	}
	if !is.IsFinal() {
		return
	}
	r.Metrics.Ended(pool, strings.ToLower(ready.Reason), tookOf(after))
	reason, message := objects.FinalOf(after.Status.Conditions)
	log.Info("Build ended", "state", ready.Reason, "reason", reason, "image", after.Status.DigestedImagePushSpec, "message", message)
	switch is {
	case mcfgv1.BuildStageSucceeded:
		r.Events.Publish(after, events.BuildCompleted(string(after.Status.DigestedImagePushSpec), message))
	case mcfgv1.BuildStageFailed:
		r.Events.Publish(after, events.BuildFailed(reason, message))
	default:
		r.Events.Publish(after, events.BuildInterrupted(message))
	}
}

func tookOf(b *mcfgv1.MachineOSBuild) time.Duration {
	if b.Status.BuildStart == nil || b.Status.BuildEnd == nil {
		return 0
	}
	return b.Status.BuildEnd.Sub(b.Status.BuildStart.Time)
}

func isRetrying(c *metav1.Condition) bool { return c != nil && c.Reason == status.ReasonRetrying }
