//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
	"github.com/layerwright/layerwright/test/install"
)

// Budgets of the rollout in a large cluster: nodes without kubelets, whose agents are simulated, on
// a real API server with the real controller.
const (
	crowdPools, crowdPods = 20, 20

	budgetCrowdMiB      = 250.0 // resident at most, while all is read and all nodes move
	budgetNodeSeen      = 2.0   // seconds from a node that becomes Ready to the next one that is told
	budgetUpdateWrites  = 4.0   // requests that write, of the controller for each node and update
	budgetCrowdChange   = 60.0  // seconds until all nodes have a change that needs no reboot
	crowdWorkers        = 32
	crowdRenewers       = 8
	crowdLease          = 40 * time.Second // for which the controller manager takes a node for alive
	crowdPatience       = 15 * time.Minute
	crowdReady          = `{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Bench"}]}}`
	crowdNamespace      = metav1.NamespaceDefault
	crowdMaxUnavailable = `{"spec":{"maxUnavailable":%q}}`
)

// crowdNodes is how many nodes the cluster has; the budgets are those of 5,000.
var crowdNodes = flag.Int("crowd", 5000, "how many nodes the large cluster has")

// crowd is a large cluster.
type crowd struct {
	client.WithWatch
	*arena
	clients *kubernetes.Clientset
	nodes   cache.Indexer
	queue   workqueue.TypedInterface[string]
	// reboots reports whether agents drain and reboot their nodes.
	reboots atomic.Bool
	// arrived are when nodes were seen with an image first, and told when they were told to take
	// it.
	mu            sync.Mutex
	arrived, told map[string]map[string]time.Time
}

// BenchmarkFleet has the controller read a large cluster, move the nodes of one pool through
// drains, and change all nodes as they run.
func BenchmarkFleet(b *testing.B) {
	b.Setenv("GOMEMLIMIT", "256000000") // as deployed
	b.Setenv("GOGC", "40")
	c := newCrowd(b)
	begin := time.Now()
	c.startController(b, clustertest.ControlPlane(b))
	c.until(b, "every node has a MachineConfigNode", func() bool { return c.calls.written("machineconfignodes") >= int64(*crowdNodes) })
	c.idle(b)
	read := time.Since(begin).Seconds()
	first := peakMiB(b, c.process.Process.Pid)
	busy := float64(processorTime(b, c.process.Process.Pid)) / 100

	var reaction, writes, live []float64
	generation := 1
	for b.Loop() {
		generation++
		c.reboots.Store(true)
		reaction = append(reaction, c.react(b, generation))
		writes = append(writes, c.drainAll(b, generation))
		generation++
		c.reboots.Store(false)
		live = append(live, c.change(b, generation))
	}
	peak := peakMiB(b, c.process.Process.Pid)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(read, "s-to-read")
	b.ReportMetric(busy, "s-cpu-to-read")
	b.ReportMetric(first, "MiB-read")
	b.ReportMetric(peak, "MiB")
	b.ReportMetric(peak/budgetCrowdMiB, "MiB-of-budget")
	b.ReportMetric(median(reaction), "s-reaction")
	b.ReportMetric(median(reaction)/budgetNodeSeen, "reaction-of-budget")
	b.ReportMetric(median(writes), "writes")
	b.ReportMetric(median(writes)/budgetUpdateWrites, "writes-of-budget")
	b.ReportMetric(median(live), "s-live")
	b.ReportMetric(median(live)/budgetCrowdChange, "live-of-budget")
}

// newCrowd makes the cluster, with agents and without a controller.
func newCrowd(b *testing.B) *crowd {
	b.Helper()
	config := clustertest.ControlPlane(b)
	c := &crowd{arena: &arena{namespace: clustertest.Namespace(b)}, arrived: map[string]map[string]time.Time{}, told: map[string]map[string]time.Time{}}
	install.Kinds(b, config)
	install.Policies(b, config)
	install.ControllerRights(b, config, c.namespace, arenaUser, "deploy/base/rollout-rbac.yaml")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme} {
		require.NoError(b, add(scheme))
	}
	var err error
	c.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	binary := rest.CopyConfig(config)
	binary.ContentType = runtime.ContentTypeProtobuf
	c.clients = kubernetes.NewForConfigOrDie(binary)
	for i := range crowdPools {
		pool := poolOf(i)
		mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-" + pool, Labels: map[string]string{mcfgv1.LabelRole: pool}}}
		mc.Spec.OSImageURL = nodestest.Pinned("1")
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
		require.NoError(b, c.Create(b.Context(), mc))
		c.image(b, i, 1)
		p := c.pool(pool)
		p.Spec.MachineOSImage = imageOf(i, 1)
		require.NoError(b, c.Create(b.Context(), p))
	}
	c.eachNode(b, func(ctx context.Context, i int) error { return c.join(ctx, i) })
	c.startAgents(b)
	return c
}

