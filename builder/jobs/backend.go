package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

// Options are what a Backend works with. Namespace and Image are required.
type Options struct {
	// Namespace is where builds run; it has their secrets.
	Namespace string
	// Image is that of the builder, whose program gets the name of a step as its argument.
	Image string
	// ServiceAccount is that of the pods, "layerwright-build" where empty. It needs no rights, and
	// its token is not mounted.
	ServiceAccount string
	// PriorityClass is that of the pods; empty for the cluster's default.
	PriorityClass string
	// UserNamespaces is UserNamespacesAuto where empty.
	UserNamespaces pods.UserNamespaces
	// Logs reads how far a step is; nil where no one needs to know.
	Logs pods.Logs
	// Clock is the real one where nil.
	Clock clock.PassiveClock
}

// Backend builds with Jobs.
type Backend struct {
	options Options
	cluster pods.Cluster
}

// New makes a Backend. The client has to read Jobs, pods and nodes; the reader is asked for what is
// not cached, and for everything once more before a build is said to have ended or to be gone.
func New(options Options, c client.Client, reader client.Reader) (*Backend, error) {
	if options.Namespace == "" || options.Image == "" {
		return nil, errors.New("setting up Jobs: the namespace of builds, or the image of the builder, is not known")
	}
	options.ServiceAccount = cmp.Or(options.ServiceAccount, pods.DefaultAccount)
	options.UserNamespaces = cmp.Or(options.UserNamespaces, pods.UserNamespacesAuto)
	switch options.UserNamespaces {
	case pods.UserNamespacesAuto, pods.UserNamespacesAlways, pods.UserNamespacesNever:
	default:
		return nil, fmt.Errorf("setting up Jobs: user namespaces can be %s, %s or %s, and not %q",
			pods.UserNamespacesAuto, pods.UserNamespacesAlways, pods.UserNamespacesNever, options.UserNamespaces)
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
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
