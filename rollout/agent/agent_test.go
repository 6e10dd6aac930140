package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/host"
)

const (
	atFirst  = `rendered-1 111111111111 staged="" Done "" drain= booted=111111 next=111111 args=[] file=rendered-1`
	atSecond = `rendered-2 222222222222 staged="" Done "" drain=uncordon booted=222222 next=222222 args=[nosmt quiet] file=rendered-2`
	backHome = `rendered-1 111111111111 staged="" Done "" drain=uncordon booted=111111 next=111111 args=[] file=rendered-1`
)

func TestUpdateOfANode(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	assert.Equal(t, atFirst, w.is())
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	assert.Equal(t, nodestest.Pinned("2"), w.node().Annotations[mcfgv1.AnnotationStagedImage])
	assert.Equal(t, "rendered-1", w.get("var/lib/app/name"), "the node still runs what it has")

	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, atSecond, w.is())
	assert.Equal(t, 1, w.machine.boots)
	assert.Equal(t, []string{nodestest.Pinned("2")}, w.machine.pulls)
	assert.LessOrEqual(t, w.writes, 8, "requests that write, of one update: %v", w.effects)
	assert.Equal(t, map[string]string{
		"Updated": "True Updated the node has rendered-2", "UpdateComplete": "True Updated", "NodeDegraded": "False AsExpected", "HostSuitable": "True AsExpected",
		"UpdatePrepared": "True Staged " + nodestest.Pinned("2"), "ImagePulledFromRegistry": "True Staged " + nodestest.Pinned("2"),
		"AppliedFiles": "True Updated", "AppliedOSImage": "True Updated " + nodestest.Pinned("2"), "AppliedFilesAndOS": "True Updated",
		"UpdateExecuted": "True Updated", "StagedImageLocked": "True AsExpected", "RebootedNode": "True Updated " + nodestest.Pinned("2"),
		"Cordoned": "True Updated", "Drained": "True Updated", "Uncordoned": "True Updated",
		"UpdatePostActionComplete": "True Updated", "Resumed": "True Updated",
	}, w.conditions())

	before := w.writes
	w.settle()
	assert.Equal(t, before, w.writes, "a node that has what it should is not written")
}

func TestANodeThatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	t.Run("by its kubelet, while a slow host is looked at", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		beats := 0
		w.machine.meanwhile = func() {
			beats++
			n := w.node()
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: fmt.Sprint("Beat", beats)}}
			require.NoError(t, w.Status().Update(t.Context(), n))
		}
		w.target("rendered-1", "1")
		w.settle()
		require.Positive(t, beats)
		require.Equal(t, atFirst, w.is())
		w.target("rendered-2", "2")
		w.settle()
		require.Equal(t, atSecond, w.is())
		require.Equal(t, fmt.Sprint("Beat", beats), w.node().Status.Conditions[0].Reason, "what others wrote stays")
	})
	t.Run("by the controller, which wants something else", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
		w.machine.meanwhile = func() {
			if w.machine.staged != nil { // which it is about to report
				w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("3"))
			}
		}
		for range 10 {
			_, err := w.reconcile()
			require.NoError(t, err)
			require.NotEqual(t, nodestest.Pinned("2"), w.node().Annotations[mcfgv1.AnnotationStagedImage], "it looks again first")
		}
		w.settle()
		require.Equal(t, nodestest.Pinned("3"), w.node().Annotations[mcfgv1.AnnotationStagedImage])
	})
}

// TestWithdrawnImageDoesNotBoot is about the time in which the host pulls an image,
// and no annotation says so.
func TestWithdrawnImageDoesNotBoot(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.until("stage")
	require.True(t, w.machine.staged.IsOf(mcfgv1.ImageDigestFormat(nodestest.Pinned("2"))))
	require.Empty(t, w.node().Annotations[mcfgv1.AnnotationStagedImage], "it has not reported yet")
	w.annotate(mcfgv1.AnnotationStageImage, "")
	w.start()
	w.settle()
	require.Nil(t, w.machine.staged)

	w.machine.staged = deployment("3")
	w.settle()
	require.NotNil(t, w.machine.staged, "what a person has staged stays")
}

