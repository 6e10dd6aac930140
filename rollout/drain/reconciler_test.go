package drain

import (
	"context"
	"math"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, policyv1.AddToScheme, mcfgv1.AddToScheme, admissionregistrationv1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

// world is a cluster in memory. Evictions delete pods at once, but for what refusal says.
type world struct {
	client.Client
	t        *testing.T
	r        *Reconciler
	clock    *clocktesting.FakePassiveClock
	recorder *kubeevents.FakeRecorder
	refusal  error
	// writes are those to Nodes and MachineConfigNodes that succeeded.
	writes int
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(start), recorder: kubeevents.NewFakeRecorder(100)}
	w.Client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).WithStatusSubresource(&mcfgv1.MachineConfigNode{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
				return w.count(c.Patch(ctx, o, p, options...))
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, part string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
				return w.count(c.SubResource(part).Patch(ctx, o, p, options...))
			},
			SubResourceCreate: func(ctx context.Context, c client.Client, part string, o, body client.Object, options ...client.SubResourceCreateOption) error {
				if w.refusal != nil {
					return w.refusal
				}
				return c.SubResource(part).Create(ctx, o, body, options...)
			},
		}).Build()
	w.restart()
	return w
}

func (w *world) count(err error) error {
	if err == nil {
		w.writes++
	}
	return err
}

// restart begins anew with what the cluster knows.
func (w *world) restart() {
	w.r = New(Options{Timeout: time.Hour, TerminationTimeout: time.Minute, Metrics: metrics.NewDrains()})
	w.r.clock, w.r.client, w.r.reader = w.clock, w.Client, w.Client
	w.r.events = events.NewPublisher(w.recorder)
}

func (w *world) reconcile(name string) ctrl.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), request(name))
	require.NoError(w.t, err)
	return result
}

func request(name string) ctrl.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

func (w *world) ask(name, desired string) {
	w.t.Helper()
	n := w.node(name)
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, mcfgv1.AnnotationDesiredDrain, desired)
	require.NoError(w.t, w.Update(w.t.Context(), n))
}

func (w *world) drained(name string) *metav1.Condition {
	w.t.Helper()
	mcn := &mcfgv1.MachineConfigNode{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, mcn))
	return status.Find(mcn.Status.Conditions, mcfgv1.NodeDrained)
}

// blocking are the nodes that the metric has pods for that block them.
func (w *world) blocking() map[string]float64 {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(w.t, registry.Register(w.r.options.Metrics))
	families, err := registry.Gather()
	require.NoError(w.t, err)
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "layerwright_drain_blocking_pods" {
				out[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	return out
}

func (w *world) told() []string {
	var out []string
	for len(w.recorder.Events) > 0 {
		out = append(out, <-w.recorder.Events)
	}
	return out
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func budgetDB() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
	}
}

func machineConfigNode(name string) *mcfgv1.MachineConfigNode {
	return &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: mcfgv1.MachineConfigNodeStatus{Conditions: []metav1.Condition{
		{Type: mcfgv1.NodeDrained, Status: metav1.ConditionFalse, Reason: "NotYet", LastTransitionTime: metav1.NewTime(start.Add(-24 * time.Hour))},
		{Type: mcfgv1.NodeUpdated, Status: metav1.ConditionTrue, Reason: "Updated", LastTransitionTime: metav1.NewTime(start)},
	}}}
}

func tooMany() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}}
	return err
}

func TestDrainAndUncordon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil),
		pod("one", "a"), pod("two", "a"), pod("elsewhere", "b"), machineConfigNode("a"))
	require.Equal(t, leavingAfter(0), w.reconcile("a").RequeueAfter)
	assert.True(t, w.node("a").Spec.Unschedulable)
	assert.NotContains(t, w.node("a").Annotations, mcfgv1.AnnotationLastAppliedDrain, "the pods are leaving, no one has seen that they are gone")

	require.Zero(t, w.reconcile("a"))
	assert.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
	var pods corev1.PodList
	require.NoError(t, w.List(t.Context(), &pods))
	require.Len(t, pods.Items, 1)
	assert.Equal(t, "elsewhere", pods.Items[0].Name)

	w.ask("a", "uncordon-1")
	require.Zero(t, w.reconcile("a"))
	require.Zero(t, w.reconcile("a"))
	n := w.node("a")
	assert.False(t, n.Spec.Unschedulable)
	assert.Equal(t, "uncordon-1", n.Annotations[mcfgv1.AnnotationLastAppliedDrain])
	assert.Equal(t, 3, w.writes, "cordon, answer, uncordon with the answer")
	assert.Empty(t, w.told())
}

func TestForeignCordonIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", ""), nodestest.Cordoned), nodestest.New("b", nil), pod("one", "a"))
	w.reconcile("a")
	w.reconcile("a")
	require.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain], "it is drained all the same")
	w.ask("a", "uncordon-1")
	w.reconcile("a")
	assert.Equal(t, "uncordon-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
	assert.True(t, w.node("a").Spec.Unschedulable)
}

func TestCordonAtTheSameTimeIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil))
	stale := w.node("a")
	meanwhile := w.node("a")
	meanwhile.Spec.Unschedulable = true
	require.NoError(t, w.Update(t.Context(), meanwhile))
	err := w.r.patch(t.Context(), stale, func(n *corev1.Node) { Cordon(n, start) })
	require.True(t, apierrors.IsConflict(err), err)
	assert.NotContains(t, w.node("a").Annotations, mcfgv1.AnnotationCordonedAt)
}

