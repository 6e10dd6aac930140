package trials_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/streams/compare"
	"github.com/layerwright/layerwright/test/worldtest"
)

// runc is what a pool must not have on version 10, and a unit that only version 9 has.
const runc = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/crio/crio.conf.d/50-runc","contents":{"source":"data:,%5Bcrio.runtime%5D%0Adefault_runtime%20%3D%20%22runc%22%0A"}}]},` +
	`"systemd":{"units":[{"name":"tuned.service","enabled":true}]}}`

// tried asks for a trial, or for none where the stream is empty, and makes a reconcile that must
// not fail.
func tried(w *worldtest.World, b *worldtest.Process, stream string) *mcfgv1.StreamTrial {
	w.T.Helper()
	w.Try(stream)
	return w.TriedAgain(b)
}

func report(w *worldtest.World) *corev1.ConfigMap {
	w.T.Helper()
	found := &corev1.ConfigMap{}
	require.NoError(w.T, w.Get(w.T.Context(), client.ObjectKey{Namespace: worldtest.Namespace, Name: "stream-trial-worker"}, found))
	return found
}

func trialTag(w *worldtest.World) string { return w.Registry.Host + "/host/os:trial-worker" }

func TestATrialReportsAndLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, worldtest.Motd)
	before, poolBefore, tagsBefore := w.OSConfig("worker"), w.Pool("worker"), w.Registry.Tags(t, "host/os")
	w.Try(worldtest.NewStream)
	trial, result, err := w.ReconcileTrial(b)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter)
	require.NotNil(t, trial)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, worldtest.NewStream, trial.Stream)
	assert.Equal(t, "no blockers; 1 warning; packages: 0 added, 0 removed, 1 upgraded, 0 downgraded, 0 the same", trial.Message)
	assert.Empty(t, trial.Blockers)
	assert.Equal(t, &mcfgv1.StreamTrialPackages{Upgraded: 1}, trial.Packages)
	assert.Equal(t, &mcfgv1.StreamTrialReport{Namespace: worldtest.Namespace, Name: "stream-trial-worker"}, trial.Report)

	report := report(w)
	assert.Equal(t, "worker", report.OwnerReferences[0].Name)
	text := report.Data["report.txt"]
	assert.Contains(t, text, "Pool worker: from stream rhel-9 to rhel-10\n")
	assert.Contains(t, text, "Enterprise Linux 10")
	assert.Contains(t, text, "bash 9 -> 10")
	assert.Contains(t, text, "/etc/motd (MachineConfig \"50-mine\")", "the OS has another one on the other stream")
	assert.Contains(t, text, "CPULevel")
	document := &compare.Report{}
	require.NoError(t, json.Unmarshal([]byte(report.Data["report.json"]), document))
	assert.Equal(t, string(trial.ImagePullSpec), document.TrialImage)
	assert.Equal(t, []string{"10"}, document.To.Kernels)

	assert.Equal(t, "mine", w.Unpacked(string(trial.ImagePullSpec), "amd64", "etc/motd"), "the image has the configuration")
	assert.Contains(t, w.Unpacked(string(trial.ImagePullSpec), "amd64", "etc/os-release"), "el10", "on the other OS")
	assert.Equal(t, w.Registry.DigestOf(t, trialTag(w)), strings.SplitN(string(trial.ImagePullSpec), "@", 2)[1])

	w.Settle(b)
	after := w.OSConfig("worker")
	assert.Equal(t, before.Status.CurrentImagePullSpec, after.Status.CurrentImagePullSpec)
	assert.Equal(t, before.Status.Conditions, after.Status.Conditions)
	assert.Equal(t, poolBefore.Spec, w.Pool("worker").Spec)
	assert.Equal(t, poolBefore.Status, w.Pool("worker").Status)
	assert.Len(t, w.Builds(), 1, "a trial is no build")
	assert.Len(t, w.Images(), 1, "and its image none that nodes could get")
	tags := w.Registry.Tags(t, "host/os")
	delete(tags, "trial-worker")
	assert.Equal(t, tagsBefore, tags)
	assert.Equal(t, []string{"Normal StreamTried A move to stream rhel-10 was tried: " + trial.Message}, w.Told())

	writes := len(w.Writes)
	w.TriedAgain(b)
	assert.Len(t, w.Writes, writes, "what is known need not be found out again")
}

