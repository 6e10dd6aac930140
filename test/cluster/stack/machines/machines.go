package machines

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/machine"
	"github.com/layerwright/layerwright/test/host/power"
)

// HostRoot is where each node's own root is, in the node's mount namespace: what an agent has to
// mount.
const HostRoot = machineDir + "/sysroot"

// machineDir is in the node's own /run.
const machineDir = "/run/layerwright/machine"

// Host is a node with the machine that it runs on.
type Host struct {
	node    *node.Node
	machine *machine.Machine
}

// Of is the host of a node of the cluster in a folder, which asks for reboots on a line.
func Of(n *node.Node, cluster string, line power.Line) Host {
	return Host{node: n, machine: &machine.Machine{
		Disk: filepath.Join(n.Dir, "disk"), Dir: machineDir, Tools: toolsDir(cluster), Line: line,
	}}
}

func toolsDir(cluster string) string { return filepath.Join(cluster, "host-tools") }

// Base is what machines are installed with.
type Base struct {
	// Image is the small base image, and Name its pinned reference.
	Image v1.Image
	Name  string
	// Registry is the name and port of the cluster's registry, and RegistryName the name alone.
	Registry, RegistryName string
	// Authority is the certificate that the registry's is signed by, and Login the docker
	// configuration that pulls from it; empty where no account does.
	Authority, Login []byte
}

// installation is a machine's beginning: the base image, and how to get at the registry.
func (b Base) installation() *machine.Installation {
	files := map[string][]byte{
		"/etc/containers/certs.d/" + b.Registry + "/ca.crt": b.Authority,
		"/etc/hosts": []byte("127.0.0.1 localhost\n" + gateway.NodeAddress(1) + " " + b.RegistryName + "\n"),
	}
	if len(b.Login) > 0 {
		// Where the kubelet of a node has its own.
		files["/var/lib/kubelet/config.json"] = b.Login
	}
	return &machine.Installation{Image: b.Image, Name: b.Name, Files: files}
}

// Start installs and boots the machines that are not booted.
func Start(ctx context.Context, hosts []Host, base Base) error {
	if len(hosts) == 0 {
		return nil
	}
	installation := base.installation()
	first, others := hosts[0], hosts[1:]
	if err := first.start(ctx, installation); err != nil {
		return err
	}
	// The others take its layers.
	installation.Seed = &deployments.Sysroot{Path: first.machine.Disk, Tool: deployments.Tool{"ostree"}}
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range others {
		group.Go(func() error { return h.start(ctx, installation) })
	}
	return group.Wait()
}

// InstallTools compiles the stand-in of a checkout for a cluster's folder, once: hosts that have
// booted look at what it becomes there.
func InstallTools(ctx context.Context, repository, cluster string) error {
	dir := toolsDir(cluster)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	program := filepath.Join(cluster, "host-standin")
	if err := deploy.Make(ctx, repository, "host-binary", "OUT="+program); err != nil {
		return err
	}
	return machine.Install(ctx, dir, program)
}

func (h Host) start(ctx context.Context, installation *machine.Installation) error {
	if err := h.machine.Install(ctx, installation); err != nil {
		return fmt.Errorf("installing the machine of %s: %w", h.node.Name(), err)
	}
	return h.boot(ctx)
}

// boot boots the machine, unless it runs.
func (h Host) boot(ctx context.Context) error {
	return h.node.InMounts(func() error {
		if h.machine.IsBooted() {
			return nil
		}
		id := string(uuid.NewUUID())
		if err := h.machine.Boot(ctx, id); err != nil {
			return fmt.Errorf("booting the machine of %s: %w", h.node.Name(), err)
		}
		return h.node.SetBootID(id)
	})
}

// KeepThawed keeps the file system of a cluster's folder writable while its machines are ended.
func KeepThawed(cluster string) (stop func()) { return machine.KeepThawed(cluster) }

// Erase removes the disks of a cluster's machines, which have files that cannot be removed while
// they are immutable.
func Erase(cluster string) error {
	disks, err := filepath.Glob(filepath.Join(cluster, "nodes", "*", "disk"))
	for _, disk := range disks {
		err = errors.Join(err, machine.Erase(disk))
	}
	return err
}
