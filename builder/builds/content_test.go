package builds_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/builder/wanted"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// TestIncompleteBuildIsCompleted has a build that lacks an object which the backend made.
func TestIncompleteBuildIsCompleted(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	var ensured int
	s.Says = func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Pending, IsIncomplete: ensured < 2, Message: "a ConfigMap was deleted"}
	}
	w.Before = func(call string) error {
		if strings.HasPrefix(call, "ensure MachineOSBuild ") {
			ensured++
		}
		return nil
	}
	b := w.Builder(use)
	w.FourRounds(b)
	assert.Equal(t, 2, ensured, "made, and made whole")
	assert.Equal(t, "Unknown Prepared a ConfigMap was deleted", worldtest.Text(w.Builds()[0].Status.Conditions, status.Ready))
}

func TestConfigurationIsAppendedToContent(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	running := true
	s.Says = func(backend.Spec) backend.State {
		if running {
			return backend.State{
				Phase: backend.Running, Message: "step 2 of 3", Started: w.Clock.Now().Add(-time.Second), Namespace: worldtest.Namespace, Related: []string{"containerfile-x"},
			}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	b := w.Builder(use)
	w.FourRounds(b)
	build := w.Builds()[0]
	assert.Equal(t, []mcfgv1.RelatedObject{{Resource: "configmaps", Namespace: worldtest.Namespace, Name: "containerfile-x"}}, build.Status.RelatedObjects)
	assert.Equal(t, "True Building step 2 of 3", worldtest.Text(build.Status.Conditions, status.BuildBuilding))
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.Ready), " Building")
	require.NotNil(t, build.Status.Builder)
	assert.Equal(t, mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: worldtest.Namespace, Name: "build-" + build.Name}, *build.Status.Builder.Job)
	assert.Contains(t, w.Says("worker", status.Reconciling), "step 2 of 3")

	spec := s.Only()
	assert.Equal(t, "pull", spec.PullSecret)
	assert.Equal(t, "push", spec.PushSecret)
	assert.Equal(t, 3, spec.Retries)
	assert.Equal(t, 2*time.Hour, spec.Timeout)
	require.Len(t, spec.Architectures, 1)
	told := spec.Architectures[0].Instructions
	content := w.Registry.Host + "/host/os:content-" + build.Status.ContentKey
	assert.Equal(t, content, told.Target)
	assert.Equal(t, []backend.PinnedImage{{Name: w.Base, Image: w.Base}}, told.Images)
	line := slices.IndexFunc(strings.Split(told.Containerfile, "\n"), func(l string) bool { return l == "RUN install-something" }) + 1
	assert.Contains(t, told.Lines, backend.LineOrigin{First: line - 1, Last: line, Admin: 1})

	running = false
	w.Settle(b)
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "built for amd64", w.Unpacked(image, "amd64", "usr/share/built"))
	assert.Equal(t, "one", w.Unpacked(image, "amd64", "etc/motd"))
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildSucceeded), "True Built ")
	assert.Empty(t, w.Builds()[0].Status.RelatedObjects)
	assert.Empty(t, s.Specs, "what built it goes after success")

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	newer := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.Unpacked(newer, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.Unpacked(newer, "amd64", "usr/share/built"))
	assert.Equal(t, 1, s.Begun, "another file is no reason to build")
	assert.Len(t, layersIn(w, newer), len(layersIn(w, image)))

	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	assert.Empty(t, w.Tags("host/os"), "everything pushed on the way goes too")
}

func layersIn(w *worldtest.World, image string) []v1.Layer {
	w.T.Helper()
	return worldtest.Must(worldtest.Must(ggcr.Image(w.Registry.Parse(w.T, image))).Layers())
}

