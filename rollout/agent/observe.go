package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/agent/wanted"
	"github.com/layerwright/layerwright/rollout/host"
)

// observe looks at everything that a step follows from. Of a failure the state has what the Node
// says.
func (a *Agent) observe(ctx context.Context, n *corev1.Node) (*state, host.Host, error) {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	s := &state{nodeAnnotations: readWire(n.Annotations)}
	mode, err := a.wanted().Mode(ctx)
	if err != nil {
		return s, nil, err
	}
	h, err := a.options.Detect(ctx, mode)
	if err != nil {
		return s, nil, err
	}
	if s.host, err = h.Status(ctx); err != nil {
		return s, nil, err
	}
	if s.bootID, err = a.options.BootID(); err != nil {
		return s, nil, fmt.Errorf("reading the boot's ID: %w", err)
	}
	if s.journal, err = a.journal.read(); err != nil {
		return s, nil, err
	}
	if err := a.observeLock(ctx, s); err != nil {
		return s, nil, err
	}
	s.bootImage = bootImage(a.options.Root)
	a.files.In(s.bootID)
	if _, err = a.files.RevertCarriedFiles(s.host.Booted.Checkout); err != nil {
		return s, nil, err
	}
	if s.liveFiles, err = a.files.Live(s.host.Booted.Checkout); err != nil {
		return s, nil, err
	}
	if s.desired.Config != "" {
		err = errors.Join(a.observeConfig(ctx, s, h), a.observeStaged(ctx, s))
	}
	if err == nil && s.hasRebooted(s.desired) && !s.isThere() && !s.runs(s.goal()) {
		s.whyNotBooted = h.WhyNotBooted(ctx)
	}
	return s, h, err
}

// observeConfig looks at what of its configurations the host has.
func (a *Agent) observeConfig(ctx context.Context, s *state, h host.Host) error {
	current, desired, err := a.configs(ctx, &s.nodeAnnotations)
	if errors.Is(err, errNotThere) && s.desired.Config == s.current.Config {
		return nil // it went with the pool that the node was in, and what the next pool asks for can be staged
	}
	if err != nil {
		return err
	}
	s.base = desired.Image
	if err := a.observeFIPS(s, desired); err != nil {
		return err
	}
	if s.desired.Config != s.current.Config {
		if err := a.observeArguments(ctx, s, h, current, desired); err != nil {
			return err
		}
		if err := a.observeNodeState(ctx, s, current, desired); err != nil {
			return err
		}
	}
	other, applied := current, desired
	if s.applied() != s.desired.Config {
		other, applied = desired, current
	}
	if applied == nil { // what a node had whose MachineConfig is gone is not known
		return nil
	}
	if s.changes, s.left, err = a.changes(other, applied); err != nil {
		return err
	}
	a.drifts.watch(a.files.Paths(applied.Content))
	if !s.isThere() {
		return a.observeLive(ctx, s, s.goal(), current, desired)
	}
	if s.drift, err = a.files.Drift(desired.Content, s.liveFiles); err != nil {
		return err
	}
	return a.observePolicy(s)
}

// observeFIPS refuses FIPS mode on a host that is not in it: a reboot would not change that.
func (a *Agent) observeFIPS(s *state, desired *wanted.Config) error {
	if !desired.FIPS {
		return nil
	}
	has, err := a.files.HasFIPS()
	if err == nil && !has {
		s.refused = fmt.Sprintf("MachineConfig %q sets fips, and this host is not in FIPS mode, which is chosen when a machine is installed: "+
			"leave spec.fips out, or install the machine anew with the kernel argument fips=1", s.desired.Config)
	}
	return err
}

// observePolicy finds out whether a temporary signature policy is still needed: until the image
// that it was written for runs, or is no longer wanted.
func (a *Agent) observePolicy(s *state) error {
	isStaging := s.stage != "" && !s.runs(mcfgv1.ImageDigestFormat(s.stage))
	if s.desired != s.current || isStaging {
		return nil
	}
	var err error
	s.policy, err = a.files.HasTemporaryPolicy()
	return err
}

