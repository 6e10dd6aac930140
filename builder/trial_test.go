package builder

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams/compare"
)

const (
	oldStream = "rhel-9"
	newStream = "rhel-10"
)

// pushStream pushes the OS image of a major version, with an os-release, a kernel and packages, and
// gives it by digest.
func (w *world) pushStream(major string, more map[string]string) string {
	w.t.Helper()
	image := osImage(w.t, "el"+major, "amd64")
	files := map[string]string{
		"etc/os-release":                       "ID=rhel\nPLATFORM_ID=\"platform:el" + major + "\"\nPRETTY_NAME=\"Enterprise Linux " + major + "\"\n",
		"etc/motd":                             "welcome to " + major + "\n",
		"usr/lib/modules/" + major + "/config": "",
		"var/lib/dpkg/status":                  "Package: bash\nStatus: install ok installed\nVersion: " + major + "\n",
	}
	maps.Copy(files, more)
	image = must(mutate.AppendLayers(image, registrytest.Layer(w.t, files)))
	return w.registry.Push(w.t, "stream/os:el"+major, image)
}

// trying is a world with a pool on the older of two streams, whose image is there, and a
// MachineConfig that may be in the way.
func trying(t *testing.T, config string, changes ...func(*settings)) (*world, *process) {
	t.Helper()
	w := newWorld(t)
	before, after := w.pushStream("9", map[string]string{"usr/lib/systemd/system/tuned.service": "[Unit]\n"}), w.pushStream("10", nil)
	set := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	set.Status.SetStreams([]mcfgv1.OSImageStreamSet{
		{Name: oldStream, OSImage: mcfgv1.ImageDigestFormat(before)}, {Name: newStream, OSImage: mcfgv1.ImageDigestFormat(after)},
	}, oldStream)
	mc := &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "50-mine", Labels: map[string]string{mcfgv1.LabelRole: "worker"}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(config)}},
	}
	rendered := must(machineconfigs.Render(machineconfigs.Options{Pool: "worker", Images: machineconfigs.Images{OSImage: before}}, []*mcfgv1.MachineConfig{mc}))
	pool := newPool("worker", rendered.MachineConfig.Name)
	pool.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "worker"}}
	pool.Status.OSImageStream.Name = oldStream
	w.add(set, mc, rendered.MachineConfig, pool, w.config("worker"))
	b := w.builder(changes...)
	w.settle(b)
	w.told()
	w.writes = nil
	return w, b
}

const motd = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","overwrite":true,"contents":{"source":"data:,mine"}}]}}`

// runc is what a pool must not have on version 10, and a unit that only version 9 has.
const runc = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/crio/crio.conf.d/50-runc","contents":{"source":"data:,%5Bcrio.runtime%5D%0Adefault_runtime%20%3D%20%22runc%22%0A"}}]},` +
	`"systemd":{"units":[{"name":"tuned.service","enabled":true}]}}`

func (w *world) try(stream string) {
	w.t.Helper()
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		if metav1.SetMetaDataAnnotation(&c.ObjectMeta, mcfgv1.AnnotationTryStream, stream); stream == "" {
			delete(c.Annotations, mcfgv1.AnnotationTryStream)
		}
		c.Generation--
	})
}

// reconcileTrial reconciles the trial, and gives what the status says then.
func (w *world) reconcileTrial(b *process) (*mcfgv1.StreamTrial, ctrl.Result, error) {
	w.t.Helper()
	result, err := b.trials.Reconcile(w.t.Context(), request("worker"))
	return w.osConfig("worker").Status.StreamTrial, result, err
}

// tried asks for a trial, or for none where the stream is empty, and makes a reconcile that must
// not fail.
func (w *world) tried(b *process, stream string) *mcfgv1.StreamTrial {
	w.t.Helper()
	w.try(stream)
	return w.triedAgain(b)
}

