package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/status"
)

// standIn is a backend whose builds add one file to the image that they start from. It has no
// memory but its builds, as a cluster has.
type standIn struct {
	w *world

	mu    sync.Mutex
	specs map[backend.Key]backend.Spec
	// numbers tell builds of one key apart, and ensure is how many there were.
	numbers map[backend.Key]int
	ensure  int
	// says, where it is set, is how far each build is. Else they have succeeded.
	says func(backend.Spec) backend.State
}

func newStandIn(w *world) *standIn {
	return &standIn{w: w, specs: map[backend.Key]backend.Spec{}, numbers: map[backend.Key]int{}}
}

// asJobs is a backend for MachineOSConfigs whose imageBuilderType is Job.
func asJobs(b backends.Backend) map[mcfgv1.MachineOSImageBuilderType]backends.Backend {
	return map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: b}
}

func (s *standIn) Ensure(_ context.Context, spec backend.Spec) error {
	return s.w.call("ensure MachineOSBuild "+spec.Key.Build, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, has := s.specs[spec.Key]; !has {
			s.specs[spec.Key] = spec
			s.ensure++
			s.numbers[spec.Key] = s.ensure
		}
		return nil
	})
}

func (s *standIn) Observe(_ context.Context, key backend.Key) (backend.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, has := s.specs[key]
	if !has {
		return backend.State{Phase: backend.Absent}, nil
	}
	state := backend.State{Phase: backend.Succeeded}
	if s.says != nil {
		state = s.says(spec)
	}
	state.Settings = spec.Settings()
	state.Object = &corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace, Name: "build-" + key.Build}
	if state.Phase == backend.Succeeded && state.Image == "" {
		for _, a := range spec.Architectures {
			result := mcfgv1.ArchitectureBuild{
				Architecture: a.Architecture, State: mcfgv1.ArchitectureSucceeded, DigestedImagePushSpec: mcfgv1.ImageDigestFormat(s.w.built(&a, s.numbers[key])),
			}
			state.Architectures = append(state.Architectures, result)
		}
		if len(spec.Architectures) == 1 {
			state.Image, state.Architectures = string(state.Architectures[0].DigestedImagePushSpec), nil
		}
	}
	return state, nil
}

func (s *standIn) Remove(_ context.Context, key backend.Key) error {
	s.mu.Lock()
	_, has := s.specs[key]
	s.mu.Unlock()
	if !has {
		return nil
	}
	return s.w.call("remove MachineOSBuild "+key.Build, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.specs, key)
		return nil
	})
}

// only is the one build that the backend has.
func (s *standIn) only() backend.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(s.w.t, s.specs, 1)
	for _, spec := range s.specs {
		return spec
	}
	return backend.Spec{}
}

var contentLabel = regexp.MustCompile(mcfgv1.ImageLabelContentKey + `='([0-9a-f]{32})'`)

// built makes and pushes what a build is about: the file /usr/share/built and what else it
// installs, on the first of its images.
func (w *world) built(a *backend.ArchitectureSpec, number int) string {
	w.t.Helper()
	goarch := strings.ToLower(string(a.Architecture))
	from := a.Instructions.Images[0].Image
	image := must(ggcr.Image(w.registry.parse(w.t, from), ggcr.WithPlatform(v1.Platform{OS: "linux", Architecture: goarch})))
	files := map[string]string{"usr/share/built": "built for " + goarch}
	maps.Copy(files, w.installs)
	image = must(mutate.AppendLayers(image, registrytest.Layer(w.t, files)))
	config := must(image.ConfigFile()).DeepCopy()
	label := contentLabel.FindStringSubmatch(a.Instructions.Containerfile)
	require.NotNil(w.t, label, a.Instructions.Containerfile)
	config.Config.Labels[mcfgv1.ImageLabelContentKey] = label[1]
	config.Author = fmt.Sprint(number)
	image = must(mutate.ConfigFile(image, config))
	var ref name.Reference
	var err error
	for i := range names.MaxTags { // the next one where tags are immutable
		ref = w.registry.parse(w.t, names.NextTag(a.Instructions.Target, i+1))
		if err = ggcr.Write(ref, image); err == nil || !strings.Contains(err.Error(), "immutable") {
			break
		}
	}
	require.NoError(w.t, err)
	return ref.Context().Digest(must(image.Digest()).String()).String()
}