// TestContentPushThatWasNotRecorded has the controller push an image and lose what it wanted to
// write about it. The image is this build's own all the same.
func TestContentPushThatWasNotRecorded(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	state := backend.State{Phase: backend.Running}
	s.Says = func(backend.Spec) backend.State { return state }
	b := w.Builder(use)
	w.FourRounds(b)
	require.NotNil(t, w.Builds()[0].Status.Builder)
	state = backend.State{Phase: backend.Succeeded}
	lost := 0
	w.Before = func(call string) error {
		if strings.HasPrefix(call, "create MachineOSImage") && lost == 0 {
			lost++
			return errors.New("the API server is away")
		}
		return nil
	}
	require.ErrorContains(t, w.Round(b), "the API server is away")
	w.Settle(b)
	require.Equal(t, 1, lost)
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildSucceeded), "True Built ")
	assert.Equal(t, 1, s.Begun)
}

func TestContentOnTopOfTheConfiguration(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.ConfigsFirst)
	b := w.Builder(use)
	running := true
	s.Says = func(backend.Spec) backend.State {
		if running {
			return backend.State{Phase: backend.Pending}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	for range 3 {
		require.NoError(t, w.Round(b))
	}
	build := w.Builds()[0]
	spec := s.Only()
	from := spec.Architectures[0].Instructions.Images[0].Image
	assert.Equal(t, "one", w.Unpacked(from, "amd64", "etc/motd"), "RUN lines see the configuration")
	assert.Contains(t, from, "/host/os@")
	assert.True(t, strings.HasSuffix(spec.PushSpec, ":content-"+build.Status.BuildKey), "it changes with the configuration")

	running = false
	w.Settle(b)
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "one", w.Unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.Unpacked(image, "amd64", "usr/share/built"))
	assert.Len(t, layersIn(w, image), 3, "base, configuration, content: the configuration is there once")

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(b)
	image = string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.Unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, 2, s.Begun, "another file is another build")

	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	assert.Empty(t, w.Tags("host/os"))
}

// TestTheLayersOfTheBaseAreThereFirst has what builds find them in the repository that it pushes
// to.
func TestTheLayersOfTheBaseAreThereFirst(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	elsewhere := worldtest.NewRegistry(t)
	login := w.Secret("push", "hunter2")
	login.Data[corev1.DockerConfigJsonKey] = bytes.ReplaceAll(login.Data[corev1.DockerConfigJsonKey], []byte(w.Registry.Host), []byte(elsewhere.Host))
	worldtest.Edit(w, &corev1.Secret{}, "push", func(secret *corev1.Secret) { secret.Data = login.Data })
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(elsewhere.Host + "/host/os:latest")
	})
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	b := w.Builder(use)
	for range 3 {
		require.NoError(t, w.Round(b))
	}
	s.Only()
	for _, layer := range layersIn(w, w.Base) {
		ref := elsewhere.Parse(t, elsewhere.Host+"/host/os@"+worldtest.Must(layer.Digest()).String())
		there, isDigest := ref.(name.Digest)
		require.True(t, isDigest)
		assert.Equal(t, worldtest.Must(layer.Size()), worldtest.Must(worldtest.Must(ggcr.Layer(there)).Size()))
	}
	assert.Empty(t, elsewhere.Tags(t, "host/os"))
}

func TestContentOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Base = w.Registry.PushBase(t, "stream/os", "many", "amd64", "arm64")
	w.Rerender("worker", "many", "/etc/motd", "one")
	only := mcfgv1.Arm64
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile[0].ContainerfileArch = only })
	b := w.Builder(use)
	w.Settle(b)
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "built for arm64", w.Unpacked(image, "arm64", "usr/share/built"))
	assert.Empty(t, w.Unpacked(image, "amd64", "usr/share/built"), "nothing is built for it")
	for _, arch := range []string{"amd64", "arm64"} {
		assert.Equal(t, "one", w.Unpacked(image, arch, "etc/motd"))
	}
	assert.Equal(t, 1, s.Begun)
	assert.Len(t, w.Builds()[0].Status.Architectures, 2)
	w.Remove(w.OSConfig("worker"))
	w.Settle(b)
	assert.Empty(t, w.Tags("host/os"))
}

