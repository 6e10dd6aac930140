package agent

import (
	"testing"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// softWorld is a liveWorld whose host says of every image that a soft reboot gets to it, and whose
// pool allows that.
func softWorld(t *testing.T) *world {
	t.Helper()
	w := liveWorld(t)
	w.machine.softly = true
	w.pool(mcfgv1.RolloutSpec{SoftReboot: mcfgv1.Enabled})
	return w
}

// pool sets spec.rollout of the pool.
func (w *world) pool(r mcfgv1.RolloutSpec) {
	w.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "worker"}, p))
	p.Spec.Rollout = &r
	require.NoError(w.t, w.Update(w.t.Context(), p))
}

const (
	softThird = "rendered-3 3 Done boots=0 booted=3 next=3 motd=three app= gone= state=rendered-3"
	bootThird = "rendered-3 3 Done boots=1 booted=3 next=3 motd=three app= gone= state=rendered-3"
)

func TestANodeSoftReboots(t *testing.T) {
	t.Parallel()
	w := softWorld(t)
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
	p.Spec.Configuration.Name = "rendered-3"
	require.NoError(t, w.Update(t.Context(), p))
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("3"))
	w.settle()
	assert.Equal(t, mcfgv1.NodeChangeSoftReboot, w.node().Annotations[mcfgv1.AnnotationStagedChange])
	assert.Equal(t, "True Staged the node will soft-reboot: /usr/bin/sh differs, which is not below /etc", w.conditions()[mcfgv1.NodeUpdatePrepared])

	w.target("rendered-3", "3")
	w.until("soft reboot")
	w.settle()
	assert.Equal(t, softThird, w.has())
	assert.Equal(t, 1, w.machine.softs)
	assert.Contains(t, w.node().Annotations[mcfgv1.AnnotationDesiredDrain], mcfgv1.UncordonPrefix, "it was drained")
	assert.Empty(t, w.get("etc/systemd/system/layerwright-return.timer"), "it is confirmed")
	journal, err := w.agent.journal.read()
	require.NoError(t, err)
	assert.Empty(t, journal)

	w.target("rendered-1", "1") // back to the rollback, of which nothing is said
	w.settle()
	assert.Equal(t, "rendered-1 1 Done boots=1 booted=1 next=1 motd=hello app= gone=x state=rendered-1", w.has())
}

func TestChangesThatStillReboot(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(*world)
		says string
	}{
		"the pool does not allow it":         {func(w *world) { w.pool(mcfgv1.RolloutSpec{}) }, bootThird},
		"the host does not say it":           {func(w *world) { w.machine.softly = false }, bootThird},
		"it can't be prepared":               {func(w *world) { w.machine.cantSoftly = true }, bootThird},
		"a policy says Reboot":               {func(w *world) { w.policy(openshiftv1.RebootSpecAction) }, bootThird},
		"a soft reboot that loses the image": {func(w *world) { w.machine.losesSoft = true }, bootThird},
		"a soft reboot that comes to naught": {func(w *world) { w.machine.ignoresSoft = true }, bootThird},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := softWorld(t)
			tt.do(w)
			w.target("rendered-3", "3")
			w.settle()
			assert.Equal(t, tt.says, w.has())
			assert.Empty(t, w.told())
		})
	}
}

// TestOtherKernelArgumentsReboot has a configuration whose arguments differ.
func TestOtherKernelArgumentsReboot(t *testing.T) {
	t.Parallel()
	w := softWorld(t)
	require.NoError(t, w.Create(t.Context(), rendered("rendered-6", "3", "nosmt")))
	w.target("rendered-6", "3")
	w.settle()
	assert.Equal(t, "rendered-6 3 Done boots=1 booted=3 next=3 motd=three app= gone= state=rendered-6", w.has())
	assert.Zero(t, w.machine.softs)
}

// TestASoftRebootIntoSomethingElse has the rollback timer bring the host back.
func TestASoftRebootIntoSomethingElse(t *testing.T) {
	t.Parallel()
	w := softWorld(t)
	w.target("rendered-3", "3")
	w.until("soft reboot") // and its end
	assert.Contains(t, w.get("etc/systemd/system/layerwright-return.timer"), "OnActiveSec=")
	require.NoError(t, w.machine.Rollback(t.Context()))
	w.machine.boot()
	w.start()
	w.settle()
	a := w.node().Annotations
	assert.Equal(t, mcfgv1.NodeStateDegraded, a[mcfgv1.AnnotationState])
	assert.Contains(t, a[mcfgv1.AnnotationReason], "the node came back with ")
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, "rendered-1 1 Done boots=1 booted=1 next=1 motd=hello app= gone=x state=rendered-1", w.has())
}

// TestAnotherTargetAfterASoftReboot has the target change while the host soft-reboots.
func TestAnotherTargetAfterASoftReboot(t *testing.T) {
	t.Parallel()
	w := softWorld(t)
	w.target("rendered-3", "3")
	w.until("soft reboot")
	w.target("rendered-4", "4")
	w.settle()
	assert.Equal(t, "rendered-4 4 Done boots=0 booted=4 next=4 motd=hello app=four gone=x state=rendered-4", w.has())
	assert.Equal(t, 2, w.machine.softs)
}

// TestSoftRebootKilledAnywhere ends the agent after each thing that it does, once each.
func TestSoftRebootKilledAnywhere(t *testing.T) {
	t.Parallel()
	effects := 1
	for killAt := 0; killAt <= effects; killAt += stride() {
		w := softWorld(t)
		w.killAt = killAt
		w.target("rendered-3", "3")
		w.settle()
		require.Contains(t, []string{softThird, bootThird}, w.has(), "killed after %d of %v", killAt, w.effects)
		require.Equal(t, 1, w.machine.softs+w.machine.boots, "killed after %d of %v", killAt, w.effects)
		if killAt == 0 {
			require.Equal(t, softThird, w.has())
			effects = len(w.effects)
		}
	}
	assert.Greater(t, effects, 8)
}

// TestAJournalOfAnEarlierAgent has one that does not know what ran: its reboot is a full one.
func TestAJournalOfAnEarlierAgent(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.machine.stuck = true
	w.target("rendered-3", "3")
	w.until("reboot")
	j, err := w.agent.journal.read()
	require.NoError(t, err)
	j.Booted = ""
	require.NoError(t, w.agent.journal.write(j))
	w.start()
	w.machine.stuck = false
	w.settle()
	assert.Equal(t, bootThird, w.has())
}