// TestARegistryThatHangsHoldsNothingElse is about a pull that would go on for an hour.
func TestARegistryThatHangsHoldsNothingElse(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.hangs, w.machine.pulling = nodestest.Pinned("2"), make(chan struct{})
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	changed := w.agent.annotationsChanged()
	before := w.node()
	go func() {
		<-w.machine.pulling
		after := w.node()
		after.Annotations["machineconfiguration.openshift.io/other"] = "x"
		changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) // the pull goes on
		w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("3"))
		changed.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: w.node()})
	}()
	w.settle()
	require.Equal(t, nodestest.Pinned("3"), w.node().Annotations[mcfgv1.AnnotationStagedImage])
	require.Equal(t, []string{nodestest.Pinned("2"), nodestest.Pinned("3")}, w.machine.pulls)
	require.NotContains(t, w.conditions()["ImagePulledFromRegistry"], mcfgv1.ReasonStagingFailed)
}

// TestAHostThatBootsItsImageEarly is about a reboot by others while the host holds the next image.
func TestAHostThatBootsItsImageEarly(t *testing.T) {
	t.Parallel()
	w := unlockable(t)
	w.rebootByHand()
	a := w.node().Annotations
	require.Equal(t, mcfgv1.NodeStateDegraded, a[mcfgv1.AnnotationState])
	require.Contains(t, a[mcfgv1.AnnotationReason], "the node booted "+nodestest.Pinned("2"))
	require.Equal(t, nodestest.Pinned("2"), a[mcfgv1.AnnotationStagedImage], "the controller knows that the node has it")
	w.target("rendered-2", "2")
	w.settle()
	require.Equal(t, atSecond, w.is())

	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("3"))
	w.machine.booted = deployment("1") // by a person
	w.settle()
	require.Equal(t, nodestest.Pinned("3"), w.node().Annotations[mcfgv1.AnnotationStagedImage], "a degraded node stages what comes next")
}

func TestTheWayBackPullsNothing(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.target("rendered-2", "2")
	w.settle()
	w.machine.pulls = nil
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("1"))
	w.settle()
	assert.Equal(t, nodestest.Pinned("1"), w.node().Annotations[mcfgv1.AnnotationStagedImage], "it is on the host's disk")
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, backHome, w.is())
	assert.Empty(t, w.machine.pulls)
	assert.Contains(t, w.effects, "rollback")
}

func TestAWayBackThatIsNotOnTheHostIsPulled(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.target("rendered-2", "2")
	w.settle()
	w.machine.pulls, w.machine.rollback = nil, nil // a person has cleaned up
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, backHome, w.is())
	assert.Equal(t, []string{nodestest.Pinned("1")}, w.machine.pulls)
}

func TestOnlyTheOSImageNeedsNoSignature(t *testing.T) {
	t.Parallel()
	for digit, want := range map[string]host.Trust{"4": host.TrustSignature, "2": host.TrustDigest} {
		w := arrived(t)
		w.target("rendered-2", digit) // its OS image is 2
		w.settle()
		assert.Equal(t, []string{nodestest.Pinned(digit)}, w.machine.pulls)
		assert.Equal(t, []host.Trust{want}, w.machine.trusts)
	}
}

func TestKernelArgumentsAlone(t *testing.T) {
	t.Parallel()
	w := arrived(t, rendered("rendered-3", "1", "nosmt"))
	w.target("rendered-3", "1")
	w.settle()
	assert.Equal(t, `rendered-3 111111111111 staged="" Done "" drain=uncordon booted=111111 next=111111 args=[nosmt] file=rendered-3`, w.is())
	assert.Equal(t, 1, w.machine.boots)
	assert.Empty(t, w.machine.pulls)
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, backHome, w.is())
	assert.Equal(t, 2, w.machine.boots)
}

