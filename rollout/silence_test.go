package rollout

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func silencing(p *mcfgv1.MachineConfigPool) {
	checked(podsCheck())(p)
	p.Spec.Rollout.Silence = &mcfgv1.RolloutSilence{SecretName: "am"}
}

// arrive lets the agent of a node that was told to change do so, and report it.
func (w *world) arrive(name string) {
	w.t.Helper()
	require.True(w.t, w.act(name))
	require.True(w.t, w.act(name))
	report := &mcfgv1.MachineConfigNode{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, report))
	report.Status.Conditions = []metav1.Condition{{
		Type: mcfgv1.NodeUpdated, Status: metav1.ConditionTrue, Reason: "Updated", LastTransitionTime: metav1.NewTime(w.clock.Now()),
	}}
	require.NoError(w.t, w.Status().Update(w.t.Context(), report))
}

func TestNodesThatMoveAreSilenced(t *testing.T) {
	t.Parallel()
	of := func(nodes ...string) []string { return append([]string{"am", "node"}, nodes...) }
	w := newWorld(t, newPool("rendered-2", silencing), newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"), newNode("b"))
	w.reconcile()
	assert.Equal(t, of(), w.silenced, "they stage")
	require.True(t, w.act("a"))
	w.reconcile()
	assert.Equal(t, of("a"), w.silenced)
	w.restart()
	w.reconcile()
	assert.Equal(t, of("a"), w.silenced, "another process wants the same")
	w.shelf.objects = []*unstructured.Unstructured{pod("a", "1", "Failed")}
	w.arrive("a")
	w.reconcile()
	assert.Equal(t, of("a"), w.silenced, "it is not healthy yet")
	w.clock.SetTime(t0.Add(11 * time.Minute))
	w.reconcile()
	assert.NotContains(t, w.silenced, "a", "it has failed")
}

func TestFailedSilencesDoNotBlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPool("rendered-2", silencing, func(p *mcfgv1.MachineConfigPool) { p.Spec.Rollout.Silence.Label = "instance" }),
		newConfig("rendered-2", "0"), newLayer("2"), newImage("new", "2", "rendered-2"), newNode("a"))
	w.unanswered = errors.New("the Alertmanager answered 403")
	w.settle()
	assert.Equal(t, []string{"am", "instance"}, w.silenced)
	assert.Contains(t, w.told(), "Warning SilenceFailed Alerts of nodes that change are not silenced: the Alertmanager answered 403")
	assert.Equal(t, int32(1), w.pool().Status.Rollout.UpdatedMachineCount)
	require.NoError(t, w.Delete(t.Context(), w.pool()))
	w.reconcile()
	assert.Equal(t, []string{"", ""}, w.silenced, "of a pool that is gone")
}
