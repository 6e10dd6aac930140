package agent

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/host"
)

// errNoArguments is of a host that can't set kernel arguments.
var errNoArguments = fault.NewTerminal(mcfgv1.ReasonKernelArgumentsUnsupported, errors.New("its bootc 1.4 can't set kernel arguments"))

const saysNoArguments = "False KernelArgumentsUnsupported its bootc 1.4 can't set kernel arguments"

// TestWhatAHostCannotDo is found before anything is staged, and is no failure of what it is told.
func TestWhatAHostCannotDo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host func(*world)
		says string
		mend func(*world)
	}{
		"kernel arguments": {
			func(w *world) { w.machine.cantArguments = errNoArguments }, saysNoArguments,
			func(w *world) { w.machine.cantArguments = nil },
		},
		"packages over its image": {
			func(w *world) { w.machine.booted.HasLocalPackages = true }, "False LocalPackages it has packages",
			func(w *world) { w.machine.booted.HasLocalPackages = false },
		},
		"a policy that rejects the image": {
			func(w *world) { w.put("etc/containers/policy.json", `{"default":[{"type":"reject"}]}`) },
			"False WaitingForSignaturePolicy its policy for signatures does not let image 222222222222 through yet",
			func(w *world) { w.put("etc/containers/policy.json", signedOnly) },
		},
		"a policy that accepts all": {
			func(w *world) {
				w.put("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
			},
			"False WaitingForSignaturePolicy", func(w *world) { w.put("etc/containers/policy.json", signedOnly) },
		},
	}
	for name, tt := range tests {
		for _, ahead := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", ahead", false: ", with a slot"}[ahead], func(t *testing.T) {
				t.Parallel()
				config := rendered("rendered-4", "5", "nosmt") // whose image is another one than is staged
				w := arrived(t, config)
				tt.host(w)
				ask := func() {
					if ahead {
						w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
						return
					}
					w.target("rendered-4", "2")
				}
				if ahead {
					w.poolHas("rendered-4")
				}
				ask()
				for range 3 {
					res, err := w.reconcile()
					require.NoError(t, err)
					require.GreaterOrEqual(t, res.RequeueAfter, policyRetry, "it is looked at again")
				}
				assert.Contains(t, w.conditions()[mcfgv1.NodeHostSuitable], tt.says)
				assert.Empty(t, w.machine.pulls)
				assert.NotContains(t, w.conditions()[mcfgv1.NodeImagePulledFromRegistry], "False")
				assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState])
				assert.Equal(t, "False AsExpected", w.conditions()[mcfgv1.NodeNodeDegraded])

				tt.mend(w)
				w.settle()
				assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeHostSuitable])
				assert.Equal(t, []string{nodestest.Pinned("2")}, w.machine.pulls)
			})
		}
	}
}

// TestWhatIsNotAskedForAnyMore is no longer said of the host.
func TestWhatIsNotAskedForAnyMore(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.cantArguments = errNoArguments
	w.target("rendered-2", "2")
	_, err := w.reconcile()
	require.NoError(t, err)
	require.Contains(t, w.conditions()[mcfgv1.NodeHostSuitable], saysNoArguments)
	w.start()
	w.target("rendered-1", "1")
	w.settle()
	assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeHostSuitable])
	assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState])
}

// TestTheHostIsNotBlamedForASecret that is missing, after its own fault was mended.
func TestTheHostIsNotBlamedForASecret(t *testing.T) {
	t.Parallel()
	layer := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	layer.Spec.MachineConfigPool.Name = "worker"
	layer.Spec.CurrentImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: "pull"}
	w := arrived(t, layer)
	w.machine.cantArguments = errNoArguments
	w.target("rendered-2", "2")
	_, err := w.reconcile()
	require.NoError(t, err)
	require.Contains(t, w.conditions()[mcfgv1.NodeHostSuitable], saysNoArguments)
	w.machine.cantArguments = nil
	_, err = w.reconcile()
	require.ErrorContains(t, err, `reading secret "pull"`)
	assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeHostSuitable])
	assert.Contains(t, w.conditions()[mcfgv1.NodeImagePulledFromRegistry], "False StagingFailed reading secret")
}

