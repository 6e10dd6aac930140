package drain

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// TestRefusedEvictionIsTriedAgain has answers that no budget gives: such as KubeVirt's, which moves
// the machine away meanwhile.
func TestRefusedEvictionIsTriedAgain(t *testing.T) {
	t.Parallel()
	for text, refusal := range map[string]error{
		"the eviction of virtual machine default/a was triggered": apierrors.NewTooManyRequests("the eviction of virtual machine default/a was triggered", 0),
		"connection reset": errors.New("connection reset"),
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"), machineConfigNode("a"))
			w.refusal = refusal
			for range 3 {
				require.Equal(t, blockedInterval, w.reconcile("a").RequeueAfter)
				assert.Equal(t, "pod ns/one blocked by the API server ("+text+") since 2026-11-23T19:00:00Z", w.drained("a").Message)
				assert.Equal(t, map[string]float64{"a": 1}, w.blocking())
				w.clock.SetTime(w.clock.Now().Add(blockedInterval))
			}
			w.refusal = nil
			w.reconcile("a")
			w.reconcile("a")
			assert.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
			assert.Empty(t, w.blocking())
		})
	}
}

// TestReturningPodIsLeft has a controller make its pod again as soon as it is gone.
func TestReturningPodIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil))
	returns := func(uid types.UID) {
		p := pod("stays", "a")
		p.UID = uid
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		require.NoError(t, w.Create(t.Context(), p))
	}
	returns("1")
	require.Equal(t, leavingAfter(0), w.reconcile("a").RequeueAfter)
	returns("2")
	require.Zero(t, w.reconcile("a"))
	assert.Equal(t, "drain-1", w.node("a").Annotations[mcfgv1.AnnotationLastAppliedDrain])
	assert.True(t, w.has("ns", "stays"))

	w.ask("a", "drain-2")
	require.Equal(t, leavingAfter(0), w.reconcile("a").RequeueAfter, "the next drain finds it first")
	assert.False(t, w.has("ns", "stays"))
}

// TestPodsThatComeWhileANodeIsFreeLeave has a person end the cordon in the middle of a drain.
func TestPodsThatComeWhileANodeIsFreeLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"))
	w.refusal = tooMany()
	w.reconcile("a")
	w.refusal = nil
	n := w.node("a")
	n.Spec.Unschedulable = false
	require.NoError(t, w.Update(t.Context(), n))
	require.NoError(t, w.Create(t.Context(), pod("two", "a")))
	w.clock.SetTime(start.Add(time.Hour))
	w.reconcile("a")
	assert.True(t, w.node("a").Spec.Unschedulable)
	assert.False(t, w.has("ns", "one") || w.has("ns", "two"))
}

func TestPodsThatAreEndingAreNamed(t *testing.T) {
	t.Parallel()
	ends := pod("one", "a")
	ends.Finalizers = []string{"example.com/backup"}
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), ends, machineConfigNode("a"))
	require.Equal(t, leavingAfter(0), w.reconcile("a").RequeueAfter)
	require.Equal(t, leavingAfter(0), w.reconcile("a").RequeueAfter)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(ends), ends))
	end := ends.DeletionTimestamp.UTC().Format(time.RFC3339)
	c := w.drained("a")
	assert.Equal(t, mcfgv1.ReasonDraining, c.Reason)
	assert.Equal(t, "pod ns/one has until "+end+" to end (finalizers example.com/backup)", c.Message)
	assert.Empty(t, w.told(), "pods need time")

	n := w.node("a")
	nodestest.WithCondition(corev1.NodeReady, corev1.ConditionUnknown)(n)
	require.NoError(t, w.Status().Update(t.Context(), n))
	w.clock.SetTime(ends.DeletionTimestamp.Add(time.Minute))
	require.Equal(t, blockedInterval, w.reconcile("a").RequeueAfter)
	c = w.drained("a")
	assert.Equal(t, mcfgv1.ReasonDrainBlocked, c.Reason)
	assert.Regexp(t, "^the node is not Ready since .*Z: its pods end when its kubelet answers again; "+
		"pod ns/one blocked by its finalizers example.com/backup, which have not been removed since "+end+"$", c.Message)
	assert.True(t, c.LastTransitionTime.Time.Equal(w.clock.Now()), "when it was first seen blocked")

	ends.Finalizers = nil
	require.NoError(t, w.Update(t.Context(), ends))
	require.Zero(t, w.reconcile("a"))
	assert.Equal(t, mcfgv1.ReasonDrained, w.drained("a").Reason)
}

// TestPodsCanNotBeListed has an error that tells nothing of the node.
func TestPodsCanNotBeListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodestest.New("a", nil, asking("drain-1", "")), nodestest.New("b", nil), pod("one", "a"))
	w.r.reader = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no")
		},
	})
	_, err := w.r.Reconcile(t.Context(), request("a"))
	require.EqualError(t, err, `listing pods of Node "a": no`)
	assert.NotContains(t, w.node("a").Annotations, mcfgv1.AnnotationLastAppliedDrain)
}
