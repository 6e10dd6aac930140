package bootimages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// controllerName is what the names of the controllers begin with.
const controllerName = "boot-images"

// settle is how long outcomes are collected before the status is written: many resources change
// together.
const settle = time.Second

// Strip keeps what is read of machine resources in a cache, and leaves other objects as they are.
// It is for the cache of the manager.
func Strip(object any) (any, error) {
	o, isObject := object.(*unstructured.Unstructured)
	if !isObject {
		return object, nil
	}
	switch o.GroupVersionKind().Group {
	case string(operatorv1.MachineAPI), string(operatorv1.ClusterAPI):
		return strip(object)
	}
	return object, nil
}

// SetupWithManager adds a controller for each kind of machine resources that the cluster has, and
// one for the MachineConfiguration. Where the cluster has none of the kinds, the latter alone says
// so.
func SetupWithManager(manager ctrl.Manager, options Options) error {
	if options.Namespace == "" || options.Soak < 0 || options.DegradeAfter < 0 {
		return errors.New("setting up boot images: a namespace, and times that are not negative, are needed")
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	mapper := manager.GetRESTMapper()
	config, err := serves(mapper, schema.GroupKind{Group: operatorv1.GroupName, Kind: "MachineConfiguration"})
	if err != nil {
		return err
	}
	if config == "" {
		manager.GetLogger().Info("Boot images are not managed: the cluster has no kind MachineConfiguration")
		return nil
	}
	w := &world{cache: manager.GetCache(), reader: manager.GetAPIReader(), namespace: options.Namespace, clock: options.Clock, degradeAfter: options.DegradeAfter}
	for gk, has := range map[schema.GroupKind]*bool{
		clusterVersionKind.GroupKind(): &w.has.clusterVersion, infrastructureKind.GroupKind(): &w.has.infrastructure,
	} {
		version, err := serves(mapper, gk)
		if err != nil {
			return err
		}
		*has = version != ""
	}
	kinds := allKinds()
	wake := map[*kind]chan event.GenericEvent{}
	var absent []string
	for _, k := range kinds {
		if k.version, err = serves(mapper, k.groupKind); err != nil {
			return err
		}
		if k.version == "" {
			absent = append(absent, k.name)
		}
		wake[k] = make(chan event.GenericEvent)
	}
	if len(absent) > 0 {
		manager.GetLogger().Info("Kinds of machine resources that the cluster does not have", "kinds", strings.Join(absent, ", "))
	}
	watching, err := client.NewWithWatch(manager.GetConfig(), client.Options{Scheme: manager.GetScheme(), Mapper: mapper, HTTPClient: manager.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("making a client that watches secrets: %w", err)
	}
	l := newLedger()
	options.Metrics.From(l.Scrape)
	u := updater{
		kinds: kinds, options: options, clock: options.Clock, client: manager.GetClient(), cache: manager.GetCache(), reader: manager.GetAPIReader(),
		events: events.NewPublisher(manager.GetEventRecorder("layerwright-" + controllerName)),
		world:  w, ledger: l, templates: newTemplates(manager.GetAPIReader(), mapper, options.Clock),
		stubs:   &stubs{good: map[types.NamespacedName]time.Time{}},
		owners:  &owned{ask: options.Owners, known: map[plan.Question]string{}},
		imports: newImports(options.Importer, options.Clock), wake: wake,
		secrets: &secrets{watcher: watching, clock: options.Clock, waiting: map[types.NamespacedName]map[id]bool{}},
	}
	for _, k := range kinds {
		if k.version == "" {
			continue
		}
		of := u
		of.kind = k
		if err := of.setup(manager); err != nil {
			return fmt.Errorf("setting up boot images of %s: %w", k.name, err)
		}
	}
	v := &overview{kinds: kinds, options: options, clock: options.Clock, client: manager.GetClient(), cache: manager.GetCache(), world: w, ledger: l}
	return v.setup(manager)
}

// setup adds the controller of one kind.
func (u *updater) setup(manager ctrl.Manager) error {
	name := controllerName + "-" + strings.ToLower(strings.ReplaceAll(u.kind.name, " ", "-"))
	b := ctrl.NewControllerManagedBy(manager).
		Named(name).
		For(u.kind.newObject()).
		WatchesRawSource(source.Channel(u.wake[u.kind], &handler.EnqueueRequestForObject{}))
	if k := u.mirrored(); k != nil {
		b = b.Watches(k.newObject(), handler.EnqueueRequestsFromMapFunc(mirrorOf), builder.WithPredicates(authorityChanged()))
	}
	return u.world.watch(b, u.all).Complete(u)
}

// mirrorOf requests a reconcile of what may mirror a resource of the Machine API.
func mirrorOf(_ context.Context, o client.Object) []reconcile.Request {
	if o.GetNamespace() != machineAPINamespace {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: clusterAPINamespace, Name: o.GetName()}}}
}

