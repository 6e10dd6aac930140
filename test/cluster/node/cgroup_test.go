package node

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree makes a folder that looks like a control group file system. The kernel
// makes files in new groups by itself; here only those of existing groups are.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func content(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(text)
}

func TestVersion2EnablesControllersDownToTheGroup(t *testing.T) {
	t.Parallel()
	const controllers = "cpuset cpu io memory pids"
	root := tree(t, map[string]string{
		"cgroup.controllers":                       controllers,
		"layerwright/cgroup.controllers":           controllers,
		"layerwright/a/cgroup.controllers":         controllers,
		"layerwright/a/node1/cgroup.controllers":   controllers,
		"layerwright/a/node1/runtime/cgroup.procs": "",
	})
	c, err := newUnified(root)
	require.NoError(t, err)
	require.NoError(t, c.Create("layerwright/a/node1/runtime"))
	for _, dir := range []string{"", "layerwright", "layerwright/a", "layerwright/a/node1"} {
		require.Equal(t, "+cpuset +cpu +io +memory +pids", content(t, root, dir, "cgroup.subtree_control"), dir)
	}
	// Enabling them in the group itself would keep processes out of it.
	require.NoFileExists(t, filepath.Join(root, "layerwright/a/node1/runtime/cgroup.subtree_control"))
	require.NoError(t, c.Enter("layerwright/a/node1/runtime"))
	require.Equal(t, strconv.Itoa(os.Getpid()), content(t, root, "layerwright/a/node1/runtime/cgroup.procs"))
}

func TestVersion1HasAShareForEachCPU(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"cpu/layerwright/cpu.shares":   "1024\n",
		"cpu/layerwright/a/cpu.shares": "1024\n",
		"pids/layerwright/a/.nothing":  "",
	})
	c := &Cgroups{root: root, hierarchies: []string{"cpu", "pids"}}
	require.NoError(t, c.Create("layerwright/a"))
	for _, group := range []string{"layerwright", "layerwright/a"} {
		require.Equal(t, strconv.Itoa(1024*runtime.NumCPU()), content(t, root, "cpu", group, "cpu.shares"))
	}
	require.NoFileExists(t, filepath.Join(root, "pids/layerwright/a/cpu.shares"))
}

func TestVersion1InheritsCPUSetInEveryNewGroup(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"cpuset/cpuset.cpus":                 "0-1\n",
		"cpuset/cpuset.mems":                 "0\n",
		"cpuset/layerwright/cpuset.cpus":     "\n",
		"cpuset/layerwright/cpuset.mems":     "\n",
		"cpuset/layerwright/a/cpuset.cpus":   "1\n", // a choice that was made stays
		"cpuset/layerwright/a/cpuset.mems":   "\n",
		"pids/layerwright/a/cgroup.procs":    "",
		"memory/layerwright/a/cgroup.procs":  "",
		"cpu,cpuacct/layerwright/a/.nothing": "",
	})
	c, err := newLegacy(root, []string{"cpuset", "pids", "memory", "cpu,cpuacct"})
	require.NoError(t, err)
	require.NoError(t, c.Create("layerwright/a"))
	require.Equal(t, "0-1\n", content(t, root, "cpuset/layerwright/cpuset.cpus"))
	require.Equal(t, "1\n", content(t, root, "cpuset/layerwright/a/cpuset.cpus"))
	require.Equal(t, "0\n", content(t, root, "cpuset/layerwright/a/cpuset.mems"))
	for _, hierarchy := range []string{"pids", "memory", "cpu,cpuacct"} {
		require.DirExists(t, filepath.Join(root, hierarchy, "layerwright/a"))
	}
}

func TestMissingControllerIsNamed(t *testing.T) {
	t.Parallel()
	_, err := newLegacy(t.TempDir(), []string{"cpu,cpuacct", "cpuset", "memory"})
	require.ErrorContains(t, err, `controller "pids" is not available`)
	_, err = newUnified(tree(t, map[string]string{"cgroup.controllers": "cpu pids memory"}))
	require.ErrorContains(t, err, `controller "cpuset" is not available`)
}

func TestMembersAreFoundInAllGroupsOnce(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"pids/layerwright/a/cgroup.procs":            "",
		"pids/layerwright/a/node1/pods/cgroup.procs": "20\n10\n",
		"memory/layerwright/a/cgroup.procs":          "10\n30\n",
		"memory/layerwright/b/cgroup.procs":          "40\n",
		"memory/layerwright/a/tasks":                 "50\n",
	})
	c := &Cgroups{root: root, hierarchies: []string{"pids", "memory", "cpu"}}
	pids, err := c.members("layerwright/a")
	require.NoError(t, err)
	require.Equal(t, []int{10, 20, 30}, pids)
}

func TestRemoveKeepsTheGroupsOfOthers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"pids/layerwright/a/node1/pods", "memory/layerwright/a", "memory/layerwright/b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	c := &Cgroups{root: root, hierarchies: []string{"pids", "memory", "cpu"}}
	require.NoError(t, c.Remove("layerwright/a"))
	require.NoDirExists(t, filepath.Join(root, "pids/layerwright"))
	require.NoDirExists(t, filepath.Join(root, "memory/layerwright/a"))
	require.DirExists(t, filepath.Join(root, "memory/layerwright/b"))
	require.NoError(t, c.Remove("layerwright/a"), "a second time there is nothing to do")
}

func TestConfigsNameOnlyTheNodesOwnFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := &Node{
		Cluster: "a", Number: 2, Dir: dir, Cache: dir, KubernetesBin: "/k8s", NodeBin: "/bin-of-node",
		Address: "10.250.0.2", DNSAddress: "10.250.0.1", CA: "/ca.crt", Cert: "/n.crt", Key: "/n.key", RegistryHost: "registry.a.test:5000",
	}
	require.NoError(t, n.writeConfigs())
	require.Contains(t, content(t, dir, "certs.d/registry.a.test:5000/hosts.toml"), `ca = "/ca.crt"`)
	kubelet := content(t, dir, "kubelet.yaml")
	require.Contains(t, kubelet, "cgroupRoot: /layerwright/a/node2/pods\n")
	require.Contains(t, kubelet, "address: 10.250.0.2\n")
	require.Contains(t, content(t, dir, "cni/10-lw.conflist"), `"subnet": "10.244.2.0/24"`)
	containerd := content(t, dir, "containerd.toml")
	for line := range strings.Lines(containerd) {
		if _, path, ok := strings.Cut(line, `= "/`); ok {
			require.True(t, strings.HasPrefix("/"+path, dir) || strings.HasPrefix("/"+path, "/bin-of-node") || isMasked("/"+path), line)
		}
	}
	require.Contains(t, containerd, "\nstate = \"/run/containerd\"\n", "not below a home: users of pods' namespaces have to get there")
}

func TestIsMasked(t *testing.T) {
	t.Parallel()
	require.True(t, isMasked("/var/lib/layerwright"))
	require.True(t, isMasked("/run/x"))
	require.False(t, isMasked("/var/library"))
	require.False(t, isMasked("/root/.cache/layerwright"))
}
