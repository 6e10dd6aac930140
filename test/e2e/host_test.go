//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// host is what of the machine a cluster could leave a trace in, and nothing that other programs of
// the machine change.
type host struct {
	Processes, Cgroups, Mounts, Links, Entries, Hosts, Tables []string
	Sysctls                                                   map[string]string
}

// watched are folders that the cluster's programs use where no one tells them to use others.
var watched = []string{
	"/run/containerd", "/run/netns", "/run/layerwright", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/lib/etcd", "/var/log/pods",
	"/var/log/containers", "/opt/cni", "/opt/containerd", "/etc/cni", "/etc/containerd", "/etc/kubernetes", "/usr/libexec/kubernetes", "/root/.kube",
}

// ours finds what a name or a line says of a cluster: links and rules of the packet filter.
var ours = regexp.MustCompile(`layerwright|kube|containerd|^(cni|veth|lw)`)

// ourMounts finds mounts of a cluster. Tests beside these mount too, in folders of their own.
var ourMounts = regexp.MustCompile(`/clusters/` + clusterName + `|^/run/(layerwright|netns|containerd)|^/var/lib/(kubelet|containerd)`)

func lookAtHost() (h host, err error) {
	if h.Processes, err = markedProcesses(); err != nil {
		return h, err
	}
	if h.Cgroups, err = filepath.Glob("/sys/fs/cgroup/*/layerwright/" + clusterName + "*"); err != nil {
		return h, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return h, err
	}
	for line := range strings.Lines(string(mounts)) {
		h.Mounts = append(h.Mounts, strings.Fields(line)[4])
	}
	h.Mounts = slices.DeleteFunc(h.Mounts, func(path string) bool { return !ourMounts.MatchString(path) })
	links, err := names("/sys/class/net")
	if err != nil {
		return h, err
	}
	h.Links = onlyOurs(links)
	for _, dir := range watched {
		entries, err := names(dir)
		if err != nil {
			return h, err
		}
		for _, entry := range entries {
			h.Entries = append(h.Entries, filepath.Join(dir, entry))
		}
	}
	h.Sysctls, err = contents("/proc/sys/vm/overcommit_memory", "/proc/sys/vm/panic_on_oom", "/proc/sys/kernel/panic",
		"/proc/sys/kernel/panic_on_oops", "/proc/sys/kernel/keys/root_maxkeys", "/proc/sys/kernel/keys/root_maxbytes",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return h, err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return h, err
	}
	// Only of clusters of these tests: a person may take down another one beside them.
	h.Hosts = slices.DeleteFunc(strings.Split(string(hosts), "\n"), func(line string) bool { return !strings.Contains(line, " cluster "+clusterName) })
	tables, err := exec.Command("nft", "list", "tables").Output()
	h.Tables = onlyOurs(strings.Split(string(tables), "\n"))
	return h, err
}

func onlyOurs(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !ours.MatchString(s) })
}

// withoutShared leaves out processes of the shared cluster: its daemons start others at any time.
func (h host) withoutShared() host {
	h.Processes = slices.DeleteFunc(slices.Clone(h.Processes), func(process string) bool {
		return strings.Contains(process, "/clusters/"+clusterName+"/")
	})
	return h
}

// markedProcesses lists processes that were started for clusters of these
// tests. Other tests on the machine have control planes of their own.
func markedProcesses() (found []string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		_, mark, _ := bytes.Cut(environ, []byte("LAYERWRIGHT_PROCESS="))
		mark, _, _ = bytes.Cut(mark, []byte{0})
		if bytes.Contains(mark, []byte("/clusters/"+clusterName)) {
			program, _ := os.Readlink(filepath.Join(filepath.Dir(file), "exe"))
			found = append(found, fmt.Sprintf("%s %s of %s", filepath.Dir(file), program, mark))
		}
	}
	return found, nil
}

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := make([]string, 0, len(entries))
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	slices.Sort(all)
	return all, nil
}

func contents(paths ...string) (map[string]string, error) {
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[path] = string(text)
	}
	return all, nil
}
