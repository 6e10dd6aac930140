//go:build e2e

package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	imagename "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/buildah"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Budgets of content that is built in a pod, on the full image: 51 layers, about 600 MB packed.
const (
	budgetBuildah    = 1.10 // of the time that Buildah with empty storage takes to build and push the same
	budgetScheduling = 5.0  // seconds on top of that
	budgetFailure    = 2.0  // seconds from the end of a pod that failed to the status of the build
	budgetPipeline   = 1.25 // of the time that a Job takes
)

// workshop is a cluster with the controller as it is deployed, and registries that count.
type workshop struct {
	client.WithWatch
	// near has the OS image, and far has nothing yet.
	near, far *hub
	// base is the OS image as the cluster names it, and layers are its layers.
	base   string
	layers map[v1.Hash]bool
	names  int
}

// hub is a registry with two names: one for pods, and one for programs of this machine.
type hub struct {
	inside, outside string
	traffic         traffic
	login           remote.Option
}

const contentNamespace = stack.Namespace

func newWorkshop(b *testing.B, flags ...string) *workshop {
	b.Helper()
	cluster(b, append([]string{"up"}, flags...)...)
	b.Cleanup(func() { cluster(b, "down") })
	cache, err := toolchain.CacheDir()
	require.NoError(b, err)
	s, err := stack.New(repository(b), cache, name)
	require.NoError(b, err)
	config, err := s.Config()
	require.NoError(b, err)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme} {
		require.NoError(b, add(scheme))
	}
	ctrl.SetLogger(logr.Discard())
	w := &workshop{layers: map[v1.Hash]bool{}}
	w.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	w.near, w.far = newHub(b, s), newHub(b, s)
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	require.NoError(b, err)
	refs, err := maker.Push(b.Context(), fixtures.Full, w.near.outside+"/streams", w.near.login)
	require.NoError(b, err)
	image, err := remote.Image(refs.OS[fixtures.RHEL9], w.near.login, remote.WithContext(b.Context()))
	require.NoError(b, err)
	manifest, err := image.Manifest()
	require.NoError(b, err)
	for _, layer := range manifest.Layers {
		w.layers[layer.Digest] = true
	}
	w.base = w.near.inside + strings.TrimPrefix(refs.OS[fixtures.RHEL9].String(), w.near.outside)
	for secret, hub := range map[string]*hub{"near": w.near, "far": w.far} {
		login, err := appendAccount.DockerConfig(hub.inside)
		require.NoError(b, err)
		require.NoError(b, w.Create(b.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: contentNamespace, Name: secret}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: login},
		}))
	}
	return w
}

func newHub(b *testing.B, s *stack.Stack) *hub {
	b.Helper()
	logrus.SetOutput(io.Discard) // it calls it an error that someone looks for what is not there
	h := &hub{login: remote.WithAuth(appendAccount.Login())}
	handler := h.traffic.of(registry.New(b.Context(), registry.Options{Dir: b.TempDir(), Accounts: []registry.Account{appendAccount}}))
	outside := httptest.NewServer(handler)
	b.Cleanup(outside.Close)
	h.outside = strings.TrimPrefix(outside.URL, "http://")
	state, err := s.Status(b.Context())
	require.NoError(b, err)
	listener, err := state.Listen(context.WithoutCancel(b.Context()))
	require.NoError(b, err)
	h.inside = listener.Addr().String()
	inside := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- inside.Serve(listener) }()
	b.Cleanup(func() {
		require.NoError(b, inside.Close())
		require.ErrorIs(b, <-ended, http.ErrServerClosed)
	})
	return h
}

// order is a pool that has asked for an image.
type order struct {
	name string
	// begun is when the MachineOSConfig was created, and done when its status had the image's
	// digest, or said that there is none.
	begun, done time.Time
	image       string
	// failed is when the pod was seen to have failed.
	failed time.Time
	up     int64
	spent  map[string]float64
}

