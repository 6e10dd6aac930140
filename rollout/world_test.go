package rollout

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeversion "k8s.io/apimachinery/pkg/version"
	kubeevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/endpoint"
	"github.com/layerwright/layerwright/rollout/healthchecks"
	"github.com/layerwright/layerwright/rollout/prometheus"
	"github.com/layerwright/layerwright/rollout/webhook"
)

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

// newPool is the pool worker with a configuration.
func newPool(config string, change ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/worker": ""}}
	p.Spec.Configuration.Name = config
	for _, c := range change {
		c(p)
	}
	return p
}

// newConfig is a rendered MachineConfig with the OS image of a digit.
func newConfig(name, digit string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	mc.Spec.OSImageURL = nodestest.Pinned(digit)
	return mc
}

// newLayer is the MachineOSConfig of the pool worker, whose newest image is that of a digit.
func newLayer(digit string) *mcfgv1.MachineOSConfig {
	c := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	c.Spec.MachineConfigPool.Name = "worker"
	c.Status.CurrentImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned(digit))
	return c
}

// newImage is an image of the pool worker, on the OS image of digit 0.
func newImage(name, digit, config string) *mcfgv1alpha1.MachineOSImage {
	i := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	i.Spec.PullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned(digit))
	i.Spec.BaseOSImagePullSpec = mcfgv1.ImageDigestFormat(nodestest.Pinned("0"))
	i.Spec.RenderedMachineConfig, i.Spec.MachineConfigPool = config, "worker"
	i.Status.Architectures = []mcfgv1alpha1.ImageArchitecture{{Architecture: mcfgv1.ArchitectureAMD64}}
	i.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Signed", LastTransitionTime: metav1.NewTime(t0)}}
	return i
}

// newNode is a worker with an agent that has nothing to do.
func newNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := nodestest.New(name, []string{"worker"}, nodestest.Having("rendered-1"), nodestest.Annotated(mcfgv1.AnnotationStagedImage, ""))
	n.CreationTimestamp, n.Status.NodeInfo.Architecture = metav1.NewTime(t0), "amd64"
	for _, c := range change {
		c(n)
	}
	return n
}

// world is a cluster in memory, whose agents do what they are told to.
type world struct {
	client.Client
	t        *testing.T
	r        *Reconciler
	clock    *clocktesting.FakePassiveClock
	recorder *kubeevents.FakeRecorder
	// mu is for what writes change, which are made side by side.
	mu sync.Mutex
	// writes are those of the controller by kind and name.
	writes map[string]int
	// server is the version of the API server, and asked how often someone wanted to know.
	server string
	asked  int
	// shelf is what health checks read.
	shelf *shelf
	// metrics is the address of what stands in for Prometheus; answered gets something after each
	// answer.
	metrics  string
	answered chan struct{}
	// posted are what webhooks were told; unanswered is why they were not.
	posted     []webhook.Message
	unanswered error
	// silenced is what the pool wants silenced: the Secret, the label and the nodes.
	silenced []string
	// stale are Nodes that the cache has an older state of, and staleReports MachineConfigNodes.
	stale        map[string]*corev1.Node
	staleReports map[string]*mcfgv1.MachineConfigNode
	// alive is how many more writes the controller makes before it ends; negative for no end.
	alive int
}

var errEnded = errors.New("the controller was killed")

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(t0), recorder: kubeevents.NewFakeRecorder(100),
		writes: map[string]int{}, server: "v1.34.2", shelf: &shelf{}, answered: make(chan struct{}), stale: map[string]*corev1.Node{},
	}
	w.Client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&mcfgv1.MachineConfigPool{}, &mcfgv1.MachineConfigNode{}, &batchv1.Job{}, &mcfgv1alpha1.MachineOSImage{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(client.Object) []string { return nil }).Build()
	w.restart()
	return w
}

// restart begins anew with what the cluster knows.
func (w *world) restart() {
	w.alive = -1
	w.r = New(Options{Metrics: metrics.NewRollouts(), Silencer: w})
	w.r.clock, w.r.reader, w.r.events, w.r.versions = w.clock, w.Client, events.NewPublisher(w.recorder), w
	w.r.hooks = w
	w.r.client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			switch all := list.(type) {
			case *corev1.NodeList:
				for i := range all.Items {
					all.Items[i] = *cmp.Or(w.stale[all.Items[i].Name], &all.Items[i])
				}
			case *mcfgv1.MachineConfigNodeList:
				for i := range all.Items {
					all.Items[i] = *cmp.Or(w.staleReports[all.Items[i].Name], &all.Items[i])
				}
			}
			return err
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if !w.lives() {
				return errEnded
			}
			w.mu.Lock()
			w.writes[o.GetName()]++
			w.mu.Unlock()
			return c.Patch(ctx, o, p, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			if !w.lives() {
				return errEnded
			}
			return c.SubResource(name).Patch(ctx, o, p, options...)
		},
	})
	w.r.checks = healthchecks.New(healthchecks.Options{Namespace: "layerwright"}, healthchecks.Sources{
		Client: w.r.client, Reader: w.Client, Objects: w.shelf, Clock: w.clock, Queries: prometheus.New(w.prometheus, w.clock, func(context.Context, string) {
			w.answered <- struct{}{}
		}),
	})
}

