package backends

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// Backend builds the content of images. All three can be repeated: what is there already is left as
// it is, what is gone needs no removing.
type Backend interface {
	// Ensure starts the build, or leaves it running.
	Ensure(ctx context.Context, spec backend.Spec) error
	// Observe says how far it is.
	Observe(ctx context.Context, key backend.Key) (backend.State, error)
	// Remove ends it and removes everything that exists for it.
	Remove(ctx context.Context, key backend.Key) error
}

// Watcher is a Backend whose builds are objects in the cluster: their changes mean that a build is
// to be looked at.
type Watcher interface {
	// Watches are the kinds of the objects.
	Watches() []client.Object
	// BuildOf is the MachineOSBuild that an object is of; empty for those of others.
	BuildOf(object client.Object) string
}

// Notifier is a Backend whose builds are objects that it watches itself.
type Notifier interface {
	// Notify has a function called with every object that changes, and with nil when all builds are
	// to be looked at. It is called once, at the start.
	Notify(changed func(object client.Object))
	// BuildOf is that of Watcher.
	BuildOf(object client.Object) string
}

// Keeper is a Backend whose objects people look at after a build. They stay until Remove.
type Keeper interface {
	// Clean removes what a build that has ended no longer needs, and ends what still runs.
	Clean(ctx context.Context, key backend.Key) error
}

// Set are the backends of an installation, by the imageBuilderType of MachineOSConfigs.
type Set map[mcfgv1.MachineOSImageBuilderType]Backend

// For is what builds content for a MachineOSConfig. There may be none.
func (s Set) For(config *mcfgv1.MachineOSConfig) (Backend, error) {
	kind := config.Spec.ImageBuilder.ImageBuilderType
	found := s[kind]
	if found == nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonBuilderNotAvailable, fmt.Errorf("this installation has no builder for imageBuilderType %s", kind))
	}
	return found, nil
}

// Has reports whether anything builds content for a MachineOSConfig.
func (s Set) Has(config *mcfgv1.MachineOSConfig) bool {
	return s[config.Spec.ImageBuilder.ImageBuilderType] != nil
}

// Remove removes a build from every backend: a MachineOSConfig may have had another one when it
// began.
func (s Set) Remove(ctx context.Context, key backend.Key) error { return s.RemoveOthers(ctx, key, nil) }

// RemoveOthers removes a build from every backend but the one that builds it now.
func (s Set) RemoveOthers(ctx context.Context, key backend.Key, but Backend) error {
	var failed []error
	for _, builds := range s {
		if builds != but {
			failed = append(failed, builds.Remove(ctx, key))
		}
	}
	return errors.Join(failed...)
}

// Clean removes what a build that has ended no longer needs from every backend.
func (s Set) Clean(ctx context.Context, key backend.Key) error {
	var failed []error
	for _, builds := range s {
		clean := builds.Remove
		if keeper, keeps := builds.(Keeper); keeps {
			clean = keeper.Clean
		}
		failed = append(failed, clean(ctx, key))
	}
	return errors.Join(failed...)
}