// triedAgain makes another reconcile of the same trial.
func (w *world) triedAgain(b *process) *mcfgv1.StreamTrial {
	w.t.Helper()
	trial, _, err := w.reconcileTrial(b)
	require.NoError(w.t, err)
	return trial
}

func (w *world) report() *corev1.ConfigMap {
	w.t.Helper()
	found := &corev1.ConfigMap{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "stream-trial-worker"}, found))
	return found
}

func (w *world) trialTag() string { return w.registry.host + "/host/os:trial-worker" }

func TestATrialReportsAndLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	w, b := trying(t, motd)
	before, poolBefore, tagsBefore := w.osConfig("worker"), w.pool("worker"), w.registry.tags(t, "host/os")
	w.try(newStream)
	trial, result, err := w.reconcileTrial(b)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter)
	require.NotNil(t, trial)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, newStream, trial.Stream)
	assert.Equal(t, "no blockers; 1 warning; packages: 0 added, 0 removed, 1 upgraded, 0 downgraded, 0 the same", trial.Message)
	assert.Empty(t, trial.Blockers)
	assert.Equal(t, &mcfgv1.StreamTrialPackages{Upgraded: 1}, trial.Packages)
	assert.Equal(t, &mcfgv1.StreamTrialReport{Namespace: namespace, Name: "stream-trial-worker"}, trial.Report)

	report := w.report()
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

	assert.Equal(t, "mine", w.unpacked(string(trial.ImagePullSpec), "amd64", "etc/motd"), "the image has the configuration")
	assert.Contains(t, w.unpacked(string(trial.ImagePullSpec), "amd64", "etc/os-release"), "el10", "on the other OS")
	assert.Equal(t, w.registry.digestOf(t, w.trialTag()), strings.SplitN(string(trial.ImagePullSpec), "@", 2)[1])

	w.settle(b)
	after := w.osConfig("worker")
	assert.Equal(t, before.Status.CurrentImagePullSpec, after.Status.CurrentImagePullSpec)
	assert.Equal(t, before.Status.Conditions, after.Status.Conditions)
	assert.Equal(t, poolBefore.Spec, w.pool("worker").Spec)
	assert.Equal(t, poolBefore.Status, w.pool("worker").Status)
	assert.Len(t, w.builds(), 1, "a trial is no build")
	assert.Len(t, w.images(), 1, "and its image none that nodes could get")
	tags := w.registry.tags(t, "host/os")
	delete(tags, "trial-worker")
	assert.Equal(t, tagsBefore, tags)
	assert.Equal(t, []string{"Normal StreamTried A move to stream rhel-10 was tried: " + trial.Message}, w.told())

	writes := len(w.writes)
	w.triedAgain(b)
	assert.Len(t, w.writes, writes, "what is known need not be found out again")
}

func TestTrialReportsBlockers(t *testing.T) {
	t.Parallel()
	w, b := trying(t, runc)
	trial := w.tried(b, newStream)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, []string{
		`InvalidMachineConfig: MachineConfigPool "worker"`, `MissingUnit: MachineConfig "50-mine", unit tuned.service`, `RuncDefaultRuntime: MachineConfig "50-mine", /etc/crio/crio.conf.d/50-runc:2`,
	}, trial.Blockers)
	assert.EqualValues(t, 3, trial.BlockerCount)
	assert.Empty(t, trial.ImagePullSpec)
	assert.Contains(t, w.report().Data["report.txt"], "not built: the image cannot be made, see the blockers")
	told := w.told()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning StreamBlocked A move to stream rhel-10 was tried: 3 blockers")

	// The administrator puts it right, and the report follows.
	mc := &mcfgv1.MachineConfig{}
	edit(w, mc, "50-mine", func(mc *mcfgv1.MachineConfig) { mc.Spec.Config.Raw = []byte(motd) })
	trial = w.triedAgain(b)
	assert.Empty(t, trial.Blockers)
	assert.Zero(t, trial.BlockerCount)
}

