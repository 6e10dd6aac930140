package nodestate

import (
	_ "embed" // for the script
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
	rollbackScript   = unitFolder + "/layerwright-return.sh"
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
ConditionPathExists=` + rollbackScript + `
StartLimitIntervalSec=0

[Service]
Environment=SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1
ExecStart=/bin/sh ` + rollbackScript + ` %s "%s"
Restart=on-failure
RestartSec=10
`
)

// returnScript is run by the host's shell: the agent is in a container, which does not start then.
//
//go:embed return.sh
var returnScript []byte

var (
	digests   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	checkouts = regexp.MustCompile(`^([0-9a-f]{1,64}\.[0-9]{1,9})?$`)
)

// RollbackTimer is a systemd timer that rolls the host back when nothing confirms what it has
// booted: where the kubelet does not start, no agent can.
type RollbackTimer struct {
	// Digest is that of the image which has to be confirmed, as sha256 in hexadecimal. Another one
	// is left alone.
	Digest string
	// Before is the checkout of the deployment that runs now, to which the host returns; empty
	// where that is not known.
	Before string
	// After is how long the host waits once it has booted.
	After time.Duration
}

// ArmRollbackTimer prepares the next boot: ostree takes the units into the /etc of what boots next,
// and systemd reads them there. The time counts from the start of the timer: that of the boot is
// long over after a soft reboot.
func (h *Host) ArmRollbackTimer(w RollbackTimer) error {
	if !digests.MatchString(w.Digest) { // systemd reads it
		return fmt.Errorf("preparing the rollback timer: %q is no digest", w.Digest)
	}
	if !checkouts.MatchString(w.Before) {
		return fmt.Errorf("preparing the rollback timer: %q is no deployment", w.Before)
	}
	folder := func(at string) Item {
		return mine(Item{Path: at, Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}, Loose: true})
	}
	return h.ensure(
		folder(path.Dir(unitFolder)), folder(unitFolder), folder(path.Dir(rollbackWanted)),
		mine(newFile(rollbackScript, returnScript)),
		mine(newFile(rollbackService, fmt.Appendf(nil, rollbackUnit, w.Digest, w.Before))),
		mine(newFile(rollbackTimer, fmt.Appendf(nil, rollbackTimeUnit, int(w.After.Seconds())))),
		mine(Item{Path: rollbackWanted, Entry: Entry{Kind: Link, Target: rollbackTimer}}),
	)
}

// DisarmRollbackTimer removes the timer: what is booted is confirmed, or is not what was to be
// confirmed.
func (h *Host) DisarmRollbackTimer() error {
	err := errors.Join(h.tree.remove(rollbackWanted), h.tree.remove(rollbackTimer), h.tree.remove(rollbackService), h.tree.remove(rollbackScript))
	if err != nil {
		return fmt.Errorf("removing the rollback timer: %w", err)
	}
	return nil
}
