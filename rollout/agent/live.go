package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/agent/wanted"
	"github.com/layerwright/layerwright/rollout/disruption"
	"github.com/layerwright/layerwright/rollout/host"
)

// errUnit means that a unit of the host could not be told about a change.
var errUnit = errors.New("the change was applied without a reboot")

// observeLive finds out what a change to an image that the host holds would do to the node, if the
// host can get there as it runs. Of an image that it does not hold nothing is known.
func (a *Agent) observeLive(ctx context.Context, s *state, image mcfgv1.ImageDigestFormat, current, next *wanted.Config) error {
	deployment := s.host.Staged
	if s.runs(image) {
		deployment = s.host.Booted
	}
	if image == "" || !deployment.IsOf(image) {
		return nil
	}
	change, err := a.liveChange(s, deployment.Checkout, current, next)
	if err != nil {
		return err
	}
	if change.Soft && deployment.SoftReboots {
		pool, err := a.wanted().Pool(ctx)
		if err != nil {
			return err
		}
		change.Soft = pool != nil && pool.Spec.SoftReboots()
	} else {
		change.Soft = false
	}
	policies, err := a.wanted().Policies(ctx)
	if err != nil {
		return err
	}
	s.verdict = new(disruption.Decide(change, policies))
	return nil
}

// liveChange is what changes on the node from one configuration to another.
func (a *Agent) liveChange(s *state, checkout string, current, next *wanted.Config) (disruption.Change, error) {
	var out disruption.Change
	switch {
	case current == nil:
		out.Reboot = "the node's configuration is unknown: its MachineConfig was deleted"
	case !current.Arguments.Equal(next.Arguments):
		out.Reboot = "the kernel arguments differ"
	}
	if out.Reboot != "" {
		return out, nil
	}
	difference, err := a.files.Compare(s.host.Booted.Checkout, checkout)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out.Reboot = "the files of the image can't be looked at before it is booted"
		return out, nil
	case err != nil:
		return out, err
	}
	out.Soft = true // as far as the configuration goes
	switch {
	case difference.Reboot != "":
		out.Reboot = difference.Reboot
	case len(difference.Edited) > 0:
		out.Reboot = difference.Edited[0] + " was edited on the node"
	}
	out.Files = difference.Changed
	err = a.addNodeState(&out, current, next)
	return out, err
}

// addNodeState adds what of a change no image carries. It compares configurations and not the host:
// what is done about a change is then known until the node has arrived.
func (a *Agent) addNodeState(out *disruption.Change, current, next *wanted.Config) error {
	before, err := a.files.Of(current.Content)
	if err != nil {
		return err
	}
	after, err := a.files.Of(next.Content)
	if err != nil {
		return err
	}
	for _, path := range nodestate.Differing(before, after) {
		if strings.HasSuffix(path, "/authorized_keys.d/ignition") {
			out.SSHKeys = true
		} else {
			out.NodeFiles = append(out.NodeFiles, path)
		}
	}
	return nil
}

// observeNodeState finds out what a change does to a node whose image stays. Where that changes
// too, a live change has told units before the node had it, and after a reboot they need not be
// told.
func (a *Agent) observeNodeState(ctx context.Context, s *state, current, next *wanted.Config) error {
	if current == nil || !s.isThere() {
		return nil
	}
	had := cmp.Or(mcfgv1.ImageDigestFormat(s.current.Image), current.Image)
	if goal := s.goal(); goal != "" && goal != had {
		return nil
	}
	var change disruption.Change
	if err := a.addNodeState(&change, current, next); err != nil {
		return err
	}
	policies, err := a.wanted().Policies(ctx)
	if err != nil {
		return err
	}
	s.verdict = new(disruption.Decide(change, policies))
	return nil
}

// observeStaged finds out what an image does to the node that was staged while it runs its
// workload.
func (a *Agent) observeStaged(ctx context.Context, s *state) error {
	image := mcfgv1.ImageDigestFormat(s.stage)
	if s.desired != s.current || s.desired.Config == "" || s.stage == s.staged && s.stagedChange != "" || !s.host.Staged.IsOf(image) {
		return nil
	}
	pool, err := a.wanted().Pool(ctx)
	if err != nil || pool == nil || pool.Spec.Configuration.Name == "" {
		return err
	}
	current, next, err := a.configs(ctx, &nodeAnnotations{current: s.current, desired: targetWith(pool.Spec.Configuration.Name)})
	if err != nil {
		return err
	}
	return a.observeLive(ctx, s, image, current, next)
}

