//go:build e2e && tekton

package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// TestTektonNodes builds with Tekton on two nodes, one of which stands in for arm64 and dies. What
// decides and makes runs is on the other.
func TestTektonNodes(t *testing.T) {
	b := newPodBuilds(t, newArchBuilds(t, "--with-tekton"))
	b.empty(t, standInARM64)
	t.Run("a matrix over two architectures becomes one index", func(t *testing.T) { testTektonArchitectures(t, b) })
	t.Run("the node of a build dies", func(t *testing.T) { testTektonNodeDies(t, b) })
}

// empty moves the controllers, Tekton's and ours, away from a node.
func (b *podBuilds) empty(t *testing.T, node string) {
	t.Helper()
	b.cordon(t, node, true)
	there := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	for _, namespace := range []string{stack.Namespace, await.TektonNamespace} {
		pods := b.clients.CoreV1().Pods(namespace)
		require.NoError(t, pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, there))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			left, err := pods.List(t.Context(), there)
			require.NoError(collect, err)
			assert.Empty(collect, left.Items)
		}, buildPatience, buildTick)
	}
	require.NoError(t, await.Tekton(within(t), b.clients))
	require.NoError(t, await.DeploymentAvailable(within(t), b.clients, stack.Namespace, stack.ControllerName))
	b.cordon(t, node, false)
}

// poolOn is a pool of some nodes whose image a PipelineRun is to build.
func (b *podBuilds) poolOn(t *testing.T, name string, nodes ...string) *contained {
	t.Helper()
	p := b.pool(t, name)
	for _, node := range nodes {
		p.label(node, "node-role.kubernetes.io/"+name, "")
	}
	p.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: name}, pool))
		require.Len(t, nodes, int(pool.Status.MachineCount), "the controller has seen the labels")
	})
	return p
}

func ofPlayground(c *mcfgv1.MachineOSConfig) {
	c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
}

func testTektonArchitectures(t *testing.T, b *podBuilds) {
	p := b.poolOn(t, "tekton-several", "node1", standInARM64)
	p.layered.ask(ofPlayground)
	p.eventually(func(t *assert.CollectT) { require.Len(t, p.trusted(t), 1) })
	before := p.ready("")
	p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
		containing(p.containerfile(""))(c)
		asPipeline(c)
	})
	p.arrive()
	p.arrive()
	nodes := map[string]string{}
	pods, err := p.clients.CoreV1().Pods(stack.Namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: mcfgv1.LabelTargetMachineConfigPool + "=" + p.name + ",tekton.dev/pipelineTask=build",
	})
	require.NoError(t, err)
	for i := range pods.Items {
		spec := &pods.Items[i].Spec
		nodes[spec.NodeSelector[corev1.LabelArchStable]] = spec.NodeName
	}
	assert.Equal(t, map[string]string{"amd64": "node1", "arm64": standInARM64}, nodes)
	p.gate.open()
	joined := p.ready(before)
	assert.Equal(t, types.OCIImageIndex, p.head(joined))
	assert.Equal(t, []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64}, p.architectures(joined))
	for _, arch := range []string{"amd64", "arm64"} {
		assert.Equal(t, "through the gate\n", p.of(joined, arch, "usr/share/gate"))
		assert.Equal(t, "one", p.of(joined, arch, "etc/motd"))
	}
	p.requireEachSigned(t, joined)
}

// testTektonNodeDies has the node come back at once, and then only after its build was given up.
// Had its pod been evicted before it is back, Tekton would begin the same attempt once more.
func testTektonNodeDies(t *testing.T, b *podBuilds) {
	p := b.poolOn(t, "tekton-homeless", standInARM64)
	p.ask("", asPipeline, ofPlayground, func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BuildPlacement = &mcfgv1.BuildPlacement{Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(90))},
		}}
	})
	p.arrive()
	b.killNode(t, standInARM64)
	b.cordon(t, standInARM64, true)
	mustCluster(t, "up", "--name", archCluster, "--nodes", "2", "--with-tekton")
	require.NoError(t, await.DeploymentAvailable(within(t), b.clients, stack.Namespace, stack.ControllerName))
	b.cordon(t, standInARM64, false) // the controller, which up makes anew, is on the other
	p.arrive()
	t.Log(p.reconciling("True RetryingBuild step build, instruction ", "(attempt 2 of 4); the previous attempt: "))

	b.killNode(t, standInARM64)
	p.reconciling("True RetryingBuild step build runs on node "+standInARM64+", which does not answer; if that lasts, another attempt follows", "")
	p.reconciling("True RetryingBuild node "+standInARM64+" does not answer; another attempt follows at ", "")
	mustCluster(t, "up", "--name", archCluster, "--nodes", "2", "--with-tekton")
	p.arrive()
	t.Log(p.reconciling("True RetryingBuild step build, instruction ", "(attempt 3 of 4); the previous attempt: "))
	p.gate.open()
	p.requireSigned(p.ready(""))
}

// reconciling waits until a build of the pool says so. There can be another one that waits for its
// content, since configurations of pools with images say whose signatures are trusted.
func (p *contained) reconciling(prefix, part string) (text string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		var all []string
		for _, build := range p.machineOSBuilds(p.t.Context(), t) {
			text = conditionText(build.Status.Conditions, status.Reconciling)
			if strings.HasPrefix(text, prefix) && strings.Contains(text, part) {
				return
			}
			all = append(all, text)
		}
		require.Fail(t, "no build says so", "%q", all)
	})
	return text
}
