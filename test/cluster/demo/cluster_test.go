package demo

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgclient "github.com/layerwright/layerwright/client/clientset/typed/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// scene is a story on a real API server without a controller: the tests say what that would say.
type scene struct {
	*story
	t     *testing.T
	shelf *shelf
	texts []string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	config := clustertest.ControlPlane(t)
	install.Kinds(t, config)
	printer := progress.New(io.Discard)
	t.Cleanup(printer.Close)
	s := &scene{t: t, shelf: newShelf(t), story: &story{
		Options: Options{Program: "bin/cluster", Make: "make", Printer: printer}, text: motd,
		patience: time.Minute, stalledPatience: time.Millisecond,
	}}
	var err error
	s.objects, err = mcfgclient.NewForConfig(config)
	require.NoError(t, err)
	s.dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	s.images = s.shelf.images
	s.base, err = s.images.facts(t.Context(), s.shelf.push("base", s.shelf.base))
	require.NoError(t, err)
	f := newFacts("registry.a.test:5000/os/base:full", "registry.a.test:5000/os/worker")
	f.Motd = dataURL(motd)
	s.texts, err = writeAll(t.TempDir(), f)
	require.NoError(t, err)
	return s
}

func (s *scene) apply() (did []string) {
	s.t.Helper()
	for _, text := range s.texts {
		applied, err := apply(s.t.Context(), s.dynamic, text)
		require.NoError(s.t, err)
		did = append(did, applied.did)
	}
	return did
}

func say(conditions ...metav1.Condition) []metav1.Condition {
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.Now()
	}
	return conditions
}

// during runs a wait as a step.
func during[T any](s *scene, run func(context.Context, *progress.Step) (T, error)) (out T, err error) {
	_ = s.Printer.Do("a step", func(step *progress.Step) error {
		out, err = run(s.t.Context(), step)
		return err
	})
	return out, err
}

// TestStoryOnARealAPIServer is one story, because its objects are cluster-wide.
func TestStoryOnARealAPIServer(t *testing.T) {
	s := newScene(t)
	require.Equal(t, []string{"created", "created", "created", "created"}, s.apply())
	require.Equal(t, []string{"found as it is", "found as it is", "found as it is", "found as it is"}, s.apply())
	found, err := s.objects.MachineConfigs().Get(t.Context(), "50-motd", metav1.GetOptions{})
	require.NoError(t, err)
	found.Spec.KernelArguments = []string{"quiet"}
	found.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	_, err = s.objects.MachineConfigs().Update(t.Context(), found, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"changed", "found as it is", "found as it is", "found as it is"}, s.apply(), "what others wrote is put right")

	t.Run("a pool that is stalled ends the wait", func(t *testing.T) { s.t = t; testStalledPool(t, s) })
	t.Run("the pool's configuration is one that has the file", func(t *testing.T) { s.t = t; testRendered(t, s) })
	t.Run("the image is one that has the file", func(t *testing.T) { s.t = t; testImage(t, s) })
	t.Run("what is interrupted is not explained", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.Printer.Do("a step", func(step *progress.Step) error {
			_, err := s.rendered(ctx, step, "data:,never")
			return err
		})
		require.ErrorIs(t, err, context.Canceled)
		var stuck *StuckError
		require.NotErrorAs(t, err, &stuck)
	})
}

func (s *scene) setPool(rendered string, conditions ...metav1.Condition) {
	s.t.Helper()
	pool, err := s.objects.MachineConfigPools().Get(s.t.Context(), poolName, metav1.GetOptions{})
	require.NoError(s.t, err)
	pool.Spec.Configuration.Name = rendered
	pool, err = s.objects.MachineConfigPools().Update(s.t.Context(), pool, metav1.UpdateOptions{})
	require.NoError(s.t, err)
	pool.SetConditions(say(conditions...))
	_, err = s.objects.MachineConfigPools().UpdateStatus(s.t.Context(), pool, metav1.UpdateOptions{})
	require.NoError(s.t, err)
}