func poolOf(node int) string { return fmt.Sprintf("crowd-%02d", node%crowdPools) }

func nodeOf(i int) string { return fmt.Sprintf("crowd-%04d", i) }

func imageOf(pool, generation int) string { return fmt.Sprintf("%s-%d", poolOf(pool), generation) }

// pinnedOf is the image of a pool.
func pinnedOf(pool, generation int) string {
	return fmt.Sprintf("registry.example.com/os/%s@sha256:%064x", poolOf(pool), generation)
}

// image makes a MachineOSImage for a pool, whose nodes get it when the pool names it.
func (c *crowd) image(b *testing.B, pool, generation int) {
	b.Helper()
	image := &mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: imageOf(pool, generation)}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = mcfgv1.ImageDigestFormat(pinnedOf(pool, generation)), poolOf(pool)
	image.Spec.RenderedMachineConfig = fmt.Sprintf("rendered-%s-%d", poolOf(pool), generation)
	require.NoError(b, c.Create(b.Context(), image))
}

// want has the nodes of a pool get an image.
func (c *crowd) want(b *testing.B, pool, generation int) {
	b.Helper()
	c.image(b, pool, generation)
	c.patchPool(b, pool, fmt.Sprintf(`{"spec":{"machineOSImage":%q}}`, imageOf(pool, generation)))
}

func (c *crowd) patchPool(b *testing.B, pool int, patch string) {
	b.Helper()
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: poolOf(pool)}}
	require.NoError(b, c.Patch(b.Context(), p, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// eachNode does something for each node, many at once.
func (c *crowd) eachNode(b *testing.B, do func(ctx context.Context, i int) error) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(crowdWorkers)
	for i := range *crowdNodes {
		group.Go(func() error { return do(ctx, i) })
	}
	require.NoError(b, group.Wait())
}

// join makes a node that has the first image, with a lease and pods that stay on it.
func (c *crowd) join(ctx context.Context, i int) error {
	pool := i % crowdPools
	n := nodestest.New(nodeOf(i), []string{poolOf(pool)}, nodestest.Having(fmt.Sprintf("rendered-%s-1", poolOf(pool))),
		nodestest.Annotated(mcfgv1.AnnotationCurrentImage, pinnedOf(pool, 1)), nodestest.Annotated(mcfgv1.AnnotationDesiredImage, pinnedOf(pool, 1)),
		nodestest.Annotated(mcfgv1.AnnotationStagedImage, ""), nodestest.Labelled(corev1.LabelTopologyZone, fmt.Sprint("zone-", i%3)))
	n.Status.NodeInfo.Architecture = "amd64"
	if _, err := c.clients.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.Name, RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: new(int32(crowdLease.Seconds()))},
	}
	if _, err := c.clients.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return err
	}
	for k := range crowdPods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: crowdNamespace, Name: fmt.Sprintf("%s-%02d", n.Name, k), Labels: map[string]string{"app": fmt.Sprint("app-", k)},
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "bench"},
			},
			Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app:1"}}},
		}
		if _, err := c.clients.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// startAgents renews leases, and lets each node do what its annotations ask for.
func (c *crowd) startAgents(b *testing.B) {
	b.Helper()
	c.queue = workqueue.NewTyped[string]()
	factory := informers.NewSharedInformerFactory(c.clients, 0)
	informer := factory.Core().V1().Nodes().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.see(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { c.see(object.(*corev1.Node)) },
	})
	require.NoError(b, err)
	c.nodes = informer.GetIndexer()
	ctx, stop := context.WithCancel(b.Context())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var group errgroup.Group
	for range crowdWorkers {
		group.Go(func() error { return c.work(ctx) })
	}
	for first := range crowdRenewers {
		group.Go(func() error { return c.renew(ctx, first) })
	}
	b.Cleanup(func() {
		stop()
		c.queue.ShutDown()
		_ = group.Wait()
		factory.Shutdown()
	})
}

