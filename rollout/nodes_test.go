package rollout

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
)

// TestNodeClocksDoNotDecideHealth is about nodes whose clocks are wrong, and about changes
// without a reboot: the condition Updated is True before them and after, and says no new time.
func TestNodeClocksDoNotDecideHealth(t *testing.T) {
	t.Parallel()
	for name, clock := range map[string]time.Duration{"it is behind": -time.Hour, "it is right": 0, "it is ahead": 5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newPool("rendered-2", checked(podsCheck())), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
				newNode("a"), newNode("b"))
			w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
			w.reach("a")
			report := &mcfgv1.MachineConfigNode{}
			require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "a"}, report))
			report.Status.Conditions[0].LastTransitionTime = metav1.NewTime(t0.Add(clock))
			require.NoError(t, w.Status().Update(t.Context(), report))

			w.reconcile()
			assert.Equal(t, "0/2 updated, a: is not healthy yet: check web is web is Failed", w.pool().Status.Rollout.Summary)
			w.clock.SetTime(t0.Add(10 * time.Minute))
			w.reconcile()
			assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig], "it goes back")
			assert.Equal(t, "rendered-1", w.node("b").Annotations[mcfgv1.AnnotationDesiredConfig])
		})
	}
}

// TestARebootIsTimedByTheControllersClock is about nodes whose clocks are wrong.
func TestARebootIsTimedByTheControllersClock(t *testing.T) {
	t.Parallel()
	for name, clock := range map[string]time.Duration{"it is behind": -2 * time.Hour, "it is ahead": 5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			report.Status.Conditions = []metav1.Condition{{
				Type: mcfgv1.NodeRebootedNode, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonRebooting, LastTransitionTime: metav1.NewTime(t0.Add(clock)),
			}}
			w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), report,
				newNode("a", nodestest.InState(mcfgv1.NodeStateRebooting, ""), func(n *corev1.Node) {
					n.Annotations[mcfgv1.AnnotationDesiredConfig], n.Annotations[mcfgv1.AnnotationDesiredImage] = "rendered-2", nodestest.Pinned("2")
				}))
			result := w.reconcile()
			assert.Equal(t, "0/1 updated, a: is rebooting", w.pool().Status.Rollout.Summary)
			assert.Equal(t, 30*time.Minute, result.RequeueAfter)
			w.clock.SetTime(t0.Add(30 * time.Minute))
			w.reconcile()
			assert.Equal(t, "did not come back within 30m0s of its reboot", w.node("a").Annotations[mcfgv1.AnnotationFailedReason])
		})
	}
}

// TestARolloutBeginsBeforeANodeIsTold ends the controller's writes where the status should be
// written: a node that was told before would never be judged.
func TestARolloutBeginsBeforeANodeIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"),
		newNode("a", nodestest.Annotated(mcfgv1.AnnotationStagedImage, nodestest.Pinned("2"))))
	w.r.client = interceptor.NewClient(w.r.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return errors.New("the API server is away")
		},
	})
	_, err := w.r.Reconcile(t.Context(), request("worker")[0])
	require.ErrorContains(t, err, "the API server is away")
	assert.Equal(t, "rendered-1", w.node("a").Annotations[mcfgv1.AnnotationDesiredConfig])

	w.restart()
	w.reconcile()
	a := w.node("a").Annotations
	assert.Equal(t, "rendered-2", a[mcfgv1.AnnotationDesiredConfig])
	assert.Equal(t, w.pool().Status.Rollout.StartTime.UTC().Format(time.RFC3339), a[mcfgv1.AnnotationRolloutStarted])
}

// TestAReinstalledNodeIsAnotherOne has a machine come back under its old name.
func TestAReinstalledNodeIsAnotherOne(t *testing.T) {
	t.Parallel()
	of := func(uid types.UID) func(*corev1.Node) { return func(n *corev1.Node) { n.UID = uid } }
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a", of("old")))
	report := func() *mcfgv1.MachineConfigNode {
		out := &mcfgv1.MachineConfigNode{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "a"}, out))
		return out
	}
	w.reconcile()
	require.Equal(t, types.UID("old"), report().OwnerReferences[0].UID)
	said := report()
	said.Status.Conditions = []metav1.Condition{{Type: mcfgv1.NodeUpdated, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonUpdated}}
	require.NoError(t, w.Status().Update(t.Context(), said))
	w.reconcile()
	require.NotEmpty(t, report().Status.Conditions, "it is still the same node")

	require.NoError(t, w.Delete(t.Context(), w.node("a")))
	require.NoError(t, w.Create(t.Context(), newNode("a", of("new"))))
	w.reconcile()
	require.Equal(t, types.UID("new"), report().OwnerReferences[0].UID)
	require.Empty(t, report().Status.Conditions, "the old machine said them")
	require.Equal(t, "worker", report().Spec.Pool.Name)
}

