package nodestate

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"time"
)

// The unit that returns a host to what ran before, and what starts it.
const (
	unitFolder       = "/etc/systemd/system"
	rollbackService  = unitFolder + "/layerwright-return.service"
	rollbackTimer    = unitFolder + "/layerwright-return.timer"
	rollbackWanted   = unitFolder + "/timers.target.wants/layerwright-return.timer"
	rollbackTimeUnit = `# Written by Layerwright's agent before it reboots the node, removed when the node has reported.
[Unit]
Description=Wait until the update of this node is confirmed

[Timer]
OnActiveSec=%d
AccuracySec=1s
`
	rollbackUnit = `# Written by Layerwright's agent before it reboots the node, removed when the node has reported.
[Unit]
Description=Return to what ran before: the update of this node was not confirmed
# systemd keeps what it has read: without the file there is nothing to do.
ConditionPathExists=` + rollbackService + `

[Service]
Type=oneshot
Environment=SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1
ExecCondition=/bin/sh -c '%s | grep -qF %s'
ExecStart=%s
ExecStart=systemctl --no-block reboot
`
)

var digests = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// RollbackTimer is a systemd timer that rolls the host back when nothing confirms what it has
// booted: where the kubelet does not start, no agent can.
type RollbackTimer struct {
	// Digest is that of the image which has to be confirmed, as sha256 in hexadecimal. Another one
	// is left alone.
	Digest string
	// After is how long the host waits once it has booted.
	After time.Duration
	// Booted is a command that prints the digest of the booted image, and Rollback one that makes
	// what ran before boot next. A shell reads the first: both are from the program, never from a
	// user.
	Booted, Rollback string
}

// ArmRollbackTimer prepares the next boot: ostree takes the units into the /etc of what boots next,
// and systemd reads them there. The time counts from the start of the timer: that of the boot is
// long over after a soft reboot.
func (h *Host) ArmRollbackTimer(w RollbackTimer) error {
	if !digests.MatchString(w.Digest) { // a shell reads it
		return fmt.Errorf("preparing the rollback timer: %q is no digest", w.Digest)
	}
	folder := func(at string) Item {
		return mine(Item{Path: at, Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}, Loose: true})
	}
	return h.ensure(
		folder(path.Dir(unitFolder)), folder(unitFolder), folder(path.Dir(rollbackWanted)),
		mine(newFile(rollbackService, fmt.Appendf(nil, rollbackUnit, w.Booted, w.Digest, w.Rollback))),
		mine(newFile(rollbackTimer, fmt.Appendf(nil, rollbackTimeUnit, int(w.After.Seconds())))),
		mine(Item{Path: rollbackWanted, Entry: Entry{Kind: Link, Target: rollbackTimer}}),
	)
}

// DisarmRollbackTimer removes the timer: what is booted is confirmed, or is not what was to be
// confirmed.
func (h *Host) DisarmRollbackTimer() error {
	err := errors.Join(h.tree.remove(rollbackWanted), h.tree.remove(rollbackTimer), h.tree.remove(rollbackService))
	if err != nil {
		return fmt.Errorf("removing the rollback timer: %w", err)
	}
	return nil
}
