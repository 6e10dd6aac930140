//go:build e2e && rollout

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/host/power"
)

// fleetCluster is a cluster whose nodes have hosts that can be updated.
const fleetCluster = "e2e-fleet"

// rolloutPatience is far more than three nodes take to drain and reboot one after the other.
const rolloutPatience = 5 * time.Minute

// zones are those of the nodes.
var zones = map[string]string{"node1": "b", "node2": "a", "node3": "a"}

// fleet is a pool of three nodes with hosts of their own.
type fleet struct {
	*layered
	nodes *nodeLog
}

// newFleet brings up the cluster with a pool of all its nodes, which does not ask for an image yet.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	t.Cleanup(func() {
		down := exec.CommandContext(context.WithoutCancel(t.Context()), program, "down", "--name", fleetCluster)
		require.Zero(t, finish(t, down).code)
	})
	mustCluster(t, "down", "--name", fleetCluster) // one of a run that was killed
	upFleet(t)
	b := newBuildsIn(t, fleetCluster)
	// Nodes have the registry's authority, and no way around TLS for a proxy.
	references, err := named(t, fleetCluster).PushFixtures(t.Context(), fixtures.Tiny, []fixtures.Stream{fixtures.RHEL9}, t.Logf)
	require.NoError(t, err)
	b.host, b.base = b.registry.Host, references.OS[fixtures.RHEL9].String()
	b.push, b.pull = stack.PushSecret, stack.PullSecret
	f := &fleet{layered: &layered{builds: b, t: t, name: mcfgv1.PoolWorker, patience: rolloutPatience}}
	for node, zone := range zones {
		f.patchNode(node, `{"metadata":{"labels":{"`+corev1.LabelTopologyZone+`":"`+zone+`"}}}`)
	}
	f.nodes = logNodes(t, b)
	f.eventually(func(t *assert.CollectT) { // nodes without an agent have no turn
		for node := range zones {
			n := f.nodes.node(node)
			require.NotNil(t, n, node)
			assert.Equal(t, mcfgv1.NodeStateDone, n.Annotations[mcfgv1.AnnotationState], node)
		}
	})
	pool := f.pool()
	pool.Spec.NodeSelector.MatchLabels = map[string]string{corev1.LabelOSStable: "linux"}
	pool.Spec.Rollout = oneStages()
	for _, object := range []client.Object{f.machineConfig("one"), pool} {
		require.NoError(t, f.Create(t.Context(), object))
	}
	return f
}

// oneStages has nodes stage one after the other, in the order in which they go.
func oneStages() *mcfgv1.RolloutSpec {
	return &mcfgv1.RolloutSpec{Staging: &mcfgv1.RolloutStaging{MaxParallel: new(int32(1))}}
}

// next is the order in which nodes go now: by zone, the oldest first, and last the one that the
// controller runs on.
func (f *fleet) next() []string {
	f.t.Helper()
	own := f.controllersNode(f.t)
	return slices.SortedFunc(maps.Keys(zones), func(a, b string) int {
		m, n := f.nodes.node(a), f.nodes.node(b)
		return cmp.Or(
			cmp.Compare(last(a == own), last(b == own)), cmp.Compare(zones[a], zones[b]),
			m.CreationTimestamp.Compare(n.CreationTimestamp.Time), cmp.Compare(a, b),
		)
	})
}

func last(is bool) int {
	if is {
		return 1
	}
	return 0
}

// upFleet brings up the cluster, or what of it was killed.
func upFleet(t *testing.T) {
	t.Helper()
	mustCluster(t, "up", "--name", fleetCluster, "--nodes", strconv.Itoa(len(zones)), "--hosts")
}

// in is the fleet in a subtest.
func (f *fleet) in(t *testing.T) *fleet {
	t.Helper()
	p := *f.layered
	p.t = t
	f.nodes.forget()
	t.Cleanup(func() {
		if t.Failed() {
			pool := f.readPool(t)
			t.Logf("pool: %+v\n%+v", pool.Status.Rollout, pool.Status.Conditions)
			t.Logf("nodes:\n%s", strings.Join(f.nodes.all(), "\n"))
		}
	})
	return &fleet{layered: &p, nodes: f.nodes}
}

