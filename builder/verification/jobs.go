package verification

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
)

// gatherJobs reads the image's Jobs.
func (v *Verifier) gatherJobs(ctx context.Context, s *scope) error {
	var jobs batchv1.JobList
	if err := v.client.List(ctx, &jobs, client.InNamespace(v.options.Namespace), client.MatchingLabels{componentLabel: Component}); err != nil {
		return fmt.Errorf("listing the Jobs that verify images: %w", err)
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; metav1.IsControlledBy(job, s.image) && job.DeletionTimestamp.IsZero() {
			s.jobs = append(s.jobs, *job)
		}
	}
	return v.gatherRuns(ctx, s)
}

// newest is the last Job of the test that is wanted now.
func (s *scope) newest() *batchv1.Job {
	var newest *batchv1.Job
	for i := range s.jobs {
		job := &s.jobs[i]
		if job.Annotations[mcfgv1.AnnotationVerificationTest] == s.hash && (newest == nil || attemptOf(job) > attemptOf(newest)) {
			newest = job
		}
	}
	return newest
}

func attemptOf(job *batchv1.Job) int {
	attempt, _ := strconv.Atoi(job.Annotations[mcfgv1.AnnotationVerificationAttempt])
	return attempt
}

// isFinished reports whether a Job has ended, as it says itself.
func isFinished(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// create makes the Job, and reports whether it did. One that is there already was made by a pass
// that the cache has not heard of.
func (v *Verifier) create(ctx context.Context, s *scope, job *batchv1.Job) (made bool, _ error) {
	err := v.make(ctx, s, job)
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Verifying an image", "image", s.image.Spec.PullSpec, "job", job.Name, "test", s.hash)
		return true, nil
	case fault.IsWaiting(err):
		return false, err
	case apierrors.IsAlreadyExists(err) && s.pipeline() == "":
		there := &batchv1.Job{}
		if err := v.reader.Get(ctx, client.ObjectKeyFromObject(job), there); err != nil {
			return false, fmt.Errorf("reading Job %q, which is said to exist: %w", job.Name, err)
		}
		if metav1.IsControlledBy(there, s.image) && there.DeletionTimestamp.IsZero() {
			*job = *there
			return false, nil
		}
		return false, inTheWayOf(s, job)
	case apierrors.IsAlreadyExists(err): // or one that the cache has not heard of, and soon will
		return false, inTheWayOf(s, job)
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return false, v.invalid(s, fmt.Errorf("the API server does not take it: %w", err))
	case apierrors.IsForbidden(err), apierrors.IsBadRequest(err): // a quota or a policy; a webhook that denies says either
		return false, fault.NewWaiting(mcfgv1alpha1.ReasonVerificationPending, recheck, fmt.Errorf("creating %s %q: %w", s.kind(), job.Name, err))
	}
	return false, fmt.Errorf("creating %s %q: %w", s.kind(), job.Name, err)
}

func inTheWayOf(s *scope, job *batchv1.Job) error {
	return fault.NewWaiting(mcfgv1alpha1.ReasonVerificationPending, inTheWay, fmt.Errorf("an earlier %s %q is in the way, and has to go first", s.kind(), job.Name))
}

// refusal is why the cluster makes no pod for a Job: its newest event says.
func (v *Verifier) refusal(ctx context.Context, job *batchv1.Job) (string, error) {
	var list corev1.EventList
	err := v.reader.List(ctx, &list, client.InNamespace(v.options.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID)})
	if err != nil {
		return "", fmt.Errorf("listing events about Job %q: %w", job.Name, err)
	}
	var at time.Time
	said := ""
	for i := range list.Items {
		e := &list.Items[i]
		when := e.LastTimestamp.Time
		if when.IsZero() {
			when = e.EventTime.Time
		}
		if e.Type == corev1.EventTypeWarning && e.Reason == "FailedCreate" && !when.Before(at) {
			at, said = when, "its pod is refused: "+clean(e.Message)
		}
	}
	return said, nil
}

// removeOthers removes the image's Jobs but the one of the given name.
func (v *Verifier) removeOthers(ctx context.Context, s *scope, but string) error {
	return v.remove(ctx, s, func(job *batchv1.Job) bool { return job.Name != but })
}

// removeUnfinished removes those that run.
func (v *Verifier) removeUnfinished(ctx context.Context, s *scope) error {
	return v.remove(ctx, s, func(job *batchv1.Job) bool { return !isFinished(job) })
}

func (v *Verifier) remove(ctx context.Context, s *scope, isMeant func(*batchv1.Job) bool) error {
	for i := range s.jobs {
		job := &s.jobs[i]
		if !isMeant(job) {
			continue
		}
		options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID}}
		var err error
		if job.Kind == KindPipelineRun {
			err = v.options.Pipelines.Delete(ctx, job, options...)
		} else {
			err = v.client.Delete(ctx, job, options...)
		}
		if err = client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting %s %q: %w", cmp.Or(job.Kind, kindJob), job.Name, err)
		}
	}
	return nil
}