// wanted reads what the cluster wants of the node.
func (a *Agent) wanted() *wanted.Reader {
	return &wanted.Reader{Reader: a.reader, Node: a.options.Node, Namespace: a.options.Namespace}
}

// errNotThere is of a MachineConfig that was deleted.
var errNotThere = errors.New("does not exist")

// configs are the current and the desired configuration. The current one is nil where the node has
// none, or where it was deleted.
func (a *Agent) configs(ctx context.Context, w *nodeAnnotations) (current, desired *wanted.Config, err error) {
	if w.desired.Config != "" {
		desired, err = a.wanted().Config(ctx, w.desired.Config)
		if apierrors.IsNotFound(err) { // another target is the only way on
			err = fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("MachineConfig %q, which the node should have, %w", w.desired.Config, errNotThere))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	switch w.current.Config {
	case "":
		return nil, desired, nil
	case w.desired.Config:
		return desired, desired, nil
	}
	current, err = a.wanted().Config(ctx, w.current.Config)
	if apierrors.IsNotFound(err) {
		return nil, desired, nil
	}
	return current, desired, err
}

// changes is how a host gets from the node state of one configuration, which may be nil, to that of
// another, and in words what it can't get.
func (a *Agent) changes(from, to *wanted.Config) (changes []nodestate.Change, left []string, err error) {
	var before nodestate.State
	if from != nil && from != to {
		if before, err = a.files.Of(from.Content); err != nil {
			return nil, nil, err
		}
	}
	items, err := a.files.Of(to.Content)
	if err != nil {
		return nil, nil, err
	}
	changes, err = a.files.Plan(before, items)
	return changes, items.Left, err
}

// observeArguments finds out which kernel arguments what boots next still needs. An agent that kept
// no record has seen to those of a target that its journal is ready for.
func (a *Agent) observeArguments(ctx context.Context, s *state, h host.Host, current, desired *wanted.Config) error {
	record, err := a.files.CommandLines()
	j := &s.journal
	if err != nil || len(record.Entries) == 0 && j.Ready && j.Failed == "" && j.Target == s.desired {
		return err
	}
	if s.arguments, err = a.kernelArguments(ctx, h, current, desired); err != nil || s.arguments.IsEmpty() {
		return err
	}
	return h.CheckKernelArguments(ctx, s.arguments)
}

// kernelArguments are the changes that what boots next needs to have the arguments of one
// configuration instead of those of another, which may be nil. Arguments that neither names are
// left alone. The host's record says of both command lines what of them is not the host's own.
func (a *Agent) kernelArguments(ctx context.Context, h host.KernelArguments, from, to *wanted.Config) (host.ArgumentChange, error) {
	change, keep, err := a.planArguments(ctx, h, from, to)
	if err != nil {
		return change, err
	}
	return change, keep()
}

// planArguments are the changes. keep keeps the record of them.
func (a *Agent) planArguments(ctx context.Context, h host.KernelArguments, from, to *wanted.Config) (_ host.ArgumentChange, keep func() error, _ error) {
	nothing := func() error { return nil }
	record, err := a.files.CommandLines()
	if err != nil {
		return host.ArgumentChange{}, nil, err
	}
	none := &wanted.Config{}
	current, desired := cmp.Or(from, none).Arguments, cmp.Or(to, none).Arguments
	if !record.IsNeeded(current, desired) {
		return host.ArgumentChange{}, nothing, nil
	}
	line, err := h.KernelArguments(ctx)
	if err != nil {
		return host.ArgumentChange{}, nil, fmt.Errorf("reading the host's kernel arguments: %w", err)
	}
	before := slices.Clone(record.Entries)
	change := host.ArgumentChange{From: line, To: record.Plan(line, current, desired)}
	if reflect.DeepEqual(before, record.Entries) {
		return change, nothing, nil
	}
	return change, func() error { return a.files.KeepCommandLines(record) }, nil
}
