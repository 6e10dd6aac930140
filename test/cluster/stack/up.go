package stack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/hostsfile"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

const (
	// runSpace is what a cluster needs besides the images that are put into it.
	runSpace = 2 << 30
	// startTimeout bounds everything after the programs are built.
	startTimeout = 4 * time.Minute

	preferredAPIPort      = 6443
	preferredRegistryPort = 5000
)

// UpOptions say what to bring up. The zero value is one node and free ports.
type UpOptions struct {
	// Nodes is the number of nodes; 0 keeps what the cluster has, or makes one.
	Nodes int
	// ControlPlaneOnly leaves out everything that needs root.
	ControlPlaneOnly bool
	// APIPort and RegistryPort demand ports of the host; 0 takes free ones.
	APIPort, RegistryPort int
	// SkipController leaves out the Layerwright controller.
	SkipController bool
	// Program is this program's executable; its "internal" commands run inside
	// the cluster.
	Program  string
	Progress *progress.Printer
}

// up is one run of Up.
type up struct {
	*Stack
	UpOptions
	program string
	state   *state
	pki     *pki.Store
	manager *daemon.Manager
	plane   *controlplane.Config
	cgroups *node.Cgroups
	nodes   []*node.Node
	clients kubernetes.Interface
	bin     struct{ kubernetes, node, dns, pause string }
}