// TestKernelArgumentsAsTheSecondChange are found to be impossible on a node that holds the image,
// before it is drained.
func TestKernelArgumentsAsTheSecondChange(t *testing.T) {
	t.Parallel()
	w := staged(t)
	w.machine.cantArguments = errNoArguments
	w.target("rendered-2", "2")
	for range 3 {
		_, err := w.reconcile()
		require.NoError(t, err)
	}
	assert.Contains(t, w.conditions()[mcfgv1.NodeHostSuitable], saysNoArguments)
	assert.Empty(t, w.node().Annotations[mcfgv1.AnnotationDesiredDrain])
}

// TestTheStreamsImageNeedsNoPolicy is pulled as the host's policy has it.
func TestTheStreamsImageNeedsNoPolicy(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.put("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, []host.Trust{host.TrustDigest}, w.machine.trusts)
	assert.Equal(t, atSecond, w.is())
}

func TestUnlockedUsrIsSaid(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.usrIsUnlocked = true
	w.settle()
	assert.Contains(t, w.conditions()[mcfgv1.NodeHostSuitable], "True UsrUnlocked someone has made /usr writable")
	w.machine.usrIsUnlocked = false
	w.settle()
	assert.Equal(t, "True AsExpected", w.conditions()[mcfgv1.NodeHostSuitable])
}

func TestAComposefsStoreHasNoLock(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.isComposefs = true
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	assert.Contains(t, w.conditions()[mcfgv1.NodeStagedImageLocked], "False LockUnsupported")
}

// TestALockOfSomeoneElse is taken away in the node's turn, also by an agent that has started since.
func TestALockOfSomeoneElse(t *testing.T) {
	t.Parallel()
	w := staged(t)
	w.target("rendered-2", "2")
	w.until("journal")
	w.machine.staged.Locked = true // bootc upgrade --download-only
	w.start()
	w.settle()
	assert.Equal(t, atSecond, w.is())
}

// TestWhyANodeCameBack has a host whose shutdown did not make bootable what was staged.
func TestWhyANodeCameBack(t *testing.T) {
	t.Parallel()
	w := arrived(t)
	w.machine.ignores, w.machine.whyNotBooted = true, "ostree-finalize-staged.service: No space left on device"
	w.target("rendered-2", "2")
	w.settle()
	const says = "the node came back with image 111111111111 instead of image 222222222222: ostree-finalize-staged.service: No space left on device"
	assert.Equal(t, says, w.node().Annotations[mcfgv1.AnnotationReason])
	assert.Equal(t, "True UpdateFailed "+says, w.conditions()[mcfgv1.NodeNodeDegraded])
}

// TestArgumentsOfARollback has a host that goes back to an image of which it can't change the
// arguments as it is.
func TestArgumentsOfARollback(t *testing.T) {
	t.Parallel()
	w, line := withArguments(t, "rw", rendered("rendered-4", "2"), rendered("rendered-5", "1", "a"))
	w.machine.needsStaged = true
	w.target("rendered-4", "2")
	w.settle()
	w.target("rendered-5", "1")
	w.settle()
	assert.Equal(t, "rw a", line())
	assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState])
	assert.Equal(t, []string{nodestest.Pinned("2"), nodestest.Pinned("1")}, w.machine.pulls)
}

// TestArgumentsAfterARollbackByHand has a host on which a person has queued a rollback, and that is
// to have other arguments of what it runs.
func TestArgumentsAfterARollbackByHand(t *testing.T) {
	t.Parallel()
	w, line := withArguments(t, "rw", rendered("rendered-4", "1", "a"))
	w.machine.needsStaged, w.machine.rollback, w.machine.queued = true, deployment("3"), true
	w.target("rendered-4", "1")
	w.settle()
	assert.Equal(t, "rw a", line())
	assert.Equal(t, mcfgv1.NodeStateDone, w.node().Annotations[mcfgv1.AnnotationState])
	assert.Empty(t, w.machine.pulls)
}

// poolHas gives the pool a configuration.
func (w *world) poolHas(config string) {
	w.t.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "worker"}, pool))
	pool.Spec.Configuration.Name = config
	require.NoError(w.t, w.Update(w.t.Context(), pool))
}
