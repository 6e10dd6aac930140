//go:build e2e

package guest

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/guest"
)

const (
	// patience is far more than a machine takes to boot that is emulated on a busy one.
	patience = 25 * time.Minute
	tick     = time.Second
)

// fleet is a pool of one guest.
type fleet struct {
	client.Client
	t       *testing.T
	control *guest.Control
	log     *nodeLog
	// installed is the OS image that the guest was installed with, and base the one of the next
	// stream, which its images are made on.
	installed, base string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	scheme := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	config, err := playground.Config()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	references, err := playground.PushFixtures(t.Context(), fixtures.Bootable, []fixtures.Stream{stack.GuestStream, fixtures.RHEL10}, t.Logf)
	require.NoError(t, err)
	clients, err := playground.Clients()
	require.NoError(t, err)
	f := &fleet{
		Client: c, t: t, control: playground.Guest(nodeName), log: newNodeLog(t, clients),
		installed: references.OS[stack.GuestStream].String(), base: references.OS[fixtures.RHEL10].String(),
	}
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.PoolWorker}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: mcfgv1.PoolWorker}},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{stack.GuestLabel: ""}},
	}}
	for _, object := range []client.Object{f.machineConfig(), pool} {
		require.NoError(t, f.Create(t.Context(), object))
	}
	return f
}

// in is the fleet in a subtest.
func (f *fleet) in(t *testing.T) *fleet {
	t.Helper()
	own := *f
	own.t = t
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("node:\n%s\npool: %+v\nconsole:\n%s", strings.Join(f.log.all(), "\n"), own.pool(t).Status, lastOf(own.console()))
		}
	})
	return &own
}

// named is a MachineConfig of the pool.
func (*fleet) named(name string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{mcfgv1.LabelRole: mcfgv1.PoolWorker}}}
}

// ask asks for the pool's image, with a Containerfile that has a package of Debian's beside it.
func (f *fleet) ask(containerfile string) {
	f.t.Helper()
	pkg, err := playground.FetchPackage(f.t.Context(), "hello", f.t.Logf)
	require.NoError(f.t, err)
	archive, err := os.ReadFile(pkg.File)
	require.NoError(f.t, err)
	registry, err := playground.Registry(f.t.Context())
	require.NoError(f.t, err)
	for _, object := range []client.Object{
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: "guest-image"},
			Data:       map[string]string{"Containerfile": containerfile}, BinaryData: map[string][]byte{"hello.deb": archive},
		},
		&mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.PoolWorker}, Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: mcfgv1.PoolWorker},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			BaseImagePullSecret:     &mcfgv1.ImageSecretObjectReference{Name: stack.PullSecret},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: stack.PushSecret},
			RenderedImagePushSpec:   mcfgv1.ImageTagFormat(registry.Host + "/guests/worker:latest"),
			Containerfile:           []mcfgv1.MachineOSContainerfile{{ConfigMapRef: &mcfgv1.ConfigMapKeyReference{Name: "guest-image"}}},
		}},
	} {
		require.NoError(f.t, f.Create(f.t.Context(), object))
	}
}

func (f *fleet) eventually(condition func(t *assert.CollectT)) {
	f.t.Helper()
	require.EventuallyWithT(f.t, condition, patience, tick)
}

// arrive waits until the guest runs the pool's newest image, and the pool says so. It returns the
// image.
func (f *fleet) arrive() (image string) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		pool := f.pool(t)
		require.NotNil(t, pool.Status.Rollout)
		image = string(f.config(t).Status.CurrentImagePullSpec)
		require.NotEmpty(t, image)
		require.Equal(t, image, string(pool.Status.Rollout.TargetImagePullSpec))
		require.Equal(t, "1/1 updated", pool.Status.Rollout.Summary)
		require.Equal(t, "True", f.condition(t, mcfgv1.PoolUpdated))
	})
	return image
}

func (f *fleet) pool(t require.TestingT) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, f.Get(context.WithoutCancel(f.t.Context()), client.ObjectKey{Name: mcfgv1.PoolWorker}, pool))
	return pool
}

