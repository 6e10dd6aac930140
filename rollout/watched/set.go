package watched

import (
	"cmp"
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
)

// byNode is the index of pods by their node.
const byNode = "node"

// set is one set of objects and its watch.
type set struct {
	key   Key
	pools sets.Set[string]
	// informer is nil while the cluster does not have the kind.
	informer cache.SharedIndexInformer
	cancel   context.CancelFunc

	mu  sync.Mutex
	err error
}

// start begins to list and watch. Of an error it tells once, until there is another one or none.
// It lasts until stop, not only for the reconcile that began it.
func (s *set) start(ctx context.Context, resource dynamic.NamespaceableResourceInterface, tell func(context.Context, *set)) {
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	from := dynamic.ResourceInterface(resource)
	if s.key.Namespace != "" {
		from = resource.Namespace(s.key.Namespace)
	}
	narrow := func(options *metav1.ListOptions) {
		options.LabelSelector = s.key.Labels
		if s.key.Name != "" {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.key.Name).String()
		}
	}
	heard := func(err error) {
		if ctx.Err() == nil && s.say(err) {
			tell(ctx, s)
		}
	}
	s.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			narrow(&options)
			list, err := from.List(ctx, options)
			heard(err)
			return list, err
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			narrow(&options)
			w, err := from.Watch(ctx, options)
			heard(err)
			return w, err
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{byNode: nodeOf})
	_ = s.informer.SetTransform(ctrlcache.TransformStripManagedFields())                              // it has not started
	_ = s.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // heard has it
	handler, _ := s.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{                 // it has not stopped
		AddFunc:    func(any, bool) { tell(ctx, s) },
		UpdateFunc: func(_, _ any) { tell(ctx, s) },
		DeleteFunc: func(any) { tell(ctx, s) },
	})
	go s.informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) { // also where there is no object
			tell(ctx, s)
		}
	}()
}

func (s *set) stop() {
	if s.cancel != nil {
		s.cancel()
	}
}

// say remembers why the set can't be read, nil where it can. It reports whether that is new.
func (s *set) say(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew := (err == nil) != (s.err == nil) || err != nil && err.Error() != s.err.Error()
	s.err = err
	return isNew
}

func (s *set) problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// nodeOf is the node that a pod is on.
func nodeOf(object any) ([]string, error) {
	o, isObject := object.(*unstructured.Unstructured)
	if !isObject {
		return nil, nil
	}
	name, _, err := unstructured.NestedString(o.Object, "spec", "nodeName")
	if err != nil || name == "" {
		return nil, nil //nolint:nilerr // only pods have one
	}
	return []string{name}, nil
}

// objects are what an index holds, ordered by name.
func objects(all []any) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, 0, len(all))
	for _, one := range all {
		if o, isObject := one.(*unstructured.Unstructured); isObject {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}
