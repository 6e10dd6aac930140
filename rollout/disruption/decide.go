package disruption

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	openshiftv1 "github.com/openshift/api/operator/v1"
)

// Change is what of a running node changes.
type Change struct {
	// Reboot is why the node has to reboot whatever the policies say; empty where it need not.
	Reboot string
	// Soft reports whether a restart of user space does as well as a reboot, as far as host and
	// configuration go.
	Soft bool
	// Files are the paths of files and links that change in /etc, and come from the image.
	Files []string
	// NodeFiles are those that are no part of an image. Without a policy nothing is done about
	// them.
	NodeFiles []string
	// SSHKeys reports whether the keys of a user change.
	SSHKeys bool
}

// Verb is what is done to a unit.
type Verb string

// The verbs, in the words of systemctl.
const (
	DaemonReload Verb = "daemon-reload"
	Reload       Verb = "reload"
	Restart      Verb = "restart"
)

// Action is one thing that is done when the files are there.
type Action struct {
	Verb Verb
	// Unit is the name of the unit; empty with DaemonReload.
	Unit string
	// Optional reports whether the action is of a built-in policy: a host without the unit needs it
	// not.
	Optional bool
}

// Verdict is what a change does to a running node.
type Verdict struct {
	// Reboot is why the node has to reboot; empty where it need not. Then Soft alone is said beside
	// it: that a restart of user space will do.
	Reboot string
	Soft   bool
	// Drain reports whether pods have to leave first.
	Drain bool
	// Actions follow in this order.
	Actions []Action
}

// internal are files that the image has for people and for first boots, which nothing running
// reads.
var internal = []string{"/etc/machine-config-daemon/currentconfig", "/etc/systemd/system-preset/10-machineconfigs.preset"}

// Decide says what a change does to a running node. spec are the administrator's policies. What has
// no policy may be done by a restart of user space; a policy that says Reboot is about the kernel
// too.
func Decide(c Change, spec *openshiftv1.NodeDisruptionPolicyConfig) Verdict {
	if c.Reboot != "" && !c.Soft {
		return Verdict{Reboot: c.Reboot}
	}
	d, why := decision{spec: spec, policies: Merge(spec)}, c.Reboot
	for _, file := range c.Files {
		if slices.Contains(internal, file) {
			continue
		}
		if !d.byUnit(file) && !d.byFile(file) {
			why = cmp.Or(why, fmt.Sprintf("%s has changed, and no node disruption policy covers it", file))
		}
	}
	if why != "" && !c.Soft {
		return Verdict{Reboot: why}
	}
	for _, file := range c.NodeFiles {
		d.byFile(file)
	}
	if c.SSHKeys {
		d.add("SSH keys", d.policies.SSHKey.Actions, len(spec.SSHKey.Actions) == 0)
	}
	switch {
	case d.verdict.Reboot != "":
		return Verdict{Reboot: d.verdict.Reboot}
	case why != "":
		return Verdict{Reboot: why, Soft: true}
	default:
		return d.verdict
	}
}

// decision is a verdict in the making.
type decision struct {
	spec     *openshiftv1.NodeDisruptionPolicyConfig
	policies openshiftv1.NodeDisruptionPolicyClusterStatus
	verdict  Verdict
}

// byFile follows the policy whose path is the longest of those that lead to the file. It reports
// whether there is one.
func (d *decision) byFile(file string) bool {
	var closest *statusFile
	for i := range d.policies.Files {
		p := &d.policies.Files[i]
		if isAt(p.Path, file) && (closest == nil || len(p.Path) > len(closest.Path)) {
			closest = p
		}
	}
	if closest == nil {
		return false
	}
	isOwn := slices.ContainsFunc(d.spec.Files, func(f openshiftv1.NodeDisruptionPolicySpecFile) bool { return f.Path == closest.Path })
	d.add(file, closest.Actions, !isOwn)
	return true
}

// isAt reports whether a file is a policy's, or below it.
func isAt(policy, file string) bool {
	dir := path.Clean(policy)
	return file == dir || strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
}

// byUnit follows the policy for the unit that a file belongs to. It reports whether there is one.
func (d *decision) byUnit(file string) bool {
	unit := UnitOf(file)
	if unit == "" {
		return false
	}
	at := slices.IndexFunc(d.policies.Units, func(u statusUnit) bool { return string(u.Name) == unit })
	if at < 0 {
		return false
	}
	isOwn := slices.ContainsFunc(d.spec.Units, func(u openshiftv1.NodeDisruptionPolicySpecUnit) bool { return string(u.Name) == unit })
	d.add(file, d.policies.Units[at].Actions, !isOwn)
	return true
}

// UnitOf is the name of the unit that a path belongs to: its file, a drop-in, or the link of what
// wants it. It is empty where the path belongs to none.
func UnitOf(file string) string {
	rest, isUnits := strings.CutPrefix(file, "/etc/systemd/system/")
	if !isUnits {
		return ""
	}
	first, rest, isBelow := strings.Cut(rest, "/")
	if !isBelow {
		return first
	}
	if unit, isDropIn := strings.CutSuffix(first, ".d"); isDropIn {
		return unit
	}
	for _, suffix := range []string{".wants", ".requires", ".upholds"} {
		if strings.HasSuffix(first, suffix) && !strings.Contains(rest, "/") {
			return rest
		}
	}
	return ""
}

// add follows the actions of a policy for what has changed.
func (d *decision) add(what string, actions []statusAction, optional bool) {
	for _, a := range actions {
		switch a.Type {
		case openshiftv1.NoneStatusAction:
		case openshiftv1.DrainStatusAction:
			d.verdict.Drain = true
		case openshiftv1.DaemonReloadStatusAction:
			d.act(Action{Verb: DaemonReload})
		case openshiftv1.ReloadStatusAction:
			d.act(Action{Verb: Reload, Unit: string(a.Reload.ServiceName), Optional: optional})
		case openshiftv1.RestartStatusAction:
			d.act(Action{Verb: Restart, Unit: string(a.Restart.ServiceName), Optional: optional})
		case openshiftv1.SpecialStatusAction: // pods may have been pulled by what was there before
			d.verdict.Drain = true
			d.act(Action{Verb: Reload, Unit: crio, Optional: optional})
		default: // Reboot, and what later versions of the API may have
			d.verdict.Reboot = fmt.Sprintf("%s: its policy is %s", what, a.Type)
		}
	}
}

// act adds an action, unless it is done already.
func (d *decision) act(a Action) {
	same := func(b Action) bool { return a.Verb == b.Verb && a.Unit == b.Unit }
	if i := slices.IndexFunc(d.verdict.Actions, same); i >= 0 {
		d.verdict.Actions[i].Optional = d.verdict.Actions[i].Optional && a.Optional
		return
	}
	d.verdict.Actions = append(d.verdict.Actions, a)
}