func TestNodeStateAloneNeedsNoReboot(t *testing.T) {
	t.Parallel()
	w := arrived(t, rendered("rendered-3", "1"))
	w.target("rendered-3", "1")
	w.settle()
	assert.Equal(t, `rendered-3 111111111111 staged="" Done "" drain= booted=111111 next=111111 args=[] file=rendered-3`, w.is())
	assert.Zero(t, w.machine.boots)
	assert.Empty(t, w.node().Annotations[mcfgv1.AnnotationDesiredDrain], "and no drain")
}

// TestWhatIsInTheWayOfNodeState has a person remove what is in the way of a file below /var.
func TestWhatIsInTheWayOfNodeState(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	require.NoError(t, os.RemoveAll(filepath.Join(w.root, "var/lib/app")))
	w.put("var/lib/app", "a person's")
	_, err := w.reconcile()
	require.ErrorContains(t, err, "/var/lib/app is a file, and no directory: remove it")
	require.Contains(t, w.conditions()[mcfgv1.NodeAppliedFiles], "False ApplyingFailed node state: write /var/lib/app: /var/lib/app is a file")
	require.NoError(t, os.Remove(filepath.Join(w.root, "var/lib/app")))
	w.settle()
	assert.Equal(t, "rendered-1", w.get("var/lib/app/name"))
	assert.Equal(t, "True Updated", w.conditions()[mcfgv1.NodeAppliedFiles])
	assert.Zero(t, w.machine.boots)
}

// TestRemovedAnnotationsAreWrittenAgain has someone remove what the agent says, one by one.
func TestRemovedAnnotationsAreWrittenAgain(t *testing.T) {
	t.Parallel()
	w, _ := withArguments(t, "rw", rendered("rendered-4", "1", "a", "b", "a"))
	w.target("rendered-4", "1")
	w.settle()
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	before, boots, is := w.node().Annotations, w.machine.boots, w.is()
	for _, key := range []string{
		mcfgv1.AnnotationCurrentConfig, mcfgv1.AnnotationCurrentImage, mcfgv1.AnnotationState, mcfgv1.AnnotationStagedImage, mcfgv1.AnnotationStagedChange,
	} {
		if before[key] == "" {
			continue
		}
		w.annotate(key, "")
		w.settle()
		assert.Equal(t, before[key], w.node().Annotations[key], key)
		assert.Equal(t, is, w.is(), key)
	}
	assert.Equal(t, boots, w.machine.boots)
}

// stride is the distance between the effects after which an agent is killed: with -short, after a
// sample of them.
func stride() int {
	if testing.Short() {
		return 4
	}
	return 1
}

// TestKilledAnywhere runs updates and ends the agent after each thing that it does, once each.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(*world)
		want string
	}{
		"an update that was staged ahead": {func(w *world) {
			w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
			w.settle()
			w.target("rendered-2", "2")
			w.settle()
		}, atSecond},
		"an update and the way back": {func(w *world) {
			w.target("rendered-2", "2")
			w.settle()
			w.target("rendered-1", "1")
			w.settle()
		}, backHome},
		"an update that is taken back when it is prepared": {func(w *world) {
			w.machine.stuck = true
			w.target("rendered-2", "2")
			w.until("reboot")
			w.target("rendered-1", "1")
			w.settle()
		}, backHome},
		"kernel arguments that are taken back when they are prepared": {func(w *world) {
			w.machine.stuck = true
			w.target("rendered-3", "1")
			w.until("reboot")
			w.target("rendered-1", "1")
			w.settle()
		}, backHome},
		"a host that comes back with the old image": {func(w *world) {
			w.machine.ignores = true
			w.target("rendered-2", "2")
			w.settle()
		}, `rendered-1 111111111111 staged="" Degraded "the node came back with image 111111111111 ` +
			`instead of image 222222222222" drain=uncordon booted=111111 next=111111 args=[] file=rendered-1`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effects := 1
			for killAt := 0; killAt <= effects; killAt += stride() {
				w := arrived(t, rendered("rendered-3", "1", "nosmt"))
				w.killAt = killAt
				tt.do(w)
				if killAt == 0 {
					effects = len(w.effects)
				}
				require.Equal(t, tt.want, w.is(), "killed after %d of %v", killAt, w.effects)
			}
			assert.Greater(t, effects, 8)
		})
	}
}

