package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

const (
	// runSpace is what a cluster needs besides the images that are put into it.
	runSpace = 2 << 30
	// startTimeout bounds the start of the cluster, and of the controller on
	// it; compiling is bounded by the caller's patience alone.
	startTimeout = 8 * time.Minute

	preferredAPIPort      = 6443
	preferredRegistryPort = 5000
)

// UpOptions say what to bring up. The zero value is one node and free ports.
type UpOptions struct {
	// Nodes is the number of nodes; 0 keeps what the cluster has, or makes one.
	Nodes int
	// Guests is the number of further nodes that are virtual machines; 0 keeps what the cluster
	// has. The others become hosts, because there is one DaemonSet of agents for all.
	Guests int
	// Hosts gives each node a root of its own, deployed from an image. A cluster that has them
	// keeps them.
	Hosts bool
	// Tekton installs Tekton Pipelines, and has the controller use it. A cluster that has it keeps
	// it.
	Tekton bool
	// ControlPlaneOnly leaves out everything that needs root.
	ControlPlaneOnly bool
	// WithController adds registry and controller to a control plane without
	// nodes, as processes. One that has them keeps them.
	WithController bool
	// ControllerProgram is a controller to run as such a process; empty to
	// compile the checkout's.
	ControllerProgram string
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
	bin     struct{ kubernetes, node, dns, pause, kms, tekton string }
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

// starting gives a part of the start its deadline.
func starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the cluster was not up after %s", startTimeout))
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
	if u.WithController && st.ControlPlaneOnly {
		if err := st.addController(); err != nil {
			return err
		}
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
	case options.Hosts && options.ControlPlaneOnly:
		return errors.New("a control plane without nodes has no hosts")
	case options.Tekton && options.ControlPlaneOnly:
		return errors.New("a control plane without nodes runs no pods of Tekton")
	case options.Guests != 0 && options.ControlPlaneOnly:
		return errors.New("a control plane without nodes has no guests")
	case options.Nodes > guestAddress:
		return fmt.Errorf("%d nodes are more than the %d that have an address", options.Nodes, guestAddress)
	case options.Guests > maxGuests:
		return fmt.Errorf("%d guests are more than the %d that have an address", options.Guests, maxGuests)
	case options.Guests != 0 && options.Guests < st.Guests:
		return fmt.Errorf("cluster %q has %d guests and guests are not taken away: %s", st.Name, st.Guests, remake)
	case st.ControlPlaneOnly != options.ControlPlaneOnly:
		return fmt.Errorf("cluster %q was made with control-plane-only=%t: %s", st.Name, st.ControlPlaneOnly, remake)
	case options.Nodes != 0 && options.Nodes < st.Nodes:
		return fmt.Errorf("cluster %q has %d nodes and nodes are not taken away: %s", st.Name, st.Nodes, remake)
	}
	st.Nodes, st.Guests, st.Hosts = max(st.Nodes, options.Nodes), max(st.Guests, options.Guests), st.Hosts || options.Hosts || options.Guests > 0
	st.Tekton = st.Tekton || options.Tekton
	return nil
}

func (u *up) newState() (*state, error) {
	st := &state{Name: u.name, ControlPlaneOnly: u.ControlPlaneOnly}
	var err error
	if u.ControlPlaneOnly {
		return st, u.choosePlanePorts(st)
	}
	st.Nodes = max(1, u.Nodes)
	st.Ports = controlplane.StandardPorts
	if st.APIPort, err = choosePort(or(u.APIPort, preferredAPIPort), u.APIPort != 0); err != nil {
		return nil, err
	}
	if st.RegistryPort, err = choosePort(or(u.RegistryPort, preferredRegistryPort), u.RegistryPort != 0); err != nil {
		return nil, err
	}
	st.Accounts = newAccounts()
	return st, nil
}

func newAccounts() []registry.Account {
	return []registry.Account{
		{Name: "pull", Password: rand.Text()},
		{Name: "push", Password: rand.Text(), Push: true},
	}
}

// choosePlanePorts chooses ports of the host for a control plane that has no
// network of its own.
func (u *up) choosePlanePorts(st *state) (err error) {
	if st.Ports, err = controlplane.FreePorts(); err != nil {
		return err
	}
	if u.APIPort != 0 {
		if st.Ports.API, err = choosePort(u.APIPort, true); err != nil {
			return err
		}
	}
	st.APIPort = st.Ports.API
	return nil
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
		{toolchain.KMS, &u.bin.kms},
		{toolchain.Tekton, &u.bin.tekton},
	}
	if !u.state.Tekton {
		wanted = wanted[:len(wanted)-1]
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