// elsewhere is an image that no build was to push.
const elsewhere = "elsewhere.example.com/os/worker@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestHowABuildOfContentEnds(t *testing.T) {
	t.Parallel()
	failed := func(class fault.Class, reason, message string) backend.State {
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{Class: class, Reason: reason, Message: message}}
	}
	for name, test := range map[string]struct {
		state  backend.State
		failed string
		// active is what an active build says.
		active string
	}{
		"a RUN line failed": {
			state:  failed(fault.Terminal, "BuildFailed", "Containerfile line 2: RUN install-something: exit status 1"),
			failed: "True BuildFailed Containerfile line 2: RUN install-something: exit status 1",
		},
		"one architecture failed": {
			state: backend.State{Phase: backend.Failed, Failure: &backend.Failure{
				Class: fault.Terminal, Reason: "BuildFailed", Message: "exit status 1", Architecture: "ARM64",
			}},
			failed: "True BuildFailed arm64: exit status 1",
		},
		"the attempts are used up": {
			state: failed(fault.Transient, "BuildFailed", "the node went away"), failed: "True RetryLimitReached the node went away",
		},
		"it took too long": {state: failed(fault.Transient, "TimedOut", "after 2h"), failed: "True TimedOut after 2h"},
		"no one says why":  {state: backend.State{Phase: backend.Failed}, failed: "True BuildFailed the builder failed and did not report why"},
		"it names another repository": {
			state:  backend.State{Phase: backend.Succeeded, Image: elsewhere},
			failed: `True BuildFailed the builder reports that it pushed "` + elsewhere + `", which is not an image by digest in the repository that it had to push to`,
		},
		"it names no digest": {
			state:  backend.State{Phase: backend.Succeeded, Image: "os/worker:latest"},
			failed: `True BuildFailed the builder reports that it pushed "os/worker:latest", which is not an image by digest in the repository that it had to push to`,
		},
		"it waits": {
			state: backend.State{Phase: backend.Pending, Failure: &backend.Failure{
				Class: fault.Waiting, Reason: "WaitingForSecret", Message: "the secret \"pull\" is gone",
			}},
			active: "WaitingForSecret the secret \"pull\" is gone",
		},
		"it is tried again": {
			state: backend.State{Phase: backend.Running, Message: "attempt 2 of 4", Failure: &backend.Failure{
				Class: fault.Transient, Reason: "BuildFailed", Message: "the pod was evicted",
			}},
			active: "RetryingBuild attempt 2 of 4; the previous attempt: the pod was evicted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
			s.Says = func(backend.Spec) backend.State { return test.state }
			b := w.Builder(use)
			w.FourRounds(b)
			build := w.Builds()[0]
			if test.active != "" {
				assert.Equal(t, "True "+test.active, worldtest.Text(build.Status.Conditions, status.Reconciling))
				assert.Contains(t, w.Says("worker", status.Reconciling), test.active)
				return
			}
			assert.Equal(t, test.failed, worldtest.Text(build.Status.Conditions, status.BuildFailed))
			assert.Contains(t, w.Says("worker", status.Stalled), "True ")
			assert.Len(t, s.Specs, 1, "what failed stays, for someone to look at")
			assert.Equal(t, 1, s.Begun)

			w.Remove(&build)
			require.NoError(t, w.Round(b))
			assert.Empty(t, s.Specs, "until the build goes")
		})
	}
}

// interrupted is a world in which someone deleted what builds an image.
func interrupted(t *testing.T) (*worldtest.World, *worldtest.StandIn, *worldtest.Process) {
	t.Helper()
	return interruptedWhile(t, backend.State{Phase: backend.Running})
}

// interruptedWhile is one in which that had a state when it was deleted.
func interruptedWhile(t *testing.T, state backend.State) (*worldtest.World, *worldtest.StandIn, *worldtest.Process) {
	t.Helper()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	s.Says = func(backend.Spec) backend.State { return state }
	b := w.Builder(use)
	w.FourRounds(b)
	require.NotNil(t, w.Builds()[0].Status.Builder)
	require.NoError(t, s.Remove(t.Context(), s.Only().Key))
	w.Settle(b)
	return w, s, b
}