func TestTheImageIsReplacedMidway(t *testing.T) {
	t.Parallel()
	const atThird = `rendered-3 333333333333 staged="" Done "" drain=uncordon booted=333333 next=333333 args=[debug] file=rendered-3`
	for _, after := range []string{"stage", "annotations", "kernel arguments", "journal", "reboot"} {
		t.Run("after "+after, func(t *testing.T) {
			t.Parallel()
			w := arrived(t, rendered("rendered-3", "3", "debug"))
			w.target("rendered-2", "2")
			w.until(after)
			w.target("rendered-3", "3")
			w.settle()
			assert.Equal(t, atThird, w.is())
		})
	}
}

func TestAFailedUpdateIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.ignores = true
	w.target("rendered-2", "2")
	w.settle()
	assert.Contains(t, w.conditions()[mcfgv1.NodeNodeDegraded], "True UpdateFailed the node came back with")
	w.annotate(mcfgv1.AnnotationState, mcfgv1.NodeStateDone)
	w.settle()
	assert.Equal(t, atSecond, w.is())
}

// TestATargetThatFailedIsTriedAgain is about a person who resumes a rollout, on a node that can't
// say Done because a file of it was edited.
func TestATargetThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.ignores = true
	w.target("rendered-2", "2")
	w.settle()
	w.target("rendered-1", "1") // the controller takes it back
	w.put("etc/motd", "edited")
	w.settle()
	require.Contains(t, w.node().Annotations[mcfgv1.AnnotationReason], "unexpected on-disk state")
	w.target("rendered-2", "2")
	w.settle()
	assert.True(t, w.machine.booted.IsOf(mcfgv1.ImageDigestFormat(nodestest.Pinned("2"))))
}

// TestAConfigurationThatIsGone is about a node that is told to have what was deleted meanwhile.
func TestAConfigurationThatIsGone(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.target("rendered-9", "2")
	_, err := w.reconcile()
	require.NoError(t, err)
	a := w.node().Annotations
	require.Equal(t, mcfgv1.NodeStateDegraded, a[mcfgv1.AnnotationState], "so that the controller gives it another target")
	require.Equal(t, `MachineConfig "rendered-9", which the node should have, does not exist`, a[mcfgv1.AnnotationReason])
	w.target("rendered-2", "2")
	w.settle()
	require.Equal(t, atSecond, w.is())
}

// TestANodeWhosePoolWasDeleted is about a node whose configuration went with its pool, and which
// another pool has taken since.
func TestANodeWhosePoolWasDeleted(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	require.NoError(t, w.Delete(t.Context(), rendered("rendered-1", "1")))
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	a := w.node().Annotations
	require.Equal(t, mcfgv1.NodeStateDone, a[mcfgv1.AnnotationState], a[mcfgv1.AnnotationReason])
	require.Equal(t, nodestest.Pinned("2"), a[mcfgv1.AnnotationStagedImage])
	w.target("rendered-2", "2")
	w.settle()
	require.Equal(t, atSecond, w.is())
}

