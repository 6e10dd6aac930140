package api

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

var (
	installed sync.Once
	owners    sync.Map // of kinds to *sync.Mutex

	getOptions = metav1.GetOptions{}
)

// server is an API server with our kinds and none of our policies.
type server struct {
	config *rest.Config
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newServer(t *testing.T) *server {
	t.Helper()
	config := clustertest.ControlPlane(t)
	installed.Do(func() { install.Kinds(t, config) })
	return &server{
		config: config,
		client: dynamic.NewForConfigOrDie(config),
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))),
	}
}

// own keeps other tests from objects of a kind until the test ends: many have fixed names.
func (*server) own(t *testing.T, kind string) {
	t.Helper()
	lock, _ := owners.LoadOrStore(kind, &sync.Mutex{})
	mutex, ok := lock.(*sync.Mutex)
	require.True(t, ok)
	mutex.Lock()
	t.Cleanup(mutex.Unlock)
}

// resource is where an object of a kind lives.
func (s *server) resource(t *testing.T, object *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	require.NoError(t, err)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return s.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	return s.client.Resource(mapping.Resource)
}

// ensureNamespace makes a namespace, unless there is one. It stays: without kube-controller-manager
// none ever goes.
func (s *server) ensureNamespace(t *testing.T, name string) {
	t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	_, err := s.resource(t, namespace).Create(t.Context(), namespace, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

// create makes an object with its status, and removes it after the test.
func (s *server) create(t *testing.T, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	resource := s.resource(t, object)
	status, hasStatus := object.Object["status"]
	created, err := resource.Create(t.Context(), object.DeepCopy(), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { s.remove(t, created) })
	if !hasStatus {
		return created, nil
	}
	created.Object["status"] = status
	return resource.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
}

// update changes an object and then its status.
func (s *server) update(t *testing.T, before, object *unstructured.Unstructured) (updated *unstructured.Unstructured, err, statusErr error) {
	t.Helper()
	resource := s.resource(t, before)
	object = object.DeepCopy()
	object.SetName(before.GetName())
	object.SetResourceVersion(before.GetResourceVersion())
	updated, err = resource.Update(t.Context(), object.DeepCopy(), metav1.UpdateOptions{})
	if err != nil {
		return nil, err, nil
	}
	if status, ok := object.Object["status"]; ok {
		updated.Object["status"] = status
		updated, statusErr = resource.UpdateStatus(t.Context(), updated, metav1.UpdateOptions{})
	}
	return updated, nil, statusErr
}

func (s *server) remove(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	resource := s.resource(t, object)
	ctx := contextWithoutCancel(t)
	if err := resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Errorf("removing %s: %v", object.GetName(), err)
	}
}