const (
	cheapFile    = "FROM os-base-image\nRUN install-something\n"
	configsFirst = "FROM configs AS final\nRUN install-something\n"
)

// withContent is a world with a pool whose image has content, and what builds it.
func withContent(t *testing.T, containerfile string) (*world, *standIn, func(*settings)) {
	t.Helper()
	w := layered(t, "worker")
	w.containerfile(containerfile)
	s := newStandIn(w)
	return w, s, func(o *settings) { o.Backends = asJobs(s) }
}

// TestIncompleteBuildIsCompleted has a build that lacks an object which the backend made.
func TestIncompleteBuildIsCompleted(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	var ensured int
	s.says = func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Pending, IsIncomplete: ensured < 2, Message: "a ConfigMap was deleted"}
	}
	w.before = func(call string) error {
		if strings.HasPrefix(call, "ensure MachineOSBuild ") {
			ensured++
		}
		return nil
	}
	b := w.builder(use)
	w.fourRounds(b)
	assert.Equal(t, 2, ensured, "made, and made whole")
	assert.Equal(t, "Unknown Prepared a ConfigMap was deleted", text(w.builds()[0].Status.Conditions, status.Ready))
}

func TestConfigurationIsAppendedToContent(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	running := true
	s.says = func(backend.Spec) backend.State {
		if running {
			return backend.State{
				Phase: backend.Running, Message: "step 2 of 3", Started: w.clock.Now().Add(-time.Second), Namespace: namespace, Related: []string{"containerfile-x"},
			}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	b := w.builder(use)
	w.fourRounds(b)
	build := w.builds()[0]
	assert.Equal(t, []mcfgv1.RelatedObject{{Resource: "configmaps", Namespace: namespace, Name: "containerfile-x"}}, build.Status.RelatedObjects)
	assert.Equal(t, "True Building step 2 of 3", text(build.Status.Conditions, status.BuildBuilding))
	assert.Contains(t, text(build.Status.Conditions, status.Ready), " Building")
	require.NotNil(t, build.Status.Builder)
	assert.Equal(t, mcfgv1.ObjectReference{Group: "batch", Resource: "jobs", Namespace: namespace, Name: "build-" + build.Name}, *build.Status.Builder.Job)
	assert.Contains(t, w.says("worker", status.Reconciling), "step 2 of 3")

	spec := s.only()
	assert.Equal(t, "pull", spec.PullSecret)
	assert.Equal(t, "push", spec.PushSecret)
	assert.Equal(t, 3, spec.Retries)
	assert.Equal(t, 2*time.Hour, spec.Timeout)
	require.Len(t, spec.Architectures, 1)
	told := spec.Architectures[0].Instructions
	content := w.registry.host + "/host/os:content-" + build.Status.ContentKey
	assert.Equal(t, content, told.Target)
	assert.Equal(t, []backend.PinnedImage{{Name: w.base, Image: w.base}}, told.Images)
	line := slices.IndexFunc(strings.Split(told.Containerfile, "\n"), func(l string) bool { return l == "RUN install-something" }) + 1
	assert.Contains(t, told.Lines, backend.LineOrigin{First: line - 1, Last: line, Admin: 1})

	running = false
	w.settle(b)
	image := string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "built for amd64", w.unpacked(image, "amd64", "usr/share/built"))
	assert.Equal(t, "one", w.unpacked(image, "amd64", "etc/motd"))
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildSucceeded), "True Built ")
	assert.Empty(t, w.builds()[0].Status.RelatedObjects)
	assert.Empty(t, s.specs, "what built it goes after success")

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	newer := string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.unpacked(newer, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.unpacked(newer, "amd64", "usr/share/built"))
	assert.Equal(t, 1, s.ensure, "another file is no reason to build")
	assert.Len(t, layersIn(w, newer), len(layersIn(w, image)))

	w.remove(w.osConfig("worker"))
	w.settle(b)
	assert.Empty(t, w.tags("host/os"), "everything pushed on the way goes too")
}

func layersIn(w *world, image string) []v1.Layer {
	w.t.Helper()
	return must(must(ggcr.Image(w.registry.parse(w.t, image))).Layers())
}

