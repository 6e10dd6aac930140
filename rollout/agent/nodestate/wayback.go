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
	unitFolder      = "/etc/systemd/system"
	wayBackService  = unitFolder + "/layerwright-return.service"
	wayBackTimer    = unitFolder + "/layerwright-return.timer"
	wayBackWanted   = unitFolder + "/timers.target.wants/layerwright-return.timer"
	wayBackTimeUnit = `# Written by Layerwright's agent before it reboots the node, removed when the node has reported.
[Unit]
Description=Wait until the update of this node is confirmed

[Timer]
OnActiveSec=%d
AccuracySec=1s
`
	wayBackUnit = `# Written by Layerwright's agent before it reboots the node, removed when the node has reported.
[Unit]
Description=Return to what ran before: the update of this node was not confirmed
# systemd keeps what it has read: without the file there is nothing to do.
ConditionPathExists=` + wayBackService + `

[Service]
Type=oneshot
Environment=SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1
ExecCondition=/bin/sh -c '%s | grep -qF %s'
ExecStart=%s
ExecStart=systemctl --no-block reboot
`
)

var digests = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// WayBack is how a host returns to what ran before, when nothing confirms what it has booted: where
// the kubelet does not start, no agent can.
type WayBack struct {
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

// LeaveWayBack prepares the next boot. systemd reads it when the host boots: ostree takes it into
// the /etc of what boots next. The time counts from the start of the timer: that of the boot is
// long over after a soft reboot.
func (h *Host) LeaveWayBack(w WayBack) error {
	if !digests.MatchString(w.Digest) { // a shell reads it
		return fmt.Errorf("preparing the host's own way back: %q is no digest", w.Digest)
	}
	folder := func(at string) Item {
		return mine(Item{Path: at, Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}, Loose: true})
	}
	return h.ensure(
		folder(path.Dir(unitFolder)), folder(unitFolder), folder(path.Dir(wayBackWanted)),
		mine(newFile(wayBackService, fmt.Appendf(nil, wayBackUnit, w.Booted, w.Digest, w.Rollback))),
		mine(newFile(wayBackTimer, fmt.Appendf(nil, wayBackTimeUnit, int(w.After.Seconds())))),
		mine(Item{Path: wayBackWanted, Entry: Entry{Kind: Link, Target: wayBackTimer}}),
	)
}

// CloseWayBack ends that: what is booted is confirmed, or is not what was to be confirmed.
func (h *Host) CloseWayBack() error {
	err := errors.Join(h.tree.remove(wayBackWanted), h.tree.remove(wayBackTimer), h.tree.remove(wayBackService))
	if err != nil {
		return fmt.Errorf("ending the host's own way back: %w", err)
	}
	return nil
}
