package enforcement

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/configlayer"
	"github.com/layerwright/layerwright/builder/preflight"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
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
	Bases func(config string) (*preflight.Base, *registry.Client)
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
}

// New returns a Reconciler.
func New(options Options) *Reconciler {
	return &Reconciler{options: options, client: options.Client, reader: options.Reader, clock: options.Clock, events: options.Events}
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
}

// configured reads the pool's MachineConfigs.
func (r *Reconciler) configured(ctx context.Context, pool *mcfgv1.MachineConfigPool) (*configured, error) {
	var list mcfgv1.MachineConfigList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineConfigs: %w", err)
	}
	all := make([]*mcfgv1.MachineConfig, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	selected, err := machineconfigs.Select(pool, streams.Recorded(pool), all)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	there, err := signaturepolicy.Read(pool.Name, selected)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, err)
	}
	out := &configured{Configured: there}
	isOurs := func(mc *mcfgv1.MachineConfig) bool { return mc.Name == signaturepolicy.MachineConfigName(pool.Name) }
	if i := slices.IndexFunc(all, isOurs); i >= 0 {
		out.ours, out.isSelected = all[i], slices.ContainsFunc(selected, isOurs)
	}
	return out, nil
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
	if isSameJSON(found.Spec.Config.Raw, wanted.Spec.Config.Raw) {
		return true, nil
	}
	changed := found.DeepCopy()
	changed.Spec = wanted.Spec
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

// isSameJSON compares what the API server may have written in another order.
func isSameJSON(a, b []byte) bool {
	var first, second any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(first, second)
}