// tags are those that stand for something: the registry keeps a tag whose image was deleted.
func (w *world) tags(repository string) []string {
	w.t.Helper()
	repo := w.registry.parse(w.t, w.registry.host+"/"+repository).Context()
	all, _ := ggcr.List(repo)
	return slices.DeleteFunc(all, func(tag string) bool {
		return !w.registry.has(w.t, repo.Digest(w.registry.digestOf(w.t, repo.Tag(tag).String())).String())
	})
}

// TestContentPushThatWasNotRecorded has the controller push an image and lose what it wanted to
// write about it. The image is this build's own all the same.
func TestContentPushThatWasNotRecorded(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	state := backend.State{Phase: backend.Running}
	s.says = func(backend.Spec) backend.State { return state }
	b := w.builder(use)
	w.fourRounds(b)
	require.NotNil(t, w.builds()[0].Status.Builder)
	state = backend.State{Phase: backend.Succeeded}
	lost := 0
	w.before = func(call string) error {
		if strings.HasPrefix(call, "create MachineOSImage") && lost == 0 {
			lost++
			return errors.New("the API server is away")
		}
		return nil
	}
	require.ErrorContains(t, w.round(b), "the API server is away")
	w.settle(b)
	require.Equal(t, 1, lost)
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildSucceeded), "True Built ")
	assert.Equal(t, 1, s.ensure)
}

func TestContentOnTopOfTheConfiguration(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, configsFirst)
	b := w.builder(use)
	running := true
	s.says = func(backend.Spec) backend.State {
		if running {
			return backend.State{Phase: backend.Pending}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	for range 3 {
		require.NoError(t, w.round(b))
	}
	build := w.builds()[0]
	spec := s.only()
	from := spec.Architectures[0].Instructions.Images[0].Image
	assert.Equal(t, "one", w.unpacked(from, "amd64", "etc/motd"), "RUN lines see the configuration")
	assert.Contains(t, from, "/host/os@")
	assert.True(t, strings.HasSuffix(spec.PushSpec, ":content-"+build.Status.BuildKey), "it changes with the configuration")

	running = false
	w.settle(b)
	image := string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "one", w.unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.unpacked(image, "amd64", "usr/share/built"))
	assert.Len(t, layersIn(w, image), 3, "base, configuration, content: the configuration is there once")

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(b)
	image = string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, 2, s.ensure, "another file is another build")

	w.remove(w.osConfig("worker"))
	w.settle(b)
	assert.Empty(t, w.tags("host/os"))
}

// TestTheLayersOfTheBaseAreThereFirst has what builds find them in the repository that it pushes
// to.
func TestTheLayersOfTheBaseAreThereFirst(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	elsewhere := newRegistry(t)
	login := w.secret("push", "hunter2")
	login.Data[corev1.DockerConfigJsonKey] = bytes.ReplaceAll(login.Data[corev1.DockerConfigJsonKey], []byte(w.registry.host), []byte(elsewhere.host))
	edit(w, &corev1.Secret{}, "push", func(secret *corev1.Secret) { secret.Data = login.Data })
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(elsewhere.host + "/host/os:latest")
	})
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	b := w.builder(use)
	for range 3 {
		require.NoError(t, w.round(b))
	}
	s.only()
	for _, layer := range layersIn(w, w.base) {
		ref := elsewhere.parse(t, elsewhere.host+"/host/os@"+must(layer.Digest()).String())
		there, isDigest := ref.(name.Digest)
		require.True(t, isDigest)
		assert.Equal(t, must(layer.Size()), must(must(ggcr.Layer(there)).Size()))
	}
	assert.Empty(t, elsewhere.tags(t, "host/os"))
}

func TestContentOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	w.base = w.registry.pushBase(t, "stream/os", "many", "amd64", "arm64")
	w.rerender("worker", "many", "/etc/motd", "one")
	only := mcfgv1.Arm64
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile[0].ContainerfileArch = only })
	b := w.builder(use)
	w.settle(b)
	image := string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "built for arm64", w.unpacked(image, "arm64", "usr/share/built"))
	assert.Empty(t, w.unpacked(image, "amd64", "usr/share/built"), "nothing is built for it")
	for _, arch := range []string{"amd64", "arm64"} {
		assert.Equal(t, "one", w.unpacked(image, arch, "etc/motd"))
	}
	assert.Equal(t, 1, s.ensure)
	assert.Len(t, w.builds()[0].Status.Architectures, 2)
	w.remove(w.osConfig("worker"))
	w.settle(b)
	assert.Empty(t, w.tags("host/os"))
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
			w, s, use := withContent(t, cheapFile)
			s.says = func(backend.Spec) backend.State { return test.state }
			b := w.builder(use)
			w.fourRounds(b)
			build := w.builds()[0]
			if test.active != "" {
				assert.Equal(t, "True "+test.active, text(build.Status.Conditions, status.Reconciling))
				assert.Contains(t, w.says("worker", status.Reconciling), test.active)
				return
			}
			assert.Equal(t, test.failed, text(build.Status.Conditions, status.BuildFailed))
			assert.Contains(t, w.says("worker", status.Stalled), "True ")
			assert.Len(t, s.specs, 1, "what failed stays, for someone to look at")
			assert.Equal(t, 1, s.ensure)

			w.remove(&build)
			require.NoError(t, w.round(b))
			assert.Empty(t, s.specs, "until the build goes")
		})
	}
}

// interrupted is a world in which someone deleted what builds an image.
func interrupted(t *testing.T) (*world, *standIn, *process) {
	t.Helper()
	return interruptedWhile(t, backend.State{Phase: backend.Running})
}

// interruptedWhile is one in which that had a state when it was deleted.
func interruptedWhile(t *testing.T, state backend.State) (*world, *standIn, *process) {
	t.Helper()
	w, s, use := withContent(t, cheapFile)
	s.says = func(backend.Spec) backend.State { return state }
	b := w.builder(use)
	w.fourRounds(b)
	require.NotNil(t, w.builds()[0].Status.Builder)
	require.NoError(t, s.Remove(t.Context(), s.only().Key))
	w.settle(b)
	return w, s, b
}

// TestAnInterruptedBuildIsNoFailedOne: the pool says what happened to the build, and is stalled as
// the MachineOSConfig is.
func TestAnInterruptedBuildIsNoFailedOne(t *testing.T) {
	t.Parallel()
	w, _, _ := interrupted(t)
	conditions := w.pool("worker").GetConditions()
	said := "True Interrupted Build interrupted for pool worker (MachineOSBuild: " + w.builds()[0].Name + "): the Job or PipelineRun that built the image was deleted"
	for _, is := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.PoolBuildInterrupted, mcfgv1.PoolImageBuildDegraded} {
		assert.Contains(t, text(conditions, string(is)), said)
	}
	assert.Contains(t, text(conditions, string(mcfgv1.PoolBuildFailed)), "False")
}

// TestDeletedBuilder is how an administrator stops a build.
func TestDeletedBuilder(t *testing.T) {
	t.Parallel()
	w, s, b := interrupted(t)
	build := w.builds()[0]
	assert.Contains(t, text(build.Status.Conditions, status.BuildInterrupted), "True BuilderDeleted the Job or PipelineRun that built the image was deleted")
	assert.Contains(t, w.says("worker", status.Stalled), "True BuilderDeleted")
	w.buildsOnRequest(s, b)
}

// buildsOnRequest holds that a build which an administrator ended is made again only when one asks
// for it.
func (w *world) buildsOnRequest(s *standIn, b *process) {
	w.t.Helper()
	assert.Equal(w.t, 1, s.ensure, "no one builds against the administrator's will")
	s.says = nil
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
	assert.Equal(w.t, 2, s.ensure)
	assert.Equal(w.t, "True Succeeded", w.says("worker", status.Ready))
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
			assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildInterrupted), "True BuilderDeleted ")
			assert.Contains(t, w.says("worker", status.Stalled), "True BuilderDeleted ")
			w.settle(b)
			assert.Equal(t, 1, s.ensure, "no one builds against the administrator's will")
		})
	}
}

