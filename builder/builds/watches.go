package builds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/watches"
	"github.com/layerwright/layerwright/internal/status"
)

// controllerName is its name in logs and metrics.
const controllerName = "machineosbuilds"

// spareReconciles are those of builds beside the ones that make an image, so that no one waits
// behind an image for saying that it has begun.
const spareReconciles = 16

// SetupWithManager makes builds follow their objects, and what backends have made for them.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	builds := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		WithOptions(watches.Options(r.options.Limit+spareReconciles, 0)).
		For(&mcfgv1.MachineOSBuild{}, ctrlbuilder.WithPredicates(r.stopping(), watches.BuildChanged()))
	for _, kind := range slices.Sorted(maps.Keys(r.options.Backends)) {
		builds = r.watchBackend(builds, r.options.Backends[kind])
	}
	if err := builds.Complete(r); err != nil {
		return fmt.Errorf("setting up %s: %w", controllerName, err)
	}
	return nil
}

// watchBackend makes the controller look at a build when what its backend has made for it changes.
func (r *Reconciler) watchBackend(builds *ctrlbuilder.Builder, builder backends.Backend) *ctrlbuilder.Builder {
	if watcher, watches := builder.(backends.Watcher); watches {
		for _, kind := range watcher.Watches() {
			builds = builds.Watches(kind, handler.EnqueueRequestsFromMapFunc(buildOf(watcher)))
		}
	}
	if notifier, notifies := builder.(backends.Notifier); notifies {
		changes := make(chan event.GenericEvent, maxNews)
		notifier.Notify(func(object client.Object) {
			if object == nil {
				object = &mcfgv1.MachineOSBuild{}
			}
			changes <- event.GenericEvent{Object: object}
		})
		builds = builds.WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(r.buildsOf(notifier))))
	}
	return builds
}

// maxNews is how many changes of a backend's objects wait until the controller takes them.
const maxNews = 1024

// buildsOf asks for a look at the build that an object is of, or at all that have not ended.
func (r *Reconciler) buildsOf(notifier backends.Notifier) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		if _, isAll := object.(*mcfgv1.MachineOSBuild); !isAll {
			return buildOf(notifier)(ctx, object)
		}
		var list mcfgv1.MachineOSBuildList
		if err := r.options.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing MachineOSBuilds")
		}
		var out []reconcile.Request
		for i := range list.Items {
			if !status.BuildStageOf(list.Items[i].Status.Conditions).IsFinal() {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
			}
		}
		return out
	}
}

// stopping lets everything through, and stops the run of a build that someone ended: its worker is
// busy with it, and would not look.
func (r *Reconciler) stopping() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			if build, isBuild := e.ObjectNew.(*mcfgv1.MachineOSBuild); isBuild && objects.IsInterruptedOrDeleted(build) {
				r.options.Runs.Stop(build.Spec.MachineOSConfig.Name, build.Name)
			}
			return true
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			if build, isBuild := e.Object.(*mcfgv1.MachineOSBuild); isBuild {
				r.options.Runs.Stop(build.Spec.MachineOSConfig.Name, build.Name)
			}
			return true
		},
	}
}

// buildOf asks for a look at the build that an object is of.
func buildOf(watcher interface {
	BuildOf(object client.Object) string
},
) handler.MapFunc {
	return func(_ context.Context, object client.Object) []reconcile.Request {
		build := watcher.BuildOf(object)
		if build == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: build}}}
	}
}
