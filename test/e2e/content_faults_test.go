//go:build e2e

package e2e

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// podPatience is far more than a build in a pod takes, also where many of them share two processors
// and some of them wait to be tried again.
const podPatience = 10 * time.Minute

// Who talks to the registry.
const (
	byController = "layerwright/"
	byPod        = "layerwright-builder/"
)

// podBuilds are what tests of content that is built in pods work with.
type podBuilds struct {
	*builds
	gates *gates
	seen  *sightings
}

func newPodBuilds(t *testing.T, b *builds) *podBuilds {
	t.Helper()
	g := &gates{all: map[string]*gate{}}
	g.host = serveInside(t, b.status, g)
	return &podBuilds{builds: b, gates: g, seen: watchBuilds(t, b.clients)}
}

// contained is a pool whose image has content.
type contained struct {
	*layered
	gate *gate
	seen *sightings
}

// pool makes a pool that no one has asked for an image of yet.
func (b *podBuilds) pool(t *testing.T, name string) *contained {
	t.Helper()
	p := &contained{layered: b.unasked(t, name), gate: b.gates.gate(t, name), seen: b.seen}
	p.patience = podPatience
	return p
}

// ask asks for an image whose RUN line waits at the pool's gate, and then runs the rest of the
// line. Pods are small, so that many find a place.
func (p *contained) ask(then string, changes ...func(*mcfgv1.MachineOSConfig)) {
	p.t.Helper()
	p.layered.ask(append([]func(*mcfgv1.MachineOSConfig){containing(p.containerfile(then)), small}, changes...)...)
}

func (p *contained) containerfile(then string) string {
	return "FROM os-base-image\nRUN " + p.gate.line + then + "\n"
}

func small(c *mcfgv1.MachineOSConfig) {
	c.Spec.BuildResources = &mcfgv1.BuildResources{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
	}}
}

func limited(name corev1.ResourceName, quantity string) func(*mcfgv1.MachineOSConfig) {
	return func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BuildResources.Limits = corev1.ResourceList{name: resource.MustParse(quantity)}
	}
}

func retries(n int32) func(*mcfgv1.MachineOSConfig) {
	return func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = &n }
}

// byPods is a rule for the requests of a moment that the pool's pods make.
func (p *contained) byPods(m moment, times int, fault faultproxy.Fault) faultproxy.Rule {
	rule := p.rule(m, times, fault)
	rule.Client = byPod
	return rule
}

// only is the pool's one MachineOSBuild.
func (p *contained) only() *mcfgv1.MachineOSBuild {
	p.t.Helper()
	var found []mcfgv1.MachineOSBuild
	p.eventually(func(t *assert.CollectT) {
		found = p.machineOSBuilds(p.t.Context(), t)
		require.Len(t, found, 1)
	})
	return &found[0]
}

// buildSays waits until a condition of the pool's one build begins so, and the MachineOSConfig says
// the same.
func (p *contained) buildSays(conditionType, prefix string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		builds := p.machineOSBuilds(p.t.Context(), t)
		require.Len(t, builds, 1)
		got := conditionText(builds[0].Status.Conditions, conditionType)
		assert.True(t, strings.HasPrefix(got, prefix), "%s of the build is %q, not %q", conditionType, got, prefix)
	})
	p.says(conditionType, prefix)
}

// retries waits until an attempt follows one that failed so.
func (p *contained) retries(because string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		got := conditionText(p.config(p.t).Status.Conditions, status.Reconciling)
		assert.True(t, strings.HasPrefix(got, "True RetryingBuild "), got)
		assert.Contains(t, got, "; the previous attempt: "+because)
	})
}

// failed waits until the build has failed so, and checks who says it: build, MachineOSConfig, pool
// and event.
func (p *contained) failed(reason, prefix string) {
	p.t.Helper()
	build := p.only()
	p.says(status.Stalled, "True "+reason+" build \""+build.Name+"\" failed: "+prefix)
	assert.True(p.t, strings.HasPrefix(conditionText(p.only().Status.Conditions, status.BuildFailed), "True "+reason+" "+prefix))
	p.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
		got := conditionText(pool.GetConditions(), string(mcfgv1.PoolImageBuildDegraded))
		assert.Contains(t, got, "Failed to build OS image for pool "+p.name+" (MachineOSBuild: "+build.Name+"): "+reason+": "+prefix)
	})
	p.toldOf(build.Name, "BuildFailed", reason+": "+prefix)
	assert.Empty(p.t, p.machineOSImages(p.t.Context(), p.t))
}

// requireBuilt waits for the image, and checks that it was made by one Job, in so many attempts.
func (p *contained) requireBuilt(attempts int) {
	p.t.Helper()
	build := p.requireBuiltByOneJob()
	assert.Len(p.t, p.seen.of("Pod", build), attempts, "pods")
}

// requireBuiltByOneJob is requireBuiltBy one Job.
func (p *contained) requireBuiltByOneJob() *mcfgv1.MachineOSBuild {
	p.t.Helper()
	return p.requireBuiltBy(1)
}

