package builder

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
)

// Names in logs and metrics.
const (
	configController = "machineosconfigs"
	buildController  = "machineosbuilds"
)

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// Waits before something that failed is tried again.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// longestPass is how long a pass may take that reads images: to list what is in one for the first
// time takes minutes.
const longestPass = 20 * time.Minute

// SetupWithManager gives the reconcilers the manager's clients, and makes them watch what images
// depend on: MachineOSConfigs, their builds, their pools with the nodes in them, and the ConfigMaps
// that they name, of which only the metadata is kept. Secrets are not watched, that would take the
// right to list them: what misses one looks again.
func (b *Builder) SetupWithManager(manager ctrl.Manager) error {
	if err := b.validate(); err != nil {
		return fmt.Errorf("setting up the builder: %w", err)
	}
	b.use(manager.GetClient(), manager.GetAPIReader(), events.NewPublisher(manager.GetEventRecorder("layerwright-builder")))
	err := ctrl.NewControllerManagedBy(manager).
		Named(configController).
		WithOptions(options(maxConcurrentConfigs, longestPass)).
		For(&mcfgv1.MachineOSConfig{}, ctrlbuilder.WithPredicates(configChanged())).
		Watches(&mcfgv1.MachineOSBuild{}, handler.EnqueueRequestsFromMapFunc(configOfBuild), ctrlbuilder.WithPredicates(buildChanged())).
		Watches(&mcfgv1alpha1.MachineOSImage{}, handler.EnqueueRequestsFromMapFunc(configOfImage), ctrlbuilder.WithPredicates(imageJudged())).
		Watches(&mcfgv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(b.configsOfPool), ctrlbuilder.WithPredicates(poolChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(b.configsOfNode), ctrlbuilder.WithPredicates(predicate.LabelChangedPredicate{})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(b.configsOfConfigMap)).
		Complete(&configReconciler{b})
	if err != nil {
		return fmt.Errorf("setting up %s: %w", configController, err)
	}
	builds := ctrl.NewControllerManagedBy(manager).
		Named(buildController).
		WithOptions(options(b.options.MaxConcurrentBuilds+sparePasses, 0)).
		For(&mcfgv1.MachineOSBuild{}, ctrlbuilder.WithPredicates(b.stopping(), buildChanged()))
	for _, kind := range slices.Sorted(maps.Keys(b.options.Backends)) {
		builds = b.watchBackend(builds, b.options.Backends[kind])
	}
	if err := builds.Complete(&buildReconciler{b}); err != nil {
		return fmt.Errorf("setting up %s: %w", buildController, err)
	}
	return b.setupTrials(manager)
}

// watchBackend makes the controller look at a build when what its backend has made for it changes.
func (b *Builder) watchBackend(builds *ctrlbuilder.Builder, builder Backend) *ctrlbuilder.Builder {
	if watcher, watches := builder.(Watcher); watches {
		for _, kind := range watcher.Watches() {
			builds = builds.Watches(kind, handler.EnqueueRequestsFromMapFunc(buildOf(watcher)))
		}
	}
	if notifier, notifies := builder.(Notifier); notifies {
		changes := make(chan event.GenericEvent, maxNews)
		notifier.Notify(func(object client.Object) {
			if object == nil {
				object = &mcfgv1.MachineOSBuild{}
			}
			changes <- event.GenericEvent{Object: object}
		})
		builds = builds.WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(b.buildsOf(notifier))))
	}
	return builds
}

// maxNews is how many changes of a backend's objects wait until the controller takes them.
const maxNews = 1024

// buildsOf asks for a look at the build that an object is of, or at all that have not ended.
func (b *Builder) buildsOf(notifier Notifier) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		if _, isAll := object.(*mcfgv1.MachineOSBuild); !isAll {
			return buildOf(notifier)(ctx, object)
		}
		var list mcfgv1.MachineOSBuildList
		if err := b.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
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