// TestADrainIsOverInOnePass has Kubernetes taint the node as soon as it is cordoned.
func TestADrainIsOverInOnePass(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), machineConfigNode("a"))
	w.r.client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			err := c.Patch(ctx, o, p, options...)
			if n := w.node("a"); n.Spec.Unschedulable && len(n.Spec.Taints) == 0 {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
				require.NoError(t, w.Update(ctx, n))
			}
			return err
		},
	})
	assert.Zero(t, w.reconcile("a"))
	n := w.node("a")
	assert.Equal(t, "drain-1", n.Annotations[mcfgv1.AnnotationLastAppliedDrain])
	assert.Len(t, n.Spec.Taints, 1)
}

func TestTheOnlyNodeIsNotDrained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), pod("one", "a"))
	require.Zero(t, w.reconcile("a"))
	n := w.node("a")
	assert.Equal(t, "drain-1", n.Annotations[mcfgv1.AnnotationLastAppliedDrain])
	assert.False(t, n.Spec.Unschedulable)
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "one"}, &corev1.Pod{}), "its pod is still there")
}

func TestTheOnlyNodeIsCordoned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("cordon-1", "")), pod("one", "a"))
	require.Zero(t, w.reconcile("a"))
	n := w.node("a")
	assert.Equal(t, "cordon-1", n.Annotations[mcfgv1.AnnotationLastAppliedDrain])
	assert.True(t, n.Spec.Unschedulable)
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "one"}, &corev1.Pod{}), "its pod is still there")
	w.ask("a", "uncordon-1")
	require.Zero(t, w.reconcile("a"))
	assert.False(t, w.node("a").Spec.Unschedulable)
}

func TestBlockedDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"), budgetDB(), machineConfigNode("a"))
	w.refusal = tooMany()
	const message = "pod ns/one blocked by budget db since 2026-11-23T19:00:00Z"
	require.Equal(t, blockedInterval, w.reconcile("a").RequeueAfter)
	c := w.drained("a")
	require.Equal(t, message, c.Message)
	assert.Equal(t, mcfgv1.ReasonDrainBlocked, c.Reason)
	assert.True(t, c.LastTransitionTime.Time.Equal(start), "not when the node was last drained")
	assert.Equal(t, []string{"Warning DrainBlocked " + message}, w.told())

	writes := w.writes
	for range 5 { // a restart each time, and the same since
		w.clock.SetTime(w.clock.Now().Add(blockedInterval))
		w.restart()
		w.reconcile("a")
	}
	assert.Equal(t, message, w.drained("a").Message)
	assert.Equal(t, writes, w.writes, "nothing has changed")
	assert.Empty(t, w.told())

	w.clock.SetTime(start.Add(time.Hour))
	w.reconcile("a")
	assert.Equal(t, mcfgv1.ReasonDrainOverdue, w.drained("a").Reason)
	assert.Equal(t, []string{"Warning DrainOverdue " + message}, w.told())

	w.refusal = nil
	w.reconcile("a")
	w.reconcile("a")
	c = w.drained("a")
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, mcfgv1.ReasonDrained, c.Reason)
	assert.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
}

// TestUnansweredEvictionIsReported has an admission webhook never answer: the API server waits for
// it longer than a reconcile does.
func TestUnansweredEvictionIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"), machineConfigNode("a"))
	w.refusal = &url.Error{Op: "Post", URL: "https://api/eviction", Err: context.DeadlineExceeded}
	require.Equal(t, blockedInterval, w.reconcile("a").RequeueAfter)
	assert.Equal(t, "pod ns/one blocked by the API server (no answer within 5s: an admission webhook may be away) since 2026-11-23T19:00:00Z", w.drained("a").Message)
}

func TestBlockedDrainIsCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"), budgetDB(), machineConfigNode("a"))
	w.refusal = tooMany()
	w.reconcile("a")
	w.ask("a", "uncordon-1")
	w.reconcile("a")
	assert.Equal(t, mcfgv1.ReasonDrainCancelled, w.drained("a").Reason)
	assert.Empty(t, w.drained("a").Message)
	assert.False(t, w.node("a").Spec.Unschedulable)
}

func TestBlockedDrainWithoutAMachineConfigNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"), budgetDB())
	w.refusal = tooMany()
	require.Equal(t, blockedInterval, w.reconcile("a").RequeueAfter)
	w.refusal = nil
	w.reconcile("a")
	w.reconcile("a")
	assert.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
}

func TestUnknownWishIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("reboot-1", "")))
	_, err := w.r.Reconcile(t.Context(), request("a"))
	require.ErrorIs(t, err, reconcile.TerminalError(nil))
	require.ErrorContains(t, err, `annotation "machineconfiguration.openshift.io/desiredDrain" of Node "a" is "reboot-1": it must begin with drain-, cordon- or uncordon-`)
}

func TestNodeThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Zero(t, w.reconcile("a"))
	assert.Zero(t, w.writes)
}

func TestLeavingAfter(t *testing.T) {
	t.Parallel()
	for drained, want := range map[time.Duration]time.Duration{
		0: 250 * time.Millisecond, time.Second: 250 * time.Millisecond, 4 * time.Second: time.Second, time.Minute: leavingInterval, math.MaxInt64: leavingInterval,
	} {
		require.Equal(t, want, leavingAfter(drained), drained)
	}
}