// requireBuiltBy waits for the image, and checks that there is one, with its content and
// configuration, and nothing else, and how many Jobs it took.
func (p *contained) requireBuiltBy(jobs int) *mcfgv1.MachineOSBuild {
	p.t.Helper()
	p.requireReady("one")
	build := p.only()
	pinned := string(p.config(p.t).Status.CurrentImagePullSpec)
	assert.Equal(p.t, "through the gate\n", p.inLayers(pinned, "usr/share/gate"))
	assert.Equal(p.t, "True", strings.Fields(conditionText(build.Status.Conditions, status.BuildSucceeded))[0])
	require.Len(p.t, p.machineOSImages(p.t.Context(), p.t), 1)
	var tags []string
	for tag := range p.tags() {
		tags = append(tags, tag)
	}
	assert.ElementsMatch(p.t, []string{p.name, p.name + "-" + build.Status.BuildKey, "content-" + build.Status.ContentKey}, tags)
	assert.Len(p.t, p.seen.of("Job", build), jobs, "Jobs")
	assert.Len(p.t, p.told("BuildStarted"), 1, "one build, however often it was tried")
	p.requireNothingRuns(build)
	return build
}

// requireNothingRuns waits until nothing is left of what built the image.
func (p *contained) requireNothingRuns(build *mcfgv1.MachineOSBuild) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		of := metav1.ListOptions{LabelSelector: mcfgv1.LabelMachineOSBuild + "=" + build.Name}
		jobs, err := p.clients.BatchV1().Jobs(stack.Namespace).List(p.t.Context(), of)
		require.NoError(t, err)
		assert.Empty(t, jobs.Items)
		pods, err := p.clients.CoreV1().Pods(stack.Namespace).List(p.t.Context(), of)
		require.NoError(t, err)
		assert.Empty(t, pods.Items)
	})
}

// job is the Job of the pool's build, and pod its newest one.
func (p *contained) job() *batchv1.Job {
	p.t.Helper()
	jobs, err := p.clients.BatchV1().Jobs(stack.Namespace).List(p.t.Context(), p.ofBuild())
	require.NoError(p.t, err)
	require.Len(p.t, jobs.Items, 1)
	return &jobs.Items[0]
}

func (p *contained) pods() []corev1.Pod {
	p.t.Helper()
	pods, err := p.clients.CoreV1().Pods(stack.Namespace).List(p.t.Context(), p.ofBuild())
	require.NoError(p.t, err)
	slices.SortFunc(pods.Items, func(x, y corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return pods.Items
}

func (p *contained) newest() *corev1.Pod {
	p.t.Helper()
	pods := p.pods()
	require.NotEmpty(p.t, pods)
	return &pods[len(pods)-1]
}

func (p *contained) ofBuild() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: mcfgv1.LabelMachineOSBuild + "=" + p.only().Name}
}

// sightings are the UIDs of all Jobs and pods of builds that there ever were.
type sightings struct {
	mu  sync.Mutex
	all map[string][]types.UID
}

func (s *sightings) of(kind string, build *mcfgv1.MachineOSBuild) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[kind+" "+string(build.UID)]
}

func watchBuilds(t *testing.T, clients *kubernetes.Clientset) *sightings {
	t.Helper()
	s := &sightings{all: map[string][]types.UID{}}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(stack.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = mcfgv1.LabelEphemeralBuildObject }))
	for kind, informer := range map[string]cache.SharedIndexInformer{"Job": factory.Batch().V1().Jobs().Informer(), "Pod": factory.Core().V1().Pods().Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			object, ok := o.(metav1.Object)
			if !ok {
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			key := kind + " " + object.GetAnnotations()[mcfgv1.AnnotationMachineOSBuildUID]
			s.all[key] = append(s.all[key], object.GetUID())
		}})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		require.True(t, synced, kind)
	}
	return s
}

// gates are a server that RUN lines ask whether they may go on.
type gates struct {
	host string
	mu   sync.Mutex
	all  map[string]*gate
}

// gate is where a RUN line waits until the test lets it through.
type gate struct {
	// line is what waits, for a RUN line.
	line string
	// arrivals gets an element for each time that the line has come here.
	arrivals chan struct{}
	// open lets it through, now and for ever.
	open func()

	opened chan struct{}
}

func (g *gates) gate(t *testing.T, name string) *gate {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	made := &gate{arrivals: make(chan struct{}, 100), opened: make(chan struct{})}
	made.line = "wget -q -O /usr/share/gate http://" + g.host + "/" + name
	made.open = sync.OnceFunc(func() { close(made.opened) })
	g.all["/"+name] = made
	t.Cleanup(made.open)
	return made
}

func (g *gates) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	here := g.all[r.URL.Path]
	g.mu.Unlock()
	if here == nil {
		http.NotFound(w, r)
		return
	}
	here.arrivals <- struct{}{}
	select {
	case <-here.opened:
		_, _ = io.WriteString(w, "through the gate\n")
	case <-r.Context().Done():
	}
}

// arrive waits until the RUN line waits at the gate, once more.
func (p *contained) arrive() {
	p.t.Helper()
	p.await(p.gate.arrivals, "RUN line")
}

// atGate makes a pool whose RUN line waits at its gate already; then is the rest of the line.
func (b *podBuilds) atGate(t *testing.T, name, then string) *contained {
	t.Helper()
	p := b.pool(t, name)
	p.ask(then)
	p.arrive()
	return p
}

// requireRebuilt asks once more for an image that was not built, and waits for it.
func (p *contained) requireRebuilt() {
	p.t.Helper()
	p.rebuild()
	p.says(status.Ready, "True Succeeded")
	p.requireBuilt(1)
}

// await waits for something to come.
func (p *contained) await(arrived <-chan struct{}, what string) {
	p.t.Helper()
	select {
	case <-arrived:
	case <-time.After(p.patience):
		require.Fail(p.t, "no "+what+" came", conditionText(p.config(p.t).Status.Conditions, status.Reconciling))
	}
}
