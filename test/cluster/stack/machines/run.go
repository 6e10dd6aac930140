package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/host/power"
)

// Run owns the machines of hosts: it reboots those that ask for it, until ctx ends. ready is called
// once it listens.
func Run(ctx context.Context, hosts []Host, log io.Writer, ready func() error) error {
	cgroups, err := node.DetectCgroups()
	if err != nil {
		return err
	}
	said := &lines{to: log}
	failed := make(chan error, len(hosts))
	for _, h := range hosts {
		o := &owner{Host: h, cgroups: cgroups, log: said}
		go func() { failed <- o.machine.Line.Wait(func(what string) error { return o.do(ctx, what) }) }()
	}
	if err := ready(); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// lines writes whole lines of several machines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.to, format+"\n", args...)
}

// owner is who switches the machine of a node off and on.
type owner struct {
	Host
	cgroups *node.Cgroups
	log     *lines
}

// do does what a machine asks for. A machine that fails stays off, as real ones do, and the others
// go on.
func (o *owner) do(ctx context.Context, what string) error {
	var err error
	switch what {
	case power.Reboot:
		o.log.say("%s goes down for a reboot", o.node.Name())
		if err = o.off(ctx); err == nil && o.machine.Line.Has(power.NoBoot) {
			o.log.say("%s stays off", o.node.Name())
			return nil
		}
		if err == nil {
			err = o.on(ctx)
		}
	case power.SwitchOn:
		err = o.on(ctx)
	}
	if err != nil {
		o.log.say("%s: %v", o.node.Name(), err)
	}
	return nil
}

// off ends everything on the machine, and then its system, which makes what is staged bootable.
func (o *owner) off(ctx context.Context) error {
	return errors.Join(
		o.node.PowerOff(ctx, o.cgroups),
		o.node.InMounts(func() error { return o.machine.Shutdown(ctx) }),
	)
}

// on boots the machine, unless it runs, and starts its kubelet.
func (o *owner) on(ctx context.Context) error {
	if err := o.boot(ctx); err != nil {
		return err
	}
	o.log.say("%s is up", o.node.Name())
	return o.node.StartKubelet(ctx)
}
