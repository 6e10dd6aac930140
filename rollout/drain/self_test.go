package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

var ofControlPlane = corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}

func tainted(taint corev1.Taint) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taint) }
}

// replica is one of the controller.
func replica(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "layerwright", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "controller", "pod-template-hash": name},
		},
		Spec:   corev1.PodSpec{NodeName: node, NodeSelector: map[string]string{corev1.LabelOSStable: "linux"}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func tolerating(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func TestNoNodeFor(t *testing.T) {
	t.Parallel()
	notReady := nodestest.WithCondition(corev1.NodeReady, corev1.ConditionUnknown)
	onWindows := nodestest.Labelled(corev1.LabelOSStable, "windows")
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		others []*corev1.Node
		want   string
	}{
		"another worker": {others: []*corev1.Node{nodestest.New("c", nil, tainted(ofControlPlane)), nodestest.New("b", nil)}},
		"tainted control planes": {
			others: []*corev1.Node{nodestest.New("d", nil, tainted(ofControlPlane)), nodestest.New("c", nil, tainted(ofControlPlane))},
			want:   "c has the taint node-role.kubernetes.io/control-plane:NoSchedule, d has the taint node-role.kubernetes.io/control-plane:NoSchedule",
		},
		"a taint that the controller tolerates": {
			pod:    replica("x", "a", tolerating(corev1.Toleration{Key: ofControlPlane.Key, Operator: corev1.TolerationOpExists})),
			others: []*corev1.Node{nodestest.New("c", nil, tainted(ofControlPlane))},
		},
		"a taint that only asks": {
			others: []*corev1.Node{nodestest.New("b", nil, tainted(corev1.Taint{Key: "x", Effect: corev1.TaintEffectPreferNoSchedule}))},
		},
		"a taint that ends pods": {
			others: []*corev1.Node{nodestest.New("b", nil, tainted(corev1.Taint{Key: "x", Value: "y", Effect: corev1.TaintEffectNoExecute}))},
			want:   "b has the taint x=y:NoExecute",
		},
		"all are being drained": {
			others: []*corev1.Node{nodestest.New("b", nil, asking("drain-1", "")), nodestest.New("c", nil, asking("drain-1", "drain-1"), nodestest.Cordoned)},
			want:   "b is being drained, c is being drained",
		},
		"one has been drained and is back": {others: []*corev1.Node{nodestest.New("b", nil, asking("uncordon-1", "uncordon-1"))}},
		"a cordoned node":                  {others: []*corev1.Node{nodestest.New("b", nil, nodestest.Cordoned)}, want: "b is cordoned"},
		"a node without a kubelet":         {others: []*corev1.Node{nodestest.New("b", nil, notReady)}, want: "b is not Ready"},
		"a node of another kind":           {others: []*corev1.Node{nodestest.New("b", nil, onWindows)}, want: "b does not match its nodeSelector or affinity"},
		"no other node":                    {want: "there is no other"},
		"the controller tolerates a cordon": {
			pod: replica("x", "a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), others: []*corev1.Node{nodestest.New("b", nil, notReady)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := test.pod
			if pod == nil {
				pod = replica("x", "a")
			}
			all := []corev1.Node{*nodestest.New("a", nil)}
			for _, n := range test.others {
				all = append(all, *n)
			}
			assert.Equal(t, test.want, noNodeFor(pod, all))
		})
	}
}

func TestHasStandby(t *testing.T) {
	t.Parallel()
	all := []corev1.Node{
		*nodestest.New("a", nil), *nodestest.New("b", nil, nodestest.Cordoned), *nodestest.New("c", nil, asking("drain-1", "")),
		*nodestest.New("d", nil, nodestest.WithCondition(corev1.NodeReady, corev1.ConditionFalse)),
	}
	self := replica("x", "a")
	for name, test := range map[string]struct {
		other *corev1.Pod
		want  bool
	}{
		"on a node that only takes no more pods": {replica("y", "b"), true},
		"beside this one":                        {replica("y", "a"), false},
		"on a node that is being drained":        {replica("y", "c"), false},
		"on a node that does not answer":         {replica("y", "d"), false},
		"has no node":                            {replica("y", ""), false},
		"is not ready":                           {replica("y", "b", func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }), false},
		"is leaving":                             {replica("y", "b", endingAt(start)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, hasStandby(self, []corev1.Pod{*self, *test.other}, all))
		})
	}
}

// newOwnWorld is newWorld with the controller on node a.
func newOwnWorld(t *testing.T, self *corev1.Pod, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, append(objects, self, machineConfigNode("a"))...)
	w.r.options.OwnNode, w.r.options.OwnPod = "a", client.ObjectKeyFromObject(self)
	return w
}

func (w *world) has(namespace, name string) bool {
	w.t.Helper()
	err := w.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{})
	require.NoError(w.t, client.IgnoreNotFound(err))
	return err == nil
}