// TestAnInterruptedBuildIsNoFailedOne: the pool says what happened to the build, and is stalled as
// the MachineOSConfig is.
func TestAnInterruptedBuildIsNoFailedOne(t *testing.T) {
	t.Parallel()
	w, _, _ := interrupted(t)
	conditions := w.Pool("worker").GetConditions()
	said := "True Interrupted Build interrupted for pool worker (MachineOSBuild: " + w.Builds()[0].Name + "): the Job or PipelineRun that built the image was deleted"
	for _, is := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.PoolBuildInterrupted, mcfgv1.PoolImageBuildDegraded} {
		assert.Contains(t, worldtest.Text(conditions, string(is)), said)
	}
	assert.Contains(t, worldtest.Text(conditions, string(mcfgv1.PoolBuildFailed)), "False")
}

// TestDeletedBuilder is how an administrator stops a build.
func TestDeletedBuilder(t *testing.T) {
	t.Parallel()
	w, s, b := interrupted(t)
	build := w.Builds()[0]
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildInterrupted), "True BuilderDeleted the Job or PipelineRun that built the image was deleted")
	assert.Contains(t, w.Says("worker", status.Stalled), "True BuilderDeleted")
	buildsOnRequest(w, s, b)
}

// buildsOnRequest holds that a build which an administrator ended is made again only when one asks
// for it.
func buildsOnRequest(w *worldtest.World, s *worldtest.StandIn, b *worldtest.Process) {
	w.T.Helper()
	assert.Equal(w.T, 1, s.Begun, "no one builds against the administrator's will")
	s.Says = nil
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(w.T, 2, s.Begun)
	assert.Equal(w.T, "True Succeeded", w.Says("worker", status.Ready))
}

// TestDeletedBuilderThatWaits: an administrator also stops a build whose pod can't start.
func TestDeletedBuilderThatWaits(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]backend.State{
		"its pod is about to start": {Phase: backend.Pending},
		"its pod can't start": {Phase: backend.Pending, Failure: &backend.Failure{
			Class: fault.Waiting, Reason: mcfgv1.ReasonWaiting, Message: "node node1 cannot start the pod",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, b := interruptedWhile(t, state)
			assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildInterrupted), "True BuilderDeleted ")
			assert.Contains(t, w.Says("worker", status.Stalled), "True BuilderDeleted ")
			w.Settle(b)
			assert.Equal(t, 1, s.Begun, "no one builds against the administrator's will")
		})
	}
}

// TestTheMetricOfJobs follows what the backend says.
func TestTheMetricOfJobs(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	m, gathered := metrics.NewBuilds(), prometheus.NewPedanticRegistry()
	require.NoError(t, gathered.Register(m))
	b := w.Builder(use, func(o *worldtest.Settings) { o.Metrics = m })
	is := func() (state string) {
		for _, family := range worldtest.Must(gathered.Gather()) {
			for _, metric := range family.GetMetric() {
				if family.GetName() == "ocl_build_job_state" && metric.GetGauge().GetValue() == 1 {
					state += metric.GetLabel()[1].GetValue()
				}
			}
		}
		return state
	}
	phase := backend.Pending
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
	for _, step := range []struct {
		phase backend.Phase
		want  string
	}{{backend.Pending, "pending"}, {backend.Running, "building"}} {
		phase = step.phase
		w.FourRounds(b)
		assert.Equal(t, step.want, is())
	}
	require.NoError(t, s.Remove(t.Context(), s.Only().Key))
	w.Settle(b)
	assert.Equal(t, "interrupted", is())
	s.Says = nil
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(t, "succeeded", is())
}

// TestSettingsAreFollowedUnderWay corrects a build that waits for a node, or runs.
func TestSettingsAreFollowedUnderWay(t *testing.T) {
	t.Parallel()
	for phase, change := range map[backend.Phase]func(*mcfgv1.MachineOSConfigSpec){
		backend.Pending: func(c *mcfgv1.MachineOSConfigSpec) {
			c.BuildPlacement = &mcfgv1.BuildPlacement{NodeSelector: map[string]string{"builds": "here"}}
		},
		backend.Running: func(c *mcfgv1.MachineOSConfigSpec) { c.BuildTimeout = "3h" },
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
			s.Says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
			b := w.Builder(use)
			w.FourRounds(b)
			build := w.Builds()[0]
			require.Equal(t, 1, s.Begun)
			w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { change(&c.Spec) })
			w.FourRounds(b)
			assert.Equal(t, 2, s.Begun, "it is made again, once")
			wanted := &backend.Spec{}
			settings := objects.SettingsOf(w.OSConfig("worker"))
			settings.ApplyTo(wanted)
			made := s.Only()
			assert.Equal(t, wanted.Settings(), made.Settings())
			require.Len(t, w.Builds(), 1)
			assert.Equal(t, build.UID, w.Builds()[0].UID, "and the build is the same one")
			s.Says = nil
			w.Settle(b)
			assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		})
	}
}