// Up brings the cluster up, or completes one that is half up. It is harmless
// to repeat.
func (s *Stack) Up(ctx context.Context, options UpOptions) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	u := &up{Stack: s, UpOptions: options, program: options.Program}
	if err := u.prepare(); err != nil {
		return err
	}
	if err := u.ensureTools(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the cluster was not up after %s", startTimeout))
	defer cancel()
	// From here on the death of any component ends every wait.
	ctx, release := u.manager.Guard(ctx)
	defer release()
	if u.state.ControlPlaneOnly {
		err = u.startControlPlaneOnly(ctx)
	} else {
		err = u.startAll(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// prepare refuses what can't work and settles the state, before any minute is
// spent on building.
func (u *up) prepare() error {
	if !u.ControlPlaneOnly {
		f, err := look()
		if err != nil {
			return err
		}
		if err := f.judge(); err != nil {
			return err
		}
		if u.cgroups, err = node.DetectCgroups(); err != nil {
			return err
		}
	}
	if err := toolchain.RequireSpace(u.cache, runSpace); err != nil {
		return err
	}
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return err
	}
	if err := u.settleState(); err != nil {
		return err
	}
	var err error
	if u.manager, err = u.Stack.manager(); err != nil {
		return err
	}
	u.pki, err = pki.New(filepath.Join(u.dir, "pki"))
	return err
}

// settleState joins what the cluster is already with what is asked for.
func (u *up) settleState() error {
	st, err := u.load()
	if missing := (*NotFoundError)(nil); errors.As(err, &missing) {
		st, err = u.newState()
	}
	if err != nil {
		return err
	}
	if err := st.accept(u.UpOptions); err != nil {
		return err
	}
	u.state = st
	return u.save(st)
}

// accept takes over options that a cluster which exists can follow.
func (st *state) accept(options UpOptions) error {
	remake := fmt.Sprintf("`cluster down --name %s` first", st.Name)
	for _, port := range []struct {
		name      string
		has, want int
	}{{"API server", st.APIPort, options.APIPort}, {"registry", st.RegistryPort, options.RegistryPort}} {
		if port.want != 0 && port.want != port.has {
			return fmt.Errorf("cluster %q has its %s at port %d, not %d: %s", st.Name, port.name, port.has, port.want, remake)
		}
	}
	switch {
	case options.Nodes > gateway.MaxNodes:
		return fmt.Errorf("%d nodes are more than the %d that have an address", options.Nodes, gateway.MaxNodes)
	case st.ControlPlaneOnly != options.ControlPlaneOnly:
		return fmt.Errorf("cluster %q was made with control-plane-only=%t: %s", st.Name, st.ControlPlaneOnly, remake)
	case options.Nodes != 0 && options.Nodes < st.Nodes:
		return fmt.Errorf("cluster %q has %d nodes and nodes are not taken away: %s", st.Name, st.Nodes, remake)
	}
	st.Nodes = max(st.Nodes, options.Nodes)
	return nil
}

func (u *up) newState() (*state, error) {
	st := &state{Name: u.name, ControlPlaneOnly: u.ControlPlaneOnly}
	if u.ControlPlaneOnly {
		return st, nil // its ports are chosen at every start
	}
	st.Nodes = max(1, u.Nodes)
	st.Ports = controlplane.StandardPorts
	var err error
	if st.APIPort, err = choosePort(or(u.APIPort, preferredAPIPort), u.APIPort != 0); err != nil {
		return nil, err
	}
	if st.RegistryPort, err = choosePort(or(u.RegistryPort, preferredRegistryPort), u.RegistryPort != 0); err != nil {
		return nil, err
	}
	st.Accounts = []registry.Account{
		{Name: "pull", Password: rand.Text()},
		{Name: "push", Password: rand.Text(), Push: true},
	}
	return st, nil
}

func or(value, otherwise int) int {
	if value != 0 {
		return value
	}
	return otherwise
}

// ensureTools builds what is not built yet.
func (u *up) ensureTools(ctx context.Context) error {
	wanted := []struct {
		set toolchain.Set
		bin *string
	}{
		{toolchain.Kubernetes, &u.bin.kubernetes},
		{toolchain.Node, &u.bin.node},
		{toolchain.DNS, &u.bin.dns},
		{toolchain.Pause, &u.bin.pause},
	}
	if u.ControlPlaneOnly {
		wanted = wanted[:1]
	}
	for _, w := range wanted {
		var err error
		if *w.bin, err = EnsureSet(ctx, u.tools, w.set, u.Progress); err != nil {
			return err
		}
	}
	return nil
}

// EnsureSet builds a set of programs, with progress, unless it is built.
func EnsureSet(ctx context.Context, tools *toolchain.Toolchain, set toolchain.Set, p *progress.Printer) (bin string, err error) {
	bin, err = tools.Find(ctx, set)
	if missing := (*toolchain.NotBuiltError)(nil); !errors.As(err, &missing) {
		return bin, err
	}
	err = p.Do("building "+set.Name+" (once)", func(step *progress.Step) error {
		bin, err = tools.Ensure(ctx, set, step.Detail)
		return err
	})
	return bin, err
}

// startControlPlaneOnly starts what needs no root. Its ports are those of the
// host, so another process may take one between choice and use.
func (u *up) startControlPlaneOnly(ctx context.Context) error {
	return u.Progress.Do("control plane", func(*progress.Step) error {
		const attempts = 3
		for attempt := 1; ; attempt++ {
			err := u.tryControlPlane(ctx)
			if !controlplane.IsPortTaken(err) || attempt == attempts {
				return err
			}
			u.state.Ports = controlplane.Ports{}
		}
	})
}

func (u *up) tryControlPlane(ctx context.Context) error {
	if u.state.Ports == (controlplane.Ports{}) {
		ports, err := controlplane.FreePorts()
		if err != nil {
			return err
		}
		u.state.Ports, u.state.APIPort = ports, ports.API
		if err := u.save(u.state); err != nil {
			return err
		}
	}
	if err := u.preparePlane(); err != nil {
		return err
	}
	if err := u.startPlane(ctx); err != nil {
		return err
	}
	return await.ServiceAccount(ctx, u.clients, "default", "default")
}

// preparePlane describes the control plane and makes all certificates.
func (u *up) preparePlane() error {
	u.plane = &controlplane.Config{
		Cluster: u.name, Bin: u.bin.kubernetes, Dir: u.dir, PKI: u.pki, Manager: u.manager, Ports: u.state.Ports,
		AdminServer: fmt.Sprintf("https://127.0.0.1:%d", u.state.APIPort),
	}
	if !u.state.ControlPlaneOnly {
		u.plane.NodeAddress, u.plane.NetNSOf = gateway.NodeAddress(1), gatewayName
	}
	if err := u.ensurePKI(); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(u.pki.Kubeconfig(controlplane.Admin))
	if err != nil {
		return err
	}
	return files.Write(u.Kubeconfig(), kubeconfig, 0o600)
}

func (u *up) startPlane(ctx context.Context) error {
	config, err := u.plane.Start(ctx)
	if err != nil {
		return err
	}
	u.clients, err = kubernetes.NewForConfig(config)
	return err
}

// startAll starts a cluster with nodes: what doesn't depend on each other side
// by side, because starting is mostly waiting.
func (u *up) startAll(ctx context.Context) error {
	if err := u.step("private network", u.startNetwork)(ctx); err != nil {
		return err
	}
	controller := &controllerImage{}
	background, inner := errgroup.WithContext(ctx)
	if !u.SkipController {
		background.Go(func() error { return u.step("controller image", u.buildController(controller))(inner) })
	}
	err := together(inner,
		u.step("control plane", u.startPlane),
		u.step("container runtimes", u.startRuntimes),
		u.step("registry", u.startRegistry))
	if err == nil {
		err = together(inner,
			u.step("name server and service proxy", u.startServices),
			u.step("registry accounts", func(ctx context.Context) error { return u.handOutAccounts(ctx, "default") }),
			u.step("nodes Ready", u.startKubelets))
	}
	if err := errors.Join(err, background.Wait()); err != nil || u.SkipController {
		return err
	}
	return u.step("controller Available", func(ctx context.Context) error { return u.deployController(ctx, controller) })(ctx)
}

// step makes the progress of a part of the work visible.
func (u *up) step(title string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return u.Progress.Do(title, func(*progress.Step) error { return run(ctx) })
	}
}

// together runs parts side by side and returns the first error.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// startNetwork starts the process that all others share the network of, and
// makes what they all read.
func (u *up) startNetwork(ctx context.Context) error {
	if err := u.preparePlane(); err != nil {
		return err
	}
	if _, err := u.manager.Ensure(ctx, u.gatewaySpec()); err != nil {
		return err
	}
	return u.hosts(ctx).Set(u.name, u.RegistryHost())
}

func (s *Stack) hosts(ctx context.Context) hostsfile.File {
	return hostsfile.File{Path: hostsfile.Path, Lock: func() (func(), error) {
		return files.Lock(ctx, filepath.Join(s.cache, "clusters", "hosts.lock"))
	}}
}

// startServices starts what pods need to find and reach Services.
func (u *up) startServices(ctx context.Context) error {
	if err := u.apply(ctx, servicesManifest); err != nil {
		return err
	}
	for _, spec := range []func() (daemon.Spec, error){u.proxySpec, u.dnsSpec} {
		s, err := spec()
		if err != nil {
			return err
		}
		if _, err := u.manager.Ensure(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// startRegistry starts the registry with its accounts.
func (u *up) startRegistry(ctx context.Context) error {
	accounts, err := json.Marshal(u.state.Accounts)
	if err != nil {
		return err
	}
	if err := files.Write(u.accountsPath(), accounts, 0o600); err != nil {
		return err
	}
	_, err = u.manager.Ensure(ctx, u.registrySpec())
	return err
}

func (u *up) startRuntimes(ctx context.Context) error {
	pauseArchive, err := u.ensurePauseArchive()
	if err != nil {
		return err
	}
	if err := u.keepSysctls(); err != nil {
		return err
	}
	u.nodes = u.Stack.nodes(u.state, u.manager)
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range u.nodes {
		n.Program, n.KubernetesBin, n.NodeBin = u.program, u.bin.kubernetes, u.bin.node
		group.Go(func() error { return n.StartRuntime(ctx, u.cgroups, pauseArchive) })
	}
	return group.Wait()
}

// startKubelets starts them and waits for what they report.
func (u *up) startKubelets(ctx context.Context) error {
	for _, n := range u.nodes {
		if err := n.StartKubelet(ctx); err != nil {
			return err
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

// registry is the name and port of the cluster's registry.
func (s *Stack) registry(st *state) string {
	return fmt.Sprintf("%s:%d", s.RegistryHost(), st.RegistryPort)
}