// TestARemovedAnnotationIsWrittenAgain leaves the way back as it was.
func TestARemovedAnnotationIsWrittenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2"), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"))
	w.reach("a")
	w.reconcile()
	before := w.node("a").Annotations
	for _, key := range []string{mcfgv1.AnnotationDesiredImage, mcfgv1.AnnotationDesiredConfig} {
		n := w.node("a")
		delete(n.Annotations, key)
		require.NoError(t, w.Update(t.Context(), n))
		w.reconcile()
		assert.Equal(t, before, w.node("a").Annotations, "%s is there again, and nothing else changes", key)
	}
}

// TestNodeMessagesAreCut has an agent say more than a person reads, for a terminal to obey.
func TestNodeMessagesAreCut(t *testing.T) {
	t.Parallel()
	threshold := func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Rollout = &mcfgv1.RolloutSpec{HaltThreshold: new(intstr.FromInt32(1))}
	}
	w := newWorld(t, newPool("rendered-2", threshold), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("b"),
		newNode("a", nodestest.InState(mcfgv1.NodeStateDegraded, "\x1b[2J"+strings.Repeat("x", 200<<10)), func(n *corev1.Node) {
			n.Annotations[mcfgv1.AnnotationDesiredConfig], n.Annotations[mcfgv1.AnnotationDesiredImage] = "rendered-2", nodestest.Pinned("2")
		}))
	require.Less(t, len(plan.Observe(w.node("a"), nil).Reason), 1025)
	w.reconcile()
	s := w.pool().Status
	for _, text := range append(append(s.Rollout.WaitingFor, s.Rollout.Summary, w.node("a").Annotations[mcfgv1.AnnotationFailedReason]), w.told()...) {
		assert.NotContains(t, text, "\x1b")
		assert.Less(t, len(text), 1200)
	}
	assert.NotEmpty(t, w.node("a").Annotations[mcfgv1.AnnotationFailedReason])
}

func TestStepThatFailsIsObserved(t *testing.T) {
	t.Parallel()
	condition := func(conditionType, reason string, is metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: is, Reason: reason, Message: reason + " of a"}
	}
	tests := map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"node state that can't be applied": {[]metav1.Condition{condition(mcfgv1.NodeAppliedFiles, mcfgv1.ReasonApplyingFailed, metav1.ConditionFalse)}, "ApplyingFailed of a"},
		"a host that can't be made ready":  {[]metav1.Condition{condition(mcfgv1.NodeUpdateExecuted, mcfgv1.ReasonPreparingFailed, metav1.ConditionFalse)}, "PreparingFailed of a"},
		"an image that can't be staged":    {[]metav1.Condition{condition(mcfgv1.NodeImagePulledFromRegistry, mcfgv1.ReasonStagingFailed, metav1.ConditionFalse)}, "StagingFailed of a"},
		"a host that does not reboot":      {[]metav1.Condition{condition(mcfgv1.NodeRebootedNode, mcfgv1.ReasonRebootOverdue, metav1.ConditionFalse)}, "RebootOverdue of a"},
		"a host that can't do it": {[]metav1.Condition{
			condition(mcfgv1.NodeImagePulledFromRegistry, mcfgv1.ReasonStagingFailed, metav1.ConditionFalse), condition(mcfgv1.NodeHostSuitable, mcfgv1.ReasonReadOnlyHost, metav1.ConditionFalse),
		}, "ReadOnlyHost of a"},
		"an update that has begun":           {[]metav1.Condition{condition(mcfgv1.NodeAppliedFiles, mcfgv1.ReasonUpdating, metav1.ConditionFalse)}, ""},
		"an update that is done":             {[]metav1.Condition{condition(mcfgv1.NodeAppliedFiles, mcfgv1.ReasonUpdated, metav1.ConditionTrue)}, ""},
		"nothing was said, as on a new node": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := &mcfgv1.MachineConfigNode{}
			report.Status.Conditions = tt.conditions
			require.Equal(t, tt.want, plan.Observe(newNode("a"), report).StepError)
		})
	}
}