// TestSettingsAreFollowedAcrossACrash: that the process dies after it removed what builds the
// image, is not taken for a person's will.
func TestSettingsAreFollowedAcrossACrash(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	b := w.Builder(use)
	w.FourRounds(b)
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildTimeout = "3h" })
	removed := 0
	w.After = func(call string) error {
		if strings.HasPrefix(call, "remove MachineOSBuild ") {
			removed++
		}
		return nil
	}
	w.Before = func(string) error {
		if removed == 1 { // it writes nothing after that
			return errors.New("the process dies")
		}
		return nil
	}
	for range 4 {
		if w.Round(b) != nil && removed == 1 {
			break
		}
	}
	require.Equal(t, 1, removed)
	w.Before, s.Says = nil, nil
	w.Settle(w.Builder(use))
	assert.Equal(t, 2, s.Begun)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// TestARebuildThatIsAskedForUnderWayFollows asks while the image is being built.
func TestARebuildThatIsAskedForUnderWayFollows(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Running, Message: "step 2 of 3"} }
	b := w.Builder(use)
	w.FourRounds(b)
	first := w.Builds()[0]
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	for range 3 {
		require.NoError(t, w.Round(b))
	}
	assert.Equal(t, 1, s.Begun, "the running one is not disturbed")
	assert.Contains(t, w.Says("worker", status.Reconciling), "the rebuild that was asked for follows when it has ended")
	s.Says = nil
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, 2, s.Begun)
	require.Len(t, w.Builds(), 1)
	assert.NotEqual(t, first.UID, w.Builds()[0].UID)
	assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested}, w.Builds()[0].Status.ChangedInputs)
	assert.NotContains(t, w.OSConfig("worker").Annotations, mcfgv1.AnnotationRebuild)
}

// TestImagePushedByALostPod is found under its tag, unless it isn't there.
func TestImagePushedByALostPod(t *testing.T) {
	t.Parallel()
	gone := func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{
			Class: fault.Transient, Reason: mcfgv1.ReasonRetryLimitReached, Message: "its digest is not known", IsLost: true,
		}}
	}
	t.Run("found", func(t *testing.T) {
		t.Parallel()
		w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
		s.Says = func(spec backend.Spec) backend.State {
			w.Built(&spec.Architectures[0], 1)
			return gone(spec)
		}
		w.Settle(w.Builder(use))
		assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		assert.Equal(t, 1, s.Begun)
	})
	t.Run("found, and attested by no one", func(t *testing.T) {
		t.Parallel()
		w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
		w.Add(worldtest.FirstKey().Secret())
		s.Says = func(spec backend.Spec) backend.State {
			pushed := w.Built(&spec.Architectures[0], 1)
			if s.Begun < 2 {
				return gone(spec)
			}
			return backend.State{Phase: backend.Succeeded, Image: pushed}
		}
		w.Settle(w.Builder(use, w.Attesting(nil)))
		assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
		assert.Equal(t, 2, s.Begun, "whoever may push could have put it there")
		assert.Len(t, w.Builds(), 1)
	})
	t.Run("never found, and attested by no one", func(t *testing.T) {
		t.Parallel()
		w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
		w.Add(worldtest.FirstKey().Secret())
		w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = new(int32(2)) })
		s.Says = gone
		b := w.Builder(use, w.Attesting(nil))
		for range 20 {
			require.NoError(t, w.Round(b))
		}
		assert.Equal(t, 3, s.Begun, "a pod that never says its digest is not made for ever")
		assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildFailed), "True RetryLimitReached attempt 3 of 3")
	})
	t.Run("not found", func(t *testing.T) {
		t.Parallel()
		w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
		s.Says = gone
		b := w.Builder(use)
		w.FourRounds(b)
		assert.Equal(t, "True RetryLimitReached its digest is not known", worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildFailed))
	})
}

