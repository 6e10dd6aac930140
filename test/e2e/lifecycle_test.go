//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/hostsfile"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// second is a cluster beside the shared one.
const second = "e2e-second"

// TestLifecycleBesideAnotherCluster goes through what happens to a cluster on
// a developer's machine, in one order, because each step starts where the one
// before has left it.
func TestLifecycleBesideAnotherCluster(t *testing.T) {
	before, err := lookAtHost()
	require.NoError(t, err)
	t.Cleanup(func() { downWithoutTrace(t, before) })

	killWhenItSays(t, "private network", "up", "--name", second, "--skip-controller")
	mustCluster(t, "up", "--name", second, "--skip-controller") // repeats the killed run
	pids := processes(t)
	require.Contains(t, pids, "kubelet-node1")

	mustCluster(t, "up", "--name", second, "--skip-controller")
	require.Empty(t, cmp.Diff(pids, processes(t)), "up twice is harmless")

	t.Run("grows by a node", func(t *testing.T) {
		mustCluster(t, "up", "--name", second, "--skip-controller", "--nodes", "2")
		c := clientsOf(t, second)
		require.NoError(t, await.NodeReady(within(t), c, "node2"))
		for name, pid := range pids {
			require.Equal(t, pid, processes(t)[name], name+" keeps running")
		}
	})

	t.Run("is a cluster of its own", func(t *testing.T) {
		nodes, err := clientsOf(t, second).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, nodes.Items, 2)
		nodes, err = clients(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, nodes.Items, 1)
		require.Zero(t, cluster(t, "status", "--name", clusterName).code)
	})

	t.Run("names a component that died, with its last log lines", func(t *testing.T) {
		require.NoError(t, syscall.Kill(processes(t)["coredns"], syscall.SIGKILL))
		r := cluster(t, "status", "--name", second)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stdout, "PROBLEM: coredns died")
		require.Contains(t, r.stdout, "CoreDNS-1.15.0", "the log's last lines")
		mustCluster(t, "up", "--name", second, "--skip-controller")
		require.Zero(t, cluster(t, "status", "--name", second).code)
	})

	t.Run("says that the host lost the registry's name", func(t *testing.T) {
		hosts := hostsfile.File{Path: hostsfile.Path, Lock: func() (func(), error) { return func() {}, nil }}
		require.NoError(t, hosts.Remove(second))
		for _, command := range []string{"status", "fixtures"} {
			r := cluster(t, command, "--name", second)
			require.Equal(t, 1, r.code)
			require.Contains(t, r.stdout+r.stderr, "does not know the registry's name "+named(t, second).RegistryHost())
		}
		mustCluster(t, "up", "--name", second, "--skip-controller")
		require.Zero(t, cluster(t, "status", "--name", second).code)
	})

	t.Run("lists and prints logs", func(t *testing.T) {
		require.Contains(t, mustCluster(t, "logs", "--name", second), "containerd-node2\n")
		require.Contains(t, mustCluster(t, "logs", "--name", second, "kube-apiserver"), "\n")
		r := cluster(t, "logs", "--name", second, "apiserver")
		require.Contains(t, r.stderr, `no process "apiserver": there are containerd-node1, `)
	})

	t.Run("refuses to shrink", func(t *testing.T) {
		r := cluster(t, "up", "--name", second, "--nodes", "1")
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, "has 2 nodes and nodes are not taken away")
	})
}

// TestKilledUpLeavesNothingAfterDown kills up at different moments.
func TestKilledUpLeavesNothingAfterDown(t *testing.T) {
	for _, moment := range []string{"private network", "container runtimes", "control plane"} {
		t.Run("after "+moment, func(t *testing.T) {
			before, err := lookAtHost()
			require.NoError(t, err)
			killWhenItSays(t, moment, "up", "--name", second, "--skip-controller")
			downWithoutTrace(t, before)
		})
	}
}

// TestDownOfAClusterWithoutItsFolder has only what the kernel keeps of a cluster.
func TestDownOfAClusterWithoutItsFolder(t *testing.T) {
	const lost = "lost"
	cgroups, err := node.DetectCgroups()
	require.NoError(t, err)
	require.NoError(t, cgroups.Create(node.ClusterGroup(lost)))
	mustCluster(t, "down", "--name", lost)
	require.False(t, cgroups.Exists(node.ClusterGroup(lost)))
}

// downWithoutTrace removes the second cluster and compares the machine with what it was.
func downWithoutTrace(t *testing.T, before host) {
	t.Helper()
	for _, args := range [][]string{{"down", "--name", second}, {"status", "--name", clusterName}} { // the shared one lost no process
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
		cmd.Dir = repository
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	after, err := lookAtHost()
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(before.withoutShared(), after.withoutShared()), "down left the machine different (-before +after)")
	cache := filepath.Dir(filepath.Dir(named(t, second).Kubeconfig()))
	require.NoDirExists(t, filepath.Join(cache, second))
}

// killWhenItSays runs bin/cluster and kills it when a line contains text.
func killWhenItSays(t *testing.T, text string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = repository
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := false
	for lines := bufio.NewScanner(out); !said && lines.Scan(); {
		said = strings.Contains(lines.Text(), text)
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.True(t, said, "it never said %q", text)
}

// processes maps the second cluster's processes to their ids.
func processes(t *testing.T) map[string]int {
	t.Helper()
	r := cluster(t, "status", "--name", second, "-o", "json")
	var status stack.Status
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &status), r.stderr)
	pids := map[string]int{}
	for _, p := range status.Processes {
		require.True(t, p.Alive, p.Name)
		pids[p.Name] = p.Pid
	}
	return pids
}

func clientsOf(t *testing.T, name string) *kubernetes.Clientset {
	t.Helper()
	config, err := named(t, name).Config()
	require.NoError(t, err)
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

func TestUpNamesAnOccupiedPort(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for _, flag := range []string{"--api-port", "--registry-port"} {
		r := cluster(t, "up", "--name", "e2e-port", flag, port)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, "port "+port+" of 127.0.0.1 is occupied")
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line:\n%s", r.stderr)
	}
	require.NoError(t, os.RemoveAll(filepath.Dir(named(t, "e2e-port").Kubeconfig())))
}

func TestUpNamesAFullDisk(t *testing.T) {
	small := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", small, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(small, 0)) })
	cmd := exec.CommandContext(t.Context(), program, "up")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "LAYERWRIGHT_CACHE="+small)
	r := finish(t, cmd)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "the disk that holds "+small+" has 6")
	require.Contains(t, r.stderr, "MiB are needed")
}

// TestWithoutRoot runs as a user without rights.
func TestWithoutRoot(t *testing.T) {
	asNobody := newNobody(t).run
	r := asNobody("up")
	require.Equal(t, 1, r.code)
	require.Equal(t, "cluster: a cluster with nodes can't run here: it needs root and this is user 65534 (try sudo);"+
		" `cluster up --control-plane-only` needs none of this and still works\n", r.stderr)

	r = asNobody("up", "--control-plane-only")
	require.Zero(t, r.code, r.stderr)
	require.Zero(t, asNobody("status").code)
	require.Contains(t, asNobody("fixtures").stderr, "has no registry: it was made with --control-plane-only")
}
