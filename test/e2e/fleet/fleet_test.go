//go:build e2e

package fleet

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/e2e/nodelog"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/host/power"
)

const (
	// clusterName is a cluster whose nodes have hosts that can be updated.
	clusterName = "e2e-fleet"
	// patience is far more than three nodes take to drain and reboot one after the other.
	patience = 5 * time.Minute
	tick     = 100 * time.Millisecond
	// bad is the content of an image that lacks shopFile, which a workload needs.
	bad      = "bad"
	shopFile = "/etc/shop.conf"
)

// zones are those of the nodes.
var zones = map[string]string{"node1": "b", "node2": "a", "node3": "a"}

// fleet is a pool of three nodes with hosts of their own.
type fleet struct {
	client.Client
	// pool is the name of the pool, and of its MachineOSConfig.
	pool    string
	t       testing.TB
	clients *kubernetes.Clientset
	stack   *stack.Stack
	// repository is the checkout, whose bin/cluster is run.
	repository string
	registry   *stack.Registry
	// base is an OS image of the registry, by digest.
	base  string
	nodes *nodelog.Log
}

// newFleet brings up the cluster with a pool of all its nodes, which does not ask for an image yet.
func newFleet(tb testing.TB) *fleet {
	tb.Helper()
	repository, err := toolchain.RepositoryRoot(".")
	require.NoError(tb, err)
	return newFleetOf(tb, repository)
}

// newFleetOf is newFleet with the programs of another checkout.
func newFleetOf(tb testing.TB, repository string) *fleet {
	tb.Helper()
	require.Zero(tb, os.Geteuid(), "these tests need root")
	f := &fleet{t: tb, pool: mcfgv1.PoolWorker, repository: repository}
	cacheDir, err := toolchain.CacheDir()
	require.NoError(tb, err)
	f.stack, err = stack.New(f.repository, cacheDir, clusterName)
	require.NoError(tb, err)
	f.cluster("down") // one of a run that was killed
	tb.Cleanup(func() { f.cluster("down") })
	f.up()
	f.connect()
	f.registry, err = f.stack.Registry(tb.Context())
	require.NoError(tb, err)
	references, err := f.stack.PushFixtures(tb.Context(), fixtures.Tiny, []fixtures.Stream{fixtures.RHEL9}, tb.Logf)
	require.NoError(tb, err)
	f.base = references.OS[fixtures.RHEL9].String()
	for node, zone := range zones {
		f.patchNode(node, `{"metadata":{"labels":{"`+corev1.LabelTopologyZone+`":"`+zone+`"}}}`)
	}
	f.nodes = nodelog.New(tb, f.clients, describeNode)
	f.eventually(func(tb *assert.CollectT) { // nodes without an agent have no turn
		for node := range zones {
			n := f.nodes.Node(node)
			require.NotNil(tb, n, node)
			assert.Equal(tb, mcfgv1.NodeStateDone, n.Annotations[mcfgv1.AnnotationState], node)
		}
	})
	f.begin(map[string]string{corev1.LabelOSStable: "linux"})
	return f
}

// begin makes the pool, of the nodes with the labels.
func (f *fleet) begin(nodes map[string]string) {
	f.t.Helper()
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: f.pool}, Spec: mcfgv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: f.pool}},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: nodes},
		Rollout:               oneStages(),
	}}
	for _, object := range []client.Object{f.machineConfig("one"), pool} {
		require.NoError(f.t, f.Create(f.t.Context(), object))
	}
}

// connect makes the clients, once the controller is there.
func (f *fleet) connect() {
	f.t.Helper()
	config, err := f.stack.Config()
	require.NoError(f.t, err)
	config.QPS = -1
	f.clients, err = kubernetes.NewForConfig(config)
	require.NoError(f.t, err)
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	require.NoError(f.t, await.DeploymentAvailable(ctx, f.clients, stack.Namespace, stack.ControllerName))
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme, operatorv1.AddToScheme} {
		require.NoError(f.t, add(scheme))
	}
	f.Client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(f.t, err)
}

