package verification

import (
	"cmp"
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/testjobs"
)

// gatherJobs reads the image's Jobs.
func (v *Verifier) gatherJobs(ctx context.Context, s *scope) error {
	var jobs batchv1.JobList
	if err := v.client.List(ctx, &jobs, client.InNamespace(v.options.Namespace), client.MatchingLabels{testjobs.ComponentLabel: testjobs.Component}); err != nil {
		return fmt.Errorf("listing the Jobs that verify images: %w", err)
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; metav1.IsControlledBy(job, s.image) && job.DeletionTimestamp.IsZero() {
			s.jobs = append(s.jobs, job)
		}
	}
	return v.gatherRuns(ctx, s)
}

// create makes the Job, and reports whether it did. One that is there already was made by a
// reconcile that the cache has not heard of.
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
			return false, fmt.Errorf("reading Job %q, which exists: %w", job.Name, err)
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

// removeOthers removes the image's Jobs but the one of the given name.
func (v *Verifier) removeOthers(ctx context.Context, s *scope, but string) error {
	return v.remove(ctx, s, func(job *batchv1.Job) bool { return job.Name != but })
}

// removeUnfinished removes those that run.
func (v *Verifier) removeUnfinished(ctx context.Context, s *scope) error {
	return v.remove(ctx, s, func(job *batchv1.Job) bool { return !testjobs.IsFinished(job) })
}

func (v *Verifier) remove(ctx context.Context, s *scope, isMeant func(*batchv1.Job) bool) error {
	for _, job := range s.jobs {
		if !isMeant(job) {
			continue
		}
		options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID}}
		var err error
		if job.Kind == testjobs.KindPipelineRun {
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