// build asks for an image of a new pool and waits for what becomes of it. All of it is seen by
// watching, as people do.
func (w *workshop) build(b *testing.B, to *hub, secret, containerfile string, changes ...func(*mcfgv1.MachineOSConfig)) order {
	b.Helper()
	w.names++
	o := order{name: fmt.Sprintf("content-%d", w.names)}
	arena := &arena{WithWatch: w, host: to.inside, base: w.base}
	require.NoError(b, w.Create(b.Context(), arena.machineConfig(o.name, time.Now().UnixNano())))
	require.NoError(b, w.Create(b.Context(), arena.pool(o.name)))
	require.Eventually(b, func() bool { // the first configuration may be one without the MachineConfig
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(b, w.Get(b.Context(), client.ObjectKey{Name: o.name}, pool))
		return slices.ContainsFunc(pool.Spec.Configuration.Source, func(r corev1.ObjectReference) bool { return r.Name == "50-"+o.name })
	}, patience, 20*time.Millisecond)
	config := arena.osConfig(o.name)
	config.Spec.BaseImagePullSecret.Name, config.Spec.RenderedImagePushSecret.Name = "near", secret
	if to == w.far { // one repository: what another one of that registry has, no one can know
		config.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(to.inside + "/os/all:latest")
	}
	config.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: &containerfile}}
	for _, change := range changes {
		change(config)
	}
	configs, err := w.Watch(b.Context(), &mcfgv1.MachineOSConfigList{})
	require.NoError(b, err)
	defer configs.Stop()
	pods, err := w.Watch(b.Context(), &corev1.PodList{}, client.InNamespace(contentNamespace))
	require.NoError(b, err)
	defer pods.Stop()
	images, err := w.Watch(b.Context(), &mcfgv1alpha1.MachineOSImageList{})
	require.NoError(b, err)
	defer images.Stop()
	seen := progress{}
	before := to.traffic.up.Load()
	o.begun = time.Now()
	require.NoError(b, w.Create(b.Context(), config))
	timeout := time.After(10 * time.Minute)
	for o.done.IsZero() {
		select {
		case e := <-images.ResultChan():
			seen.observe(e.Object, o.name)
		case e := <-pods.ResultChan():
			seen.observe(e.Object, o.name)
			pod, isPod := e.Object.(*corev1.Pod)
			if isPod && o.failed.IsZero() && pod.Labels[mcfgv1.LabelTargetMachineConfigPool] == o.name && hasFailed(pod) {
				o.failed = time.Now()
			}
		case e := <-configs.ResultChan():
			c, isConfig := e.Object.(*mcfgv1.MachineOSConfig)
			if isConfig && c.Name == o.name && (c.Status.CurrentImagePullSpec != "" || status.IsTrue(c.Status.Conditions, status.Stalled)) {
				o.done, o.image = time.Now(), string(c.Status.CurrentImagePullSpec)
			}
		case <-timeout:
			require.Fail(b, "no image", "of %s", o.name)
		}
	}
	o.up, o.spent = to.traffic.up.Load()-before, seen.spent(o.begun, o.done)
	return o
}

func hasFailed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode != 0
	})
}

// parts are the bytes of the layers that an image has of the OS image, and of its own.
func (w *workshop) parts(b *testing.B, in *hub, image string) (base, own int64) {
	b.Helper()
	ref, err := imagename.ParseReference(strings.Replace(image, in.inside, in.outside, 1))
	require.NoError(b, err)
	found, err := remote.Image(ref, in.login, remote.WithContext(b.Context()))
	require.NoError(b, err)
	manifest, err := found.Manifest()
	require.NoError(b, err)
	for _, layer := range manifest.Layers {
		if w.layers[layer.Digest] {
			base += layer.Size
		} else {
			own += layer.Size
		}
	}
	return base, own
}

// content is a Containerfile that no one has built yet: one line that takes time, and some that do
// not.
func content(from string) string {
	return fmt.Sprintf("FROM %s\nRUN head -c 20000000 /dev/urandom > /usr/share/content\nRUN echo %d > /usr/share/number\nLABEL some=label\nRUN rm /usr/share/number\n",
		from, time.Now().UnixNano())
}

// BenchmarkContent has content built in a pod, and then by Buildah with empty storage on the same
// machine from the same registry. Pairs follow each other, so that a machine that gets slower slows
// both; of several the median counts.
func BenchmarkContent(b *testing.B) {
	w := newWorkshop(b)
	// The first image has the OS image read, which is a budget of its own, and the builder's image
	// loaded.
	first := w.build(b, w.near, "near", content("os-base-image"))
	require.NotEmpty(b, first.image)
	b.Run("Build", func(b *testing.B) { benchmarkContent(b, w) })
	b.Run("Elsewhere", func(b *testing.B) { benchmarkElsewhere(b, w) })
	b.Run("Failure", func(b *testing.B) { benchmarkFailure(b, w) })
}

