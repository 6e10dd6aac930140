package builds

import (
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/fault"
)

// attempt is how long one attempt may take: as long as the administrator says, but no longer than
// this process gives one, since what was uploaded stays, and the next attempt continues.
func (s *scope) attempt() time.Duration {
	if limit, ok := objects.BuildTimeout(s.config); ok {
		return min(limit, s.options.Attempt)
	}
	return s.options.Attempt
}

// judge applies the administrator's limits to a failed attempt. Without limits it is retried for
// ever: appending is cheap, and the registry may recover without a person.
func (s *scope) judge(ctx, running context.Context, err error) error {
	if !fault.IsTransient(err) || ctx.Err() != nil { // decided already, or the process ends
		return err
	}
	if limit, ok := objects.BuildTimeout(s.config); ok && limit <= s.options.Attempt && errors.Is(running.Err(), context.DeadlineExceeded) {
		return fault.NewTerminal(mcfgv1.ReasonTimedOut, fmt.Errorf("it took longer than spec.buildTimeout (%s): %w", s.config.Spec.BuildTimeout, err))
	}
	if limit := s.config.Spec.BuildRetryLimit; limit != nil {
		return objects.CountAttempt(ctx, s.options.Client, s.build, int(*limit), err)
	}
	return err
}

// noteTimeout notes on a build that timed out how long it had, so that more time has it made again.
func (s *scope) noteTimeout(ctx context.Context, failure error) error {
	if !fault.IsTerminal(failure) || fault.Reason(failure) != mcfgv1.ReasonTimedOut {
		return failure
	}
	if err := objects.Annotate(ctx, s.options.Client, s.build, mcfgv1.AnnotationBuildTimeout, objects.TimeoutOf(s.config).String()); err != nil {
		return err // the next reconcile finds the same failure
	}
	return failure
}