func TestCancelledTrial(t *testing.T) {
	t.Parallel()
	w, b := trying(t, motd)
	made := w.tried(b, newStream)
	require.True(t, w.registry.has(t, string(made.ImagePullSpec)))
	w.try("")
	trial, result, err := w.reconcileTrial(b)
	require.NoError(t, err)
	assert.Nil(t, trial)
	assert.Zero(t, result)
	assert.False(t, w.registry.has(t, string(made.ImagePullSpec)))
	require.Error(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "stream-trial-worker"}, &corev1.ConfigMap{}))
	writes := len(w.writes)
	w.triedAgain(b)
	assert.Len(t, w.writes, writes)
	assert.True(t, w.registry.has(t, string(w.osConfig("worker").Status.CurrentImagePullSpec)), "the pool's own image stays")
}

func TestATrialOfAnotherStream(t *testing.T) {
	t.Parallel()
	w, b := trying(t, motd)
	first := w.tried(b, newStream)
	second := w.tried(b, oldStream)
	assert.Equal(t, oldStream, second.Stream)
	assert.Equal(t, mcfgv1.StreamTrialReported, second.State)
	assert.NotEqual(t, first.ImagePullSpec, second.ImagePullSpec)
	assert.False(t, w.registry.has(t, string(first.ImagePullSpec)), "there is one trial image for each pool")
	assert.NotEqual(t, w.osConfig("worker").Status.CurrentImagePullSpec, second.ImagePullSpec, "a trial image says that it is one, and so is another")
	assert.Contains(t, w.report().Data["report.txt"], "from stream rhel-9 to rhel-9")
}

