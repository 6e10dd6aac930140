package jobs

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

// gather reads everything that is known of a build. What only explains a delay is read where there
// is one.
func (b *Backend) gather(ctx context.Context, from client.Reader, key *backend.Key) (*facts, error) {
	f := &facts{}
	var jobs batchv1.JobList
	if err := from.List(ctx, &jobs, b.cluster.OfBuild(key)...); err != nil {
		return nil, fmt.Errorf("listing the Jobs of build %q: %w", key.Build, err)
	}
	for i := range jobs.Items {
		if pods.IsOf(&jobs.Items[i], key) {
			f.jobs = append(f.jobs, jobs.Items[i])
		}
	}
	if len(f.jobs) == 0 {
		return f, nil
	}
	var err error
	if f.Facts, err = b.cluster.Gather(ctx, from, key, b.options.Clock.Now()); err != nil {
		return nil, err
	}
	for i := range f.jobs {
		if err := b.explain(ctx, f, &f.jobs[i]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// explain reads what is in the way of a Job that has no pod, or whose pod does not start, and how
// far a running one is.
func (b *Backend) explain(ctx context.Context, f *facts, job *batchv1.Job) error {
	if ended(job) != nil {
		return nil
	}
	own := podsOf(f.Pods, job)
	if len(own) == 0 || pods.IsOver(own[len(own)-1]) {
		if f.Now.Sub(job.CreationTimestamp.Time) < pods.Settling {
			return nil
		}
		return b.cluster.Warn(ctx, &f.Facts, job, "FailedCreate")
	}
	pod := own[len(own)-1]
	return b.cluster.Explain(ctx, &f.Facts, pod, pods.CurrentStep(pod))
}
