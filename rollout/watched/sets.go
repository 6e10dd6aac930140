package watched

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Key says which objects a set has: those of a kind in a namespace, by name or by label.
type Key struct {
	// APIVersion and Kind are those of the objects.
	APIVersion, Kind string
	// Namespace is that of the objects; empty where the kind has none.
	Namespace string
	// Name is that of the only object; empty where labels select them.
	Name string
	// Labels select the objects; empty selects all.
	Labels string
}

// String names the objects, for people.
func (k Key) String() string {
	name := k.Namespace
	switch {
	case k.Name == "":
		return fmt.Sprintf("each %s in namespace %s", k.Kind, k.Namespace)
	case k.Namespace != "":
		name += "/"
	}
	return k.Kind + " " + name + k.Name
}

// Sets are the sets that pools read.
type Sets struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	// changed is called with the name of a pool when something of what it reads has changed.
	changed func(ctx context.Context, pool string)

	mu   sync.Mutex
	sets map[Key]*set
	done bool
}

// New makes Sets without a set. changed may block until its context ends.
func New(client dynamic.Interface, mapper meta.RESTMapper, changed func(ctx context.Context, pool string)) *Sets {
	return &Sets{client: client, mapper: mapper, changed: changed, sets: map[Key]*set{}}
}

// Start ends all watches when the context ends; it makes Sets a part of a manager.
func (s *Sets) Start(ctx context.Context) error {
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	for _, one := range s.sets {
		one.stop()
	}
	return nil
}

// Want begins to watch what a pool reads, and ends the watches of what no one reads any more.
func (s *Sets) Want(ctx context.Context, pool string, keys ...Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := sets.New(keys...)
	for key, one := range s.sets {
		if !wanted.Has(key) {
			one.pools.Delete(pool)
		}
		if len(one.pools) == 0 {
			one.stop()
			delete(s.sets, key)
		}
	}
	for key := range wanted {
		if s.sets[key] == nil {
			s.sets[key] = &set{key: key, pools: sets.New[string]()}
		}
		one := s.sets[key]
		one.pools.Insert(pool)
		if one.informer == nil && !s.done {
			s.begin(ctx, one)
		}
	}
}

// begin starts the watch of a set, if the cluster has its kind.
func (s *Sets) begin(ctx context.Context, one *set) {
	resource, err := s.resource(&one.key)
	one.say(err)
	if err == nil {
		one.start(ctx, s.client.Resource(resource), s.tell)
	}
}

// resource is what a kind is asked for by.
func (s *Sets) resource(key *Key) (schema.GroupVersionResource, error) {
	gv, err := schema.ParseGroupVersion(key.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	if isConfidential(gv.Group, key.Kind) {
		return schema.GroupVersionResource{}, fmt.Errorf("health checks read no %ss: they may hold secrets", key.Kind)
	}
	mapping, err := s.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: key.Kind}, gv.Version)
	switch {
	case meta.IsNoMatchError(err):
		return schema.GroupVersionResource{}, fmt.Errorf("the cluster has no kind %s in %s", key.Kind, key.APIVersion)
	case err != nil:
		return schema.GroupVersionResource{}, err
	case key.Namespace != "" && mapping.Scope.Name() == meta.RESTScopeNameRoot:
		return schema.GroupVersionResource{}, fmt.Errorf("the kind %s is cluster-scoped: remove the namespace", key.Kind)
	case key.Namespace == "" && mapping.Scope.Name() == meta.RESTScopeNameNamespace:
		return schema.GroupVersionResource{}, fmt.Errorf("the kind %s is namespaced: set the namespace", key.Kind)
	}
	return mapping.Resource, nil
}

// isConfidential reports whether objects of a kind may hold secrets. The controller may read them
// for other ends, and what a check gives is there for all to see.
func isConfidential(group, kind string) bool {
	return group == "" && kind == "Secret" || group == mcfgv1.GroupName && kind == "MachineConfig"
}

// tell tells the pools that read a set that it has changed.
func (s *Sets) tell(ctx context.Context, one *set) {
	s.mu.Lock()
	pools := sets.List(one.pools)
	s.mu.Unlock()
	for _, pool := range pools {
		s.changed(ctx, pool)
	}
}

// Object is the only object of a set.
func (s *Sets) Object(key Key) (*unstructured.Unstructured, error) {
	all, err := s.read(key, func(one *set) ([]any, error) { return one.informer.GetStore().List(), nil })
	if err == nil && len(all) == 0 {
		return nil, fmt.Errorf("%s does not exist", key)
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// OnNode are those pods of a set that are on a node, ordered by name.
func (s *Sets) OnNode(key Key, node string) ([]*unstructured.Unstructured, error) {
	return s.read(key, func(one *set) ([]any, error) { return one.informer.GetIndexer().ByIndex(byNode, node) })
}

// read reads objects of a set, or says why it can't.
func (s *Sets) read(key Key, list func(*set) ([]any, error)) ([]*unstructured.Unstructured, error) {
	s.mu.Lock()
	one := s.sets[key]
	s.mu.Unlock()
	if one == nil {
		return nil, fmt.Errorf("%s is not being read yet", key)
	}
	if err := one.problem(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	if one.informer == nil || !one.informer.HasSynced() {
		return nil, fmt.Errorf("%s is being read for the first time", key)
	}
	all, err := list(one)
	if err != nil {
		return nil, err
	}
	return objects(all), nil
}
