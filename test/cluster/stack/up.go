package stack

import (
	"context"
	"os"
	"path/filepath"

	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/stack/preflight"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// runSpace is what a cluster needs besides the images that are put into it.
const runSpace = 2 << 30

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

// prepare refuses what can't work and settles the state, before any minute is
// spent on building.
func (u *up) prepare() error {
	if !u.ControlPlaneOnly {
		if err := preflight.Check(); err != nil {
			return err
		}
		var err error
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