func TestANewerContainerfileTakesOver(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Running} }
	b := w.Builder(use)
	w.FourRounds(b)
	first := s.Only()
	w.Containerfile(worldtest.CheapFile + "RUN install-more\n")
	s.Says = func(spec backend.Spec) backend.State {
		if spec.Key == first.Key {
			return backend.State{Phase: backend.Running}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	w.Settle(b)
	assert.Empty(t, s.Specs, "the older one was ended")
	assert.Equal(t, 2, s.Begun)
	states := []string{}
	for _, state := range w.States() {
		states = append(states, state)
	}
	assert.ElementsMatch(t, []string{"Interrupted", "Succeeded"}, states)
}

func TestARebuildBuildsContentAgain(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	b := w.Builder(use)
	w.Settle(b)
	w.Annotate("worker", mcfgv1.AnnotationRebuild)
	w.Settle(b)
	assert.Equal(t, 2, s.Begun)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

func TestContentWaitsForASlot(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "a", "b")
	for _, pool := range []string{"a", "b"} {
		text := worldtest.CheapFile + "RUN for-" + pool + "\n"
		w.EditConfig(pool, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
		})
	}
	s := worldtest.NewStandIn(w)
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Running} }
	b := w.Builder(func(o *worldtest.Settings) {
		o.Backends, o.MaxConcurrentContent = worldtest.AsJobs(s), 1
	})
	for range 5 {
		require.NoError(t, w.Round(b))
	}
	assert.Equal(t, 1, s.Begun)
	assert.Contains(t, w.Says("a", status.Reconciling)+w.Says("b", status.Reconciling), "it waits for a slot: 1 build running")
	s.Says = nil
	w.Settle(b)
	assert.Equal(t, 2, s.Begun)
	assert.Equal(t, "True Succeeded", w.Says("a", status.Ready))
	assert.Equal(t, "True Succeeded", w.Says("b", status.Ready))
}

// TestPoolsShareContent has two pools with one Containerfile.
func TestPoolsShareContent(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "a", "b")
	text := worldtest.CheapFile
	for _, pool := range []string{"a", "b"} {
		w.EditConfig(pool, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
		})
	}
	w.Rerender("b", "2", "/etc/motd", "of-b")
	s := worldtest.NewStandIn(w)
	b := w.Builder(func(o *worldtest.Settings) {
		o.Backends, o.MaxConcurrentContent = worldtest.AsJobs(s), 1
	})
	w.Settle(b)
	assert.Equal(t, 1, s.Begun, "the second takes what the first had built")
	w.Remove(w.OSConfig("a"))
	w.Settle(b)
	assert.NotEmpty(t, slices.DeleteFunc(w.Tags("host/os"), func(tag string) bool { return !strings.HasPrefix(tag, "content-") }), "b has it still")
}

// TestContentIsKeptForEachRepository has two pools with one Containerfile and a repository each.
// What one pool leaves behind is not in use because the other has the same in its own.
func TestContentIsKeptForEachRepository(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "a", "b")
	text := worldtest.CheapFile
	for _, pool := range []string{"a", "b"} {
		w.EditConfig(pool, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
			c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(w.Registry.Host + "/of-" + pool + "/os:latest")
		})
	}
	s := worldtest.NewStandIn(w)
	b := w.Builder(func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(s) })
	w.Settle(b)
	content := func(pool string) []string {
		return slices.DeleteFunc(w.Tags("of-"+pool+"/os"), func(tag string) bool { return !strings.HasPrefix(tag, "content-") })
	}
	require.NotEmpty(t, content("a"))
	w.Remove(w.OSConfig("a"))
	w.Settle(b)
	assert.Empty(t, content("a"))
	assert.NotEmpty(t, content("b"))
}

