package builder

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/maker"
	"github.com/layerwright/layerwright/internal/fault"
)

// attempt is how long one attempt may take: as long as the administrator says, but no longer than
// this process gives one, since what was uploaded stays, and the next attempt continues.
func (r *buildReconciler) attempt(config *mcfgv1.MachineOSConfig) time.Duration {
	if limit, ok := buildTimeout(config); ok {
		return min(limit, r.options.Attempt)
	}
	return r.options.Attempt
}

// buildTimeout is spec.buildTimeout, if it is set.
func buildTimeout(config *mcfgv1.MachineOSConfig) (time.Duration, bool) {
	limit, err := time.ParseDuration(config.Spec.BuildTimeout)
	return limit, err == nil && limit > 0
}

// judge is what an attempt that failed means where the administrator has set limits. Without them a
// registry that fails is tried again without an end: appending is cheap, and a limit would make
// work for a person of a night's outage.
func (r *buildReconciler) judge(ctx, running context.Context, s *buildScope, err error) error {
	if !fault.IsTransient(err) || ctx.Err() != nil { // decided already, or the process ends
		return err
	}
	if limit, ok := buildTimeout(s.config); ok && limit <= r.options.Attempt && errors.Is(running.Err(), context.DeadlineExceeded) {
		return fault.NewTerminal(mcfgv1.ReasonTimedOut, fmt.Errorf("it took longer than spec.buildTimeout (%s): %w", s.config.Spec.BuildTimeout, err))
	}
	if limit := s.config.Spec.BuildRetryLimit; limit != nil {
		return r.countAttempt(ctx, s, int(*limit), err)
	}
	return err
}

// settingsOf are what an administrator may change while a build waits or runs.
func settingsOf(config *mcfgv1.MachineOSConfig) maker.Settings {
	s := maker.Settings{
		Resources: config.Spec.BuildResources, Placement: config.Spec.BuildPlacement,
		Retries: contentRetries(config), Timeout: timeoutOf(config),
	}
	if own := config.Spec.ImageBuilder.Pipeline; own != nil {
		s.Pipeline = own.Name
	}
	return s
}

// contentRetries is spec.buildRetryLimit of builds in pods, with its default.
func contentRetries(config *mcfgv1.MachineOSConfig) int {
	if limit := config.Spec.BuildRetryLimit; limit != nil {
		return int(*limit)
	}
	return defaultRetries
}

// countAttempt notes on the build that an attempt failed, and ends the build with the last one that
// the limit allows. The count is in the object, so that a process that dies starts no new one.
func (r *buildReconciler) countAttempt(ctx context.Context, s *buildScope, limit int, failure error) error {
	failed, _ := strconv.Atoi(s.build.Annotations[mcfgv1.AnnotationFailedAttempts]) // none is zero
	if failed++; failed > limit {
		return fault.NewTerminal(mcfgv1.ReasonRetryLimitReached, fmt.Errorf("attempt %d of %d (spec.buildRetryLimit) failed: %w", failed, limit+1, failure))
	}
	return errors.Join(failure, r.annotate(ctx, s, mcfgv1.AnnotationFailedAttempts, strconv.Itoa(failed)))
}

// noteTimeout notes on a build that timed out how long it had, so that more time has it made again.
func (r *buildReconciler) noteTimeout(ctx context.Context, s *buildScope, failure error) error {
	if !fault.IsTerminal(failure) || fault.Reason(failure) != mcfgv1.ReasonTimedOut {
		return failure
	}
	if err := r.annotate(ctx, s, mcfgv1.AnnotationBuildTimeout, timeoutOf(s.config).String()); err != nil {
		return err // the next pass finds the same failure
	}
	return failure
}

// timeoutOf is how long an attempt to build content may take.
func timeoutOf(config *mcfgv1.MachineOSConfig) time.Duration {
	if limit, ok := buildTimeout(config); ok {
		return limit
	}
	return defaultTimeout
}

// annotate notes something on the build. The status in hand stays: it is written at the end of the
// pass.
func (r *buildReconciler) annotate(ctx context.Context, s *buildScope, key, value string) error {
	noted := s.build.DeepCopy()
	err := r.changeBuild(ctx, noted, func(b *mcfgv1.MachineOSBuild) {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, value)
		noted = b
	})
	if err == nil {
		s.build.Annotations, s.build.ResourceVersion = noted.Annotations, noted.ResourceVersion
	}
	return err
}
