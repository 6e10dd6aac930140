package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/host"
)

// config is what of a rendered MachineConfig a host needs. A nil one is that of a node that has
// none.
type config struct {
	content   *machineconfigs.Config
	image     mcfgv1.ImageDigestFormat
	arguments []string
	fips      bool
}

// observe looks at everything that a step follows from. Of a failure the state has what the Node
// says.
func (a *Agent) observe(ctx context.Context, n *corev1.Node) (*state, host.Host, error) {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	s := &state{wire: readWire(n.Annotations)}
	mode, err := a.mode(ctx)
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
	s.bootImage = bootImage(a.options.Root)
	a.files.In(s.bootID)
	if _, err = a.files.MendLive(s.host.Booted.Checkout); err != nil {
		return s, nil, err
	}
	if s.liveFiles, err = a.files.Live(s.host.Booted.Checkout); err != nil {
		return s, nil, err
	}
	if s.desired.Config != "" {
		err = errors.Join(a.observeConfig(ctx, s, h), a.observeStaged(ctx, s))
	}
	return s, h, err
}

// observeConfig looks at what of its configurations the host has.
func (a *Agent) observeConfig(ctx context.Context, s *state, h host.Host) error {
	current, desired, err := a.configs(ctx, &s.wire)
	if err != nil {
		return err
	}
	s.base = desired.image
	if s.desired.Config != s.current.Config {
		if s.arguments, err = kernelArguments(ctx, h, current, desired); err != nil {
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
	a.drifts.watch(a.files.Paths(applied.content))
	if !s.isThere() {
		return a.observeLive(ctx, s, s.goal(), current, desired)
	}
	if s.drift, err = a.files.Drift(desired.content, s.liveFiles); err != nil {
		return err
	}
	return a.observePolicy(s)
}

// observePolicy finds out whether a lent signature policy is still needed: until the image that it
// was lent for runs, or is no longer asked for.
func (a *Agent) observePolicy(s *state) error {
	isStaging := s.stage != "" && !s.runs(mcfgv1.ImageDigestFormat(s.stage))
	if s.desired != s.current || isStaging {
		return nil
	}
	var err error
	s.policy, err = a.files.IsPolicyLent()
	return err
}

// pool is the pool of the node; nil where it has none.
func (a *Agent) pool(ctx context.Context) (*mcfgv1.MachineConfigPool, error) {
	report, pool := &mcfgv1.MachineConfigNode{}, &mcfgv1.MachineConfigPool{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: a.options.Node}, report); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: report.Spec.Pool.Name}, pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pool, nil
}

// mode is what the node's pool says of how images get onto nodes.
func (a *Agent) mode(ctx context.Context) (host.Mode, error) {
	pool, err := a.pool(ctx)
	if err != nil || pool == nil {
		return host.ModeAuto, err
	}
	switch pool.Spec.DeployMode {
	case mcfgv1.DeployModeBootc:
		return host.ModeBootc, nil
	case mcfgv1.DeployModeImage:
		return host.ModeRPMOSTree, nil
	default:
		return host.ModeAuto, nil
	}
}

// pullSecret is the content of the secret that the pool's MachineOSConfig names for nodes; nil
// where it names none.
func (a *Agent) pullSecret(ctx context.Context, pool *mcfgv1.MachineConfigPool) ([]byte, error) {
	if pool == nil {
		return nil, nil
	}
	layer := &mcfgv1.MachineOSConfig{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: pool.Name}, layer); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if layer.Spec.CurrentImagePullSecret == nil {
		return nil, nil
	}
	name := layer.Spec.CurrentImagePullSecret.Name
	secret := &corev1.Secret{}
	if err := a.reader.Get(ctx, client.ObjectKey{Namespace: a.options.Namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("reading secret %q, which spec.currentImagePullSecret of MachineOSConfig %q names: %w", name, layer.Name, err)
	}
	store, err := credentials.Parse(secret)
	if err != nil {
		return nil, err
	}
	return store.DockerConfigJSON()
}

// configs are the current and the desired configuration. The current one is nil where the node has
// none, or where it was deleted.
func (a *Agent) configs(ctx context.Context, w *wire) (current, desired *config, err error) {
	if w.desired.Config != "" {
		if desired, err = a.config(ctx, w.desired.Config); err != nil {
			return nil, nil, err
		}
	}
	switch w.current.Config {
	case "":
		return nil, desired, nil
	case w.desired.Config:
		return desired, desired, nil
	}
	current, err = a.config(ctx, w.current.Config)
	if apierrors.IsNotFound(err) {
		return nil, desired, nil
	}
	return current, desired, err
}

func (a *Agent) config(ctx context.Context, name string) (*config, error) {
	mc := &mcfgv1.MachineConfig{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
		return nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	content, err := nodestate.Read(mc)
	if err != nil {
		return nil, err
	}
	c := &config{content: content, image: mcfgv1.ImageDigestFormat(mc.Spec.OSImageURL), fips: mc.Spec.FIPS}
	for _, entry := range mc.Spec.KernelArguments { // an entry may have several
		c.arguments = append(c.arguments, strings.Fields(entry)...)
	}
	return c, nil
}

// changes is how a host gets from the node state of one configuration, which may be nil, to that of
// another, and in words what it can't get.
func (a *Agent) changes(from, to *config) (changes []nodestate.Change, left []string, err error) {
	var before nodestate.State
	if from != nil && from != to {
		if before, err = a.files.Of(from.content); err != nil {
			return nil, nil, err
		}
	}
	wanted, err := a.files.Of(to.content)
	if err != nil {
		return nil, nil, err
	}
	changes, err = a.files.Plan(before, wanted)
	return changes, wanted.Left, err
}

// kernelArguments are the changes that what boots next needs to have the arguments of one
// configuration instead of those of another, which may be nil. Arguments that neither names are
// left alone.
func kernelArguments(ctx context.Context, h host.KernelArguments, from, to *config) (arguments, error) {
	var had, wanted []string
	if from != nil {
		had = from.arguments
	}
	if to != nil {
		wanted = to.arguments
	}
	if len(had)+len(wanted) == 0 {
		return arguments{}, nil
	}
	has, err := h.KernelArguments(ctx)
	if err != nil {
		return arguments{}, fmt.Errorf("reading the host's kernel arguments: %w", err)
	}
	remove := without(had, wanted)
	return arguments{
		add:    without(wanted, has),
		remove: slices.DeleteFunc(remove, func(a string) bool { return !slices.Contains(has, a) }),
	}, nil
}

// without is what of one list the other does not have.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(a string) bool { return slices.Contains(other, a) })
}
