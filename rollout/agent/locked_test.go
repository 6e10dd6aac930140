package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
)

// lockFile is what ostree looks for.
const lockFile = "run/ostree/staged-deployment-locked"

// staged is a world whose node holds the image of digit 2, and waits for a slot.
func staged(t *testing.T) *world {
	t.Helper()
	w := arrived(t)
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	require.Equal(t, nodestest.Pinned("2"), w.node().Annotations[mcfgv1.AnnotationStagedImage])
	return w
}

// unlockable is the same on a host that ostree does not manage.
func unlockable(t *testing.T) *world {
	t.Helper()
	w := arrived(t)
	require.NoError(t, os.Remove(filepath.Join(w.root, "run/ostree-booted")))
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	return w
}

// rebootByHand is what no one has asked the agent for.
func (w *world) rebootByHand() {
	w.machine.boot()
	w.start()
	w.settle()
}

func TestARebootOutsideOfTheTurn(t *testing.T) {
	t.Parallel()
	t.Run("boots what ran", func(t *testing.T) {
		t.Parallel()
		w := staged(t)
		assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeStagedImageLocked])
		w.rebootByHand()
		assert.True(t, w.machine.booted.IsOf(mcfgv1.ImageDigestFormat(nodestest.Pinned("1"))))
		assert.Equal(t, nodestest.Pinned("2"), w.node().Annotations[mcfgv1.AnnotationStagedImage], "it is staged again")
		assert.FileExists(t, filepath.Join(w.root, lockFile))
		w.target("rendered-2", "2")
		w.settle()
		assert.Equal(t, atSecond, w.is(), "in its slot it boots")
		assert.NoFileExists(t, filepath.Join(w.root, lockFile))
	})
	t.Run("boots what ran, also of a node that is told to drain", func(t *testing.T) {
		t.Parallel()
		w := staged(t)
		w.target("rendered-2", "2")
		for range 3 { // no one drains
			_, err := w.reconcile()
			require.NoError(t, err)
		}
		require.Equal(t, mcfgv1.NodeStateWorking, w.node().Annotations[mcfgv1.AnnotationState])
		w.machine.boot()
		assert.True(t, w.machine.booted.IsOf(mcfgv1.ImageDigestFormat(nodestest.Pinned("1"))))
	})
	t.Run("boots what a person has staged", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.machine.staged = deployment("3")
		w.settle()
		assert.NoFileExists(t, filepath.Join(w.root, lockFile))
	})
	t.Run("is kept from the image again if the lock is lost", func(t *testing.T) {
		t.Parallel()
		w := staged(t)
		report := w.report()
		meta.SetStatusCondition(&report.Status.Conditions, metav1.Condition{
			Type: mcfgv1.NodeStagedImageLocked, Status: metav1.ConditionFalse, Reason: mcfgv1.ReasonLockingFailed, Message: "no space left on device",
		})
		require.NoError(t, w.Status().Update(t.Context(), report))
		require.NoError(t, os.Remove(filepath.Join(w.root, lockFile)))
		w.machine.staged.Locked = false
		w.settle()
		assert.FileExists(t, filepath.Join(w.root, lockFile))
		assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeStagedImageLocked])
	})
	t.Run("is undone also after a live update", func(t *testing.T) {
		t.Parallel()
		w := unlockable(t)
		w.annotate(mcfgv1.AnnotationLiveOnly, "true")
		w.rebootByHand()
		w.annotate(mcfgv1.AnnotationStageImage, "")
		w.settle()
		assert.Equal(t, backHome, w.is())
	})
	t.Run("is not undone while the pool is paused", func(t *testing.T) {
		t.Parallel()
		w := unlockable(t)
		w.pause(true)
		w.rebootByHand()
		w.annotate(mcfgv1.AnnotationStageImage, "")
		w.settle()
		assert.Empty(t, w.node().Annotations[mcfgv1.AnnotationDesiredDrain])
		res, err := w.reconcile()
		require.NoError(t, err)
		assert.Equal(t, hostRetry, res.RequeueAfter, "no one says that the pool is not paused any more")
		w.pause(false)
		w.settle()
		assert.Equal(t, backHome, w.is())
	})
	t.Run("boots the image where the host has no lock, which is said", func(t *testing.T) {
		t.Parallel()
		w := unlockable(t)
		assert.Contains(t, w.conditions()[mcfgv1.NodeStagedImageLocked], "False LockUnsupported any reboot of this node boots the image")
		w.rebootByHand()
		assert.Equal(t, mcfgv1.NodeStateDegraded, w.node().Annotations[mcfgv1.AnnotationState])
		assert.Contains(t, w.conditions()[mcfgv1.NodeUpdated], "False UpdateFailed the node booted")

		w.annotate(mcfgv1.AnnotationStageImage, "") // as in quarantine
		w.settle()
		assert.Equal(t, backHome, w.is(), "it goes back")
		assert.Equal(t, "True Updated the node has rendered-1", w.conditions()[mcfgv1.NodeUpdated])
	})
	t.Run("is not undone where failed nodes are to stay", func(t *testing.T) {
		t.Parallel()
		w := unlockable(t)
		w.pool(mcfgv1.RolloutSpec{AutomaticRollback: mcfgv1.Disabled})
		w.rebootByHand()
		w.annotate(mcfgv1.AnnotationStageImage, "")
		w.settle()
		assert.Equal(t, mcfgv1.NodeStateDegraded, w.node().Annotations[mcfgv1.AnnotationState])
		assert.True(t, w.machine.booted.IsOf(mcfgv1.ImageDigestFormat(nodestest.Pinned("2"))))
	})
	t.Run("into a person's own image is not undone", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.machine.staged = deployment("3")
		w.rebootByHand()
		assert.True(t, w.machine.booted.IsOf(mcfgv1.ImageDigestFormat(nodestest.Pinned("3"))))
	})
}

func TestUnstagingIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := staged(t)
	w.machine.unstageError = errors.New("ostree admin: exit status 1: Unknown command 'undeploy'")
	w.annotate(mcfgv1.AnnotationStageImage, "")
	for range 3 {
		_, err := w.reconcile()
		require.ErrorContains(t, err, "removing the staged image "+nodestest.Pinned("2"))
	}
	assert.Contains(t, w.conditions()[mcfgv1.NodeImagePulledFromRegistry], "False UnstagingFailed removing the staged image")
	assert.FileExists(t, filepath.Join(w.root, lockFile), "meanwhile it does not boot")
	w.machine.unstageError = nil
	w.settle()
	assert.Equal(t, "False Withdrawn the image is no longer asked for", w.conditions()[mcfgv1.NodeImagePulledFromRegistry])
	assert.Nil(t, w.machine.staged)
	assert.NoFileExists(t, filepath.Join(w.root, lockFile))
}

// pause changes spec.paused of the pool.
func (w *world) pause(paused bool) {
	w.t.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "worker"}, pool))
	pool.Spec.Paused = paused
	require.NoError(w.t, w.Update(w.t.Context(), pool))
}

func TestNodesWithEtcdDoNotGoBackByThemselves(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"worker": true, "infra": true, mcfgv1.PoolMaster: false, mcfgv1.PoolArbiter: false} {
		pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.Equal(t, want, letsReturn(pool), name)
	}
}