// TestInputsOfABuild is what RUN lines can use beside images.
func TestInputsOfABuild(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	s.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	w.Add(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: worldtest.Namespace, Name: "etc-pki-entitlement-worker"}, Data: map[string][]byte{"key.pem": []byte("one")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: worldtest.Namespace, Name: "etc-yum-repos-d"}, Data: map[string]string{"a.repo": "[a]"}},
	)
	w.Rerender("worker", "2", "/etc/containers/policy.json", "policy")
	retries, b := int32(0), w.Builder(use, func(o *worldtest.Settings) { o.Proxy = map[string]string{"HTTPS_PROXY": "http://proxy:3128"} })
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit, c.Spec.BuildTimeout = &retries, "5m" })
	w.FourRounds(b)
	spec := s.Only()
	assert.Equal(t, []backend.Input{
		{Name: backend.InputEntitlement, Secret: backend.InputEntitlement + "-worker"}, {Name: backend.InputYumRepos, ConfigMap: "etc-yum-repos-d"},
	}, spec.Inputs)
	assert.Equal(t, "policy", string(spec.Policy))
	assert.Zero(t, spec.Retries)
	assert.Equal(t, 5*time.Minute, spec.Timeout)
	assert.Equal(t, map[string]string{"HTTPS_PROXY": "http://proxy:3128"}, spec.Proxy)

	worldtest.Edit(w, &corev1.Secret{}, "etc-pki-entitlement-worker", func(secret *corev1.Secret) { secret.Data["key.pem"] = []byte("two") })
	w.Clock.SetTime(w.Clock.Now().Add(wanted.Idle))
	for range 5 {
		require.NoError(t, w.Round(b))
	}
	assert.Equal(t, 2, s.Begun, "another certificate is another input")
}

// TestTheConfigurationCannotBeRead has a pull secret that may not read where images are pushed to.
func TestTheConfigurationCannotBeRead(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.ConfigsFirst)
	pushed := false
	w.Registry.Answer(func(response http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/configs-") {
			pushed = true
		}
		denied := pushed && r.Method != http.MethodPut && strings.Contains(r.URL.Path, "host/os/manifests/sha256")
		if denied {
			response.WriteHeader(http.StatusForbidden)
		}
		return denied
	})
	w.Settle(w.Builder(use))
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildFailed), "True ImageNotFound the Containerfile starts from configs, which the build pulls from "+
		w.Registry.Host+"/host/os, but spec.baseImagePullSecret has no read access there: grant it, or start from os-base-image: ")
	assert.Zero(t, s.Begun)
}

// TestCrashesAnywhereWithContent has a process die around every write of a story, those of the
// backend among them.
func TestCrashesAnywhereWithContent(t *testing.T) {
	t.Parallel()
	story := func(w *worldtest.World, s *worldtest.StandIn) {
		process := func() *worldtest.Process {
			return w.Builder(func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(s) })
		}
		w.Struggle(process)
		w.Rerender("worker", "2", "/etc/motd", "two")
		w.Struggle(process)
	}
	run := func(t *testing.T, fail func(w *worldtest.World)) ([]string, string) {
		t.Helper()
		w, s, _ := worldtest.WithContent(t, worldtest.CheapFile)
		if fail != nil {
			fail(w)
		}
		story(w, s)
		assert.Empty(t, s.Specs)
		image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
		return w.Writes, fmt.Sprint(w.Says("worker", status.Ready), w.Unpacked(image, "amd64", "etc/motd"), w.Unpacked(image, "amd64", "usr/share/built"),
			len(w.Tags("host/os")), s.Begun, len(w.Builds()))
	}
	worldtest.DyingEverywhere(t, run)
}

// TestAPipelineIsNoJob asks for a builder that this installation does not have, though it has
// another.
func TestAPipelineIsNoJob(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder })
	w.Settle(w.Builder(use))
	assert.Contains(t, w.Says("worker", status.Stalled), "True BuilderNotAvailable")
	assert.Zero(t, s.Begun)
	assert.Empty(t, w.Builds())

	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile = nil })
	w.Settle(w.Builder(use))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready), "configuration needs none")
}