// TestTheMetricOfJobs follows what the backend says.
func TestTheMetricOfJobs(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	m, gathered := metrics.NewBuilds(), prometheus.NewPedanticRegistry()
	require.NoError(t, gathered.Register(m))
	b := w.builder(use, func(o *settings) { o.Metrics = m })
	is := func() (state string) {
		for _, family := range must(gathered.Gather()) {
			for _, metric := range family.GetMetric() {
				if family.GetName() == "ocl_build_job_state" && metric.GetGauge().GetValue() == 1 {
					state += metric.GetLabel()[1].GetValue()
				}
			}
		}
		return state
	}
	phase := backend.Pending
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
	for _, step := range []struct {
		phase backend.Phase
		want  string
	}{{backend.Pending, "pending"}, {backend.Running, "building"}} {
		phase = step.phase
		w.fourRounds(b)
		assert.Equal(t, step.want, is())
	}
	require.NoError(t, s.Remove(t.Context(), s.only().Key))
	w.settle(b)
	assert.Equal(t, "interrupted", is())
	s.says = nil
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
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
			w, s, use := withContent(t, cheapFile)
			s.says = func(backend.Spec) backend.State { return backend.State{Phase: phase} }
			b := w.builder(use)
			w.fourRounds(b)
			build := w.builds()[0]
			require.Equal(t, 1, s.ensure)
			w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { change(&c.Spec) })
			w.fourRounds(b)
			assert.Equal(t, 2, s.ensure, "it is made again, once")
			wanted := &backend.Spec{}
			settings := objects.SettingsOf(w.osConfig("worker"))
			settings.ApplyTo(wanted)
			made := s.only()
			assert.Equal(t, wanted.Settings(), made.Settings())
			require.Len(t, w.builds(), 1)
			assert.Equal(t, build.UID, w.builds()[0].UID, "and the build is the same one")
			s.says = nil
			w.settle(b)
			assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
		})
	}
}

// TestSettingsAreFollowedAcrossACrash: that the process dies after it removed what builds the
// image, is not taken for a person's will.
func TestSettingsAreFollowedAcrossACrash(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	b := w.builder(use)
	w.fourRounds(b)
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildTimeout = "3h" })
	removed := 0
	w.after = func(call string) error {
		if strings.HasPrefix(call, "remove MachineOSBuild ") {
			removed++
		}
		return nil
	}
	w.before = func(string) error {
		if removed == 1 { // it writes nothing after that
			return errors.New("the process dies")
		}
		return nil
	}
	for range 4 {
		if w.round(b) != nil && removed == 1 {
			break
		}
	}
	require.Equal(t, 1, removed)
	w.before, s.says = nil, nil
	w.settle(w.builder(use))
	assert.Equal(t, 2, s.ensure)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

// TestARebuildThatIsAskedForUnderWayFollows asks while the image is being built.
func TestARebuildThatIsAskedForUnderWayFollows(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Running, Message: "step 2 of 3"} }
	b := w.builder(use)
	w.fourRounds(b)
	first := w.builds()[0]
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	for range 3 {
		require.NoError(t, w.round(b))
	}
	assert.Equal(t, 1, s.ensure, "the running one is not disturbed")
	assert.Contains(t, w.says("worker", status.Reconciling), "the rebuild that was asked for follows when it has ended")
	s.says = nil
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, 2, s.ensure)
	require.Len(t, w.builds(), 1)
	assert.NotEqual(t, first.UID, w.builds()[0].UID)
	assert.Equal(t, []mcfgv1.BuildInput{mcfgv1.BuildInputRebuildRequested}, w.builds()[0].Status.ChangedInputs)
	assert.NotContains(t, w.osConfig("worker").Annotations, mcfgv1.AnnotationRebuild)
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
		w, s, use := withContent(t, cheapFile)
		s.says = func(spec backend.Spec) backend.State {
			w.built(&spec.Architectures[0], 1)
			return gone(spec)
		}
		w.settle(w.builder(use))
		assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
		assert.Equal(t, 1, s.ensure)
	})
	t.Run("found, and attested by no one", func(t *testing.T) {
		t.Parallel()
		w, s, use := withContent(t, cheapFile)
		w.add(firstKey().secret())
		s.says = func(spec backend.Spec) backend.State {
			pushed := w.built(&spec.Architectures[0], 1)
			if s.ensure < 2 {
				return gone(spec)
			}
			return backend.State{Phase: backend.Succeeded, Image: pushed}
		}
		w.settle(w.builder(use, w.attesting(nil)))
		assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
		assert.Equal(t, 2, s.ensure, "whoever may push could have put it there")
		assert.Len(t, w.builds(), 1)
	})
	t.Run("never found, and attested by no one", func(t *testing.T) {
		t.Parallel()
		w, s, use := withContent(t, cheapFile)
		w.add(firstKey().secret())
		w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = new(int32(2)) })
		s.says = gone
		b := w.builder(use, w.attesting(nil))
		for range 20 {
			require.NoError(t, w.round(b))
		}
		assert.Equal(t, 3, s.ensure, "a pod that never says its digest is not made for ever")
		assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildFailed), "True RetryLimitReached attempt 3 of 3")
	})
	t.Run("not found", func(t *testing.T) {
		t.Parallel()
		w, s, use := withContent(t, cheapFile)
		s.says = gone
		b := w.builder(use)
		w.fourRounds(b)
		assert.Equal(t, "True RetryLimitReached its digest is not known", text(w.builds()[0].Status.Conditions, status.BuildFailed))
	})
}

