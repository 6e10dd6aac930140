package pullsecrets

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
)

// Reconciler keeps the Role.
type Reconciler struct {
	// role is the Role's namespace and name.
	role client.ObjectKey
	// never are secrets that agents may not read, whoever names them.
	never  []string
	client client.Client
	reader client.Reader // past the cache: secrets are not watched
}

// retryInterval is the time until a secret is looked for again that is not there.
const retryInterval = 10 * time.Second

// New makes the reconciler; SetupWithManager gives it what it works with. Agents may never read
// some secrets, such as the signing key: whoever is root of a node, and names them in a
// MachineOSConfig, would have them.
func New(namespace, name string, never ...string) *Reconciler {
	return &Reconciler{role: client.ObjectKey{Namespace: namespace, Name: name}, never: never}
}

// CacheOptions keep this Role alone in memory, so that the right to watch it is enough.
func CacheOptions(namespace, name string) cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name)},
	}}
}

// SetupWithManager gives the reconciler the manager's client, and makes it watch MachineOSConfigs
// and the Role.
func (r *Reconciler) SetupWithManager(manager ctrl.Manager) error {
	r.client, r.reader = manager.GetClient(), manager.GetAPIReader()
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.role}}
	})
	err := ctrl.NewControllerManagedBy(manager).
		Named("pullsecrets").
		For(&rbacv1.Role{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			return client.ObjectKeyFromObject(o) == r.role
		}))).
		Watches(&mcfgv1.MachineOSConfig{}, one, builder.WithPredicates(namesChanged())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the rights of node agents: %w", err)
	}
	return nil
}

// namesChanged lets changes of specs through.
func namesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
	}}
}

// Reconcile makes the Role what it should be.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var layers mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &layers, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	names, areAllThere, err := r.readable(ctx, namesIn(layers.Items, r.never))
	if err == nil {
		err = r.ensure(ctx, rulesFor(names))
	}
	if !areAllThere {
		return status.Result(ctrl.Result{RequeueAfter: retryInterval}, err)
	}
	return status.Result(ctrl.Result{}, err)
}

// readable are those of the secrets that agents may read: they are for registries. Whoever edits
// MachineOSConfigs may name any, such as one with a token, and be root of a node.
func (r *Reconciler) readable(ctx context.Context, names []string) (are []string, areAllThere bool, _ error) {
	areAllThere = true
	for _, name := range names {
		secret := &corev1.Secret{}
		err := r.reader.Get(ctx, client.ObjectKey{Namespace: r.role.Namespace, Name: name}, secret)
		switch {
		case apierrors.IsNotFound(err):
			areAllThere = false
		case err != nil:
			return nil, true, fmt.Errorf("reading the type of secret %q: %w", name, err)
		case secret.Type == corev1.SecretTypeDockerConfigJson, secret.Type == corev1.SecretTypeDockercfg:
			are = append(are, name)
		}
	}
	return are, areAllThere, nil
}

func (r *Reconciler) ensure(ctx context.Context, rules []rbacv1.PolicyRule) error {
	role := &rbacv1.Role{}
	err := r.client.Get(ctx, r.role, role)
	if apierrors.IsNotFound(err) {
		role.ObjectMeta = metav1.ObjectMeta{Namespace: r.role.Namespace, Name: r.role.Name, Labels: map[string]string{
			"app.kubernetes.io/name": "layerwright", "app.kubernetes.io/component": "agent", "app.kubernetes.io/part-of": "layerwright",
		}}
		role.Rules = rules
		if err := client.IgnoreAlreadyExists(r.client.Create(ctx, role)); err != nil {
			return fmt.Errorf("creating Role %q: %w", r.role, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Role %q: %w", r.role, err)
	}
	if apiequality.Semantic.DeepEqual(role.Rules, rules) {
		return nil
	}
	role.Rules = rules
	if err := r.client.Update(ctx, role); err != nil {
		return fmt.Errorf("updating Role %q: %w", r.role, err)
	}
	ctrl.LoggerFrom(ctx).Info("Changed which pull secrets node agents may read", "rules", rules)
	return nil
}

// namesIn are the secrets that MachineOSConfigs name for nodes, without some, sorted.
func namesIn(layers []mcfgv1.MachineOSConfig, never []string) []string {
	var names []string
	for i := range layers {
		if secret := layers[i].Spec.CurrentImagePullSecret; secret != nil && secret.Name != "" && !slices.Contains(never, secret.Name) {
			names = append(names, secret.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// rulesFor are the rights on secrets.
func rulesFor(names []string) []rbacv1.PolicyRule {
	if len(names) == 0 { // no names at all would be a right on all of them
		return nil
	}
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: []string{"get"}}}
}
