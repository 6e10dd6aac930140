package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// fail has the agent of a node say that its update failed.
func (w *world) fail(name string) {
	w.t.Helper()
	n := w.node(name)
	before := n.DeepCopy()
	n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationReason] = mcfgv1.NodeStateDegraded, "disk full"
	require.NoError(w.t, w.Patch(w.t.Context(), n, client.MergeFrom(before)))
}

// recover has the agent of a node say that it has what it should have.
func (w *world) recover(name string) {
	w.t.Helper()
	n := w.node(name)
	before := n.DeepCopy()
	n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationReason] = mcfgv1.NodeStateDone, ""
	require.NoError(w.t, w.Patch(w.t.Context(), n, client.MergeFrom(before)))
}

func TestOneFailedNodeIsACondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a", nodestest.Annotated(mcfgv1.AnnotationStagedImage, nodestest.Pinned("2"))))
	w.reconcile()
	require.Equal(t, "rendered-2", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	w.fail("a")
	w.reconcile()
	w.reconcile()
	assert.Equal(t, "0/1 updated, a: goes back, because it failed: disk full", w.pool().Status.Rollout.Summary, "its agent has not answered")
	w.recover("a")
	w.reconcile()
	pool := w.pool()
	assert.Equal(t, "0/1 updated, a: went back, because it failed: disk full", pool.Status.Rollout.Summary)
	c := status.Find(pool.GetConditions(), typeRolloutDegraded)
	assert.Equal(t, metav1.ConditionTrue, c.Status)
	assert.Equal(t, mcfgv1.ReasonNodesFailed, c.Reason)
	assert.Contains(t, c.Message, "1 of 1 nodes failed with rendered-2 and image 222222222222: a: disk full")
}

// TestNodeGoesBackToWhatWasProven is about an image that takes the place of one whose canary has
// not soaked.
func TestNodeGoesBackToWhatWasProven(t *testing.T) {
	t.Parallel()
	canary := func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Rollout = &mcfgv1.RolloutSpec{Canary: &mcfgv1.RolloutCanary{SoakTime: "30m"}}
	}
	w := newWorld(t, newPool("rendered-2", canary), newConfig("rendered-2", "0"), newConfig("rendered-3", "0"),
		newLayer("2"), newImage("new", "2", "rendered-2"), newImage("newer", "3", "rendered-3"), newNode("a"), newNode("b"))
	w.settle()
	require.Equal(t, nodestest.Pinned("2"), w.node("a").Annotations[mcfgv1.AnnotationCurrentImage], "a soaks")

	w.clock.SetTime(t0.Add(time.Minute))
	w.aim("rendered-3", "3")
	w.reconcile()
	require.True(t, w.act("a"))
	w.reconcile()
	require.Equal(t, "rendered-3", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])
	w.fail("a")
	w.reconcile()
	a := w.node("a").Annotations
	assert.Equal(t, "rendered-1", a[mcfgv1.AnnotationDesiredConfig], "what it had before both")
	assert.Empty(t, a[mcfgv1.AnnotationDesiredImage])
}

// TestNodeGoesBackToWhatItHad is about an image that takes the place of one that was proven.
func TestNodeGoesBackToWhatItHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newConfig("rendered-3", "0"),
		newLayer("2"), newImage("new", "2", "rendered-2"), newImage("newer", "3", "rendered-3"), newNode("a"), newNode("b"))
	w.settle()
	w.aim("rendered-3", "3")
	w.reconcile()
	require.True(t, w.act("a"))
	w.reconcile()
	w.fail("a")
	w.reconcile()
	assert.Equal(t, nodestest.Pinned("2"), w.node("a").Annotations[mcfgv1.AnnotationDesiredImage])
}

// aim has the pool want another configuration, with the image of a digit.
func (w *world) aim(config, digit string) {
	w.t.Helper()
	pool := w.pool()
	pool.Spec.Configuration.Name = config
	require.NoError(w.t, w.Update(w.t.Context(), pool))
	layer := newLayer(digit)
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(layer), layer))
	layer.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned(digit))
	require.NoError(w.t, w.Update(w.t.Context(), layer))
}

func TestDeadAgentIsNamed(t *testing.T) {
	t.Parallel()
	agent := func(name, node string, ready corev1.ConditionStatus) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/component": "agent"}}}
		pod.Spec.NodeName, pod.Status.Conditions = node, []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return pod
	}
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a"), newNode("b"), newNode("c"), agent("agent-1", "a", corev1.ConditionFalse), agent("agent-2", "b", corev1.ConditionTrue))
	w.reconcile()
	result := w.reconcile()
	assert.Contains(t, w.pool().Status.Rollout.WaitingFor, "a, b, c: stages the image")
	assert.Equal(t, agentPatience, result.RequeueAfter)
	w.clock.SetTime(t0.Add(agentPatience))
	result = w.reconcile()
	assert.Equal(t, []string{
		"a: stages the image, but its node agent can't answer: pod agent-1 is not Ready", "b: stages the image",
		"c: stages the image, but its node agent can't answer: it has no pod on the node",
	}, w.pool().Status.Rollout.WaitingFor)
	assert.Equal(t, agentInterval, result.RequeueAfter)
}

// TestReportOfARebootIsAChange holds that rebootTimeout counts from the report of the reboot, which
// comes after the Node says it.
func TestReportOfARebootIsAChange(t *testing.T) {
	t.Parallel()
	before := &mcfgv1.MachineConfigNode{}
	after := before.DeepCopy()
	after.Status.Conditions = []metav1.Condition{{Type: mcfgv1.NodeRebootedNode, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(t0)}}
	assert.True(t, reportChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
	assert.False(t, reportChanged().Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after.DeepCopy()}))
}
