package enforcement

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/wanted/recipe"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/selected"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// Trust has those whose signatures nodes are to accept; *sign.SecretKeys is one.
type Trust interface {
	Trusted(ctx context.Context) (sign.Trusted, error)
}

// TrustPolicy has an administrator's trust policy; *trust.ConfigMap is one.
type TrustPolicy interface {
	// Policy is the policy as it is now. Where there is none that can be used, the error is Waiting
	// and says what is wrong.
	Policy(ctx context.Context) (*trust.Policy, error)
	// IsIn reports whether it is in the ConfigMap of this name.
	IsIn(name types.NamespacedName) bool
}

// recheckTrust is when the keys that nodes accept are looked at again. Secrets are not watched.
const recheckTrust = time.Minute

// Options are what a Reconciler works with.
type Options struct {
	// Client reads from the cache, Reader asks the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events events.Publisher
	// Trust has the keys whose signatures nodes are made to insist on.
	Trust Trust
	// TrustPolicy says whose images are trusted beside those that are signed here; nil where no one
	// wrote one.
	TrustPolicy TrustPolicy
	// Bases is the OS image of a MachineOSConfig, with a client that reads it; nil where it is not
	// known yet.
	Bases func(config string) (*recipe.Base, *registry.Client)
	// Files reads files of OS images.
	Files configlayer.FileReader
}

// Reconciler gives each pool that has a MachineOSConfig what makes its nodes refuse what is not
// signed: a ClusterImagePolicy where the cluster has that kind and it can say it, a MachineConfig
// elsewhere.
type Reconciler struct {
	options Options

	client client.Client
	reader client.Reader
	clock  clock.PassiveClock
	events events.Publisher
	// basePolicies are what OS images say of signatures.
	basePolicies basePolicies
	// known are the last *configured by the pool's UID.
	known *lru.Cache
}

// maxKnown is how many pools are remembered; of more, MachineConfigs are read each time.
const maxKnown = 1000

// New returns a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{options: options, client: options.Client, reader: options.Reader, clock: options.Clock, events: options.Events, known: lru.New(maxKnown)}
}

// Reconcile reconciles one MachineOSConfig. While there is no key, what nodes accept stays
// as it is: a key that was lost must not open nodes to everything.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &mcfgv1.MachineOSConfig{}
	if err := r.client.Get(ctx, req.NamespacedName, config); err != nil {
		if apierrors.IsNotFound(err) {
			r.basePolicies.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !config.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // what it owns goes with it
	}
	err := r.ensurePolicy(ctx, config)
	return status.Result(ctrl.Result{RequeueAfter: recheckTrust}, r.report(ctx, config, err))
}

// report says in the condition SignaturesEnforced how it ended. What is tried again, or waits,
// leaves the condition as it is.
func (r *Reconciler) report(ctx context.Context, config *mcfgv1.MachineOSConfig, err error) error {
	is := metav1.Condition{Type: mcfgv1.ConfigSignaturesEnforced, Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonAsExpected}
	switch {
	case fault.IsTerminal(err):
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, fault.Reason(err), fault.Message(err)
		r.events.Publish(config, events.SignaturePolicyFailed(is.Message))
		ctrl.LoggerFrom(ctx).Info("No signature policy", "reason", is.Reason, "message", is.Message)
	case err != nil:
		return err
	}
	patch := status.NewPatcher(r.client, config, status.Owning(is.Type), status.KeepGeneration())
	conditions := config.GetConditions()
	status.Set(&conditions, status.NotBefore(r.clock.Now(), conditions), is)
	config.SetConditions(conditions)
	_, err = patch.Finish(ctx, config, ctrl.Result{}, nil)
	return err
}

func (r *Reconciler) ensurePolicy(ctx context.Context, config *mcfgv1.MachineOSConfig) error {
	trusted, err := r.options.Trust.Trusted(ctx)
	if err != nil {
		return err
	}
	pool := &mcfgv1.MachineConfigPool{}
	err = r.client.Get(ctx, client.ObjectKey{Name: config.Spec.MachineConfigPool.Name}, pool)
	if apierrors.IsNotFound(err) {
		return fault.NewWaiting(mcfgv1.ReasonWaitingForPool, recheckTrust, fmt.Errorf("the MachineConfigPool %q does not exist", config.Spec.MachineConfigPool.Name))
	}
	if err != nil {
		return fmt.Errorf("reading MachineConfigPool %q: %w", config.Spec.MachineConfigPool.Name, err)
	}
	accepts, err := r.accepted(ctx, config, trusted)
	if err != nil {
		return err
	}
	there, err := r.configured(ctx, pool)
	if err != nil {
		return err
	}
	return r.ensure(ctx, &enforcement{config: config, pool: pool, trusted: trusted, accepted: accepts, existing: there})
}

// enforcement is what a pool's nodes are to insist on.
type enforcement struct {
	config   *mcfgv1.MachineOSConfig
	pool     *mcfgv1.MachineConfigPool
	trusted  sign.Trusted
	accepted *Accepted
	existing *configured
}

