package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/test/cluster/daemon"
)

// PauseImage is the image of the process that holds a pod's namespaces. It is
// loaded into every node, never pulled.
const PauseImage = "layerwright.test/pause:1"

// Node is one node of a cluster. All fields are required.
type Node struct {
	// Cluster it belongs to; Number counts its nodes from 1.
	Cluster string
	Number  int
	// Dir is the node's folder, Cache the one that must stay visible inside.
	Dir, Cache string
	// Program is this program, started again inside the node's namespaces.
	Program string
	// KubernetesBin and NodeBin are the folders with the node's programs.
	KubernetesBin, NodeBin string
	Manager                *daemon.Manager
	// NetNSOf names the process whose network namespace the node joins.
	NetNSOf string
	// Address is the node's own, DNSAddress that of the cluster's name server.
	Address, DNSAddress string
	// CA, Cert and Key are the paths of the node's certificates, Kubeconfig that
	// of its credentials.
	CA, Cert, Key, Kubeconfig string
	// RegistryHost is the registry's name and port.
	RegistryHost string
}

// Name is the name of the node's Node object.
func (n *Node) Name() string { return fmt.Sprintf("node%d", n.Number) }

func (n *Node) containerdName() string { return "containerd-" + n.Name() }

func (n *Node) kubeletName() string { return "kubelet-" + n.Name() }

func (n *Node) path(parts ...string) string {
	return filepath.Join(append([]string{n.Dir}, parts...)...)
}

func (n *Node) socket() string { return n.path("containerd.sock") }

func (n *Node) kubeletConfigPath() string { return n.path("kubelet.yaml") }

// ClusterGroup is the control group of everything that a cluster's nodes run.
func ClusterGroup(cluster string) string { return "layerwright/" + cluster }

func (n *Node) group() string { return ClusterGroup(n.Cluster) + "/" + n.Name() }

// podGroup is where the kubelet puts pods; runtimeGroup holds containerd and
// the shims. A version 2 group has children or processes, never both.
func (n *Node) podGroup() string     { return n.group() + "/pods" }
func (n *Node) runtimeGroup() string { return n.group() + "/runtime" }

// StartRuntime runs containerd and loads the pause image from an archive.
func (n *Node) StartRuntime(ctx context.Context, cgroups *Cgroups, pauseArchive string) error {
	if err := daemon.CheckSocketPath(n.socket() + ".ttrpc"); err != nil {
		return err
	}
	for _, group := range []string{n.podGroup(), n.runtimeGroup()} {
		if err := cgroups.Create(group); err != nil {
			return err
		}
	}
	if err := n.writeConfigs(); err != nil {
		return err
	}
	_, err := n.Manager.Ensure(ctx, daemon.Spec{
		Name: n.containerdName(),
		Argv: []string{
			n.Program, "internal", "node", "--keep", n.Cache, "--cgroup", n.runtimeGroup(), "--",
			filepath.Join(n.NodeBin, "containerd"), "--config", n.path("containerd.toml"),
		},
		// containerd finds its shim, and the shim runc, by the path.
		Path:       n.NodeBin,
		Inputs:     []string{n.path("containerd.toml")},
		NetNSOf:    n.NetNSOf,
		NewMountNS: true,
		Ready:      daemon.Readiness{Notify: true},
	})
	if err != nil {
		return err
	}
	return n.EnsureImage(ctx, PauseImage, pauseArchive)
}

// StartKubelet runs the kubelet in the runtime's mounts. That the node is
// Ready is for the caller to wait for.
func (n *Node) StartKubelet(ctx context.Context) error {
	_, err := n.Manager.Ensure(ctx, daemon.Spec{
		Name: n.kubeletName(),
		Argv: []string{
			filepath.Join(n.KubernetesBin, "kubelet"),
			"--config=" + n.kubeletConfigPath(),
			"--kubeconfig=" + n.Kubeconfig,
			"--hostname-override=" + n.Name(),
			"--node-ip=" + n.Address,
			"--root-dir=" + n.path("kubelet"),
			"--cert-dir=" + n.path("kubelet-pki"),
		},
		Inputs:    []string{n.kubeletConfigPath(), n.Kubeconfig, n.Cert},
		NetNSOf:   n.NetNSOf,
		MountNSOf: n.containerdName(),
	})
	return err
}

// ReleaseKubelet has a start of the cluster go on when others end the kubelet, and start it again.
func (n *Node) ReleaseKubelet() { n.Manager.Release(n.kubeletName()) }

// PowerOff ends the kubelet and every pod, as a machine does that is switched off. The runtime
// stays, and with it the node's mounts.
func (n *Node) PowerOff(ctx context.Context, cgroups *Cgroups) error {
	return errors.Join(n.Manager.Stop(ctx, n.kubeletName()), cgroups.Kill(ctx, n.podGroup()))
}

// Stop ends the kubelet, the runtime and every pod.
func (n *Node) Stop(ctx context.Context, cgroups *Cgroups) error {
	return errors.Join(
		n.Manager.Stop(ctx, n.kubeletName()),
		cgroups.Kill(ctx, n.podGroup()),
		n.Manager.Stop(ctx, n.containerdName()),
		cgroups.Kill(ctx, n.group()),
		cgroups.Remove(n.group()),
	)
}

// EnsureImage imports an archive unless the node has its image already.
func (n *Node) EnsureImage(ctx context.Context, image, archive string) error {
	present, err := n.Images(ctx)
	if err != nil || slices.Contains(present, image) {
		return err
	}
	return n.Load(ctx, archive)
}

// Load imports an image archive (docker or OCI) into the node.
func (n *Node) Load(ctx context.Context, archive string) error {
	if _, err := n.ctr(ctx, "images", "import", archive); err != nil {
		return fmt.Errorf("loading %s into %s: %w", archive, n.Name(), err)
	}
	return nil
}

// Images lists the references of the images that the node has.
func (n *Node) Images(ctx context.Context) ([]string, error) {
	out, err := n.ctr(ctx, "images", "list", "--quiet")
	if err != nil {
		return nil, fmt.Errorf("listing images of %s: %w", n.Name(), err)
	}
	return strings.Fields(out), nil
}

// ctr runs containerd's own client, whose standard error has warnings on every
// call and is shown only with an error.
func (n *Node) ctr(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(ctx, filepath.Join(n.NodeBin, "ctr"), args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
