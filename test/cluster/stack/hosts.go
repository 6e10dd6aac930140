package stack

import (
	"bytes"
	"context"
	_ "embed" // the manifest of hosts
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/stack/machines"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/host/power"
)

// HostRoot is where each node's own root is, in the node's mount namespace: what an agent has to
// mount.
const HostRoot = machines.HostRoot

// hostsManifest has the pods of node agents find these roots.
//
//go:embed manifests/hosts.yaml
var hostsManifest []byte

// machinesName is the process that owns the machines of the nodes.
const machinesName = "machines"

// hostStream is the stream that nodes are installed with.
const hostStream = fixtures.RHEL9

// hostsOf are the hosts of nodes.
func (s *Stack) hostsOf(nodes []*node.Node) []machines.Host {
	hosts := make([]machines.Host, len(nodes))
	for i, n := range nodes {
		hosts[i] = machines.Of(n, s.dir, s.HostLine(n.Name()))
	}
	return hosts
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

// RunMachines owns the machines of a cluster's nodes: it reboots those that ask for it, until ctx
// ends. kubernetes is the folder of Kubernetes' programs. ready is called once it listens.
func (s *Stack) RunMachines(ctx context.Context, kubernetes string, log io.Writer, ready func() error) error {
	st, err := s.load()
	if err != nil {
		return err
	}
	manager, err := s.manager()
	if err != nil {
		return err
	}
	nodes := s.nodes(st, manager)
	for _, n := range nodes {
		n.KubernetesBin = kubernetes
	}
	return machines.Run(ctx, s.hostsOf(nodes), log, ready)
}

// placeAgents has the pods of node agents find these roots.
func (u *up) placeAgents(ctx context.Context) error {
	return u.kubectl().Apply(ctx, bytes.ReplaceAll(hostsManifest, []byte("HOST_ROOT"), []byte(HostRoot)))
}

// startHosts installs and boots the machines of nodes that are not booted.
func (u *up) startHosts(ctx context.Context) error {
	if err := u.placeAgents(ctx); err != nil {
		return err
	}
	if err := machines.InstallTools(ctx, u.repository, u.dir); err != nil {
		return err
	}
	base, err := u.hostBase(ctx)
	if err != nil {
		return err
	}
	if err := machines.Start(ctx, u.hostsOf(u.nodes), base); err != nil {
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

// hostBase is what a machine is installed with: the small base image, and how to get at the
// registry.
func (u *up) hostBase(ctx context.Context) (machines.Base, error) {
	base := machines.Base{RegistryName: u.RegistryHost()}
	registry, err := u.Registry(ctx)
	if err != nil {
		return base, err
	}
	references, err := u.PushFixtures(ctx, fixtures.Tiny, []fixtures.Stream{hostStream}, func(string, ...any) {})
	if err != nil {
		return base, err
	}
	reference := references.OS[hostStream]
	base.Registry, base.Name = registry.Host, reference.String()
	if base.Image, err = remote.Image(reference, registry.Options(ctx, "pull")...); err != nil {
		return base, err
	}
	if base.Authority, err = os.ReadFile(u.Authority()); err != nil {
		return base, err
	}
	base.Login, err = u.pullLogin(u.state)
	return base, err
}