func TestRollbackOfTheHost(t *testing.T) {
	t.Parallel()
	const unit, timer = "etc/systemd/system/layerwright-return.service", "etc/systemd/system/layerwright-return.timer"
	digest := mcfgv1.ImageDigestFormat(nodestest.Pinned("2")).Digest()
	t.Run("until the new image is confirmed", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.pool(mcfgv1.RolloutSpec{RebootTimeout: "5m"})
		w.target("rendered-2", "2")
		w.until("reboot")
		assert.Contains(t, w.get(unit), digest)
		assert.Contains(t, w.get(timer), "OnActiveSec=300\n")
		w.settle()
		assert.Equal(t, atSecond, w.is())
		assert.Empty(t, w.get(unit))
	})
	t.Run("until the agent has said that the host returned", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.machine.ignores = true
		w.target("rendered-2", "2")
		w.until("reboot")
		assert.Contains(t, w.get(timer), "OnActiveSec=1800\n")
		w.settle()
		assert.Contains(t, w.conditions()[mcfgv1.NodeNodeDegraded], "True UpdateFailed the node came back with")
		assert.Empty(t, w.get(unit))
	})
	t.Run("until something else is wanted", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.machine.stuck = true
		w.target("rendered-2", "2")
		w.until("reboot")
		w.target("rendered-1", "1")
		w.settle()
		assert.Empty(t, w.get(unit))
	})
	t.Run("not where failed nodes are to stay as they are", func(t *testing.T) {
		t.Parallel()
		w := arrived(t)
		w.pool(mcfgv1.RolloutSpec{AutomaticRollback: mcfgv1.Disabled})
		w.target("rendered-2", "2")
		w.until("reboot")
		assert.Empty(t, w.get(unit))
	})
	t.Run("not where the image stays the same", func(t *testing.T) {
		t.Parallel()
		w := arrived(t, rendered("rendered-3", "1", "nosmt"))
		w.target("rendered-3", "1")
		w.until("reboot")
		assert.Empty(t, w.get(unit))
	})
}

func TestStagingIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.stageError = errors.New("bootc switch: exit status 1: writing blob: no space left on device")
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	for range 3 {
		_, err := w.reconcile()
		require.ErrorContains(t, err, "no space left", "controller-runtime tries again, later and later")
	}
	assert.Equal(t, "False StagingFailed "+w.machine.stageError.Error(), w.conditions()[mcfgv1.NodeImagePulledFromRegistry])
	assert.Equal(t, 1, w.writes, "it is said once")
	assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState], "the node works")
	w.machine.stageError = nil
	w.settle()
	assert.Equal(t, "True Staged "+nodestest.Pinned("2"), w.conditions()[mcfgv1.NodeImagePulledFromRegistry])
}

func TestDegradedNodeReportsItsTarget(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.put("etc/motd", "edited")
	w.settle()
	w.machine.stageError = errors.New("no space left on device")
	w.target("rendered-2", "2")
	_, err := w.reconcile()
	require.ErrorContains(t, err, "no space left")
	assert.Contains(t, w.conditions()[mcfgv1.NodeImagePulledFromRegistry], "False StagingFailed")
	assert.Equal(t, mcfgv1.NodeStateDegraded, w.node().Annotations[mcfgv1.AnnotationState])
	assert.Equal(t, "rendered-1", w.report().Status.ConfigVersion.Desired, "or the controller would blame the new image for the edited file")
	w.machine.stageError = nil
	w.settle()
	assert.Equal(t, "rendered-2", w.report().Status.ConfigVersion.Desired)
}

func TestAHostThatDoesNotReboot(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.stuck = true
	w.target("rendered-2", "2")
	w.until("reboot")
	res, err := w.reconcile()
	require.NoError(t, err)
	assert.Equal(t, ctrl.Result{RequeueAfter: rebootPatience}, res, "it is told again")
	assert.Equal(t, "False Rebooting", w.conditions()[mcfgv1.NodeRebootedNode])

	w.clock.SetTime(t0.Add(-time.Hour)) // a clock that is set back starts the wait again
	_, err = w.reconcile()
	require.NoError(t, err)
	assert.Equal(t, "False Rebooting", w.conditions()[mcfgv1.NodeRebootedNode])

	w.clock.SetTime(t0)
	_, err = w.reconcile()
	require.NoError(t, err)
	assert.Equal(t, "False RebootOverdue the host was told to reboot at 2026-03-04T04:06:07Z and still runs: systemctl list-jobs on it shows what it waits for",
		w.conditions()[mcfgv1.NodeRebootedNode])
	w.machine.stuck = false
	w.settle()
	assert.Equal(t, atSecond, w.is())
}

func TestClocksMayJump(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-24 * 365 * time.Hour, 24 * 365 * time.Hour} {
		w := arrived(t)
		w.target("rendered-2", "2")
		w.until("journal")
		w.clock.SetTime(t0.Add(jump))
		w.settle()
		assert.Equal(t, atSecond, w.is())
	}
}