// see notes what a node has, and what it was told to have.
func (c *crowd) see(n *corev1.Node) {
	c.queue.Add(n.Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	note := func(in map[string]map[string]time.Time, image string) {
		if in[image] == nil {
			in[image] = map[string]time.Time{}
		}
		if in[image][n.Name].IsZero() {
			in[image][n.Name] = time.Now()
		}
	}
	note(c.told, n.Annotations[mcfgv1.AnnotationDesiredImage])
	note(c.arrived, n.Annotations[mcfgv1.AnnotationCurrentImage])
}

// seen is how many nodes of a pool were seen with, or told to have, an image, and when the last one
// was.
func (c *crowd) seen(in map[string]map[string]time.Time, image string) (count int, last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range in[image] {
		last = later(last, at)
	}
	return len(in[image]), last
}

// renew renews one in crowdRenewers leases, again and again. A node whose lease is late is taken
// for dead, and keeps its pool from going on.
func (c *crowd) renew(ctx context.Context, first int) error {
	pause := time.NewTicker(crowdLease / 2 / time.Duration(*crowdNodes/crowdRenewers+1))
	defer pause.Stop()
	for i := first; ; i += crowdRenewers {
		if i >= *crowdNodes {
			i = first
		}
		patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, _ = c.clients.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, nodeOf(i), types.MergePatchType, patch, metav1.PatchOptions{})
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}

// work lets nodes do their next steps.
func (c *crowd) work(ctx context.Context) error {
	for {
		name, isOver := c.queue.Get()
		if isOver {
			return nil
		}
		if object, exists, _ := c.nodes.GetByKey(name); exists {
			c.step(ctx, object.(*corev1.Node))
		}
		c.queue.Done(name)
	}
}

// step is what the agent of a node does next, with as many writes as the real one.
func (c *crowd) step(ctx context.Context, n *corev1.Node) {
	a := n.Annotations
	stage, desired, config := a[mcfgv1.AnnotationStageImage], a[mcfgv1.AnnotationDesiredImage], a[mcfgv1.AnnotationDesiredConfig]
	drain := mcfgv1.DrainPrefix + config
	isMoving := desired != a[mcfgv1.AnnotationCurrentImage] || config != a[mcfgv1.AnnotationCurrentConfig]
	arrive := map[string]any{
		mcfgv1.AnnotationCurrentConfig: config, mcfgv1.AnnotationCurrentImage: desired, mcfgv1.AnnotationStagedImage: "",
		mcfgv1.AnnotationStagedChange: nil, mcfgv1.AnnotationState: mcfgv1.NodeStateDone,
	}
	switch {
	case stage != "" && stage != a[mcfgv1.AnnotationCurrentImage] && stage != a[mcfgv1.AnnotationStagedImage] && !isMoving:
		change := mcfgv1.NodeChangeLive
		if c.reboots.Load() {
			change = mcfgv1.NodeChangeReboot
		}
		c.write(ctx, n, map[string]any{mcfgv1.AnnotationStagedImage: stage, mcfgv1.AnnotationStagedChange: change}, mcfgv1.NodeImagePulledFromRegistry)
	case isMoving && a[mcfgv1.AnnotationLiveOnly] != "":
		c.write(ctx, n, arrive, mcfgv1.NodeUpdated)
	case isMoving && a[mcfgv1.AnnotationDesiredDrain] != drain:
		c.write(ctx, n, map[string]any{mcfgv1.AnnotationState: mcfgv1.NodeStateWorking, mcfgv1.AnnotationDesiredDrain: drain}, mcfgv1.NodeUpdatePrepared)
	case isMoving && a[mcfgv1.AnnotationLastAppliedDrain] == drain:
		arrive[mcfgv1.AnnotationDesiredDrain] = mcfgv1.UncordonPrefix + config
		c.write(ctx, n, arrive, mcfgv1.NodeUpdated)
	}
}

// write writes annotations of a Node, and a condition of its MachineConfigNode. One that fails is
// done again with the next change of the Node.
func (c *crowd) write(ctx context.Context, n *corev1.Node, annotations map[string]any, condition string) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations, "resourceVersion": n.ResourceVersion}})
	if err != nil {
		return
	}
	if _, err := c.clients.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return
	}
	report := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	status := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Bench","message":"","lastTransitionTime":%q}]}}`,
		condition, time.Now().UTC().Format(time.RFC3339))
	_ = c.Status().Patch(ctx, report, client.RawPatch(types.MergePatchType, status))
}