// ensurePolicyFiles enforces repositories by the pool's MachineConfig, and reports whether that was
// in place before this reconcile.
func (r *Reconciler) ensurePolicyFiles(ctx context.Context, e *enforcement, of []signaturepolicy.Repository) (bool, error) {
	if err := e.existing.inTheWay(e.pool); err != nil {
		return false, err
	}
	below, err := r.below(ctx, e)
	if err != nil {
		return false, err
	}
	files, err := signaturepolicy.MakeFiles(below, of)
	if err == nil {
		err = signaturepolicy.CheckBeside(below, of)
	}
	if err != nil {
		return false, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	wanted, err := signaturepolicy.MachineConfig(e.pool.Name, files)
	if err != nil {
		return false, err
	}
	if err := controllerutil.SetControllerReference(e.config, wanted, r.client.Scheme()); err != nil {
		return false, fmt.Errorf("setting the owner of MachineConfig %q: %w", wanted.Name, err)
	}
	return r.ensureMachineConfig(ctx, wanted)
}

// accepting is what nodes are to know of those whose signatures they accept.
func accepting(repository string, trusted sign.Trusted) signaturepolicy.Repository {
	out := signaturepolicy.Repository{Name: repository}
	for _, key := range trusted.Keys {
		out.Keys = append(out.Keys, key.PEM())
	}
	out.Keys = sorted(out.Keys)
	for _, i := range trusted.Identities {
		out.Identity = &signaturepolicy.Identity{Email: i.Subject(), Issuer: i.Issuer(), Roots: i.Roots(), LogKeys: i.LogKeys()}
	}
	return out
}

// configured is what a pool's MachineConfigs say of what its nodes accept.
type configured struct {
	*signaturepolicy.Configured
	// ours is the MachineConfig that this controller, or someone else, made under our name; nil
	// where there is none.
	ours *mcfgv1.MachineConfig
	// isSelected reports whether the pool selects it.
	isSelected bool
	// version is that of all of them.
	version string
}

// configured reads the pool's MachineConfigs, if they have changed: the cache has them without
// their content.
func (r *Reconciler) configured(ctx context.Context, pool *mcfgv1.MachineConfigPool) (*configured, error) {
	all, err := selected.Cached(ctx, r.client, pool)
	if err != nil {
		return nil, err
	}
	configs, ours, err := configsOf(ctx, r.client, pool, all)
	if err != nil {
		return nil, err
	}
	version := selected.Version(append(configs, ours))
	last, _ := r.known.Get(pool.UID)
	if known, is := last.(*configured); is && known.version == version {
		return known, nil
	}
	if all, err = selected.Configs(ctx, r.reader, pool, machineconfigs.IsRendered); err != nil {
		return nil, err
	}
	if configs, ours, err = configsOf(ctx, r.reader, pool, all); err != nil {
		return nil, err
	}
	there, err := signaturepolicy.Read(pool.Name, configs)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	out := &configured{Configured: there, ours: ours, version: selected.Version(append(configs, ours))}
	out.isSelected = ours != nil && slices.ContainsFunc(configs, func(mc *mcfgv1.MachineConfig) bool { return mc.Name == ours.Name })
	r.known.Add(pool.UID, out)
	return out, nil
}

// configsOf are the MachineConfigs that a pool joins of those that it selects, and the one of our
// name; nil where there is none.
func configsOf(
	ctx context.Context, from client.Reader, pool *mcfgv1.MachineConfigPool, all []*mcfgv1.MachineConfig,
) (configs []*mcfgv1.MachineConfig, ours *mcfgv1.MachineConfig, err error) {
	if configs, err = machineconfigs.Select(pool, streams.Recorded(pool), all); err != nil {
		return nil, nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	name := signaturepolicy.MachineConfigName(pool.Name)
	if i := slices.IndexFunc(all, func(mc *mcfgv1.MachineConfig) bool { return mc.Name == name }); i >= 0 {
		return configs, all[i], nil
	}
	ours = &mcfgv1.MachineConfig{}
	if err := from.Get(ctx, client.ObjectKey{Name: name}, ours); apierrors.IsNotFound(err) {
		return configs, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading MachineConfig %q: %w", name, err)
	}
	return configs, ours, nil
}

// inTheWay is what keeps our MachineConfig from coming to nodes.
func (c *configured) inTheWay(pool *mcfgv1.MachineConfigPool) error {
	if err := c.InTheWay(); err != nil {
		return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	if c.ours != nil && !c.isSelected {
		return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf(
			"spec.machineConfigSelector of the pool %q does not select MachineConfig %q; let it select the role %q", pool.Name, c.ours.Name, pool.Name))
	}
	return nil
}

// ensureMachineConfig creates the MachineConfig, or makes it as it should be, and reports whether
// it was so already. One of the same name that is someone else's stays.
func (r *Reconciler) ensureMachineConfig(ctx context.Context, wanted *mcfgv1.MachineConfig) (bool, error) {
	found := &mcfgv1.MachineConfig{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	if apierrors.IsNotFound(err) {
		if err := r.client.Create(ctx, wanted); err != nil {
			return false, fmt.Errorf("creating MachineConfig %q: %w", wanted.Name, err)
		}
		ctrl.LoggerFrom(ctx).Info("Signatures are enforced", "machineConfig", wanted.Name)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading MachineConfig %q: %w", wanted.Name, err)
	}
	if !isOwnedAlike(found, wanted) {
		return false, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf("MachineConfig %q was made by someone else; remove it", wanted.Name))
	}
	if machineconfigs.IsSameContent(found, wanted) {
		return true, nil
	}
	changed := found.DeepCopy()
	changed.Spec = wanted.Spec
	machineconfigs.Untrim(changed)
	if err := r.client.Update(ctx, changed); err != nil {
		return false, fmt.Errorf("changing MachineConfig %q: %w", wanted.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Signature policy updated", "machineConfig", wanted.Name)
	return false, nil
}

// isOwnedAlike reports whether two objects have the same controller.
func isOwnedAlike(a, b metav1.Object) bool {
	one, other := metav1.GetControllerOf(a), metav1.GetControllerOf(b)
	return one != nil && other != nil && one.UID == other.UID
}
