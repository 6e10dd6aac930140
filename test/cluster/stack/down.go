package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack/machines"
	"github.com/layerwright/layerwright/test/cluster/stack/preflight"
)

// stopTimeout bounds Down.
const stopTimeout = time.Minute

// Down ends everything that belongs to the cluster and removes it, whatever
// state it is in. What was built for it stays in the cache. It reports whether
// there was anything to remove.
func (s *Stack) Down(ctx context.Context, p *progress.Printer) (found bool, err error) {
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		// Its folder was deleted by hand, or with the cache.
		found, err := daemon.StopOrphans(ctx, filepath.Join(s.dir, "run"))
		return s.removeEmptyGroup() || found, err
	} else if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopTimeout, fmt.Errorf("the cluster was not down after %s", stopTimeout))
	defer cancel()
	st, err := s.load()
	if err != nil {
		// Half written or lost: everything is then found by other means.
		st = &state{Name: s.name, ControlPlaneOnly: os.Geteuid() != 0}
	}
	if !st.ControlPlaneOnly && os.Geteuid() != 0 {
		return true, &preflight.UnsupportedError{Reason: fmt.Sprintf("cluster %q was made by root and only root can remove it (try sudo)", s.name)}
	}
	if err := p.Do("processes", func(*progress.Step) error { return s.stop(ctx, st) }); err != nil {
		return true, err
	}
	return true, p.Do("files", func(*progress.Step) error { return s.remove(ctx, st) })
}

// stop ends the nodes first, so that no pod outlives what could tell of it.
func (s *Stack) stop(ctx context.Context, st *state) error {
	manager, err := s.manager()
	if err != nil {
		return err
	}
	if st.Hosts {
		defer machines.KeepThawed(s.dir)()
	}
	if !st.ControlPlaneOnly {
		if err := s.stopNodes(ctx, st, manager); err != nil {
			return err
		}
	}
	return manager.StopAll(ctx)
}

func (s *Stack) stopNodes(ctx context.Context, st *state, manager *daemon.Manager) error {
	// It would start kubelets again.
	if err := manager.Stop(ctx, machinesName); err != nil {
		return err
	}
	cgroups, err := node.DetectCgroups()
	if err != nil {
		return err
	}
	var stops []func(context.Context) error
	for _, n := range s.nodes(st, manager) {
		stops = append(stops, func(ctx context.Context) error { return n.Stop(ctx, cgroups) })
	}
	if err := together(ctx, stops...); err != nil {
		return err
	}
	group := node.ClusterGroup(s.name)
	return errors.Join(cgroups.Kill(ctx, group), cgroups.Remove(group))
}

// removeEmptyGroup reports whether a control group was left. One with processes is of a cluster by
// the same name in another cache.
func (s *Stack) removeEmptyGroup() bool {
	cgroups, err := node.DetectCgroups()
	if err != nil {
		return false // a machine without them has none
	}
	group := node.ClusterGroup(s.name)
	return cgroups.Exists(group) && cgroups.Remove(group) == nil
}

func (s *Stack) remove(ctx context.Context, st *state) error {
	if !st.ControlPlaneOnly {
		if err := errors.Join(s.hosts(ctx).Remove(s.name), s.restoreSysctls(st), machines.Erase(s.dir)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("removing cluster %q: %w", s.name, err)
	}
	return nil
}
