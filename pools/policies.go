package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/status"
)

// policiesName is the name of the Policies reconciler in logs, metrics and events.
const policiesName = "policies"

// Policies says in the condition PoliciesMissing of every pool which admission policies of
// Layerwright are not enforced. Without a binding the API server refuses nothing, and says nothing.
type Policies struct {
	client   client.Client
	clock    clock.PassiveClock
	events   events.Publisher
	required []string
}

// NewPolicies makes the reconciler; required are the names of the policies that have to be there.
// SetupWithManager gives it what it works with.
func NewPolicies(required []string) *Policies {
	return &Policies{clock: clock.RealClock{}, required: required}
}

// SetupWithManager makes the reconciler follow policies and bindings, and new pools.
func (p *Policies) SetupWithManager(manager ctrl.Manager) error {
	p.client = manager.GetClient()
	p.events = events.NewPublisher(manager.GetEventRecorder("layerwright-" + policiesName))
	all := handler.EnqueueRequestsFromMapFunc(p.everyPool)
	never := func(event.UpdateEvent) bool { return false }
	err := ctrl.NewControllerManagedBy(manager).
		Named(policiesName).
		For(&mcfgv1.MachineConfigPool{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: never})).
		Watches(&admissionv1.ValidatingAdmissionPolicy{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&admissionv1.ValidatingAdmissionPolicyBinding{}, all).
		Complete(p)
	if err != nil {
		return fmt.Errorf("setting up %s: %w", policiesName, err)
	}
	return nil
}

func (p *Policies) everyPool(ctx context.Context, _ client.Object) []reconcile.Request {
	var list mcfgv1.MachineConfigPoolList
	if err := p.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing pools")
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i] = reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}}
	}
	return requests
}

// Reconcile reconciles the condition of one pool.
func (p *Policies) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &mcfgv1.MachineConfigPool{}
	if err := p.client.Get(ctx, req.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&policies, &bindings} {
		if err := p.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	message := missingPolicies(p.required, policies.Items, bindings.Items)
	patch := status.NewPatcher(p.client, pool, status.Owning(string(mcfgv1.PoolPoliciesMissing)), status.KeepGeneration())
	conditions := pool.GetConditions()
	was := status.Find(conditions, string(mcfgv1.PoolPoliciesMissing))
	isNews := message != "" && (was == nil || was.Message != message)
	if message == "" {
		status.Remove(&conditions, string(mcfgv1.PoolPoliciesMissing))
	} else {
		status.Set(&conditions, status.NotBefore(p.clock.Now(), conditions), metav1.Condition{
			Type: string(mcfgv1.PoolPoliciesMissing), Status: metav1.ConditionTrue, Reason: mcfgv1.ReasonPoliciesMissing, Message: message,
		})
	}
	pool.SetConditions(conditions)
	version := pool.ResourceVersion
	res, err := patch.Finish(ctx, pool, ctrl.Result{}, nil)
	if isNews && pool.ResourceVersion != version {
		p.events.Publish(pool, events.PoliciesMissing(message))
	}
	return res, err
}

// missingPolicies says which policies are not enforced: those that have to be there, and those that
// are there without a binding that denies. It is empty when all are.
func missingPolicies(required []string, policies []admissionv1.ValidatingAdmissionPolicy, bindings []admissionv1.ValidatingAdmissionPolicyBinding) string {
	var missing, unbound []string
	isThere := map[string]bool{}
	for i := range policies {
		isThere[policies[i].Name] = true
		isBound := slices.ContainsFunc(bindings, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Spec.PolicyName == policies[i].Name && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		})
		if !isBound {
			unbound = append(unbound, policies[i].Name)
		}
	}
	for _, name := range required {
		if !isThere[name] {
			missing = append(missing, name)
		}
	}
	var says []string
	if len(missing) > 0 {
		slices.Sort(missing)
		says = append(says, "these ValidatingAdmissionPolicies do not exist: "+strings.Join(missing, ", "))
	}
	if len(unbound) > 0 {
		slices.Sort(unbound)
		says = append(says, "no ValidatingAdmissionPolicyBinding with the action Deny exists for: "+strings.Join(unbound, ", "))
	}
	if len(says) == 0 {
		return ""
	}
	return strings.Join(says, "; ") + "; the API server accepts what they refuse, so apply the manifests of this release again"
}