func TestAnUnreadableJournalIsNone(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "{", "5", `{"target":5}`} {
		w := arrived(t)
		w.machine.stuck = true
		w.target("rendered-2", "2")
		w.until("reboot")
		w.put("var/lib/layerwright/agent/journal.json", content)
		w.machine.stuck = false
		w.settle()
		assert.Equal(t, atSecond, w.is(), content)
	}
}

func TestAnAgentOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	n := w.node()
	delete(n.Annotations, mcfgv1.AnnotationStagedImage) // it never wrote it, and was replaced in the middle of an update
	n.Annotations[mcfgv1.AnnotationState], n.Annotations[mcfgv1.AnnotationDesiredDrain] = mcfgv1.NodeStateWorking, "drain-rendered-2"
	require.NoError(t, w.Update(t.Context(), n))
	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, atSecond, w.is())
}

func TestANodeThatIsGone(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	require.NoError(t, w.Delete(t.Context(), w.node()))
	res, err := w.reconcile()
	require.NoError(t, err)
	assert.Zero(t, res)
	assert.Empty(t, w.effects)

	again := nodestest.New("a", []string{"worker"}) // as the kubelet registers it anew
	require.NoError(t, w.Create(t.Context(), again))
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, atFirst, w.is())
}

func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	require.False(t, w.agent.drifts.hasChanged())
	w.put("etc/motd", "edited")
	require.True(t, w.agent.drifts.hasChanged(), "an edit requests a reconcile")
	require.False(t, w.agent.drifts.hasChanged(), "once")
	w.settle()
	const says = "unexpected on-disk state validating against rendered-1: /etc/motd has other content"
	a := w.node().Annotations
	assert.Equal(t, []string{mcfgv1.NodeStateDegraded, says}, []string{a[mcfgv1.AnnotationState], a[mcfgv1.AnnotationReason]})
	assert.Equal(t, "True ConfigDrift "+says, w.conditions()[mcfgv1.NodeNodeDegraded])
	assert.Equal(t, []string{"Warning ConfigDriftDetected " + says}, w.told())
	w.settle()
	assert.Empty(t, w.told(), "it is told once")

	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, []string{"Warning ConfigDriftDetected unexpected on-disk state validating against rendered-2: /etc/motd has other content"}, w.told(),
		"the configuration is verified after the boot")
	assert.Equal(t, mcfgv1.NodeStateDegraded, w.node().Annotations[mcfgv1.AnnotationState])
	assert.Equal(t, "rendered-2", w.node().Annotations[mcfgv1.AnnotationCurrentConfig], "which it has booted")

	w.put("etc/motd", "hello")
	w.settle()
	assert.Equal(t, atSecond, w.is())
	assert.Equal(t, "False AsExpected", w.conditions()[mcfgv1.NodeNodeDegraded])
}

func TestAHostThatNothingManages(t *testing.T) {
	t.Parallel()
	unsuitable := fault.NewTerminal(mcfgv1.ReasonUnsuitableHost, errors.New("the host has neither bootc nor rpm-ostree"))
	w := newWorld(t)
	refuse := func() {
		w.agent.options.Detect = func(_ context.Context, _ host.Mode) (host.Host, error) { return nil, unsuitable }
	}
	refuse()
	for range 2 {
		res, err := w.reconcile()
		require.NoError(t, err)
		assert.Equal(t, ctrl.Result{RequeueAfter: hostRetry}, res, "it may be mended")
	}
	assert.Empty(t, w.node().Annotations[mcfgv1.AnnotationState], "no agent can work there")
	assert.Equal(t, "False UnsuitableHost the host has neither bootc nor rpm-ostree", w.conditions()[mcfgv1.NodeHostSuitable])
	assert.Equal(t, 1, w.writes)

	w = arrived(t)
	refuse()
	_, err := w.reconcile()
	require.NoError(t, err)
	assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState], "no image is to blame")
	assert.Contains(t, w.conditions()[mcfgv1.NodeHostSuitable], "False UnsuitableHost")
	w.start()
	w.settle()
	assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeHostSuitable], "it was mended")
}