func TestANewerContainerfileTakesOver(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Running} }
	b := w.builder(use)
	w.fourRounds(b)
	first := s.only()
	w.containerfile(cheapFile + "RUN install-more\n")
	s.says = func(spec backend.Spec) backend.State {
		if spec.Key == first.Key {
			return backend.State{Phase: backend.Running}
		}
		return backend.State{Phase: backend.Succeeded}
	}
	w.settle(b)
	assert.Empty(t, s.specs, "the older one was ended")
	assert.Equal(t, 2, s.ensure)
	states := []string{}
	for _, state := range w.states() {
		states = append(states, state)
	}
	assert.ElementsMatch(t, []string{"Interrupted", "Succeeded"}, states)
}

func TestARebuildBuildsContentAgain(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	b := w.builder(use)
	w.settle(b)
	w.annotate("worker", mcfgv1.AnnotationRebuild)
	w.settle(b)
	assert.Equal(t, 2, s.ensure)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

func TestContentWaitsForASlot(t *testing.T) {
	t.Parallel()
	w := layered(t, "a", "b")
	for _, pool := range []string{"a", "b"} {
		text := cheapFile + "RUN for-" + pool + "\n"
		w.editConfig(pool, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
		})
	}
	s := newStandIn(w)
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Running} }
	b := w.builder(func(o *settings) {
		o.Backends, o.MaxConcurrentContent = asJobs(s), 1
	})
	for range 5 {
		require.NoError(t, w.round(b))
	}
	assert.Equal(t, 1, s.ensure)
	assert.Contains(t, w.says("a", status.Reconciling)+w.says("b", status.Reconciling), "it waits for a slot: 1 build running")
	s.says = nil
	w.settle(b)
	assert.Equal(t, 2, s.ensure)
	assert.Equal(t, "True Succeeded", w.says("a", status.Ready))
	assert.Equal(t, "True Succeeded", w.says("b", status.Ready))
}

// TestPoolsShareContent has two pools with one Containerfile.
func TestPoolsShareContent(t *testing.T) {
	t.Parallel()
	w := layered(t, "a", "b")
	text := cheapFile
	for _, pool := range []string{"a", "b"} {
		w.editConfig(pool, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
		})
	}
	w.rerender("b", "2", "/etc/motd", "of-b")
	s := newStandIn(w)
	b := w.builder(func(o *settings) {
		o.Backends, o.MaxConcurrentContent = asJobs(s), 1
	})
	w.settle(b)
	assert.Equal(t, 1, s.ensure, "the second takes what the first had built")
	w.remove(w.osConfig("a"))
	w.settle(b)
	assert.NotEmpty(t, slices.DeleteFunc(w.tags("host/os"), func(tag string) bool { return !strings.HasPrefix(tag, "content-") }), "b has it still")
}

// TestContentIsKeptForEachRepository has two pools with one Containerfile and a repository each.
// What one pool leaves behind is not in use because the other has the same in its own.
func TestContentIsKeptForEachRepository(t *testing.T) {
	t.Parallel()
	w := layered(t, "a", "b")
	text := cheapFile
	for _, pool := range []string{"a", "b"} {
		w.editConfig(pool, func(c *mcfgv1.MachineOSConfig) {
			c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &text}}
			c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(w.registry.host + "/of-" + pool + "/os:latest")
		})
	}
	s := newStandIn(w)
	b := w.builder(func(o *settings) { o.Backends = asJobs(s) })
	w.settle(b)
	content := func(pool string) []string {
		return slices.DeleteFunc(w.tags("of-"+pool+"/os"), func(tag string) bool { return !strings.HasPrefix(tag, "content-") })
	}
	require.NotEmpty(t, content("a"))
	w.remove(w.osConfig("a"))
	w.settle(b)
	assert.Empty(t, content("a"))
	assert.NotEmpty(t, content("b"))
}

