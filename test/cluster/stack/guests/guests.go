package guests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/guest"
)

const (
	// Label marks nodes that are virtual machines, and is the key of their taint: they have few of
	// the images that no registry has.
	Label = "layerwright.test/guest"
	// Stream is what they boot first.
	Stream = fixtures.RHEL9
	// Max is how many have an address, after those of the nodes that are processes.
	Max = 20
	// MaxProcesses is how many of those have one.
	MaxProcesses = gateway.MaxNodes - Max

	memory      = 1536
	cpus        = 2
	kubeletPort = 10250
)

// Node is a node that is a virtual machine.
type Node struct {
	// Name is that of the guest and of its Node.
	Name         string
	dir, address string
}

// Name is the name of the nth guest.
func Name(n int) string { return fmt.Sprintf("guest%d", n) }

// Dir is the folder of a guest by its name. cluster is the folder of the cluster.
func Dir(cluster, name string) string { return filepath.Join(cluster, "guests", name) }

// SpaceOf is what as many guests of a cluster need, in bytes, as far as they have no disk: it takes
// this when it has been used for a while.
func SpaceOf(cluster string, many int) (need uint64) {
	const space = 2 << 30
	for _, n := range Nodes(cluster, many) {
		if has, _ := n.HasDisk(); !has {
			need += space
		}
	}
	return need
}

// LoadScript is what a guest runs to get an image by a name, unless it has it, that a registry has
// by another. login is an account of the registry with its password.
func LoadScript(image, from, login string) string {
	return fmt.Sprintf(`ctr --namespace k8s.io images list --quiet | grep --quiet --line-regexp --fixed-strings %[1]q || {
  ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d --user %[3]q %[2]q && ctr --namespace k8s.io images tag --force %[2]q %[1]q; }`,
		image, from, login)
}

// Check reports what this machine lacks to run guests; nil if nothing.
func Check() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("nodes that are virtual machines can't run here: their images are for amd64, and this machine is %s", runtime.GOARCH)
	}
	err := guest.Check()
	if _, missing := exec.LookPath("mmdebstrap"); err == nil && missing != nil {
		err = &guest.MissingError{Program: "mmdebstrap", Package: "mmdebstrap"}
	}
	if err != nil {
		return fmt.Errorf("nodes that are virtual machines can't run here: %w", err)
	}
	return nil
}

// Nodes are as many guests as a cluster has.
func Nodes(cluster string, many int) []Node {
	all := make([]Node, 0, many)
	for n := 1; n <= many; n++ {
		all = append(all, Node{Name: Name(n), dir: Dir(cluster, Name(n)), address: gateway.NodeAddress(MaxProcesses + n)})
	}
	return all
}

func (n Node) disk() string { return filepath.Join(n.dir, "disk.img") }

// HasDisk reports whether the guest has a disk, which may be an older one.
func (n Node) HasDisk() (bool, error) {
	_, err := os.Stat(n.disk())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Make makes a guest's disk from one with the base image of that name, with the node's identity and
// the images that no registry has.
func (n Node) Make(ctx context.Context, disk, base string, of Identity) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	made := n.disk() + ".tmp"
	if err := guest.Copy(ctx, disk, made); err != nil {
		return err
	}
	if err := guest.Put(ctx, made, base, n.files(of)); err != nil {
		return err
	}
	return os.Rename(made, n.disk())
}

// Install makes the base image, pushes it below a prefix, and installs it on a disk in the cache
// folder, as far as these do not have it. It returns the image's name too.
func Install(ctx context.Context, maker *fixtures.Maker, cache, prefix string, options ...remote.Option) (disk, base string, err error) {
	set, err := maker.Build(ctx, fixtures.Bootable)
	if err != nil {
		return "", "", err
	}
	references, err := maker.Push(ctx, fixtures.Bootable, prefix, options...)
	if err != nil {
		return "", "", err
	}
	disk, err = guest.Disks{Dir: filepath.Join(cache, "guests")}.Ensure(ctx, set.OS[Stream]["amd64"])
	return disk, references.OS[Stream].String(), err
}

// Spec runs a guest in the network of another process: it reaches everything there, and its kubelet
// is reached at its address. console is the file that gets what it prints.
func (n Node) Spec(program, console, network string) (daemon.Spec, error) {
	machine := guest.Machine{
		Dir: n.dir, Disk: n.disk(), Console: console, Memory: memory, CPUs: cpus,
		Forwards: []guest.Forward{{Address: n.address, Port: kubeletPort}},
	}
	text, err := json.MarshalIndent(machine, "", "  ")
	if err != nil {
		return daemon.Spec{}, err
	}
	path := filepath.Join(n.dir, "machine.json")
	if err := files.Write(path, text, 0o600); err != nil {
		return daemon.Spec{}, err
	}
	return daemon.Spec{
		Name: n.Name, Argv: []string{program, "internal", "guest", path}, Inputs: []string{path}, NetNSOf: network,
	}, nil
}
