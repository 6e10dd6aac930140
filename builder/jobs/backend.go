package jobs

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

// Options are what a Backend works with.
type Options = pods.Options

// Backend builds with Jobs.
type Backend struct {
	options Options
	cluster pods.Cluster
}

// New makes a Backend. The client has to read Jobs, pods and nodes; the reader is asked for what is
// not cached, and for everything once more before a build is said to have ended or to be gone.
func New(options Options, c client.Client, reader client.Reader) (*Backend, error) {
	options, err := options.Complete("Jobs")
	if err != nil {
		return nil, err
	}
	return &Backend{
		options: options,
		cluster: pods.Cluster{Namespace: options.Namespace, Client: c, Reader: reader, Logs: options.Logs},
	}, nil
}

// Ensure makes what is missing of the build. It waits, in the sense of fault.Waiting, for secrets
// and ConfigMaps that are not there, and for the objects of an earlier build of the same name to
// go.
func (b *Backend) Ensure(ctx context.Context, spec backend.Spec) error {
	if err := b.cluster.RequireInputs(ctx, &spec); err != nil {
		return err
	}
	isolations, err := b.isolations(ctx, &spec)
	if err != nil {
		return err
	}
	made, err := newObjects(&b.options, &spec, isolations)
	if err != nil {
		return err
	}
	if err := b.cluster.RequireNoOthers(ctx, &spec.Key, "Job"); err != nil {
		return err
	}
	for _, c := range made.configMaps {
		if err := b.cluster.Ensure(ctx, c, &spec.Key); err != nil {
			return err
		}
	}
	for _, job := range made.jobs {
		if err := b.cluster.Ensure(ctx, job, &spec.Key); err != nil {
			return err
		}
	}
	return nil
}

// isolations are the strongest that each architecture's nodes offer, and that the API server does
// not take out of the pod.
func (b *Backend) isolations(ctx context.Context, spec *backend.Spec) ([]pods.Isolation, error) {
	chosen, err := b.cluster.Isolations(ctx, b.options.UserNamespaces, spec)
	if err != nil {
		return nil, err
	}
	made, err := newObjects(&b.options, spec, chosen)
	if err != nil {
		return nil, err
	}
	for i, job := range made.jobs {
		if chosen[i], err = b.cluster.Probe(ctx, b.options.UserNamespaces, job, chosen[i]); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// Observe says how far the build is. That it is gone or has ended is said only after the API server
// was asked, whose word is final: a cache may not have heard of a Job that was just made, or of
// what its pod left behind.
func (b *Backend) Observe(ctx context.Context, key backend.Key) (backend.State, error) {
	known, err := b.gather(ctx, b.cluster.Client, &key)
	if err == nil {
		err = b.cluster.GiveUp(ctx, &known.Facts)
	}
	if err != nil {
		return backend.State{}, err
	}
	state := observe(known)
	switch state.Phase {
	case backend.Pending, backend.Running:
		return state, nil
	case backend.Absent, backend.Succeeded, backend.Failed:
	}
	if known, err = b.gather(ctx, b.cluster.Reader, &key); err != nil {
		return backend.State{}, err
	}
	state = observe(known)
	if state.Phase == backend.Failed {
		err = b.stopOthers(ctx, known)
	}
	return state, err
}

// stopOthers ends what the other architectures of a failed build still do. Their pods go with their
// Jobs; the one that failed stays.
func (b *Backend) stopOthers(ctx context.Context, known *facts) error {
	for _, job := range present(known.jobs) {
		if o := observeJob(known, job); o.Phase == backend.Pending || o.Phase == backend.Running {
			if err := b.cluster.Delete(ctx, job); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes everything of the build, its Jobs first.
func (b *Backend) Remove(ctx context.Context, key backend.Key) error {
	return b.cluster.Remove(ctx, &key, &batchv1.Job{}, &corev1.ConfigMap{})
}