// lives reports whether the controller lives for one more write.
func (w *world) lives() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alive == 0 {
		return false
	}
	w.alive--
	return true
}

// prometheus is the address of the stand-in for Prometheus.
func (w *world) prometheus(context.Context, string) (endpoint.Address, error) {
	return endpoint.Address{URL: w.metrics}, nil
}

// ServerVersion is the version of the API server.
func (w *world) ServerVersion() (*kubeversion.Info, error) {
	w.asked++
	return &kubeversion.Info{GitVersion: w.server}, nil
}

// Send takes what webhooks are told.
func (w *world) Send(secret string, m webhook.Message, failed func(error)) {
	require.Equal(w.t, "hook", secret)
	w.posted = append(w.posted, m)
	if w.unanswered != nil {
		failed(w.unanswered)
	}
}

// Want takes what is to be silenced.
func (w *world) Want(_, secret, label string, nodes []string, failed func(error)) {
	w.silenced = append([]string{secret, label}, nodes...)
	if w.unanswered != nil && secret != "" {
		failed(w.unanswered)
	}
}

func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), request("worker")[0])
	require.NoError(w.t, err)
	return result
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, n))
	return n
}

func (w *world) pool() *mcfgv1.MachineConfigPool {
	w.t.Helper()
	p := &mcfgv1.MachineConfigPool{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "worker"}, p))
	return p
}

// act lets the agent of a node do its next step, and reports whether there was one.
func (w *world) act(name string) bool {
	w.t.Helper()
	n := w.node(name)
	before := n.DeepCopy()
	if !step(n.Annotations) {
		return false
	}
	require.NoError(w.t, w.Patch(w.t.Context(), n, client.MergeFrom(before)))
	return true
}

// step is what an agent does next of what the annotations of its Node ask for. It needs no drain.
func step(a map[string]string) bool {
	stage := a[mcfgv1.AnnotationStageImage]
	switch {
	case stage != "" && stage != a[mcfgv1.AnnotationCurrentImage] && stage != a[mcfgv1.AnnotationStagedImage]:
		a[mcfgv1.AnnotationStagedImage] = stage
	case isMoving(a) && a[mcfgv1.AnnotationState] != mcfgv1.NodeStateWorking:
		a[mcfgv1.AnnotationState] = mcfgv1.NodeStateWorking
	case isMoving(a):
		a[mcfgv1.AnnotationCurrentConfig] = a[mcfgv1.AnnotationDesiredConfig]
		delete(a, mcfgv1.AnnotationCurrentImage)
		if image := a[mcfgv1.AnnotationDesiredImage]; image != "" {
			a[mcfgv1.AnnotationCurrentImage] = image
		}
		a[mcfgv1.AnnotationState] = mcfgv1.NodeStateDone
	default:
		return false
	}
	return true
}

func isMoving(a map[string]string) bool {
	return a[mcfgv1.AnnotationCurrentConfig] != a[mcfgv1.AnnotationDesiredConfig] ||
		a[mcfgv1.AnnotationCurrentImage] != a[mcfgv1.AnnotationDesiredImage]
}

// settle makes reconciles and steps of agents until nothing happens any more.
func (w *world) settle() {
	w.t.Helper()
	for range 100 {
		var all corev1.NodeList
		require.NoError(w.t, w.List(w.t.Context(), &all))
		before := versions(all.Items)
		w.reconcile()
		moved := false
		for i := range all.Items {
			moved = w.act(all.Items[i].Name) || moved
		}
		require.NoError(w.t, w.List(w.t.Context(), &all))
		if !moved && before == versions(all.Items) {
			return
		}
	}
	w.t.Fatal("the nodes never come to rest")
}

func versions(all []corev1.Node) string {
	var out strings.Builder
	for i := range all {
		out.WriteString(all[i].ResourceVersion + " ")
	}
	return out.String()
}

// told are the events so far, without those before the last call.
func (w *world) told() []string {
	var out []string
	for {
		select {
		case e := <-w.recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}