// doLive makes the change. A unit that does not take it is a failed update, like a host that boots
// another image than it should.
func (a *Agent) doLive(ctx context.Context, n *corev1.Node, s *state, h host.Host) error {
	bound, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	err := a.live(bound, s, h)
	switch {
	case err == nil && s.isThere(): // nothing on the host says what was done about node state
		return a.write(ctx, n, s, step{action: actionArrive, target: s.desired})
	case err == nil:
		return nil
	case errors.Is(err, errUnit):
		return a.do(ctx, n, s, h, step{action: actionFail, reason: fault.Message(err)})
	default:
		return errors.Join(err, a.tell(ctx, s, applyingFailed(err)))
	}
}

// live brings the node to what it should have as it runs. What is done about a change is repeated
// if the agent is ended meanwhile.
func (a *Agent) live(ctx context.Context, s *state, h host.Host) error {
	if s.isThere() {
		return a.changeNodeState(ctx, s)
	}
	goal, booted := s.goal(), s.host.Booted.Checkout
	next := s.host.Staged
	if s.runs(goal) {
		next = s.host.Booted
		if err := a.unstage(ctx, s, h, mcfgv1.ImageDigestFormat(s.liveFiles.Image)); err != nil {
			return err
		}
	}
	if err := a.files.ApplyLive(booted, next.Checkout, string(goal)); err != nil {
		return err
	}
	if err := a.unlock(ctx, h); err != nil { // from now on a reboot boots it
		return err
	}
	if err := a.changeNodeState(ctx, s); err != nil {
		return err
	}
	return a.files.FinishLive(booted, next == s.host.Booted)
}

// changeNodeState gives the host what of the desired configuration no image carries, and then does
// what policies say about all that has changed.
func (a *Agent) changeNodeState(ctx context.Context, s *state) error {
	current, desired, err := a.configs(ctx, &s.nodeAnnotations)
	if err != nil {
		return err
	}
	changes, left, err := a.changes(current, desired)
	if err != nil {
		return err
	}
	if err := a.files.Apply(changes); err != nil {
		return err
	}
	s.left = left
	for _, action := range s.verdict.Actions {
		if err := a.act(ctx, action); err != nil {
			return err
		}
	}
	return nil
}

// act tells systemd of the host about a change.
func (a *Agent) act(ctx context.Context, action disruption.Action) error {
	if action.Verb == disruption.DaemonReload {
		return failedUnit(a.systemctl(ctx, string(action.Verb)))
	}
	if action.Optional {
		out, err := a.options.Systemctl(ctx, "show", "--property=LoadState", "--value", "--", action.Unit)
		if err != nil {
			return failedUnit(err)
		}
		switch state := strings.TrimSpace(string(out)); state {
		case "loaded":
		case "": // systemd has a word for each state
			return failedUnit(fmt.Errorf("systemctl show says no LoadState of unit %s", action.Unit))
		default:
			return nil
		}
	}
	return failedUnit(a.systemctl(ctx, string(action.Verb), "--", action.Unit)) // a name may begin with "-"
}

func (a *Agent) systemctl(ctx context.Context, args ...string) error {
	_, err := a.options.Systemctl(ctx, args...)
	return err
}

// failedUnit marks an error as one that another try would bring again.
func failedUnit(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w, but: %w", errUnit, err)
}

// change says in a word what the image that the host holds does to the node; empty where that is
// not known.
func (s *state) change() string {
	switch {
	case s.verdict == nil && !s.arguments.IsEmpty():
		return mcfgv1.NodeChangeReboot
	case s.verdict == nil:
		return ""
	case s.verdict.Soft && s.arguments.IsEmpty():
		return mcfgv1.NodeChangeSoftReboot
	case s.verdict.Reboot != "" || !s.arguments.IsEmpty():
		return mcfgv1.NodeChangeReboot
	case s.verdict.Drain:
		return mcfgv1.NodeChangeDrain
	default:
		return mcfgv1.NodeChangeLive
	}
}

// changeReason says the same for people.
func (s *state) changeReason() string {
	switch {
	case s.verdict == nil:
		return ""
	case s.change() == mcfgv1.NodeChangeSoftReboot:
		return "the node will soft-reboot: " + s.verdict.Reboot
	case s.verdict.Reboot != "":
		return "the node will reboot: " + s.verdict.Reboot
	case !s.arguments.IsEmpty():
		return "the node will reboot: the kernel arguments differ"
	case s.verdict.Drain:
		return "the node will be drained, and not reboot"
	default:
		return "the node will neither be drained nor reboot"
	}
}

// mayStay reports whether the node gets to what it should have without a reboot.
func (s *state) mayStay() bool {
	change := s.change()
	return (change == mcfgv1.NodeChangeLive || change == mcfgv1.NodeChangeDrain) && !s.isPrepared()
}