// options are those of a controller: how many objects it looks at at once, and how long a pass over
// one may take; 0 where the pass sees to that itself. Registries may accept a connection and never
// answer.
func options(workers int, longest time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   longest,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// configChanged lets changes through that people make, and none of our own: status, and the
// annotation with the newest build.
func configChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isConfig := e.ObjectOld.(*mcfgv1.MachineOSConfig)
		after, isConfigToo := e.ObjectNew.(*mcfgv1.MachineOSConfig)
		return !isConfig || !isConfigToo || before.Generation != after.Generation || looksAgain(before) != looksAgain(after) ||
			before.Annotations[mcfgv1.AnnotationPreBuiltImage] != after.Annotations[mcfgv1.AnnotationPreBuiltImage] ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || !isInterrupted(before) && isInterrupted(after)
	}}
}

// isInterrupted reports whether the last pass ended in between. One that was made by a process
// which has lost its Lease is not made again by that one.
func isInterrupted(config *mcfgv1.MachineOSConfig) bool {
	ready := status.Find(config.Status.Conditions, status.Ready)
	return ready != nil && ready.Reason == mcfgv1.ReasonProgressing
}

// buildChanged lets changes of a build's conditions through, and its end.
func buildChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBuild := e.ObjectOld.(*mcfgv1.MachineOSBuild)
		after, isBuildToo := e.ObjectNew.(*mcfgv1.MachineOSBuild)
		return !isBuild || !isBuildToo || !reflect.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	}}
}

// stopping lets everything through, and stops the run of a build that someone ended: its worker is
// busy with it, and would not look.
func (b *Builder) stopping() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			if build, isBuild := e.ObjectNew.(*mcfgv1.MachineOSBuild); isBuild && hasEnded(build) {
				b.runs.stop(build.Spec.MachineOSConfig.Name, build.Name)
			}
			return true
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			if build, isBuild := e.Object.(*mcfgv1.MachineOSBuild); isBuild {
				b.runs.stop(build.Spec.MachineOSConfig.Name, build.Name)
			}
			return true
		},
	}
}

func hasEnded(build *mcfgv1.MachineOSBuild) bool {
	return !build.DeletionTimestamp.IsZero() || status.BuildStageOf(build.Status.Conditions) == status.StageInterrupted
}

// poolChanged lets changes through that mean another image, and of conditions those that builds
// wait for or that are ours.
func poolChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPool := e.ObjectOld.(*mcfgv1.MachineConfigPool)
		after, isPoolToo := e.ObjectNew.(*mcfgv1.MachineConfigPool)
		return !isPool || !isPoolToo || poolFacts(before) != poolFacts(after)
	}}
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

func configOfBuild(_ context.Context, object client.Object) []reconcile.Request {
	build, isBuild := object.(*mcfgv1.MachineOSBuild)
	if !isBuild {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: build.Spec.MachineOSConfig.Name}}}
}

func configOfImage(_ context.Context, object client.Object) []reconcile.Request {
	config := owner.Of(object)
	if config == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: config.Name}}}
}

func (b *Builder) configsOfPool(ctx context.Context, pool client.Object) []reconcile.Request {
	return b.configsThat(ctx, func(config *mcfgv1.MachineOSConfig) bool { return config.Spec.MachineConfigPool.Name == pool.GetName() })
}

func (b *Builder) configsOfConfigMap(ctx context.Context, object client.Object) []reconcile.Request {
	return b.configsThat(ctx, func(config *mcfgv1.MachineOSConfig) bool {
		if object.GetName() == backend.InputYumRepos && object.GetNamespace() == b.options.Namespace {
			return true
		}
		for _, entry := range config.Spec.Containerfile {
			if entry.ConfigMapRef != nil && entry.ConfigMapRef.Name == object.GetName() && object.GetNamespace() == b.options.Namespace {
				return true
			}
		}
		return false
	})
}

// configsThat are requests for the MachineOSConfigs that are meant. That they can't be listed is
// told by the manager, which ends for it.
func (b *Builder) configsThat(ctx context.Context, isMeant func(*mcfgv1.MachineOSConfig) bool) []reconcile.Request {
	var list mcfgv1.MachineOSConfigList
	if err := b.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing MachineOSConfigs")
	}
	var out []reconcile.Request
	for i := range list.Items {
		if isMeant(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return out
}
