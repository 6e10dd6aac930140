package watched

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	clustertest.Main(m)
}

const patience = time.Minute

// world is a real API server, and Sets with the rights of a user that has none.
type world struct {
	*kubernetes.Clientset
	t         *testing.T
	sets      *Sets
	namespace string
	told      chan string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	config := clustertest.ControlPlane(t)
	w := &world{t: t, namespace: clustertest.Namespace(t), Clientset: kubernetes.NewForConfigOrDie(config), told: make(chan string, 100)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, await.ServiceAccount(ctx, w.Clientset, w.namespace, "default"))
	limited := rest.CopyConfig(config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: w.namespace, Groups: []string{"system:authenticated"}}
	httpClient, err := rest.HTTPClientFor(limited)
	require.NoError(t, err)
	mapper, err := apiutil.NewDynamicRESTMapper(limited, httpClient)
	require.NoError(t, err)
	w.sets = New(dynamic.NewForConfigOrDie(limited), mapper, func(_ context.Context, pool string) { w.told <- pool })
	started, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- w.sets.Start(started) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return w
}

// allow gives the user a right in its namespace.
func (w *world) allow(name string, rule rbacv1.PolicyRule) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: w.namespace}
	_, err := w.RbacV1().Roles(w.namespace).Create(w.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	_, err = w.RbacV1().RoleBindings(w.namespace).Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: w.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// until looks again each time that something has changed.
func (w *world) until(reached func() bool) {
	w.t.Helper()
	late := time.After(patience)
	for !reached() {
		select {
		case pool := <-w.told:
			assert.Equal(w.t, "worker", pool)
		case <-late:
			require.FailNow(w.t, "what is waited for does not happen")
		}
	}
}

func TestAnObjectIsReadWithTheRightToItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := Key{APIVersion: "apps/v1", Kind: "Deployment", Namespace: w.namespace, Name: "web"}
	read := func() (*unstructured.Unstructured, string) {
		o, err := w.sets.Object(key)
		if err != nil {
			return nil, err.Error()
		}
		return o, ""
	}
	_, problem := read()
	assert.Equal(t, "Deployment "+w.namespace+"/web is not being read yet", problem)
	w.sets.Want(t.Context(), "worker", key)
	w.until(func() bool {
		_, problem = read()
		return problem != "Deployment "+w.namespace+"/web is being read for the first time"
	})
	assert.Contains(t, problem, "reading Deployment "+w.namespace+"/web: ")
	assert.Contains(t, problem, "is forbidden")

	w.allow("web", rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"web"}, Verbs: []string{"list", "watch"}})
	w.until(func() bool {
		_, problem = read()
		return problem == "Deployment "+w.namespace+"/web does not exist"
	})
	labels := map[string]string{"app": "web"}
	for _, name := range []string{"other", "web"} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: labels}, labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry.example.com/app:1"}}
		d.Spec.Replicas = new(int32(0))
		_, err := w.AppsV1().Deployments(w.namespace).Create(t.Context(), d, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.until(func() bool {
		o, _ := read()
		return o != nil && o.GetName() == "web" && o.GetManagedFields() == nil
	})
	w.sets.Want(t.Context(), "worker")
	_, problem = read()
	assert.Equal(t, "Deployment "+w.namespace+"/web is not being read yet", problem, "what no one reads is not watched")
}

func TestPodsAreReadByNodeAndLabel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.allow("pods", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}})
	key := Key{APIVersion: "v1", Kind: "Pod", Namespace: w.namespace, Labels: "app=web"}
	w.sets.Want(t.Context(), "worker", key)
	w.until(func() bool {
		on, err := w.sets.OnNode(key, "a")
		return err == nil && len(on) == 0
	})
	for name, node := range map[string]string{"z": "a", "y": "a", "x": "b"} {
		for _, app := range []string{"web", "db"} {
			_, err := w.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: app + "-" + name, Labels: map[string]string{"app": app}},
				Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/app:1"}}},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	w.until(func() bool {
		on, err := w.sets.OnNode(key, "a")
		return err == nil && len(on) == 2 && on[0].GetName() == "web-y" && on[1].GetName() == "web-z"
	})
}

func TestUnreadableObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tests := map[string]struct {
		key  Key
		want string
	}{
		"a kind that the cluster does not have": {
			Key{APIVersion: "example.com/v1", Kind: "Widget", Name: "w"}, "reading Widget w: the cluster has no kind Widget in example.com/v1",
		},
		"a version that is none": {Key{APIVersion: "a/b/c", Kind: "Widget", Name: "w"}, "reading Widget w: unexpected GroupVersion string: a/b/c"},
		"a Secret":               {Key{APIVersion: "v1", Kind: "Secret", Namespace: "n", Name: "s"}, "reading Secret n/s: health checks read no Secrets: they may hold secrets"},
		"a MachineConfig": {
			Key{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfig", Name: "m"}, "reading MachineConfig m: health checks read no MachineConfigs: they may hold secrets",
		},
		"a kind without a namespace in one": {Key{APIVersion: "v1", Kind: "Node", Namespace: "n", Name: "a"}, "reading Node n/a: the kind Node is cluster-scoped: remove the namespace"},
		"a kind in a namespace without one": {Key{APIVersion: "v1", Kind: "Service", Name: "s"}, "reading Service s: the kind Service is namespaced: set the namespace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.sets.Want(t.Context(), name, tt.key)
			_, err := w.sets.Object(tt.key)
			require.EqualError(t, err, tt.want)
		})
	}
}