// TestInputsOfABuild is what RUN lines can use beside images.
func TestInputsOfABuild(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	s.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	w.add(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etc-pki-entitlement-worker"}, Data: map[string][]byte{"key.pem": []byte("one")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etc-yum-repos-d"}, Data: map[string]string{"a.repo": "[a]"}},
	)
	w.rerender("worker", "2", "/etc/containers/policy.json", "policy")
	retries, b := int32(0), w.builder(use, func(o *settings) { o.Proxy = map[string]string{"HTTPS_PROXY": "http://proxy:3128"} })
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit, c.Spec.BuildTimeout = &retries, "5m" })
	w.fourRounds(b)
	spec := s.only()
	assert.Equal(t, []backend.Input{
		{Name: backend.InputEntitlement, Secret: backend.InputEntitlement + "-worker"}, {Name: backend.InputYumRepos, ConfigMap: "etc-yum-repos-d"},
	}, spec.Inputs)
	assert.Equal(t, "policy", string(spec.Policy))
	assert.Zero(t, spec.Retries)
	assert.Equal(t, 5*time.Minute, spec.Timeout)
	assert.Equal(t, map[string]string{"HTTPS_PROXY": "http://proxy:3128"}, spec.Proxy)

	edit(w, &corev1.Secret{}, "etc-pki-entitlement-worker", func(secret *corev1.Secret) { secret.Data["key.pem"] = []byte("two") })
	w.clock.SetTime(w.clock.Now().Add(wanted.Idle))
	for range 5 {
		require.NoError(t, w.round(b))
	}
	assert.Equal(t, 2, s.ensure, "another certificate is another input")
}

// TestTheConfigurationCannotBeRead has a pull secret that may not read where images are pushed to.
func TestTheConfigurationCannotBeRead(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, configsFirst)
	pushed := false
	w.registry.answering(func(response http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/configs-") {
			pushed = true
		}
		denied := pushed && r.Method != http.MethodPut && strings.Contains(r.URL.Path, "host/os/manifests/sha256")
		if denied {
			response.WriteHeader(http.StatusForbidden)
		}
		return denied
	})
	w.settle(w.builder(use))
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildFailed), "True ImageNotFound the Containerfile starts from configs, which the build pulls from "+
		w.registry.host+"/host/os, but spec.baseImagePullSecret has no read access there: grant it, or start from os-base-image: ")
	assert.Zero(t, s.ensure)
}

// TestCrashesAnywhereWithContent has a process die around every write of a story, those of the
// backend among them.
func TestCrashesAnywhereWithContent(t *testing.T) {
	t.Parallel()
	story := func(w *world, s *standIn) {
		process := func() *process {
			return w.builder(func(o *settings) { o.Backends = asJobs(s) })
		}
		w.struggle(process)
		w.rerender("worker", "2", "/etc/motd", "two")
		w.struggle(process)
	}
	run := func(t *testing.T, fail func(w *world)) ([]string, string) {
		t.Helper()
		w, s, _ := withContent(t, cheapFile)
		if fail != nil {
			fail(w)
		}
		story(w, s)
		assert.Empty(t, s.specs)
		image := string(w.osConfig("worker").Status.CurrentImagePullSpec)
		return w.writes, fmt.Sprint(w.says("worker", status.Ready), w.unpacked(image, "amd64", "etc/motd"), w.unpacked(image, "amd64", "usr/share/built"),
			len(w.tags("host/os")), s.ensure, len(w.builds()))
	}
	dyingEverywhere(t, run)
}

// TestAPipelineIsNoJob asks for a builder that this installation does not have, though it has
// another.
func TestAPipelineIsNoJob(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder })
	w.settle(w.builder(use))
	assert.Contains(t, w.says("worker", status.Stalled), "True BuilderNotAvailable")
	assert.Zero(t, s.ensure)
	assert.Empty(t, w.builds())

	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile = nil })
	w.settle(w.builder(use))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready), "configuration needs none")
}