func testStalledPool(t *testing.T, s *scene) {
	t.Helper()
	s.setPool("", condition("Stalled", "True", "InvalidMachineConfig", "path not absolute"), condition("Ready", "False", "InvalidMachineConfig", "path not absolute"))
	_, err := during(s, func(ctx context.Context, step *progress.Step) (string, error) {
		return s.rendered(ctx, step, dataURL(motd))
	})
	var stuck *StuckError
	require.ErrorAs(t, err, &stuck)
	require.ErrorIs(t, err, errStalled)
	said := strings.Join(stuck.Says, "\n")
	require.Contains(t, said, "  worker  Degraded    0/0\n")
	require.Contains(t, said, "  MachineConfigPool worker: Degraded\n    path not absolute\n    $ kubectl describe mcp worker")
	require.Contains(t, said, "  mosc/worker  Waiting     no controller has looked at it yet\n")
	require.Contains(t, err.Error(), "waiting for the configuration of MachineConfigPool worker: it is stalled")
	require.Contains(t, err.Error(), `eval "$(bin/cluster env)"; kubectl describe machineosconfig worker; bin/cluster logs layerwright-controller`)
}

func testRendered(t *testing.T, s *scene) {
	t.Helper()
	for rendered, source := range map[string]string{"rendered-worker-old": "data:,old", "rendered-worker-new": dataURL(motd)} {
		mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: rendered}}
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"` + source + `"}}]}}`)
		_, err := s.objects.MachineConfigs().Create(t.Context(), mc, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	ready := condition("Ready", "True", "Succeeded", "")
	s.setPool("rendered-worker-old", ready)
	done := make(chan struct{})
	var name string
	var err error
	go func() {
		defer close(done)
		name, err = during(s, func(ctx context.Context, step *progress.Step) (string, error) {
			return s.rendered(ctx, step, dataURL(motd))
		})
	}()
	s.setPool("rendered-worker-new", ready)
	<-done
	require.NoError(t, err)
	require.Equal(t, "rendered-worker-new", name)
}

func (s *scene) setImage(image, build string) {
	s.t.Helper()
	config, err := s.objects.MachineOSConfigs().Get(s.t.Context(), configName, metav1.GetOptions{})
	require.NoError(s.t, err)
	config.Status.Conditions = say(condition("Ready", "True", "Succeeded", ""))
	config.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(image)
	config.Status.MachineOSBuild = &mcfgv1.ObjectReference{Group: mcfgv1.GroupName, Resource: "machineosbuilds", Name: build}
	_, err = s.objects.MachineOSConfigs().UpdateStatus(s.t.Context(), config, metav1.UpdateOptions{})
	require.NoError(s.t, err)
}

func testImage(t *testing.T, s *scene) {
	t.Helper()
	old, wanted := s.shelf.pushOn("worker-1", "old"), s.shelf.pushOn("worker-2", motd)
	const build = "worker-0123456789abcdef"
	_, err := s.objects.MachineOSBuilds().Create(t.Context(), &mcfgv1.MachineOSBuild{
		ObjectMeta: metav1.ObjectMeta{Name: build},
		Spec: mcfgv1.MachineOSBuildSpec{
			MachineConfig:         mcfgv1.MachineConfigReference{Name: "rendered-worker-new"},
			MachineOSConfig:       mcfgv1.MachineOSConfigReference{Name: configName},
			RenderedImagePushSpec: "registry.a.test:5000/os/worker:latest",
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.setImage(old, build)
	done := make(chan struct{})
	var image *made
	go func() {
		defer close(done)
		image, err = during(s, func(ctx context.Context, step *progress.Step) (*made, error) { return s.image(ctx, step, motd) })
	}()
	s.setImage(wanted, build)
	<-done
	require.NoError(t, err)
	require.Equal(t, wanted, image.pullSpec)
	require.Equal(t, build, image.build.Name)
	require.Equal(t, motd, image.top.contents[motdPath])

	s.setImage(s.repositoryOf(wanted)+"@sha256:0000000000000000000000000000000000000000000000000000000000000000", build)
	_, err = during(s, func(ctx context.Context, step *progress.Step) (*made, error) { return s.image(ctx, step, motd) })
	require.ErrorContains(t, err, "waiting for the image of MachineOSConfig worker: reading ", "an image that is not there")
}

func (*scene) repositoryOf(image string) string { return image[:len(image)-len("@sha256:")-64] }
