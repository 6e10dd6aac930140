package stack

import (
	"context"
	"path/filepath"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
)

func (u *up) startRuntimes(ctx context.Context) error {
	pauseArchive, err := deploy.EnsurePause(u.bin.pause)
	if err != nil {
		return err
	}
	if err := u.keepSysctls(); err != nil {
		return err
	}
	u.nodes = u.Stack.nodes(u.state, u.manager)
	var starts []func(context.Context) error
	for _, n := range u.nodes {
		n.Program, n.KubernetesBin, n.NodeBin = u.program, u.bin.kubernetes, u.bin.node
		starts = append(starts, func(ctx context.Context) error { return n.StartRuntime(ctx, u.cgroups, pauseArchive) })
	}
	return together(ctx, starts...)
}

// startKubelets starts them and waits for what they report.
func (u *up) startKubelets(ctx context.Context) error {
	for _, n := range u.nodes {
		if err := n.StartKubelet(ctx); err != nil {
			return err
		}
		if u.state.Hosts { // whose machines reboot when a rollout says so
			n.ReleaseKubelet()
		}
	}
	for _, n := range u.nodes {
		if err := await.NodeReady(ctx, u.clients, n.Name()); err != nil {
			return err
		}
	}
	return nil
}

// nodes describes the nodes of a cluster but for where their programs are.
func (s *Stack) nodes(st *state, manager *daemon.Manager) []*node.Node {
	dir := filepath.Join(s.dir, "pki")
	nodes := make([]*node.Node, 0, st.Nodes)
	for number := 1; number <= st.Nodes; number++ {
		n := &node.Node{
			Cluster: s.name, Number: number, Cache: s.cache, Manager: manager, NetNSOf: gatewayName,
			Address: gateway.NodeAddress(number), DNSAddress: gateway.NodeAddress(1),
			CA:           filepath.Join(dir, controlplane.Authority+".crt"),
			RegistryHost: s.registry(st),
		}
		n.Dir = filepath.Join(s.dir, "nodes", n.Name())
		n.Cert, n.Key = filepath.Join(dir, n.Name()+".crt"), filepath.Join(dir, n.Name()+".key")
		n.Kubeconfig = filepath.Join(dir, n.Name()+".kubeconfig")
		nodes = append(nodes, n)
	}
	return nodes
}