// cluster runs bin/cluster on the fleet, and gives what it said.
func (f *fleet) cluster(args ...string) string {
	f.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(f.t.Context()), filepath.Join(f.repository, "bin", "cluster"), append(args, "--name", clusterName)...)
	cmd.Dir = f.repository
	var out, trouble strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &trouble
	require.NoError(f.t, cmd.Run(), "cluster %v:\n%s%s", args, &out, &trouble)
	return out.String()
}

// up brings up the cluster, or what of it was killed.
func (f *fleet) up() {
	f.t.Helper()
	f.cluster("up", "--nodes", strconv.Itoa(len(zones)), "--hosts")
}

// ask asks for the pool's image, changed in some way.
func (f *fleet) ask(changes ...func(*mcfgv1.MachineOSConfig)) {
	f.t.Helper()
	config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: f.pool}, Spec: mcfgv1.MachineOSConfigSpec{
		MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: f.pool},
		ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
		BaseImagePullSecret:     &mcfgv1.ImageSecretObjectReference{Name: stack.PullSecret},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: stack.PushSecret},
		RenderedImagePushSpec:   mcfgv1.ImageTagFormat(f.registry.Host + "/builds/" + f.pool + ":latest"),
	}}
	for _, change := range changes {
		change(config)
	}
	require.NoError(f.t, f.Create(f.t.Context(), config))
}

// configName is the name of the pool's MachineConfig.
func (f *fleet) configName() string { return "50-" + f.pool }