// TestControllerHasNoOtherNode is one worker beside a control plane that takes no other pods.
func TestControllerHasNoOtherNode(t *testing.T) {
	t.Parallel()
	worker := nodestest.New("a", nil, asking("drain-1", ""))
	Cordon(worker, start.Add(-time.Minute)) // when another node could still take the controller
	w := newOwnWorld(t, replica("x", "a"), worker, nodestest.New("c", nil, tainted(ofControlPlane)), pod("one", "a"))

	require.Equal(t, blockedInterval, w.reconcile("a").RequeueAfter)
	const message = "pod layerwright/x blocked by the lack of another node that can run this controller " +
		"(c has the taint node-role.kubernetes.io/control-plane:NoSchedule: uncordon or add a node, or let the controller's Deployment tolerate a taint) " +
		"since 2026-11-23T19:00:00Z"
	assert.Equal(t, message, w.drained("a").Message)
	assert.Equal(t, mcfgv1.ReasonDrainBlocked, w.drained("a").Reason)
	assert.Equal(t, []string{"Warning DrainBlocked " + message}, w.told())
	assert.Equal(t, map[string]float64{"a": 1}, w.blocking())
	assert.True(t, w.has("ns", "one") && w.has("layerwright", "x"))
	assert.False(t, w.node("a").Spec.Unschedulable, "where the controller's next pod could start")
	assert.NotContains(t, w.node("a").Annotations, mcfgv1.AnnotationLastAppliedDrain)

	writes := w.writes
	w.reconcile("a")
	assert.Equal(t, writes, w.writes, "the node stays as it is")

	other := w.node("c")
	other.Spec.Taints = nil
	require.NoError(t, w.Update(t.Context(), other))
	w.reconcile("a")
	assert.True(t, w.node("a").Spec.Unschedulable)
	assert.False(t, w.has("ns", "one") || w.has("layerwright", "x"))
}

func TestCordonOfOthersStaysWhereTheControllerDoes(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, replica("x", "a"), nodestest.New("a", nil, asking("drain-1", ""), nodestest.Cordoned), nodestest.New("b", nil, nodestest.Cordoned))
	w.reconcile("a")
	assert.Contains(t, w.drained("a").Message, "(b is cordoned: ")
	assert.True(t, w.node("a").Spec.Unschedulable)
	assert.True(t, w.has("layerwright", "x"))
}

func TestStandbyLetsTheControllerGo(t *testing.T) {
	t.Parallel()
	w := newOwnWorld(t, replica("x", "a"), replica("y", "b"), nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil, nodestest.Cordoned))
	w.reconcile("a")
	assert.False(t, w.has("layerwright", "x"))
}

// TestAllNodesAreDrainedAtOnce is maxUnavailable: 3 of 3.
func TestAllNodesAreDrainedAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("the controller's node waits for the others", func(t *testing.T) {
		t.Parallel()
		w := newOwnWorld(t, replica("x", "a"), nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil, asking("drain-1", "")),
			nodestest.New("c", nil, asking("drain-1", "")))
		for _, name := range []string{"a", "b", "c"} {
			w.reconcile(name)
		}
		assert.False(t, w.node("a").Spec.Unschedulable)
		assert.Contains(t, w.drained("a").Message, "(b is being drained, c is being drained: ")
		require.True(t, w.node("b").Spec.Unschedulable && w.node("c").Spec.Unschedulable)

		w.ask("b", "uncordon-1")
		w.reconcile("b")
		w.reconcile("a")
		assert.True(t, w.node("a").Spec.Unschedulable)
		assert.False(t, w.has("layerwright", "x"))
	})
	t.Run("no node is cordoned while the controller moves", func(t *testing.T) {
		t.Parallel()
		w := newOwnWorld(t, replica("x", "a"), nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil))
		w.reconcile("a")
		require.False(t, w.has("layerwright", "x"))
		w.ask("b", "drain-1")
		assert.Equal(t, leavingInterval, w.reconcile("b").RequeueAfter)
		assert.False(t, w.node("b").Spec.Unschedulable)
		w.clock.SetTime(start.Add(moveTime))
		w.reconcile("b")
		assert.True(t, w.node("b").Spec.Unschedulable)
	})
	t.Run("another node is asked for in between", func(t *testing.T) {
		t.Parallel()
		w := newOwnWorld(t, replica("x", "a"), nodestest.New("a", nil, asking("drain-1", ""), nodestest.Cordoned), nodestest.New("b", nil, asking("drain-1", "")))
		p := pass{Reconciler: w.r, node: w.node("a"), since: start, known: budgets{}}
		require.NoError(t, p.empty(t.Context()))
		require.Len(t, p.left.blockers, 1)
		assert.Contains(t, p.left.blockers[0].By, "(b is being drained: ")
		assert.True(t, w.has("layerwright", "x"))
	})
}

// TestControllerReturnsToItsNode has a controller that tolerates a cordon.
func TestControllerReturnsToItsNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age  time.Duration
		stay bool
	}{
		"it goes once":              {age: time.Hour},
		"and stays when it is back": {age: -5 * time.Second, stay: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := nodestest.New("a", nil, asking("drain-1", ""))
			Cordon(worker, start)
			self := replica("x", "a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(start.Add(-test.age))
			})
			w := newOwnWorld(t, self, worker, nodestest.New("b", nil, nodestest.Cordoned))
			w.reconcile("a")
			assert.Equal(t, test.stay, w.has("layerwright", "x"))
			if test.stay {
				assert.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
			}
		})
	}
}
