package drain

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/drain/eviction"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

const (
	drainUser = "system:serviceaccount:layerwright:layerwright-controller"
	patience  = time.Minute
)

// cluster is a real API server with its controllers and admission policies, and no kubelet: the
// test is one.
type cluster struct {
	client.Client
	t         *testing.T
	config    *rest.Config
	clients   *kubernetes.Clientset
	namespace string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, config: clustertest.ControlPlane(t), namespace: clustertest.Namespace(t)}
	c.clients = kubernetes.NewForConfigOrDie(c.config)
	install.Kinds(t, c.config)
	install.Policies(t, c.config)
	install.ControllerRights(t, c.config, c.namespace, drainUser, "deploy/base/rollout-rbac.yaml")
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, await.ServiceAccount(ctx, c.clients, c.namespace, "default"))
	return c
}

// start runs the controller with the rights of deploy/ until the end of the test, or until it is
// stopped.
func (c *cluster) start(changes ...func(*Options)) (stop func()) {
	c.t.Helper()
	limited := rest.CopyConfig(c.config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: drainUser}
	manager, err := ctrl.NewManager(limited, ctrl.Options{
		Scheme: newScheme(c.t), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(c.t, err)
	options := Options{Timeout: DefaultTimeout, TerminationTimeout: DefaultTerminationTimeout, Metrics: metrics.NewDrains()}
	for _, change := range changes {
		change(&options)
	}
	require.NoError(c.t, New(options).SetupWithManager(manager))
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

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		kept := o.DeepCopyObject().(client.Object)
		require.NoError(c.t, c.Create(c.t.Context(), o))
		if kept.GetNamespace() == "" {
			c.t.Cleanup(func() { require.NoError(c.t, c.Delete(context.WithoutCancel(c.t.Context()), kept)) })
		}
	}
}

func containers() []corev1.Container {
	return []corev1.Container{{Name: "c", Image: "registry.example.com/app:1"}}
}

// run creates a pod that runs on a node, as far as the API server knows.
func (c *cluster) run(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	c.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: containers()},
	}
	for _, change := range changes {
		change(p)
	}
	c.create(p)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(c.t, c.Status().Update(c.t.Context(), p))
	return p
}

// runDaemon is run with a DaemonSet, which adopts the pod.
func (c *cluster) runDaemon(name, node string) {
	c.t.Helper()
	ofSet := map[string]string{"of": name}
	c.run(name, node, func(p *corev1.Pod) { p.Labels = ofSet })
	_, err := c.clients.AppsV1().DaemonSets(c.namespace).Create(c.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: ofSet}, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: ofSet}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"test": c.namespace}, Containers: containers()},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	target := await.Target{Client: c.clients.CoreV1().RESTClient(), Resource: "pods", Namespace: c.namespace, Name: name}
	require.NoError(c.t, await.Object(ctx, target, &corev1.Pod{}, func(p *corev1.Pod) (bool, string) {
		return eviction.IsOfDaemonSet(p), "no DaemonSet controls it"
	}))
}

func (c *cluster) ask(node, desired string) {
	c.t.Helper()
	patch := `{"metadata":{"annotations":{"` + mcfgv1.AnnotationDesiredDrain + `":"` + desired + `"}}}`
	_, err := c.clients.CoreV1().Nodes().Patch(c.t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

// until waits for a Node that is as wanted.
func (c *cluster) until(node string, reached func(*corev1.Node) (bool, string)) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, await.Object(ctx, await.Target{Client: c.clients.CoreV1().RESTClient(), Resource: "nodes", Name: node}, &corev1.Node{}, reached))
}

func answered(answer string) func(*corev1.Node) (bool, string) {
	return func(n *corev1.Node) (bool, string) {
		last := n.Annotations[mcfgv1.AnnotationLastAppliedDrain]
		return last == answer, "the answer is " + last
	}
}

