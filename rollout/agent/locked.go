package agent

import (
	"context"
	"errors"
	"fmt"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/host"
)

// observeLock looks at what keeps a staged image from booting, and whether one has booted that
// should not have.
func (a *Agent) observeLock(ctx context.Context, s *state) (err error) {
	if s.canLock, err = a.finalization.CanLock(); err != nil {
		return err
	}
	if s.isLocked, err = a.finalization.IsLocked(); err != nil {
		return err
	}
	s.canLock = s.canLock && !s.host.IsComposefs
	s.isLocked = s.isLocked || s.host.Staged != nil && s.host.Staged.Locked
	if s.desired != s.current || s.journal.Staging == "" || !s.runs(s.journal.Staging) {
		return nil
	}
	pool, err := a.wanted().Pool(ctx)
	s.mayReturn = pool != nil && letsReturn(pool)
	return err
}

// letsReturn reports whether nodes of a pool go back by themselves. Those with members of etcd have
// to go one after the other, which no agent can see to.
func letsReturn(pool *mcfgv1.MachineConfigPool) bool {
	hasEtcd := pool.Name == mcfgv1.PoolMaster || pool.Name == mcfgv1.PoolArbiter
	return pool.Spec.RollsBack() && !pool.Spec.Paused && !hasEtcd
}

// stageLocked stages an image that no reboot is to boot before the node's turn. One whose files the
// node has already boots next.
func (a *Agent) stageLocked(ctx context.Context, s *state, h host.Host, image mcfgv1.ImageDigestFormat, trust host.Trust) error {
	isDue := s.desired == s.current && image == s.goal()
	if !s.canLock || isDue {
		return errors.Join(h.Stage(ctx, image, trust), a.finalization.Unlock())
	}
	if err := a.finalization.Lock(); err != nil {
		return err
	}
	err := h.Stage(ctx, image, trust)
	switch {
	case err == nil: // ostree drops the lock with what was staged before
		return a.lock(ctx, h)
	case s.host.Staged == nil:
		return errors.Join(err, a.finalization.Unlock())
	default:
		return err
	}
}

// lock keeps what is staged from booting: by the file that all versions of ostree look for, and by
// ostree's own command, of which bootc status and rpm-ostree status tell people.
func (a *Agent) lock(ctx context.Context, h host.Lock) error {
	if err := a.finalization.Lock(); err != nil {
		return err
	}
	return h.Lock(ctx)
}

// unlock has what is staged boot next, whoever has locked it.
func (a *Agent) unlock(ctx context.Context, h host.Lock) error {
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	return a.finalization.Unlock()
}

// unstage removes what boots next, if it is of an image, and the lock that was for it.
func (a *Agent) unstage(ctx context.Context, s *state, h host.Deployments, image mcfgv1.ImageDigestFormat) error {
	if err := h.Unstage(ctx, image); err != nil {
		return fmt.Errorf("removing the staged image %s: %w", image, err)
	}
	if s.host.Staged.IsOf(image) {
		return a.finalization.Unlock()
	}
	return nil
}

// isUnlocked reports whether a reboot would boot an image that the agent had the host stage, and
// that has no slot yet. What others staged is theirs.
func (s *state) isUnlocked() bool {
	staged := s.host.Staged
	isOurs := staged.IsOf(s.journal.Staging) || staged.IsOf(mcfgv1.ImageDigestFormat(s.staged))
	isDue := s.isPrepared() && s.journal.Target == s.desired || s.desired == s.current && staged.IsOf(s.goal()) ||
		s.liveFiles != nil && staged.IsOf(mcfgv1.ImageDigestFormat(s.liveFiles.Image))
	return s.canLock && !s.isLocked && isOurs && !isDue
}

// isAstray reports whether the node has booted, without a slot, an image that was staged and
// is not wanted any more, and can go back to what it should have without a pull.
func (s *state) isAstray() bool {
	image := s.journal.Staging
	return s.desired == s.current && image != "" && !s.isThere() && s.liveFiles == nil && s.runs(image) && s.stage != string(image) && s.host.Rollback.IsOf(s.goal())
}

// lockable is the condition of the host that reports whether a reboot can boot what is staged.
func lockable(s *state) condition {
	if s.canLock {
		return condition{mcfgv1.NodeStagedImageLocked, yes, mcfgv1.ReasonAsExpected, ""}
	}
	return condition{
		mcfgv1.NodeStagedImageLocked, no, mcfgv1.ReasonLockUnsupported,
		"any reboot of this node boots the image that is staged, also without a slot: the host has no lock for it. " +
			"Set spec.rollout.staging.mode of its MachineConfigPool to OnDrain, or don't reboot the node meanwhile",
	}
}

// lockingFailed is the condition while a staged image can't be kept from booting.
func lockingFailed(err error) []condition {
	return []condition{{mcfgv1.NodeStagedImageLocked, no, mcfgv1.ReasonLockingFailed, fault.Message(err)}}
}
