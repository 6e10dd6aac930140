package stack

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/stack/guests"
	"github.com/layerwright/layerwright/test/cluster/stack/preflight"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

const (
	preferredAPIPort      = 6443
	preferredRegistryPort = 5000
	preferredMetricsPort  = 8443
)

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
	if st.Guests > 0 {
		if err := errors.Join(guests.Check(), toolchain.RequireSpace(u.cache, runSpace+guests.SpaceOf(u.dir, st.Guests))); err != nil {
			return err
		}
	}
	if u.WithController && st.ControlPlaneOnly {
		if err := st.addController(); err != nil {
			return err
		}
	}
	u.state, u.SkipController = st, u.SkipController || st.Bare
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
	if options.ControlPlaneOnly {
		if err := options.acceptWithoutNodes(); err != nil {
			return err
		}
	}
	switch {
	case options.Bare && !st.Bare:
		return fmt.Errorf("cluster %q was not made with bare: %s", st.Name, remake)
	case options.Nodes > guests.MaxProcesses:
		return fmt.Errorf("%d nodes are more than the %d that have an address", options.Nodes, guests.MaxProcesses)
	case options.Guests > guests.Max:
		return fmt.Errorf("%d guests are more than the %d that have an address", options.Guests, guests.Max)
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

// acceptWithoutNodes refuses what a control plane alone cannot have.
func (o *UpOptions) acceptWithoutNodes() error {
	switch {
	case o.Hosts:
		return errors.New("a control plane without nodes has no hosts")
	case o.Tekton:
		return errors.New("a control plane without nodes runs no pods of Tekton")
	case o.Bare:
		return errors.New("a control plane without nodes has nothing to leave out")
	case o.Guests != 0:
		return errors.New("a control plane without nodes has no guests")
	}
	return nil
}

func (u *up) newState() (*state, error) {
	st := &state{Name: u.name, ControlPlaneOnly: u.ControlPlaneOnly, Bare: u.Bare}
	var err error
	if u.ControlPlaneOnly {
		return st, u.choosePlanePorts(st)
	}
	st.Nodes = max(1, u.Nodes)
	st.Ports = controlplane.StandardPorts
	if st.APIPort, err = preflight.ChoosePort(cmp.Or(u.APIPort, preferredAPIPort), u.APIPort != 0); err != nil {
		return nil, err
	}
	if st.RegistryPort, err = preflight.ChoosePort(cmp.Or(u.RegistryPort, preferredRegistryPort), u.RegistryPort != 0); err != nil {
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
		if st.Ports.API, err = preflight.ChoosePort(u.APIPort, true); err != nil {
			return err
		}
	}
	st.APIPort = st.Ports.API
	return nil
}

// addController chooses what registry and controller need, unless it is chosen.
func (st *state) addController() (err error) {
	if st.Controller {
		return nil
	}
	if st.RegistryPort, err = preflight.ChoosePort(preferredRegistryPort, false); err != nil {
		return err
	}
	if st.MetricsPort, err = preflight.ChoosePort(preferredMetricsPort, false); err != nil {
		return err
	}
	st.Accounts, st.Controller = newAccounts(), true
	return nil
}