// authorityChanged lets resources through that come, go, or are handed over to the other API.
func authorityChanged() predicate.Predicate {
	of := func(o client.Object) string {
		u, isObject := o.(*unstructured.Unstructured)
		if !isObject {
			return ""
		}
		return authority(u)
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) }}
}

// all requests a reconcile of every resource of the kind: something changed that all of them depend
// on.
func (u *updater) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := u.kind.newList()
	if err := u.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing machine resources")
		return nil
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// setup adds the controller of the MachineConfiguration.
func (v *overview) setup(manager ctrl.Manager) error {
	changes := make(chan event.GenericEvent, 1)
	v.ledger.changed = func() {
		select {
		case changes <- event.GenericEvent{Object: &operatorv1.MachineConfiguration{}}:
		default: // a reconcile is due anyway
		}
	}
	only := reconcile.Request{NamespacedName: types.NamespacedName{Name: MachineConfigurationName}}
	later := handler.Funcs{GenericFunc: func(_ context.Context, _ event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.AddAfter(only, settle)
	}}
	b := ctrl.NewControllerManagedBy(manager).
		Named(controllerName).
		For(&operatorv1.MachineConfiguration{}).
		WatchesRawSource(source.Channel(changes, later))
	return v.world.watch(b, func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{only} }).Complete(v)
}

// watch has a controller look again when something changed that the facts are made of.
func (w *world) watch(b *builder.Builder, all handler.MapFunc) *builder.Builder {
	anew := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		w.invalidate()
		return all(ctx, o)
	})
	isOurs := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == w.namespace && o.GetName() == ConfigMapName })
	b = b.
		Watches(&operatorv1.MachineConfiguration{}, anew, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.ConfigMap{}, anew, builder.WithPredicates(isOurs)).
		Watches(&mcfgv1.MachineConfigPool{}, anew, builder.WithPredicates(poolChanged())).
		Watches(&mcfgv1.OSImageStream{}, anew, builder.WithPredicates(defaultChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.whenNodesDiffer(all)), builder.WithPredicates(placeChanged()))
	for gvk, has := range map[schema.GroupVersionKind]bool{clusterVersionKind: w.has.clusterVersion, infrastructureKind: w.has.infrastructure} {
		if has {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(gvk)
			b = b.Watches(o, anew, builder.WithPredicates(releaseChanged()))
		}
	}
	return b
}

// whenNodesDiffer requests a reconcile where the nodes have another architecture or region in
// common than before. Each controller has its own memory: facts that another one has gathered anew
// say nothing about what this one has used.
func (w *world) whenNodesDiffer(all handler.MapFunc) handler.MapFunc {
	var seen place
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		is := placeOf(o)
		if is.installed == "" && is.architecture == seen.architecture && is.region == seen.region && (is.controlPlane == "" || is.controlPlane == seen.controlPlane) {
			return nil // one more of the same
		}
		now, err := w.readPlace(ctx)
		if err == nil && now == seen {
			return nil
		}
		seen = now
		w.invalidate()
		return all(ctx, o)
	}
}

// poolChanged lets changes of pools through that boot images follow from.
func poolChanged() predicate.Predicate {
	type view struct {
		generation int64
		annotation string
		stream     string
		// The first machine, and the first that is updated, decide whether the cluster is stable.
		hasMachines, isUpdated bool
	}
	of := func(o client.Object) view {
		p, isPool := o.(*mcfgv1.MachineConfigPool)
		if !isPool {
			return view{}
		}
		return view{p.Generation, p.Annotations[mcfgv1.AnnotationRememberedStream], p.Status.OSImageStream.Name, p.Status.MachineCount > 0, p.Status.UpdatedMachineCount > 0}
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) }}
}

// defaultChanged lets changes of the default stream, and of the limits of the release, through.
func defaultChanged() predicate.Predicate {
	of := func(o client.Object) [2]string {
		if s, isStream := o.(*mcfgv1.OSImageStream); isStream {
			return [2]string{s.Status.DefaultStream, s.Annotations[mcfgv1.AnnotationBootImageSkewLimits]}
		}
		return [2]string{}
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return of(e.ObjectOld) != of(e.ObjectNew) }}
}

// placeChanged lets nodes through that come, go, or are somewhere else.
func placeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return placeOf(e.ObjectOld) != placeOf(e.ObjectNew) }}
}

// releaseChanged lets changes of release and platform through.
func releaseChanged() predicate.Predicate {
	of := func(o client.Object) map[string]any {
		u, isObject := o.(*unstructured.Unstructured)
		if !isObject {
			return nil
		}
		is, _ := u.Object["status"].(map[string]any)
		is = maps.Clone(is)
		maps.DeleteFunc(is, func(field string, _ any) bool {
			return field != "desired" && field != "history" && field != "platformStatus" && field != "controlPlaneTopology"
		})
		return is
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return !reflect.DeepEqual(of(e.ObjectOld), of(e.ObjectNew)) }}
}