func TestTrialReportsBlockers(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, runc)
	trial := tried(w, b, worldtest.NewStream)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, []string{
		`InvalidMachineConfig: MachineConfigPool "worker"`, `MissingUnit: MachineConfig "50-mine", unit tuned.service`, `RuncDefaultRuntime: MachineConfig "50-mine", /etc/crio/crio.conf.d/50-runc:2`,
	}, trial.Blockers)
	assert.EqualValues(t, 3, trial.BlockerCount)
	assert.Empty(t, trial.ImagePullSpec)
	assert.Contains(t, report(w).Data["report.txt"], "not built: the image cannot be made, see the blockers")
	told := w.Told()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning StreamBlocked A move to stream rhel-10 was tried: 3 blockers")

	// The administrator puts it right, and the report follows.
	mc := &mcfgv1.MachineConfig{}
	worldtest.Edit(w, mc, "50-mine", func(mc *mcfgv1.MachineConfig) { mc.Spec.Config.Raw = []byte(worldtest.Motd) })
	trial = w.TriedAgain(b)
	assert.Empty(t, trial.Blockers)
	assert.Zero(t, trial.BlockerCount)
}

func TestCancelledTrial(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, worldtest.Motd)
	made := tried(w, b, worldtest.NewStream)
	require.True(t, w.Registry.Has(t, string(made.ImagePullSpec)))
	w.Try("")
	trial, result, err := w.ReconcileTrial(b)
	require.NoError(t, err)
	assert.Nil(t, trial)
	assert.Zero(t, result)
	assert.False(t, w.Registry.Has(t, string(made.ImagePullSpec)))
	require.Error(t, w.Get(t.Context(), client.ObjectKey{Namespace: worldtest.Namespace, Name: "stream-trial-worker"}, &corev1.ConfigMap{}))
	writes := len(w.Writes)
	w.TriedAgain(b)
	assert.Len(t, w.Writes, writes)
	assert.True(t, w.Registry.Has(t, string(w.OSConfig("worker").Status.CurrentImagePullSpec)), "the pool's own image stays")
}

func TestATrialOfAnotherStream(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, worldtest.Motd)
	first := tried(w, b, worldtest.NewStream)
	second := tried(w, b, worldtest.OldStream)
	assert.Equal(t, worldtest.OldStream, second.Stream)
	assert.Equal(t, mcfgv1.StreamTrialReported, second.State)
	assert.NotEqual(t, first.ImagePullSpec, second.ImagePullSpec)
	assert.False(t, w.Registry.Has(t, string(first.ImagePullSpec)), "there is one trial image for each pool")
	assert.NotEqual(t, w.OSConfig("worker").Status.CurrentImagePullSpec, second.ImagePullSpec, "a trial image says that it is one, and so is another")
	assert.Contains(t, report(w).Data["report.txt"], "from stream rhel-9 to rhel-9")
}