// TestAnotherKindOfBuilderIsChosenUnderWay: that the other one does not build yet, is not taken for
// a person's will.
func TestAnotherKindOfBuilderIsChosenUnderWay(t *testing.T) {
	t.Parallel()
	w, job, _ := worldtest.WithContent(t, worldtest.CheapFile)
	job.Says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	pipeline := worldtest.NewStandIn(w)
	b := w.Builder(func(o *worldtest.Settings) {
		o.Backends = map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: job, mcfgv1.PipelineBuilder: pipeline}
	})
	w.FourRounds(b)
	require.NotNil(t, w.Builds()[0].Status.Builder)
	w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder })
	w.Settle(b)
	assert.Equal(t, 1, pipeline.Begun)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
}

// TestOneBuilderAtATime: the one before is ended when another kind is chosen, and again when that
// is taken back.
func TestOneBuilderAtATime(t *testing.T) {
	t.Parallel()
	w, job, _ := worldtest.WithContent(t, worldtest.CheapFile)
	pipeline := worldtest.NewStandIn(w)
	running := func(backend.Spec) backend.State { return backend.State{Phase: backend.Running} }
	job.Says, pipeline.Says = running, running
	b := w.Builder(func(o *worldtest.Settings) {
		o.Backends = map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: job, mcfgv1.PipelineBuilder: pipeline}
	})
	w.FourRounds(b)
	for _, kind := range []mcfgv1.MachineOSImageBuilderType{mcfgv1.PipelineBuilder, mcfgv1.JobBuilder} {
		w.EditConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = kind })
		w.FourRounds(b)
		assert.Equal(t, kind, w.Builds()[0].Status.Builder.ImageBuilderType)
		assert.Len(t, job.Specs, map[mcfgv1.MachineOSImageBuilderType]int{mcfgv1.JobBuilder: 1}[kind])
		assert.Len(t, pipeline.Specs, map[mcfgv1.MachineOSImageBuilderType]int{mcfgv1.PipelineBuilder: 1}[kind])
	}
	assert.Equal(t, []int{2, 1}, []int{job.Begun, pipeline.Begun})
}

// TestACancelledBuildWaits is how an administrator stops a PipelineRun.
func TestACancelledBuildWaits(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	s.Says = func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{
			Class: fault.Terminal, Reason: mcfgv1.ReasonInterrupted, IsCancelled: true, Message: `someone cancelled PipelineRun "build-worker"`,
		}}
	}
	b := w.Builder(use)
	w.Settle(b)
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildInterrupted), "True Interrupted someone cancelled PipelineRun ")
	assert.Contains(t, w.Says("worker", status.Stalled), "True Interrupted ")
	buildsOnRequest(w, s, b)
}

// keeping is a stand-in whose objects stay after a build.
type keeping struct {
	*worldtest.StandIn
	cleaned int
}

func (k *keeping) Clean(context.Context, backend.Key) error {
	k.cleaned++
	return nil
}

// TestWhatABackendKeepsGoesWithTheBuild is for consoles, which show a run after it has ended.
func TestWhatABackendKeepsGoesWithTheBuild(t *testing.T) {
	t.Parallel()
	w, s, _ := worldtest.WithContent(t, worldtest.CheapFile)
	k := &keeping{StandIn: s}
	b := w.Builder(func(o *worldtest.Settings) { o.Backends = worldtest.AsJobs(k) })
	w.Settle(b)
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.NotZero(t, k.cleaned)
	assert.Len(t, s.Specs, 1, "it stays")
	build := w.Builds()[0]
	w.Remove(&build)
	require.NoError(t, w.Round(b))
	assert.Empty(t, s.Specs, "until the build goes")
}

// TestContentThatHasBeenBuiltNeedsNoBuilder changes configuration after the builder was taken away.
func TestContentThatHasBeenBuiltNeedsNoBuilder(t *testing.T) {
	t.Parallel()
	w, s, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Settle(w.Builder(use))
	require.Equal(t, 1, s.Begun)

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(w.Builder())
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.Unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.Unpacked(image, "amd64", "usr/share/built"))
	assert.Equal(t, 1, s.Begun, "nothing was built again")
}