func (f *fleet) changePool(edit func(*mcfgv1.MachineConfigPool)) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		pool := f.pool(t)
		edit(pool)
		require.NoError(t, f.Update(f.t.Context(), pool))
	})
}

func (f *fleet) config(t require.TestingT) *mcfgv1.MachineOSConfig {
	config := &mcfgv1.MachineOSConfig{}
	require.NoError(t, f.Get(f.t.Context(), client.ObjectKey{Name: mcfgv1.PoolWorker}, config))
	return config
}

func (f *fleet) node(t require.TestingT) *corev1.Node {
	node := &corev1.Node{}
	require.NoError(t, f.Get(f.t.Context(), client.ObjectKey{Name: nodeName}, node))
	return node
}

// condition is the status of a condition of the pool.
func (f *fleet) condition(t require.TestingT, kind mcfgv1.MachineConfigPoolConditionType) string {
	for _, c := range f.pool(t).Status.Conditions {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return "none"
}

// sh runs a script in the guest, and waits for one that boots.
func (f *fleet) sh(script string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	out, err := f.control.Run(ctx, script)
	require.NoError(f.t, err, script)
	return strings.TrimSpace(out)
}

// bootcStatus is what of `bootc status` the tests look at.
type bootcStatus struct {
	Status struct{ Staged, Booted, Rollback *bootcEntry }
}

type bootcEntry struct {
	Image struct {
		Image       struct{ Signature json.RawMessage }
		ImageDigest string
	}
}

func (e *bootcEntry) digest() string {
	if e == nil {
		return ""
	}
	return e.Image.ImageDigest
}

func (f *fleet) status() *bootcStatus {
	f.t.Helper()
	out := &bootcStatus{}
	require.NoError(f.t, json.Unmarshal([]byte(f.sh("bootc status --format=json")), out))
	return out
}

// console is what the guest has printed.
func (f *fleet) console() string {
	f.t.Helper()
	text, err := os.ReadFile(playground.GuestConsole(nodeName))
	require.NoError(f.t, err)
	return string(text)
}

// lastOf is the end of a long text.
func lastOf(text string) string {
	const kept = 8 << 10
	return text[max(0, len(text)-kept):]
}

func digestIn(pinned string) string { return mcfgv1.ImageDigestFormat(pinned).Digest() }

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeLog writes down what happens to the guest's Node.
type nodeLog struct {
	mu    sync.Mutex
	seen  []seen
	begin time.Time
}

type seen struct {
	image, phase string
	after        time.Duration
}

func newNodeLog(t *testing.T, clients kubernetes.Interface) *nodeLog {
	t.Helper()
	l := &nodeLog{begin: time.Now()}
	factory := informers.NewSharedInformerFactory(clients, 0)
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { l.see(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { l.see(object.(*corev1.Node)) },
	})
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	return l
}

// see notes which phase of which image a Node is in, when that is another one.
func (l *nodeLog) see(node *corev1.Node) {
	if node.Name != nodeName {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := node.Annotations
	now := seen{image: a[mcfgv1.AnnotationStageImage], after: time.Since(l.begin)}
	switch {
	case now.image == "":
		return
	case a[mcfgv1.AnnotationCurrentImage] == now.image:
		now.phase = "runs the image"
	case a[mcfgv1.AnnotationState] == mcfgv1.NodeStateRebooting:
		now.phase = "reboots"
	case node.Spec.Unschedulable:
		now.phase = "cordoned"
	case a[mcfgv1.AnnotationStagedImage] == now.image:
		now.phase = "holds the image"
	default:
		now.phase = "stages"
	}
	if last := len(l.seen) - 1; last < 0 || l.seen[last].image != now.image || l.seen[last].phase != now.phase {
		l.seen = append(l.seen, now)
	}
}

// of are the phases that an image went through.
func (l *nodeLog) of(image string) (phases []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.seen {
		if s.image == image {
			phases = append(phases, s.phase)
		}
	}
	return phases
}

// all is everything, as lines.
func (l *nodeLog) all() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.seen {
		lines = append(lines, s.after.Round(time.Second).String()+" "+s.image+" "+s.phase)
	}
	return lines
}