func (f *fleet) patchNode(node, patch string) {
	f.t.Helper()
	_, err := f.clients.CoreV1().Nodes().Patch(f.t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(f.t, err)
}

func (f *fleet) readPool(t require.TestingT) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, f.Get(context.WithoutCancel(f.t.Context()), client.ObjectKey{Name: f.name}, pool))
	return pool
}

func (f *fleet) changePool(edit func(*mcfgv1.MachineConfigPool)) {
	f.t.Helper()
	change(f.layered, &mcfgv1.MachineConfigPool{}, f.name, edit)
}

// waitsFor waits until a line of the pool's status.rollout.waitingFor contains a text.
func (f *fleet) waitsFor(text string) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		pool := f.readPool(t)
		require.NotNil(t, pool.Status.Rollout)
		assert.Contains(t, strings.Join(pool.Status.Rollout.WaitingFor, "\n"), text)
	})
}

// arrive waits until the pool's image has the content, all nodes run it, and the pool says so. It
// returns the image.
func (f *fleet) arrive(content string) string {
	f.t.Helper()
	var image string
	// Reading images takes more time than the usual tick.
	require.EventuallyWithT(f.t, func(t *assert.CollectT) {
		pool, config := f.readPool(t), f.config(t)
		image = string(config.Status.CurrentImagePullSpec)
		require.NotNil(t, pool.Status.Rollout)
		require.Equal(t, image, string(pool.Status.Rollout.TargetImagePullSpec))
		require.Equal(t, "3/3 updated", pool.Status.Rollout.Summary)
		require.Equal(t, []int{3, 3, 0}, []int{int(pool.Status.MachineCount), int(pool.Status.UpdatedMachineCount), int(pool.Status.UnavailableMachineCount)})
		require.Equal(t, []string{"True", "False", "False"}, []string{poolCondition(pool, "Updated"), poolCondition(pool, "Updating"), poolCondition(pool, "Degraded")})
		require.Equal(t, content, f.motd(t, image))
	}, f.patience, time.Second)
	f.requireReady(content)
	for node := range zones {
		require.Equal(f.t, digestIn(image), f.booted(node))
		require.Equal(f.t, content, f.sh(node, "cat /etc/motd"))
	}
	require.Empty(f.t, f.nodes.brokenRules())
	return image
}

func poolCondition(pool *mcfgv1.MachineConfigPool, name string) string {
	for _, c := range pool.Status.Conditions {
		if string(c.Type) == name {
			return string(c.Status)
		}
	}
	return "none"
}

// booted is the digest of the image that a host says it has booted.
func (f *fleet) booted(node string) string {
	f.t.Helper()
	text := f.sh(node, "/usr/bin/bootc status --format=json")
	_, after, found := strings.Cut(text, `"booted":`)
	require.True(f.t, found, text)
	_, after, found = strings.Cut(after, `"imageDigest":"`)
	require.True(f.t, found, text)
	digest, _, _ := strings.Cut(after, `"`)
	return digest
}

// content is what the file of a node has that has arrived.
func (f *fleet) content() string {
	f.t.Helper()
	return f.sh("node1", "cat /etc/motd")
}

// sh runs a command in the host of a node.
func (f *fleet) sh(node, command string) string {
	f.t.Helper()
	out, err := f.try(node, command)
	require.NoError(f.t, err, "%s: %s: %s", node, command, out)
	return out
}

// try is sh for a host that may be away.
func (f *fleet) try(node, command string) (string, error) {
	cmd, err := named(f.t, fleetCluster).HostCommand(context.WithoutCancel(f.t.Context()), node, command)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// pid is that of a process of the cluster.
func (f *fleet) pid(t require.TestingT, name string) int {
	status, err := named(f.t, fleetCluster).Status(context.WithoutCancel(f.t.Context()))
	require.NoError(t, err)
	for _, process := range status.Processes {
		if process.Name == name {
			return process.Pid
		}
	}
	require.FailNow(t, "no process "+name)
	return 0
}

// kill ends a process of the cluster; up starts it again.
func (f *fleet) kill(name string) {
	f.t.Helper()
	require.NoError(f.t, syscall.Kill(f.pid(f.t, name), syscall.SIGKILL))
}

// fails makes the host of a node fail until the test ends, or works is called.
func (f *fleet) fails(node string, faults ...power.Fault) (works func()) {
	f.t.Helper()
	line := named(f.t, fleetCluster).HostLine(node)
	require.NoError(f.t, line.Set(faults...))
	works = func() { require.NoError(f.t, line.Set()) }
	f.t.Cleanup(works)
	return works
}

// deletePods deletes the pods of a component of Layerwright at once, on all nodes.
func (f *fleet) deletePods(component string) {
	f.t.Helper()
	require.NoError(f.t, f.clients.CoreV1().Pods(stack.Namespace).DeleteCollection(f.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component}))
}

