package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/testjobs"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/drain"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

const (
	controllerUser = "system:serviceaccount:layerwright:layerwright-controller"
	patience       = time.Minute
)

// cluster is a real API server with its controllers and admission policies, and a pool of three
// nodes that have no kubelet.
type cluster struct {
	client.Client
	t         *testing.T
	config    *rest.Config
	clients   *kubernetes.Clientset
	namespace string // also the name of the pool
	mu        sync.Mutex
	worst     int // how many nodes were away at the worst moment
}

func clusterScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := newScheme(t)
	require.NoError(t, policyv1.AddToScheme(scheme))
	return scheme
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, config: clustertest.ControlPlane(t), namespace: clustertest.Namespace(t)}
	c.clients = kubernetes.NewForConfigOrDie(c.config)
	install.Kinds(t, c.config)
	install.Policies(t, c.config)
	install.ControllerRights(t, c.config, c.namespace, controllerUser, "deploy/base/rollout-rbac.yaml")
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: clusterScheme(t)})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, await.ServiceAccount(ctx, c.clients, c.namespace, "default"))
	return c
}

func (c *cluster) create(o client.Object) {
	c.t.Helper()
	kept := o.DeepCopyObject().(client.Object)
	require.NoError(c.t, c.Create(c.t.Context(), o))
	if kept.GetNamespace() == "" {
		c.t.Cleanup(func() {
			require.NoError(c.t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), kept)))
		})
	}
}

// manager runs something until it is stopped, or until the end of the test.
func (c *cluster) manager(config *rest.Config, add func(ctrl.Manager) error) (stop func()) {
	c.t.Helper()
	tests := cache.ByObject{Namespaces: map[string]cache.Config{c.namespace: {
		LabelSelector: labels.SelectorFromSet(labels.Set{testjobs.ComponentLabel: testjobs.Component}),
	}}}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: clusterScheme(c.t), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
		Cache:      cache.Options{ByObject: map[client.Object]cache.ByObject{&batchv1.Job{}: tests, &corev1.Pod{}: tests}},
	})
	require.NoError(c.t, err)
	require.NoError(c.t, add(manager))
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(c.t.Context()), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(c.t, <-ended)
	})
	c.t.Cleanup(stop)
	return stop
}

// start runs the rollout with the rights of deploy/.
func (c *cluster) start() (stop func()) {
	c.t.Helper()
	limited := rest.CopyConfig(c.config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: controllerUser}
	return c.manager(limited, func(m ctrl.Manager) error {
		if err := New(Options{Namespace: c.namespace, Metrics: metrics.NewRollouts()}).SetupWithManager(m); err != nil {
			return err
		}
		return drain.New(drain.Options{
			Timeout: drain.DefaultTimeout, TerminationTimeout: drain.DefaultTerminationTimeout, Metrics: metrics.NewDrains(),
		}).SetupWithManager(m)
	})
}

// startAgents runs what stands in for the agents of the pool's nodes. They also look at how many of
// them are away.
func (c *cluster) startAgents() {
	c.t.Helper()
	c.manager(c.config, func(m ctrl.Manager) error {
		return ctrl.NewControllerManagedBy(m).Named("agents-" + c.namespace).For(&corev1.Node{}).Complete(reconcile.Func(
			func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if !strings.HasPrefix(req.Name, c.namespace) {
					return reconcile.Result{}, nil
				}
				n := &corev1.Node{}
				if err := c.Get(ctx, req.NamespacedName, n); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				c.look(ctx)
				before := n.DeepCopy()
				if !stepWithDrain(n.Annotations) {
					return reconcile.Result{}, nil
				}
				if !isMoving(n.Annotations) && isMoving(before.Annotations) {
					if err := c.arrive(ctx, n.Name); err != nil {
						return reconcile.Result{}, err
					}
				}
				return reconcile.Result{}, client.IgnoreNotFound(c.Patch(ctx, n, client.MergeFrom(before)))
			}))
	})
}

// arrive reports that a node has what it should have.
func (c *cluster) arrive(ctx context.Context, name string) error {
	report := &mcfgv1.MachineConfigNode{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, report); err != nil {
		return err
	}
	report.Status.Conditions = []metav1.Condition{{
		Type: mcfgv1.NodeUpdated, Status: metav1.ConditionTrue, Reason: "Updated", LastTransitionTime: metav1.Now(),
	}}
	return c.Status().Update(ctx, report)
}

// stepWithDrain is step, but for what an agent does around a change: it asks for a drain and its
// end.
func stepWithDrain(a map[string]string) bool {
	if !isMoving(a) || a[mcfgv1.AnnotationState] != mcfgv1.NodeStateWorking {
		asked := step(a)
		if asked && a[mcfgv1.AnnotationState] == mcfgv1.NodeStateWorking {
			a[mcfgv1.AnnotationDesiredDrain] = mcfgv1.DrainPrefix + a[mcfgv1.AnnotationDesiredConfig]
		}
		return asked
	}
	if a[mcfgv1.AnnotationDesiredDrain] != a[mcfgv1.AnnotationLastAppliedDrain] || !step(a) {
		return false
	}
	a[mcfgv1.AnnotationDesiredDrain] = mcfgv1.UncordonPrefix + a[mcfgv1.AnnotationCurrentConfig]
	return true
}