func (f *fleet) machineConfig(content string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: f.configName(), Labels: map[string]string{mcfgv1.LabelRole: f.pool}}}
	mc.Spec.OSImageURL = f.base
	path := shopFile
	if content == bad {
		path += ".bak"
	}
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[`+
		`{"path":"/etc/motd","contents":{"source":"data:,%s"}},{"path":%q,"contents":{"source":"data:,open"}}]}}`, content, path)
	return mc
}

// write gives the pool's file another content.
func (f *fleet) write(content string) {
	f.t.Helper()
	change(f, &mcfgv1.MachineConfig{}, f.configName(), func(mc *mcfgv1.MachineConfig) { mc.Spec = f.machineConfig(content).Spec })
}

// change edits an object until that goes through.
func change[T client.Object](f *fleet, object T, name string, edit func(T)) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		require.NoError(t, f.Get(f.t.Context(), client.ObjectKey{Name: name}, object))
		edit(object)
		require.NoError(t, f.Update(f.t.Context(), object))
	})
}

func (f *fleet) eventually(condition func(t *assert.CollectT)) {
	f.t.Helper()
	require.EventuallyWithT(f.t, condition, patience, tick)
}

func (f *fleet) config(t require.TestingT) *mcfgv1.MachineOSConfig {
	config := &mcfgv1.MachineOSConfig{}
	require.NoError(t, f.Get(f.t.Context(), client.ObjectKey{Name: f.pool}, config))
	return config
}

func (f *fleet) images(t require.TestingT) []mcfgv1alpha1.MachineOSImage {
	var list mcfgv1alpha1.MachineOSImageList
	require.NoError(t, f.List(f.t.Context(), &list))
	return list.Items
}

// motd is what the image's uppermost layer says is in /etc/motd.
func (f *fleet) motd(t require.TestingT, pinned string) string {
	ref, err := name.ParseReference(pinned)
	require.NoError(t, err)
	image, err := remote.Image(ref, f.registry.Options(f.t.Context(), "pull")...)
	require.NoError(t, err)
	layers, err := image.Layers()
	require.NoError(t, err)
	archive, err := layers[len(layers)-1].Uncompressed()
	require.NoError(t, err)
	defer func() { _ = archive.Close() }()
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ""
		}
		require.NoError(t, err)
		if header.Name == "etc/motd" {
			content, err := io.ReadAll(r)
			require.NoError(t, err)
			return string(content)
		}
	}
}

// next is the order in which nodes go now: by zone, the oldest first, and last the one that the
// controller runs on.
func (f *fleet) next() []string {
	f.t.Helper()
	own := f.controllersNode()
	return slices.SortedFunc(maps.Keys(zones), func(a, b string) int {
		m, n := f.nodes.Node(a), f.nodes.Node(b)
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

// controllersNode is the node that the controller runs on. It waits for a pod that is being
// replaced to be gone.
func (f *fleet) controllersNode() (node string) {
	f.t.Helper()
	f.eventually(func(t *assert.CollectT) {
		pods, err := f.clients.CoreV1().Pods(stack.Namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: labelComponent + "controller"})
		require.NoError(t, err)
		require.Len(t, pods.Items, 1)
		node = pods.Items[0].Spec.NodeName
		require.NotEmpty(t, node)
	})
	return node
}

// labelComponent selects pods of Layerwright.
const labelComponent = "app.kubernetes.io/name=layerwright,app.kubernetes.io/component="

// oneStages has nodes stage one after the other, in the order in which they go.
func oneStages() *mcfgv1.RolloutSpec {
	return &mcfgv1.RolloutSpec{Staging: &mcfgv1.RolloutStaging{MaxParallel: new(int32(1))}}
}

// in is the fleet in a subtest.
func (f *fleet) in(tb testing.TB) *fleet {
	tb.Helper()
	p := *f
	p.t = tb
	f.nodes.Forget()
	tb.Cleanup(func() {
		if tb.Failed() {
			pool := f.readPool(tb)
			tb.Logf("pool: %+v\n%+v", pool.Status.Rollout, pool.Status.Conditions)
			tb.Logf("nodes:\n%s", strings.Join(f.nodes.Lines(), "\n"))
		}
	})
	return &p
}

func (f *fleet) patchNode(node, patch string) {
	f.t.Helper()
	_, err := f.clients.CoreV1().Nodes().Patch(f.t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(f.t, err)
}

func (f *fleet) readPool(t require.TestingT) *mcfgv1.MachineConfigPool {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, f.Get(context.WithoutCancel(f.t.Context()), client.ObjectKey{Name: f.pool}, pool))
	return pool
}

func (f *fleet) changePool(edit func(*mcfgv1.MachineConfigPool)) {
	f.t.Helper()
	change(f, &mcfgv1.MachineConfigPool{}, f.pool, edit)
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
	image := f.have(content)
	for node := range zones {
		require.Equal(f.t, mcfgv1.ImageDigestFormat(image).Digest(), f.booted(node))
	}
	return image
}

// have waits until the pool's image has the content, all nodes have it, booted or not, and the pool
// says so. It returns the image.
func (f *fleet) have(content string) string {
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
	}, patience, time.Second)
	for node := range zones {
		require.Equal(f.t, content, f.sh(node, "cat /etc/motd"))
	}
	require.Empty(f.t, f.brokenRules())
	return image
}

// isBuilt waits until the pool's newest image has the content.
func (f *fleet) isBuilt(content string) {
	f.t.Helper()
	require.EventuallyWithT(f.t, func(t *assert.CollectT) {
		require.Equal(t, content, f.motd(t, string(f.config(t).Status.CurrentImagePullSpec)))
	}, patience, time.Second)
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
	cmd, err := f.stack.HostCommand(context.WithoutCancel(f.t.Context()), node, command)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// pid is that of a process of the cluster.
func (f *fleet) pid(t require.TestingT, name string) int {
	status, err := f.stack.Status(context.WithoutCancel(f.t.Context()))
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
	line := f.stack.HostLine(node)
	require.NoError(f.t, line.Set(faults...))
	works = func() { require.NoError(f.t, line.Set()) }
	f.t.Cleanup(works)
	return works
}

// deletePods deletes the pods of a component of Layerwright at once, on all nodes.
func (f *fleet) deletePods(component string) {
	f.t.Helper()
	require.NoError(f.t, f.clients.CoreV1().Pods(stack.Namespace).DeleteCollection(f.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
		metav1.ListOptions{LabelSelector: labelComponent + component}))
}