func benchmarkContent(b *testing.B, w *workshop) {
	b.Helper()
	var ours, theirs, ratios, ups []float64
	var spent []map[string]float64
	for b.Loop() {
		o := w.build(b, w.near, "near", content("os-base-image"))
		require.NotEmpty(b, o.image)
		base, own := w.parts(b, w.near, o.image)
		require.Positive(b, base, "the layers of the OS image are the very same")
		require.LessOrEqual(b, float64(o.up), float64(own)*budgetUpload, "bytes sent, of %d in new layers", own)
		slow := w.plainly(b)
		ours, theirs = append(ours, o.done.Sub(o.begun).Seconds()), append(theirs, slow.Seconds())
		ratios = append(ratios, o.done.Sub(o.begun).Seconds()/(budgetBuildah*slow.Seconds()+budgetScheduling))
		ups, spent = append(ups, float64(o.up)/(float64(own)*budgetUpload)), append(spent, o.spent)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ours), "s")
	b.ReportMetric(median(theirs), "s-buildah")
	b.ReportMetric(median(ratios), "s-of-budget")
	b.ReportMetric(median(ups), "bytes-of-budget")
	reportParts(b, spent)
}

// plainly builds and pushes what a pod builds and pushes, with Buildah as it comes.
func (w *workshop) plainly(b *testing.B) time.Duration {
	b.Helper()
	login, err := appendAccount.DockerConfig(w.near.outside)
	require.NoError(b, err)
	tool := buildah.New(b, buildah.Options{Host: w.near.outside, Login: login})
	dir := b.TempDir()
	file := filepath.Join(dir, "Containerfile")
	text := content(w.near.outside + strings.TrimPrefix(w.base, w.near.inside))
	require.NoError(b, os.WriteFile(file, []byte(text), 0o600))
	begin := time.Now()
	tool.Run("build", "--quiet", "--file", file, "--tag", w.near.outside+"/os/plain:1", dir)
	tool.Run("push", "--quiet", w.near.outside+"/os/plain:1")
	return time.Since(begin)
}

// benchmarkElsewhere pushes to a registry that does not have the OS image. The first image brings
// its layers, as they are; those that follow find them there, also from another pod with another
// store.
func benchmarkElsewhere(b *testing.B, w *workshop) {
	b.Helper()
	var took, ups []float64
	to := w.far
	for b.Loop() {
		o := w.build(b, to, "far", content("os-base-image"))
		require.NotEmpty(b, o.image)
		base, own := w.parts(b, to, o.image)
		require.Positive(b, base, "nodes have these layers already")
		allowed := float64(own)
		if len(took) == 0 {
			allowed += float64(base)
		}
		require.LessOrEqual(b, float64(o.up), allowed*budgetUpload, "bytes sent, of %d in new layers", own)
		took, ups = append(took, o.done.Sub(o.begun).Seconds()), append(ups, float64(o.up)/(allowed*budgetUpload))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[0], "s-first")
	b.ReportMetric(median(took), "s")
	b.ReportMetric(median(ups), "bytes-of-budget")
}

// benchmarkFailure has a RUN line fail, and measures from when the pod is seen to have failed to
// when the status says so.
func benchmarkFailure(b *testing.B, w *workshop) {
	b.Helper()
	var told []float64
	for b.Loop() {
		o := w.build(b, w.near, "near", fmt.Sprintf("FROM os-base-image\nRUN echo %d; exit 1\n", time.Now().UnixNano()))
		require.Empty(b, o.image)
		if o.failed.IsZero() { // the status was seen first
			o.failed = o.done
		}
		told = append(told, o.done.Sub(o.failed).Seconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(told), "s")
	b.ReportMetric(slices.Max(told), "s-at-most")
	b.ReportMetric(median(told)/budgetFailure, "s-of-budget")
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// BenchmarkPipeline has PipelineRuns of Tekton build what Jobs build, by turns; of several pairs
// the median counts.
func BenchmarkPipeline(b *testing.B) {
	w := newWorkshop(b, "--with-tekton")
	asPipeline := func(c *mcfgv1.MachineOSConfig) { c.Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder }
	took := func(changes ...func(*mcfgv1.MachineOSConfig)) float64 {
		o := w.build(b, w.near, "near", content("os-base-image"), changes...)
		require.NotEmpty(b, o.image)
		return o.done.Sub(o.begun).Seconds()
	}
	took() // reads the OS image, and loads the builder's
	took(asPipeline)
	var runs, jobs, ratios []float64
	for b.Loop() {
		job, run := took(), took(asPipeline)
		jobs, runs, ratios = append(jobs, job), append(runs, run), append(ratios, run/job)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(runs), "s")
	b.ReportMetric(median(jobs), "s-job")
	b.ReportMetric(median(ratios)/budgetPipeline, "s-of-budget")
}