func TestATrialThatCannotBe(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stream string
		change func(w *worldtest.World)
		state  mcfgv1.StreamTrialState
		says   string
		fails  bool // is tried again by the manager
	}{
		"a stream that does not exist": {
			stream: "rhel-11", state: mcfgv1.StreamTrialFailed, says: `stream "rhel-11" is not available`,
		},
		"a pool that does not exist": {
			stream: worldtest.NewStream, state: mcfgv1.StreamTrialRunning, says: `MachineConfigPool "worker"`,
			change: func(w *worldtest.World) {
				w.Remove(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
			},
		},
		"a pool without a rendered MachineConfig": {
			stream: worldtest.NewStream, state: mcfgv1.StreamTrialRunning, says: "no rendered MachineConfig yet",
			change: func(w *worldtest.World) { w.Use("worker", "") },
		},
		"a secret that is missing": {
			stream: worldtest.NewStream, state: mcfgv1.StreamTrialRunning, says: `the secret "push" does not exist`,
			change: func(w *worldtest.World) { w.Remove(w.Secret("push", "")) },
		},
		"an OS image that does not exist": {
			stream: worldtest.NewStream, state: mcfgv1.StreamTrialFailed, says: `the OS image of stream "rhel-10"`,
			change: func(w *worldtest.World) {
				worldtest.Edit(w, &mcfgv1.OSImageStream{}, mcfgv1.OSImageStreamName, func(s *mcfgv1.OSImageStream) {
					s.Status.AvailableStreams[1].OSImage = mcfgv1.ImageDigestFormat(w.Registry.Host + "/stream/os@sha256:" + strings.Repeat("0", 64))
				})
			},
		},
		"MachineConfigs that cannot be joined": {
			stream: worldtest.NewStream, state: mcfgv1.StreamTrialFailed, says: "50-mine",
			change: func(w *worldtest.World) {
				worldtest.Edit(w, &mcfgv1.MachineConfig{}, "50-mine", func(mc *mcfgv1.MachineConfig) { mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"9"}}`) })
			},
		},
		"an API server that fails": {
			stream: worldtest.NewStream, state: mcfgv1.StreamTrialRunning, says: "out of order", fails: true,
			change: func(w *worldtest.World) {
				w.Before = func(call string) error {
					if strings.HasPrefix(call, "create ConfigMap") {
						return errors.New("out of order")
					}
					return nil
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := worldtest.Trying(t, worldtest.Motd)
			if tt.change != nil {
				tt.change(w)
			}
			w.Try(tt.stream)
			trial, result, err := w.ReconcileTrial(w.Builder())
			assert.Equal(t, tt.fails, err != nil, "%v", err)
			assert.True(t, tt.fails || result.RequeueAfter > 0, "someone comes back")
			require.NotNil(t, trial)
			assert.Equal(t, tt.state, trial.State)
			assert.Contains(t, trial.Message, tt.says)
			assert.Empty(t, trial.ImagePullSpec)
			told := w.Told()
			if tt.state == mcfgv1.StreamTrialFailed {
				require.Len(t, told, 1)
				assert.Contains(t, told[0], "Warning StreamTrialFailed A move to stream "+tt.stream+" could not be tried: ")
				w.TriedAgain(b)
				assert.Empty(t, w.Told(), "it is told once")
			}
		})
	}
}

func TestATrialBackwards(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, worldtest.Motd)
	pool := w.Pool("worker")
	pool.Status.OSImageStream.Name = worldtest.NewStream
	w.Quietly(func() error { return w.Status().Update(t.Context(), pool) })
	trial := tried(w, b, worldtest.OldStream)
	assert.Equal(t, []string{`Downgrade: MachineConfigPool "worker", spec.osImageStream`}, trial.Blockers)
}

func TestATrialWithImagesThatOverrideTheStreams(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, worldtest.Motd)
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(w.Base) })
	worldtest.Edit(w, &mcfgv1.MachineConfig{}, "50-mine", func(mc *mcfgv1.MachineConfig) { mc.Spec.OSImageURL = w.Base })
	trial := tried(w, b, worldtest.NewStream)
	assert.Equal(t, []string{`OtherOSImage: MachineConfig "50-mine", spec.osImageURL`, `OtherOSImage: MachineOSConfig "worker", spec.baseOSImagePullSpec`}, trial.Blockers)
	assert.Contains(t, w.Unpacked(string(trial.ImagePullSpec), "amd64", "etc/os-release"), "el10", "the image is the stream's all the same")
}

func TestATrialWithContent(t *testing.T) {
	t.Parallel()
	w, b, s := worldtest.TryingContent(t)
	require.Empty(t, s.Specs, "the pool's own is built and cleaned away")
	ensured := s.Begun
	running := true
	s.Says = func(backend.Spec) backend.State {
		if running {
			return backend.State{Phase: backend.Running, Message: "step 2 of 3"}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	w.Try(worldtest.NewStream)
	var trial *mcfgv1.StreamTrial
	for range 3 {
		var result ctrl.Result
		var err error
		trial, result, err = w.ReconcileTrial(b)
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, result.RequeueAfter)
	}
	assert.Equal(t, mcfgv1.StreamTrialRunning, trial.State)
	assert.Equal(t, "step 2 of 3", trial.Message)
	assert.Equal(t, ensured+1, s.Begun)
	spec := s.Only()
	config := w.OSConfig("worker")
	assert.Equal(t, backend.Key{Build: "stream-trial-worker", UID: string(config.UID), Trial: "worker"}, spec.Key)

	running = false
	trial = w.TriedAgain(b)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, "built for amd64", w.Unpacked(string(trial.ImagePullSpec), "amd64", "usr/share/built"))
	assert.Contains(t, w.Unpacked(string(trial.ImagePullSpec), "amd64", "etc/os-release"), "el10")
	assert.Equal(t, "mine", w.Unpacked(string(trial.ImagePullSpec), "amd64", "etc/motd"))
	assert.Empty(t, s.Specs, "nothing of the build is left in the cluster")
	assert.Equal(t, config.Status.CurrentImagePullSpec, w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Len(t, w.ContentImages(), 2, "that of the pool, and that of the trial")

	tried(w, b, "")
	assert.Len(t, w.ContentImages(), 1, "the trial's goes with it, the pool's stays")
	assert.False(t, w.Registry.Has(t, string(trial.ImagePullSpec)))
}

func TestTrialWithFailingContent(t *testing.T) {
	t.Parallel()
	w, b, s := worldtest.TryingContent(t)
	image := w.OSConfig("worker").Status.CurrentImagePullSpec
	s.Says = func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "Containerfile line 2: exit status 7"}}
	}
	w.Try(worldtest.NewStream)
	var trial *mcfgv1.StreamTrial
	for range 3 {
		trial = w.TriedAgain(b)
	}
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, []string{`BuildFailed: MachineOSConfig "worker", spec.containerFile`}, trial.Blockers)
	assert.Empty(t, trial.ImagePullSpec)
	assert.Contains(t, report(w).Data["report.txt"], "Containerfile line 2: exit status 7")
	assert.Contains(t, report(w).Data["report.txt"], "not built: its content could not be built, see the blockers")
	w.Settle(b)
	assert.Equal(t, image, w.OSConfig("worker").Status.CurrentImagePullSpec, "the pool itself is well")
	assert.Contains(t, w.Says("worker", "Ready"), "True")
}

func TestATrialWithoutABuilder(t *testing.T) {
	t.Parallel()
	w, b := worldtest.Trying(t, worldtest.Motd)
	w.Containerfile(worldtest.CheapFile)
	trial := tried(w, b, worldtest.NewStream)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State, "what can be said is said")
	assert.Contains(t, report(w).Data["report.txt"], "not built: this installation has no builder")
}

// TestATrialThatDiesAnywhere stops after and before each of its writes, and goes on in another
// process.
func TestATrialThatDiesAnywhere(t *testing.T) {
	t.Parallel()
	whole, b := worldtest.Trying(t, worldtest.Motd)
	want := tried(whole, b, worldtest.NewStream)
	writes := len(whole.Writes)
	require.Positive(t, writes)
	for n := range writes {
		for name, after := range map[string]bool{"before": false, "after": true} {
			t.Run(name+" write "+whole.Writes[n], func(t *testing.T) {
				t.Parallel()
				w, _ := worldtest.Trying(t, worldtest.Motd)
				w.Try(worldtest.NewStream)
				calls := 0
				die := func(string) error {
					if calls++; calls == n+1 {
						return errDied
					}
					return nil
				}
				if after {
					w.After = die
				} else {
					w.Before = die
				}
				_, _, err := w.ReconcileTrial(w.Builder())
				_ = err // it may have been the last word
				w.Before, w.After = nil, nil
				got := w.TriedAgain(w.Builder())
				assert.Equal(t, want.Message, got.Message)
				assert.Equal(t, mcfgv1.StreamTrialReported, got.State)
				assert.True(t, w.Registry.Has(t, string(got.ImagePullSpec)))
				assert.NotEmpty(t, report(w).Data["report.txt"])
			})
		}
	}
}

var errDied = errors.New("the process has died")