// TestAnotherKindOfBuilderIsChosenUnderWay: that the other one does not build yet, is not taken for
// a person's will.
func TestAnotherKindOfBuilderIsChosenUnderWay(t *testing.T) {
	t.Parallel()
	w, job, _ := withContent(t, cheapFile)
	job.says = func(backend.Spec) backend.State { return backend.State{Phase: backend.Pending} }
	pipeline := newStandIn(w)
	b := w.builder(func(o *settings) {
		o.Backends = map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: job, mcfgv1.PipelineBuilder: pipeline}
	})
	w.fourRounds(b)
	require.NotNil(t, w.builds()[0].Status.Builder)
	w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder })
	w.settle(b)
	assert.Equal(t, 1, pipeline.ensure)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
}

// TestOneBuilderAtATime: the one before is ended when another kind is chosen, and again when that
// is taken back.
func TestOneBuilderAtATime(t *testing.T) {
	t.Parallel()
	w, job, _ := withContent(t, cheapFile)
	pipeline := newStandIn(w)
	running := func(backend.Spec) backend.State { return backend.State{Phase: backend.Running} }
	job.says, pipeline.says = running, running
	b := w.builder(func(o *settings) {
		o.Backends = map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: job, mcfgv1.PipelineBuilder: pipeline}
	})
	w.fourRounds(b)
	for _, kind := range []mcfgv1.MachineOSImageBuilderType{mcfgv1.PipelineBuilder, mcfgv1.JobBuilder} {
		w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = kind })
		w.fourRounds(b)
		assert.Equal(t, kind, w.builds()[0].Status.Builder.ImageBuilderType)
		assert.Len(t, job.specs, map[mcfgv1.MachineOSImageBuilderType]int{mcfgv1.JobBuilder: 1}[kind])
		assert.Len(t, pipeline.specs, map[mcfgv1.MachineOSImageBuilderType]int{mcfgv1.PipelineBuilder: 1}[kind])
	}
	assert.Equal(t, []int{2, 1}, []int{job.ensure, pipeline.ensure})
}

// TestACancelledBuildWaits is how an administrator stops a PipelineRun.
func TestACancelledBuildWaits(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	s.says = func(backend.Spec) backend.State {
		return backend.State{Phase: backend.Failed, Failure: &backend.Failure{
			Class: fault.Terminal, Reason: mcfgv1.ReasonInterrupted, IsCancelled: true, Message: `someone cancelled PipelineRun "build-worker"`,
		}}
	}
	b := w.builder(use)
	w.settle(b)
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildInterrupted), "True Interrupted someone cancelled PipelineRun ")
	assert.Contains(t, w.says("worker", status.Stalled), "True Interrupted ")
	w.buildsOnRequest(s, b)
}

// keeping is a stand-in whose objects stay after a build.
type keeping struct {
	*standIn
	cleaned int
}

func (k *keeping) Clean(context.Context, backend.Key) error {
	k.cleaned++
	return nil
}

// TestWhatABackendKeepsGoesWithTheBuild is for consoles, which show a run after it has ended.
func TestWhatABackendKeepsGoesWithTheBuild(t *testing.T) {
	t.Parallel()
	w, s, _ := withContent(t, cheapFile)
	k := &keeping{standIn: s}
	b := w.builder(func(o *settings) { o.Backends = asJobs(k) })
	w.settle(b)
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.NotZero(t, k.cleaned)
	assert.Len(t, s.specs, 1, "it stays")
	build := w.builds()[0]
	w.remove(&build)
	require.NoError(t, w.round(b))
	assert.Empty(t, s.specs, "until the build goes")
}

// TestContentThatHasBeenBuiltNeedsNoBuilder changes configuration after the builder was taken away.
func TestContentThatHasBeenBuiltNeedsNoBuilder(t *testing.T) {
	t.Parallel()
	w, s, use := withContent(t, cheapFile)
	w.settle(w.builder(use))
	require.Equal(t, 1, s.ensure)

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(w.builder())
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	image := string(w.osConfig("worker").Status.CurrentImagePullSpec)
	assert.Equal(t, "two", w.unpacked(image, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.unpacked(image, "amd64", "usr/share/built"))
	assert.Equal(t, 1, s.ensure, "nothing was built again")
}