// look remembers how many nodes are away at most.
func (c *cluster) look(ctx context.Context) {
	var all corev1.NodeList
	if err := c.List(ctx, &all); err != nil {
		return // the test is ending
	}
	away := 0
	for i := range all.Items {
		if n := nodes.Observe(&all.Items[i]); strings.HasPrefix(n.Name, c.namespace) && n.IsUnavailable() {
			away++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.worst = max(c.worst, away)
}

// pool waits for a pool whose rollout is as wanted.
func (c *cluster) pool(reached func(*mcfgv1.RolloutStatus) bool) *mcfgv1.MachineConfigPool {
	c.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: c.namespace}, p))
		require.NotNil(t, p.Status.Rollout)
		assert.True(t, reached(p.Status.Rollout), "%+v", p.Status.Rollout)
	}, patience, 50*time.Millisecond)
	return p
}

func says(text string) func(*mcfgv1.RolloutStatus) bool {
	return func(r *mcfgv1.RolloutStatus) bool { return strings.Contains(r.Summary, text) }
}

// wants makes an image for the pool, and its configuration.
func (c *cluster) wants(generation int, layer *mcfgv1.MachineOSConfig) {
	c.t.Helper()
	config := newConfig(fmt.Sprintf("rendered-%s-%d", c.namespace, generation), "0")
	config.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"}}`)
	c.create(config)
	image := newImage(fmt.Sprintf("%s-%d", c.namespace, generation), fmt.Sprint(generation), config.Name)
	image.Spec.MachineConfigPool = c.namespace
	conditions := image.Status.Conditions
	c.create(image)
	image.Status.Conditions = conditions
	require.NoError(c.t, c.Status().Update(c.t.Context(), image))
	before := layer.DeepCopy()
	layer.Status.CurrentImagePullSpec = image.Spec.PullSpec
	require.NoError(c.t, c.Status().Patch(c.t.Context(), layer, client.MergeFrom(before)))
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	require.NoError(c.t, c.Patch(c.t.Context(), pool, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"configuration":{"name":%q}}}`, config.Name))))
}

// members makes nodes of the pool.
func (c *cluster) members(suffixes ...string) (names []string) {
	c.t.Helper()
	for _, suffix := range suffixes {
		n := nodestest.New(c.namespace+suffix, nil, nodestest.Labelled("test", c.namespace), nodestest.InState(mcfgv1.NodeStateDone, ""),
			nodestest.Annotated(mcfgv1.AnnotationStagedImage, ""))
		names = append(names, n.Name)
		c.create(n)
	}
	return names
}

// layered makes the pool and its MachineOSConfig.
func (c *cluster) layered(change ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineOSConfig {
	c.t.Helper()
	pool := newPool("", func(p *mcfgv1.MachineConfigPool) {
		p.Name, p.Spec.NodeSelector = c.namespace, &metav1.LabelSelector{MatchLabels: map[string]string{"test": c.namespace}}
		p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}}
	})
	for _, f := range change {
		f(pool)
	}
	c.create(pool)
	layer := newLayer("1")
	layer.Name, layer.Spec.MachineConfigPool.Name, layer.Status = c.namespace, c.namespace, mcfgv1.MachineOSConfigStatus{}
	layer.Spec.RenderedImagePushSpec = "registry.example.com/os/worker:latest"
	layer.Spec.RenderedImagePushSecret.Name = "push"
	layer.Spec.ImageBuilder.ImageBuilderType = "Job"
	c.create(layer)
	return layer
}

func TestRolloutOnARealControlPlane(t *testing.T) {
	c := newCluster(t)
	names, layer := c.members("-a", "-b", "-c"), c.layered()
	c.startAgents()
	stop := c.start()
	c.pool(says("the pool has no configuration yet"))

	c.wants(1, layer)
	c.pool(func(r *mcfgv1.RolloutStatus) bool { return r.UpdatedMachineCount >= 1 })
	stop() // what it knew is in the cluster
	stop = c.start()
	p := c.pool(func(r *mcfgv1.RolloutStatus) bool { return r.CompletionTime != nil })
	assert.Equal(t, "3/3 updated", p.Status.Rollout.Summary)
	assert.Equal(t, nodestest.Pinned("1"), string(p.Status.OSImagePullSpec))

	db := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "db-0", Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: names[0], Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/app:1"}}},
	}
	c.create(db)
	db.Status.Phase, db.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(t, c.Status().Update(t.Context(), db))
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: db.Labels},
		},
	}
	c.create(budget)
	c.wants(2, layer)
	c.pool(says(names[0] + ": is draining: pod " + c.namespace + "/db-0 blocked by budget budget since"))
	stop()
	c.start()
	require.NoError(t, c.Delete(t.Context(), budget))
	require.NoError(t, c.Delete(t.Context(), db, client.GracePeriodSeconds(0)))
	p = c.pool(func(r *mcfgv1.RolloutStatus) bool { return r.CompletionTime != nil && r.UpdatedMachineCount == 3 })
	assert.Equal(t, nodestest.Pinned("2"), string(p.Status.OSImagePullSpec))
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(t, 1, c.worst, "nodes that were away at once")

	var all mcfgv1.MachineConfigNodeList
	require.NoError(t, c.List(t.Context(), &all))
	ours := slices.DeleteFunc(all.Items, func(m mcfgv1.MachineConfigNode) bool { return m.Spec.Pool.Name != c.namespace })
	require.Len(t, ours, 3)
	for _, mcn := range ours {
		assert.Equal(t, nodestest.Pinned("2"), string(mcn.Spec.ConfigImage.DesiredImage))
		assert.Equal(t, "Node", mcn.OwnerReferences[0].Kind)
	}
}

// kubelet waits for the pod of a node's health check, and ends it. It gives the Job.
func (c *cluster) kubelet(node string, code int32, message string) *batchv1.Job {
	c.t.Helper()
	job := c.job(node)
	phase := corev1.PodFailed
	if code == 0 {
		phase = corev1.PodSucceeded
	}
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		var pods corev1.PodList
		require.NoError(t, c.List(c.t.Context(), &pods, client.InNamespace(c.namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}))
		require.Len(t, pods.Items, 1)
		pod, now := &pods.Items[0], metav1.Now()
		pod.Status = corev1.PodStatus{Phase: phase, StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "net", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: now, FinishedAt: now}},
		}}}
		require.NoError(t, c.Status().Update(c.t.Context(), pod))
	}, patience, 50*time.Millisecond)
	return job
}

// job waits for the Job of a node's health check.
func (c *cluster) job(node string) (found *batchv1.Job) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		jobs := c.jobs(t)
		i := slices.IndexFunc(jobs, func(j batchv1.Job) bool {
			return j.Annotations[mcfgv1.AnnotationHealthCheck] == c.namespace+"/"+node+"/net"
		})
		require.GreaterOrEqual(t, i, 0)
		found = &jobs[i]
	}, patience, 50*time.Millisecond)
	return found
}

func (c *cluster) jobs(t require.TestingT) []batchv1.Job {
	var list batchv1.JobList
	require.NoError(t, c.List(c.t.Context(), &list, client.InNamespace(c.namespace)))
	return slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return !j.DeletionTimestamp.IsZero() })
}

// gone waits until there is no Job.
func (c *cluster) gone() {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) { assert.Empty(t, c.jobs(t)) }, patience, 50*time.Millisecond)
}

// TestHealthCheckJobOnAControlPlane has no scheduler and no kubelet: the test ends pods.
func TestHealthCheckJobOnAControlPlane(t *testing.T) {
	c := newCluster(t)
	c.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "net"}, Data: map[string]string{
		"job.yaml": "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: net, image: registry.example.com/net:1}]}}}}",
	}})
	names := c.members("-a", "-b")
	layer := c.layered(checked(mcfgv1.RolloutHealthCheck{Name: "net", Job: &mcfgv1.ConfigMapKeyReference{Name: "net"}}))
	c.startAgents()
	stop := c.start()
	c.wants(1, layer)
	job := c.job(names[0])
	terms := job.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	assert.Equal(t, []string{names[0]}, terms[0].MatchFields[0].Values)
	c.pool(says(names[0] + ": is not healthy yet: check net is not over yet"))
	stop() // it knows the Job again
	stop = c.start()
	assert.Equal(t, job.UID, c.kubelet(names[0], 0, "").UID)
	c.kubelet(names[1], 0, "")
	c.pool(func(r *mcfgv1.RolloutStatus) bool { return r.CompletionTime != nil })
	c.gone()

	c.wants(2, layer)
	c.kubelet(names[0], 3, "no route")
	n := &corev1.Node{}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Name: names[0]}, n))
		assert.Contains(t, n.Annotations[mcfgv1.AnnotationFailedReason], `container "net" ended with exit code 3: no route`)
		assert.Equal(t, nodestest.Pinned("1"), n.Annotations[mcfgv1.AnnotationCurrentImage], "it went back")
	}, patience, 50*time.Millisecond)
	job = c.job(names[1])
	stop()
	require.NoError(t, c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: names[1]}}))
	c.gone() // the Node owns it, also while there is no controller
	c.start()
	c.pool(func(r *mcfgv1.RolloutStatus) bool {
		return len(r.WaitingFor) == 1 && strings.Contains(r.WaitingFor[0], "went back, because it failed: health check net failed")
	})
	assert.Empty(t, c.jobs(t), "of %s", job.Name)
}
