package bootimages

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxWatched is how many secrets are watched at once: each is a connection's stream. Resources
// whose secret is another one are looked at again with all others, after recheck.
const maxWatched = 32

// watcher watches objects past the cache, which has no secrets.
type watcher interface {
	Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error)
}

// secrets watches those that resources which fail depend on, each by its name. A watch lasts until
// the resources are looked at again anyway.
type secrets struct {
	watcher watcher
	clock   clock.PassiveClock

	mu      sync.Mutex
	waiting map[types.NamespacedName]map[id]bool // the key is there as long as there is a watch
}

// awaitSecrets has a resource that failed be looked at when a secret changes that its machines
// start with, or are made with.
func (u *updater) awaitSecrets(ctx context.Context, s *scope) {
	if name := s.stub(); name != "" {
		key := types.NamespacedName{Namespace: s.resource.id.Namespace, Name: name}
		u.secrets.await(ctx, key, s.resource.id, func(ctx context.Context, _ bool, all []id) { u.wakeUp(ctx, all) })
	}
	if name, _, _ := unstructured.NestedString(s.resource.plan.ProviderSpec, "credentialsSecret", "name"); name != "" {
		key := types.NamespacedName{Namespace: s.resource.id.Namespace, Name: name}
		u.secrets.await(ctx, key, s.resource.id, func(ctx context.Context, isNew bool, all []id) {
			if isNew {
				u.imports.forgetFailed()
			}
			u.wakeUp(ctx, all)
		})
	}
}

// await calls changed with the resources that wait for a secret when it changes, or is made. It
// calls it also when the watch begins, so that nothing is missed before. It does nothing while
// there are maxWatched others.
func (w *secrets) await(ctx context.Context, key types.NamespacedName, of id, changed func(ctx context.Context, isNew bool, all []id)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.waiting[key]; all != nil {
		all[of] = true
		return
	}
	if len(w.waiting) >= maxWatched {
		return
	}
	w.waiting[key] = map[id]bool{of: true}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recheck)
	go func() {
		defer cancel()
		w.follow(ctx, key, changed)
		w.mu.Lock()
		delete(w.waiting, key)
		w.mu.Unlock()
	}()
}

// follow watches a secret. Without the right to do so it ends at once.
func (w *secrets) follow(ctx context.Context, key types.NamespacedName, changed func(ctx context.Context, isNew bool, all []id)) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "SecretList"})
	events, err := w.watcher.Watch(ctx, list, client.InNamespace(key.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", key.Name)})
	if err != nil {
		return
	}
	defer events.Stop()
	began := w.clock.Now().Truncate(time.Second) // as the API server counts
	for {
		select {
		case <-ctx.Done():
			return
		case event, isOpen := <-events.ResultChan():
			o, isObject := event.Object.(client.Object)
			if !isOpen || event.Type == watch.Error {
				return
			}
			if !isObject || o.GetName() != key.Name {
				continue
			}
			isNew := event.Type != watch.Added || !o.GetCreationTimestamp().Time.Before(began)
			changed(ctx, isNew, w.take(key))
		}
	}
}

// take are the resources that wait for a secret. Those that fail again wait anew.
func (w *secrets) take(key types.NamespacedName) []id {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []id
	for of := range w.waiting[key] {
		out = append(out, of)
	}
	w.waiting[key] = map[id]bool{}
	return out
}