// until waits for something.
func (*crowd) until(b *testing.B, what string, reached func() bool) {
	b.Helper()
	require.Eventually(b, reached, crowdPatience, 20*time.Millisecond, what)
}

// react has the first pool wait for a node that is not Ready, and measures from when it is to when
// the next one is told to change.
func (c *crowd) react(b *testing.B, generation int) float64 {
	b.Helper()
	c.ready(b, "False")
	c.want(b, 0, generation)
	staged := func() (count int) {
		for _, object := range c.nodes.List() {
			if object.(*corev1.Node).Annotations[mcfgv1.AnnotationStagedImage] == pinnedOf(0, generation) {
				count++
			}
		}
		return count
	}
	c.until(b, "the others hold the image", func() bool { return staged() >= *crowdNodes/crowdPools-1 })
	told, _ := c.seen(c.told, pinnedOf(0, generation))
	require.Zero(b, told)
	c.idle(b)
	begin := time.Now()
	c.ready(b, "True")
	var at time.Time
	c.until(b, "a node is told", func() bool {
		told, last := c.seen(c.told, pinnedOf(0, generation))
		at = last
		return told > 0
	})
	return at.Sub(begin).Seconds()
}

// ready writes whether the first node of the first pool is Ready.
func (c *crowd) ready(b *testing.B, is string) {
	b.Helper()
	_, err := c.clients.CoreV1().Nodes().PatchStatus(b.Context(), nodeOf(0), fmt.Appendf(nil, crowdReady, is))
	require.NoError(b, err)
}

// drainAll lets the nodes of the first pool go, and gives how often the controller wrote for each.
func (c *crowd) drainAll(b *testing.B, generation int) float64 {
	b.Helper()
	members := *crowdNodes / crowdPools
	c.idle(b)
	toldBefore, _ := c.seen(c.told, pinnedOf(0, generation))
	nodesBefore, reportsBefore := c.calls.written("nodes"), c.calls.written("machineconfignodes")
	c.patchPool(b, 0, fmt.Sprintf(crowdMaxUnavailable, "100%"))
	c.until(b, "the pool has the image", func() bool {
		arrived, _ := c.seen(c.arrived, pinnedOf(0, generation))
		return arrived == members
	})
	c.idle(b)
	c.patchPool(b, 0, fmt.Sprintf(crowdMaxUnavailable, "1"))
	moved := float64(members - toldBefore)
	const staging = 1 // was written before
	return staging + float64(c.calls.written("nodes")-nodesBefore+c.calls.written("machineconfignodes")-reportsBefore)/moved
}

// change gives all nodes an image that needs no reboot.
func (c *crowd) change(b *testing.B, generation int) float64 {
	b.Helper()
	begin := time.Now()
	for pool := range crowdPools {
		c.want(b, pool, generation)
	}
	var end time.Time
	c.until(b, "all nodes have the image", func() bool {
		all := 0
		for pool := range crowdPools {
			count, last := c.seen(c.arrived, pinnedOf(pool, generation))
			all, end = all+count, later(end, last)
		}
		return all == *crowdNodes
	})
	c.idle(b)
	return end.Sub(begin).Seconds()
}

// writes counts requests that change something, by resource.
type writes struct {
	mu    sync.Mutex
	count map[string]int64
}

func (w *writes) note(r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	at := 2 // api/VERSION/RESOURCE
	if parts[0] == "apis" {
		at++ // apis/GROUP/VERSION/RESOURCE
	}
	if at+2 < len(parts) && parts[at] == "namespaces" {
		at += 2
	}
	if at >= len(parts) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == nil {
		w.count = map[string]int64{}
	}
	w.count[parts[at]]++
}

// written is how often a resource was written.
func (w *writes) written(resource string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[resource]
}