// untilEvicted waits until a pod is being deleted, and lets it go as its kubelet would.
func (c *cluster) untilEvicted(name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	target := await.Target{Client: c.clients.CoreV1().RESTClient(), Resource: "pods", Namespace: c.namespace, Name: name}
	require.NoError(c.t, await.Object(ctx, target, &corev1.Pod{}, func(p *corev1.Pod) (bool, string) {
		return !p.DeletionTimestamp.IsZero(), "it is not being deleted"
	}))
	require.NoError(c.t, c.clients.CoreV1().Pods(c.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// protect makes a PodDisruptionBudget that allows nothing, and waits until the API server knows its
// numbers.
func (c *cluster) protect(name string) *policyv1.PodDisruptionBudget {
	c.t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}
	c.create(budget)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	target := await.Target{Client: c.clients.PolicyV1().RESTClient(), Resource: "poddisruptionbudgets", Namespace: c.namespace, Name: name}
	require.NoError(c.t, await.Object(ctx, target, &policyv1.PodDisruptionBudget{}, func(b *policyv1.PodDisruptionBudget) (bool, string) {
		return b.Status.ObservedGeneration == b.Generation && b.Status.CurrentHealthy == 1, "its pods are not counted yet"
	}))
	return budget
}

func (c *cluster) drained(node string) metav1.Condition {
	c.t.Helper()
	mcn := &mcfgv1.MachineConfigNode{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: node}, mcn))
	if found := status.Find(mcn.Status.Conditions, mcfgv1.NodeDrained); found != nil {
		return *found
	}
	return metav1.Condition{}
}

func reportOf(node string) *mcfgv1.MachineConfigNode {
	return &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: mcfgv1.MachineConfigNodeSpec{
		Node: mcfgv1.MCOObjectReference{Name: node}, Pool: mcfgv1.MCOObjectReference{Name: "worker"},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: "rendered-worker-1"},
	}}
}

func emptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func TestDrainOnARealControlPlane(t *testing.T) {
	c := newCluster(t)
	node, other := c.namespace+"-a", c.namespace+"-b"
	c.create(nodestest.New(node, nil, nodestest.Labelled("test", c.namespace)), nodestest.New(other, nil), reportOf(node))
	c.runDaemon("agent", node)
	c.run("static", node, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
	c.run("plain", node)
	c.run("scratch", node, emptyDir)
	c.run("db", node)
	elsewhere := c.run("elsewhere", other)
	budget := c.protect("db")
	requireSameAsKubectl(t, c, node)

	stop := c.start()
	c.ask(node, "drain-1")
	c.untilEvicted("plain")
	c.untilEvicted("scratch")
	message := regexp.MustCompile(`^pod ` + c.namespace + `/db blocked by budget db since \S+Z$`)
	require.Eventually(t, func() bool { return c.drained(node).Reason == mcfgv1.ReasonDrainBlocked }, patience, 50*time.Millisecond)
	told := c.drained(node)
	assert.Regexp(t, message, told.Message)
	require.Eventually(t, func() bool {
		list, err := c.clients.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name == node && e.Note == told.Message })
	}, patience, 50*time.Millisecond, "an event says so too")

	stop() // what it knew is in the cluster
	c.start()
	require.NoError(t, c.Delete(t.Context(), budget))
	c.untilEvicted("db")
	c.until(node, answered("drain-1"))
	assert.Equal(t, metav1.ConditionTrue, c.drained(node).Status)
	var left corev1.PodList
	require.NoError(t, c.List(t.Context(), &left, client.MatchingFields{"spec.nodeName": node}))
	names := make([]string, 0, len(left.Items))
	for i := range left.Items {
		names = append(names, left.Items[i].Name)
	}
	assert.ElementsMatch(t, []string{"agent", "static"}, names)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere))
	assert.Zero(t, elsewhere.DeletionTimestamp)

	c.ask(node, "uncordon-1")
	c.until(node, answered("uncordon-1"))
	c.until(node, func(n *corev1.Node) (bool, string) { return !n.Spec.Unschedulable, "it is cordoned" })
}

// requireSameAsKubectl compares which pods of a node should leave with what kubectl would evict.
func requireSameAsKubectl(t *testing.T, c *cluster, node string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), clustertest.Program(t, "kubectl"), "--kubeconfig", clustertest.Kubeconfig(t),
		"drain", node, "--dry-run=client", "--ignore-daemonsets", "--delete-emptydir-data", "--force")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	var theirs, ours []string
	for _, match := range regexp.MustCompile(`(?m)^evicting pod (\S+)`).FindAllStringSubmatch(string(output), -1) {
		theirs = append(theirs, strings.TrimPrefix(match[1], c.namespace+"/"))
	}
	var pods corev1.PodList
	require.NoError(t, c.List(t.Context(), &pods, client.MatchingFields{"spec.nodeName": node}))
	for i := range pods.Items {
		if eviction.FateOf(&pods.Items[i], time.Now(), time.Minute) == eviction.Evict {
			ours = append(ours, pods.Items[i].Name)
		}
	}
	require.ElementsMatch(t, theirs, ours, string(output))
	require.Len(t, ours, 3)
}