func TestATrialThatCannotBe(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stream string
		change func(w *world)
		state  mcfgv1.StreamTrialState
		says   string
		fails  bool // is tried again by the manager
	}{
		"a stream that does not exist": {
			stream: "rhel-11", state: mcfgv1.StreamTrialFailed, says: `stream "rhel-11" is not available`,
		},
		"a pool that does not exist": {
			stream: newStream, state: mcfgv1.StreamTrialRunning, says: `MachineConfigPool "worker"`,
			change: func(w *world) { w.remove(&mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}) },
		},
		"a pool without a rendered MachineConfig": {
			stream: newStream, state: mcfgv1.StreamTrialRunning, says: "no rendered MachineConfig yet",
			change: func(w *world) { w.use("worker", "") },
		},
		"a secret that is missing": {
			stream: newStream, state: mcfgv1.StreamTrialRunning, says: `the secret "push" does not exist`,
			change: func(w *world) { w.remove(w.secret("push", "")) },
		},
		"an OS image that does not exist": {
			stream: newStream, state: mcfgv1.StreamTrialFailed, says: `the OS image of stream "rhel-10"`,
			change: func(w *world) {
				edit(w, &mcfgv1.OSImageStream{}, mcfgv1.OSImageStreamName, func(s *mcfgv1.OSImageStream) {
					s.Status.AvailableStreams[1].OSImage = mcfgv1.ImageDigestFormat(w.registry.host + "/stream/os@sha256:" + strings.Repeat("0", 64))
				})
			},
		},
		"MachineConfigs that cannot be joined": {
			stream: newStream, state: mcfgv1.StreamTrialFailed, says: "50-mine",
			change: func(w *world) {
				edit(w, &mcfgv1.MachineConfig{}, "50-mine", func(mc *mcfgv1.MachineConfig) { mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"9"}}`) })
			},
		},
		"an API server that fails": {
			stream: newStream, state: mcfgv1.StreamTrialRunning, says: "out of order", fails: true,
			change: func(w *world) {
				w.before = func(call string) error {
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
			w, b := trying(t, motd)
			if tt.change != nil {
				tt.change(w)
			}
			w.try(tt.stream)
			trial, result, err := w.reconcileTrial(w.builder())
			assert.Equal(t, tt.fails, err != nil, "%v", err)
			assert.True(t, tt.fails || result.RequeueAfter > 0, "someone comes back")
			require.NotNil(t, trial)
			assert.Equal(t, tt.state, trial.State)
			assert.Contains(t, trial.Message, tt.says)
			assert.Empty(t, trial.ImagePullSpec)
			told := w.told()
			if tt.state == mcfgv1.StreamTrialFailed {
				require.Len(t, told, 1)
				assert.Contains(t, told[0], "Warning StreamTrialFailed A move to stream "+tt.stream+" could not be tried: ")
				w.triedAgain(b)
				assert.Empty(t, w.told(), "it is told once")
			}
		})
	}
}

func TestATrialBackwards(t *testing.T) {
	t.Parallel()
	w, b := trying(t, motd)
	pool := w.pool("worker")
	pool.Status.OSImageStream.Name = newStream
	w.quietly(func() error { return w.Status().Update(t.Context(), pool) })
	trial := w.tried(b, oldStream)
	assert.Equal(t, []string{`Downgrade: MachineConfigPool "worker", spec.osImageStream`}, trial.Blockers)
}

func TestATrialWithImagesThatOverrideTheStreams(t *testing.T) {
	t.Parallel()
	w, b := trying(t, motd)
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(w.base) })
	edit(w, &mcfgv1.MachineConfig{}, "50-mine", func(mc *mcfgv1.MachineConfig) { mc.Spec.OSImageURL = w.base })
	trial := w.tried(b, newStream)
	assert.Equal(t, []string{`OtherOSImage: MachineConfig "50-mine", spec.osImageURL`, `OtherOSImage: MachineOSConfig "worker", spec.baseOSImagePullSpec`}, trial.Blockers)
	assert.Contains(t, w.unpacked(string(trial.ImagePullSpec), "amd64", "etc/os-release"), "el10", "the image is the stream's all the same")
}

func TestATrialWithContent(t *testing.T) {
	t.Parallel()
	w, b, s := tryingContent(t)
	require.Empty(t, s.specs, "the pool's own is built and cleaned away")
	ensured := s.ensure
	running := true
	s.says = func(backend.Spec) backend.State {
		if running {
			return backend.State{Phase: backend.Running, Message: "step 2 of 3"}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	w.try(newStream)
	var trial *mcfgv1.StreamTrial
	for range 3 {
		var result ctrl.Result
		var err error
		trial, result, err = w.reconcileTrial(b)
		require.NoError(t, err)
		assert.Equal(t, 5*time.Second, result.RequeueAfter)
	}
	assert.Equal(t, mcfgv1.StreamTrialRunning, trial.State)
	assert.Equal(t, "step 2 of 3", trial.Message)
	assert.Equal(t, ensured+1, s.ensure)
	spec := s.only()
	config := w.osConfig("worker")
	assert.Equal(t, backend.Key{Build: "stream-trial-worker", UID: string(config.UID), Trial: "worker"}, spec.Key)

	running = false
	trial = w.triedAgain(b)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, "built for amd64", w.unpacked(string(trial.ImagePullSpec), "amd64", "usr/share/built"))
	assert.Contains(t, w.unpacked(string(trial.ImagePullSpec), "amd64", "etc/os-release"), "el10")
	assert.Equal(t, "mine", w.unpacked(string(trial.ImagePullSpec), "amd64", "etc/motd"))
	assert.Empty(t, s.specs, "nothing of the build is left in the cluster")
	assert.Equal(t, config.Status.CurrentImagePullSpec, w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Len(t, w.contentImages(), 2, "that of the pool, and that of the trial")

	w.tried(b, "")
	assert.Len(t, w.contentImages(), 1, "the trial's goes with it, the pool's stays")
	assert.False(t, w.registry.has(t, string(trial.ImagePullSpec)))
}

// contentImages are the content images that are there. The registry of the tests keeps tags of
// images that were deleted.
func (w *world) contentImages() []string {
	var images []string
	for tag, digest := range w.registry.tags(w.t, "host/os") {
		if strings.HasPrefix(tag, "content-") && w.registry.has(w.t, w.registry.host+"/host/os@"+digest) {
			images = append(images, digest)
		}
	}
	return images
}

func TestTrialWithFailingContent(t *testing.T) {
	t.Parallel()
	w, b, s := tryingContent(t)
	image := w.osConfig("worker").Status.CurrentImagePullSpec
	s.says = func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{Class: fault.Terminal, Reason: mcfgv1.ReasonBuildFailed, Message: "Containerfile line 2: exit status 7"}}
	}
	w.try(newStream)
	var trial *mcfgv1.StreamTrial
	for range 3 {
		trial = w.triedAgain(b)
	}
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State)
	assert.Equal(t, []string{`BuildFailed: MachineOSConfig "worker", spec.containerFile`}, trial.Blockers)
	assert.Empty(t, trial.ImagePullSpec)
	assert.Contains(t, w.report().Data["report.txt"], "Containerfile line 2: exit status 7")
	assert.Contains(t, w.report().Data["report.txt"], "not built: its content could not be built, see the blockers")
	w.settle(b)
	assert.Equal(t, image, w.osConfig("worker").Status.CurrentImagePullSpec, "the pool itself is well")
	assert.Contains(t, w.says("worker", "Ready"), "True")
}

func TestATrialWithoutABuilder(t *testing.T) {
	t.Parallel()
	w, b := trying(t, motd)
	w.containerfile(cheapFile)
	trial := w.tried(b, newStream)
	assert.Equal(t, mcfgv1.StreamTrialReported, trial.State, "what can be said is said")
	assert.Contains(t, w.report().Data["report.txt"], "not built: this installation has no builder")
}

// tryingContent is trying with content that a stand-in has built already.
func tryingContent(t *testing.T) (*world, *process, *standIn) {
	t.Helper()
	var s *standIn
	w, b := trying(t, motd, func(o *settings) {
		o.Backends = asJobs(&lateBackend{of: func() backends.Backend { return s }})
	})
	s = newStandIn(w)
	w.containerfile(cheapFile)
	w.settle(b)
	return w, b, s
}

// lateBackend is a backend that is made after its user.
type lateBackend struct{ of func() backends.Backend }

func (l *lateBackend) Ensure(ctx context.Context, spec backend.Spec) error {
	return l.of().Ensure(ctx, spec)
}

func (l *lateBackend) Observe(ctx context.Context, key backend.Key) (backend.State, error) {
	return l.of().Observe(ctx, key)
}

func (l *lateBackend) Remove(ctx context.Context, key backend.Key) error {
	return l.of().Remove(ctx, key)
}

// TestATrialThatDiesAnywhere stops after and before each of its writes, and goes on in another
// process.
func TestATrialThatDiesAnywhere(t *testing.T) {
	t.Parallel()
	whole, b := trying(t, motd)
	want := whole.tried(b, newStream)
	writes := len(whole.writes)
	require.Positive(t, writes)
	for n := range writes {
		for name, after := range map[string]bool{"before": false, "after": true} {
			t.Run(name+" write "+whole.writes[n], func(t *testing.T) {
				t.Parallel()
				w, _ := trying(t, motd)
				w.try(newStream)
				calls := 0
				die := func(string) error {
					if calls++; calls == n+1 {
						return errDied
					}
					return nil
				}
				if after {
					w.after = die
				} else {
					w.before = die
				}
				_, _, err := w.reconcileTrial(w.builder())
				_ = err // it may have been the last word
				w.before, w.after = nil, nil
				got := w.triedAgain(w.builder())
				assert.Equal(t, want.Message, got.Message)
				assert.Equal(t, mcfgv1.StreamTrialReported, got.State)
				assert.True(t, w.registry.has(t, string(got.ImagePullSpec)))
				assert.NotEmpty(t, w.report().Data["report.txt"])
			})
		}
	}
}

var errDied = errors.New("the process has died")