func TestThePullSecretOfTheMachineOSConfig(t *testing.T) {
	t.Parallel()
	layer := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	layer.Spec.CurrentImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: "pull"}
	w := arrived(t, layer)
	w.target("rendered-2", "2")
	_, err := w.reconcile()
	require.ErrorContains(t, err, `reading secret "pull", which spec.currentImagePullSecret of MachineOSConfig "worker" names`)
	assert.Contains(t, w.conditions()[mcfgv1.NodeImagePulledFromRegistry], `False StagingFailed reading secret "pull"`)
	assert.Equal(t, "False Updating the node changes to rendered-2", w.conditions()[mcfgv1.NodeUpdated])
	const content = `{"auths":{"quay.io":{"auth":"bWU6c2VjcmV0"}}}`
	require.NoError(t, w.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "layerwright", Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(content)},
	}))
	w.settle()
	assert.Equal(t, atSecond, w.is())
	assert.JSONEq(t, content, w.get("run/ostree/auth.json"))
	info, err := os.Stat(w.root + "/run/ostree/auth.json")
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestNodeStateThatCantBeApplied(t *testing.T) {
	t.Parallel()
	w := arrived(t, rendered("rendered-3", "1"))
	require.NoError(t, os.Remove(w.root+"/var/lib/app/name"))
	require.NoError(t, os.MkdirAll(w.root+"/var/lib/app/name/x", 0o755))
	_, err := w.reconcile()
	require.ErrorContains(t, err, "/var/lib/app/name is a directory: remove it")
	assert.Contains(t, w.conditions()[mcfgv1.NodeAppliedFiles], "False ApplyingFailed")
}

// TestAnUpdateThatIsHeldUpIsNoneThatIsDone has what no image carries fail, first as the node runs
// and then once more with another target.
func TestAnUpdateThatIsHeldUpIsNoneThatIsDone(t *testing.T) {
	t.Parallel()
	w := arrived(t, rendered("rendered-3", "1"), rendered("rendered-4", "1"))
	w.target("rendered-2", "2")
	w.settle()
	require.Equal(t, "True Updated the node has rendered-2", w.conditions()[mcfgv1.NodeUpdated])
	require.NoError(t, os.Remove(w.root+"/var/lib/app/name"))
	require.NoError(t, os.MkdirAll(w.root+"/var/lib/app/name/x", 0o755))
	for _, target := range []string{"rendered-3", "rendered-4"} {
		w.target(target, "2")
		_, err := w.reconcile()
		require.ErrorContains(t, err, "/var/lib/app/name is a directory: remove it")
		is := w.conditions()
		assert.Equal(t, "False Updating the node changes to "+target, is[mcfgv1.NodeUpdated])
		assert.Contains(t, is[mcfgv1.NodeAppliedFiles], "False ApplyingFailed")
		for _, ended := range []string{mcfgv1.NodeUpdateComplete, mcfgv1.NodeRebootedNode, mcfgv1.NodeDrained, mcfgv1.NodeUpdateExecuted} {
			assert.Equal(t, "False Updating", is[ended], "what is true of the last update: %s", ended)
		}
		assert.Equal(t, target, w.report().Status.ConfigVersion.Desired)
	}
	require.NoError(t, os.RemoveAll(w.root+"/var/lib/app/name"))
	w.settle()
	assert.Equal(t, "True Updated the node has rendered-4", w.conditions()[mcfgv1.NodeUpdated])
	assert.Equal(t, "True Updated", w.conditions()[mcfgv1.NodeAppliedFiles])
}

func TestUnsupportedConfigurationIsReported(t *testing.T) {
	t.Parallel()
	mc := rendered("rendered-3", "1")
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k"]}]}}`)
	w := arrived(t, mc)
	w.target("rendered-3", "1")
	w.settle()
	assert.Equal(t, "True Updated left out: user core: the host does not have it; make it in the Containerfile", w.conditions()[mcfgv1.NodeAppliedFiles])
	assert.Empty(t, w.get("var/lib/app/name"), "what no configuration wants any more is taken back")
}
