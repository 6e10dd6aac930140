package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/machine"
	"github.com/layerwright/layerwright/test/host/power"
)

// HostRoot is where each node's own root is, in the node's mount namespace: what an agent has to
// mount.
const HostRoot = machineDir + "/sysroot"

// machineDir is in the node's own /run.
const machineDir = "/run/layerwright/machine"

// machinesName is the process that owns the machines of the nodes.
const machinesName = "machines"

// hostStream is the stream that nodes are installed with.
const hostStream = fixtures.RHEL9

// machineOf is the machine of a node.
func (s *Stack) machineOf(n *node.Node) *machine.Machine {
	return &machine.Machine{
		Disk: filepath.Join(n.Dir, "disk"), Dir: machineDir, Tools: filepath.Join(s.dir, "host-tools"), Line: s.HostLine(n.Name()),
	}
}

// HostLine is how a node's host asks for reboots, and how it is made to fail.
func (s *Stack) HostLine(nodeName string) power.Line {
	return power.Line{Dir: filepath.Join(s.dir, "nodes", nodeName, "line")}
}

// HasHosts reports whether the nodes have roots of their own.
func (s *Stack) HasHosts() (bool, error) {
	st, err := s.load()
	if err != nil {
		return false, err
	}
	return st.Hosts, nil
}

// HostCommand is a command of a shell in the root of a node's host, which may be away.
func (s *Stack) HostCommand(ctx context.Context, nodeName, command string) (*exec.Cmd, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	manager, err := s.manager()
	if err != nil {
		return nil, err
	}
	for _, n := range s.nodes(st, manager) {
		if n.Name() == nodeName {
			return n.Command(ctx, "chroot", HostRoot, "/usr/bin/busybox", "sh", "-ec", command)
		}
	}
	return nil, fmt.Errorf("cluster %q has no node %q", s.name, nodeName)
}

// startHosts installs and boots the machines of nodes that are not booted.
func (u *up) startHosts(ctx context.Context) error {
	if err := u.installTools(ctx); err != nil {
		return err
	}
	installation, err := u.installation(ctx)
	if err != nil {
		return err
	}
	var rest []func(context.Context) error
	for i, n := range u.nodes {
		start := func(ctx context.Context) error { return u.startHost(ctx, n, installation) }
		if i > 0 {
			rest = append(rest, start)
			continue
		}
		// The others take its layers.
		if err := start(ctx); err != nil {
			return err
		}
		disk := u.machineOf(n).Disk
		installation.Seed = &deployments.Sysroot{Path: disk, Tool: deployments.Tool{"ostree"}}
	}
	if err := together(ctx, rest...); err != nil {
		return err
	}
	_, err = u.manager.Ensure(ctx, daemon.Spec{
		Name: machinesName,
		Argv: []string{
			u.program, "internal", "machines", "--name", u.name, "--cache", u.cache, "--repository", u.repository,
			"--kubernetes", u.bin.kubernetes, "--nodes", fmt.Sprint(u.state.Nodes),
		},
		Ready: daemon.Readiness{Notify: true},
	})
	return err
}

// installTools compiles the stand-in, once: hosts that have booted look at the folder.
func (u *up) installTools(ctx context.Context) error {
	dir := filepath.Join(u.dir, "host-tools")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	program := filepath.Join(u.dir, "host-standin")
	if err := makeTarget(ctx, u.repository, "host-binary", "OUT="+program); err != nil {
		return err
	}
	return machine.Install(ctx, dir, program)
}

// installation is what a machine is installed with: the small base image, and how to get at the
// registry.
func (u *up) installation(ctx context.Context) (*machine.Installation, error) {
	registry, err := u.Registry(ctx)
	if err != nil {
		return nil, err
	}
	references, err := u.PushFixtures(ctx, fixtures.Tiny, []fixtures.Stream{hostStream}, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	base := references.OS[hostStream]
	image, err := remote.Image(base, registry.Options(ctx, "pull")...)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(u.dir, "pki", controlplane.Authority+".crt"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"/etc/containers/certs.d/" + registry.Host + "/ca.crt": authority,
		"/etc/hosts": []byte("127.0.0.1 localhost\n" + gateway.NodeAddress(1) + " " + u.RegistryHost() + "\n"),
	}
	for _, a := range u.state.Accounts {
		if a.Push {
			continue
		}
		// Where the kubelet of a node has its own.
		if files["/var/lib/kubelet/config.json"], err = a.DockerConfig(registry.Host); err != nil {
			return nil, err
		}
	}
	return &machine.Installation{Image: image, Name: base.String(), Files: files}, nil
}

func (u *up) startHost(ctx context.Context, n *node.Node, installation *machine.Installation) error {
	m := u.machineOf(n)
	if err := m.Install(ctx, installation); err != nil {
		return fmt.Errorf("installing the machine of %s: %w", n.Name(), err)
	}
	return n.InMounts(func() error {
		if m.IsBooted() {
			return nil
		}
		return boot(ctx, n, m)
	})
}

// boot boots a machine. It is called in the node's mount namespace.
func boot(ctx context.Context, n *node.Node, m *machine.Machine) error {
	id := string(uuid.NewUUID())
	if err := m.Boot(ctx, id); err != nil {
		return fmt.Errorf("booting the machine of %s: %w", n.Name(), err)
	}
	return n.SetBootID(id)
}

// removeHosts removes the disks of the machines, which have files that cannot be removed while they
// are immutable.
func (s *Stack) removeHosts() error {
	disks, err := filepath.Glob(filepath.Join(s.dir, "nodes", "*", "disk"))
	for _, disk := range disks {
		err = errors.Join(err, machine.Erase(disk))
	}
	return err
}
