//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// mortal is a cluster whose nodes die.
const mortal = "e2e-mortal"

// testANodeDiesWhileContentIsBuilt kills the node that a build runs on, with everything on it: once
// it comes back at once, and once it does not.
func testANodeDiesWhileContentIsBuilt(t *testing.T) {
	t.Cleanup(func() {
		down := exec.CommandContext(context.WithoutCancel(t.Context()), program, "down", "--name", mortal)
		down.Dir = repository
		out, err := down.CombinedOutput()
		require.NoError(t, err, string(out))
	})
	mustCluster(t, "up", "--name", mortal, "--nodes", "2")
	b := newPodBuilds(t, newBuildsIn(t, mortal))
	safe := b.controllersNode(t)
	dying := map[string]string{"node1": "node2", "node2": "node1"}[safe]

	p := b.pool(t, "homeless")
	b.cordon(t, safe, true)
	// The cluster takes its time to say that a node does not answer; how long a build waits then is
	// told by a table.
	p.ask("", func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BuildPlacement = &mcfgv1.BuildPlacement{Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))},
		}}
	})
	p.arrive()
	require.Equal(t, dying, p.newest().Spec.NodeName)
	b.killNode(t, dying)
	mustCluster(t, "up", "--name", mortal, "--nodes", "2")
	p.arrive()
	p.buildSays(status.Reconciling, "True RetryingBuild step build, instruction ")
	assert.Contains(t, conditionText(p.only().Status.Conditions, status.Reconciling), "(attempt 2 of 4); the previous attempt: ")
	t.Log(conditionText(p.only().Status.Conditions, status.Reconciling))

	require.Equal(t, dying, p.newest().Spec.NodeName)
	b.cordon(t, safe, false)
	b.killNode(t, dying)
	p.buildSays(status.Reconciling, "True RetryingBuild step build runs on node "+dying+", which does not answer; if that lasts, another attempt follows")
	p.buildSays(status.Reconciling, "True RetryingBuild node "+dying+" does not answer; another attempt follows at ")
	p.arrive()
	assert.Equal(t, safe, p.newest().Spec.NodeName)
	p.buildSays(status.Reconciling, "True RetryingBuild step build, instruction ")
	assert.Contains(t, conditionText(p.only().Status.Conditions, status.Reconciling), "; the previous attempt: node "+dying+" stopped answering while the build ran there")
	p.gate.open()
	p.requireReady("one")
	mustCluster(t, "up", "--name", mortal, "--nodes", "2")
	require.NoError(t, await.NodeReady(within(t), b.clients, dying))
	p.requireBuilt(3)
}

// controllersNode is the node that the controller runs on. It waits for a pod that is being
// replaced to be gone.
func (b *builds) controllersNode(t *testing.T) (node string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pods, err := b.clients.CoreV1().Pods(stack.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		require.NoError(c, err)
		require.Len(c, pods.Items, 1)
		node = pods.Items[0].Spec.NodeName
		require.NotEmpty(c, node)
	}, time.Minute, 100*time.Millisecond)
	return node
}

// cordon keeps new pods from a node, or no longer.
func (b *builds) cordon(t *testing.T, node string, is bool) {
	t.Helper()
	patch := []byte(`{"spec":{"unschedulable":` + strconv.FormatBool(is) + `}}`)
	_, err := b.clients.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// killNode ends everything that runs on a node at once, as when its power fails.
func (b *builds) killNode(t *testing.T, node string) {
	t.Helper()
	status, err := named(t, b.cluster).Status(t.Context())
	require.NoError(t, err)
	for _, process := range status.Processes {
		if process.Name == "kubelet-"+node || process.Name == "containerd-"+node {
			require.NoError(t, syscall.Kill(process.Pid, syscall.SIGKILL))
		}
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		left := processesIn(t, "/layerwright/"+b.cluster+"/"+node+"/")
		for _, pid := range left {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				assert.ErrorIs(t, err, syscall.ESRCH)
			}
		}
		assert.Empty(t, left)
	}, buildPatience, buildTick)
}

// processesIn are those in control groups whose path has the part.
func processesIn(t require.TestingT, part string) (found []int) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	require.NoError(t, err)
	for _, group := range groups {
		text, err := os.ReadFile(group)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		require.NoError(t, err)
		if !strings.Contains(string(text), part) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(group)))
		require.NoError(t, err)
		found = append(found, pid)
	}
	return found
}