// nodeLog writes down what happens to nodes, and which rules were broken meanwhile.
type nodeLog struct {
	mu sync.Mutex
	// now are the nodes, told the order in which they were told to change, and lines what happened.
	now         map[string]*corev1.Node
	told, lines []string
	broken      []string
	begin       time.Time
}

func logNodes(t *testing.T, b *builds) *nodeLog {
	t.Helper()
	l := &nodeLog{now: map[string]*corev1.Node{}, begin: time.Now()}
	factory := informers.NewSharedInformerFactory(b.clients, 0)
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { l.see(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { l.see(object.(*corev1.Node)) },
	})
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(t.Context().Done())
	return l
}

// see takes a node as it is now.
func (l *nodeLog) see(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.now[node.Name]
	l.now[node.Name] = node
	line := describeNode(node)
	if before != nil && describeNode(before) == line {
		return
	}
	l.lines = append(l.lines, fmt.Sprintf("%7.2f %s", time.Since(l.begin).Seconds(), line))
	if before != nil && target(before) != target(node) {
		l.told = append(l.told, node.Name)
		if staged := node.Annotations[mcfgv1.AnnotationStagedImage]; !holdsImage(node) {
			l.broken = append(l.broken, fmt.Sprintf("%s was told to boot %s and holds %q", node.Name, target(node), staged))
		}
	}
	var away []string
	for name, n := range l.now {
		if n.Spec.Unschedulable {
			away = append(away, name)
		}
	}
	if len(away) > 1 {
		slices.Sort(away)
		l.broken = append(l.broken, fmt.Sprintf("%v are away at once", away))
	}
}

// holdsImage reports whether a node holds the image that it was told to boot, or need not.
func holdsImage(node *corev1.Node) bool {
	a := node.Annotations
	wanted := a[mcfgv1.AnnotationDesiredImage]
	return wanted == "" || wanted == a[mcfgv1.AnnotationStagedImage] || wanted == a[mcfgv1.AnnotationCurrentImage] || wanted == a[mcfgv1.AnnotationPreviousImage]
}

func target(node *corev1.Node) string {
	return node.Annotations[mcfgv1.AnnotationDesiredConfig] + " " + node.Annotations[mcfgv1.AnnotationDesiredImage]
}

func describeNode(node *corev1.Node) string {
	a := node.Annotations
	ready := "NotReady"
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			ready = "Ready"
		}
	}
	return fmt.Sprintf("%s %s cordoned=%t state=%s stage=%s staged=%s desired=%s current=%s drain=%s/%s %s", node.Name, ready, node.Spec.Unschedulable,
		a[mcfgv1.AnnotationState], short(a[mcfgv1.AnnotationStageImage]), short(a[mcfgv1.AnnotationStagedImage]), short(a[mcfgv1.AnnotationDesiredImage]),
		short(a[mcfgv1.AnnotationCurrentImage]), a[mcfgv1.AnnotationDesiredDrain], a[mcfgv1.AnnotationLastAppliedDrain], a[mcfgv1.AnnotationReason])
}

func short(image string) string { return mcfgv1.ImageDigestFormat(image).Short() }

// order are the nodes in the order in which they were told to change.
func (l *nodeLog) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.told)
}

func (l *nodeLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *nodeLog) brokenRules() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.broken)
}

// forget begins a new story.
func (l *nodeLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told, l.lines, l.broken = nil, nil, nil
}

// node is a node as it was seen last.
func (l *nodeLog) node(name string) *corev1.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now[name]
}
