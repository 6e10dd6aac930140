package enforcement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// overdue is when a ClusterImagePolicy should have become part of a pool's MachineConfigs.
const overdue = 10 * time.Minute

// errUseMachineConfig means that a repository needs the pool's MachineConfig, since no
// ClusterImagePolicy can be used.
var errUseMachineConfig = errors.New("a ClusterImagePolicy can't say it")

// ensure enforces signatures of each repository by a ClusterImagePolicy or by the pool's
// MachineConfig. It removes the one in use only after the other is in effect.
func (r *Reconciler) ensure(ctx context.Context, e *enforcement) error {
	version, err := r.clusterImagePolicyVersion()
	if err != nil {
		return err
	}
	if version == "" {
		_, err := r.ensurePolicyFiles(ctx, e, e.accepted.All())
		return err
	}
	said, rest, failed := r.ensureClusterImagePolicies(ctx, e, version)
	wasThere, err := r.ensureRemaining(ctx, e, said, rest)
	if err := fault.Join(failed, err); err != nil {
		return err
	}
	if _, isSaid := said[e.accepted.Own.Name]; !isSaid && wasThere {
		if err := r.removeClusterImagePolicy(ctx, e, version); err != nil {
			return err
		}
	}
	if err := r.removeTrusted(ctx, e, version, said); err != nil {
		return err
	}
	return r.overdue(e, said)
}

// clusterImagePolicyVersion is the version of the kind that the cluster has; empty where it has
// none. A kind that is there is remembered by the client; else the API server is asked each time,
// which costs a request or two, so that a kind which is added later is seen.
func (r *Reconciler) clusterImagePolicyVersion() (string, error) {
	kind := signaturepolicy.ClusterImagePolicyKind
	mapping, err := r.client.RESTMapper().RESTMapping(kind, signaturepolicy.ClusterImagePolicyVersions()...)
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking whether the cluster has the kind %s: %w", kind.Kind, err)
	}
	return mapping.GroupVersionKind.Version, nil
}

// ensureClusterImagePolicies creates or updates the ClusterImagePolicies. It returns them by
// repository, and the repositories that need a MachineConfig instead. One that fails does not keep
// others from being written.
func (r *Reconciler) ensureClusterImagePolicies(
	ctx context.Context, e *enforcement, version string,
) (said map[string]*unstructured.Unstructured, rest []signaturepolicy.Repository, _ error) {
	said = map[string]*unstructured.Unstructured{}
	var errs []error
	for _, one := range r.objects(e, version) {
		if one.object == nil {
			rest = append(rest, one.repository)
			continue
		}
		found, err := one.ensure(ctx, one.object)
		if errors.Is(err, errUseMachineConfig) {
			rest = append(rest, one.repository)
			continue
		}
		if err != nil {
			found = one.object
			errs = append(errs, err)
		}
		said[one.repository.Name] = found
	}
	return said, rest, fault.Join(errs...)
}

// candidate is a repository with the ClusterImagePolicy that is to say it, nil where none can.
type candidate struct {
	repository signaturepolicy.Repository
	object     *unstructured.Unstructured
	ensure     func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// objects are the ClusterImagePolicies for what a pool accepts. Those for repositories of other
// pools are theirs to make.
func (r *Reconciler) objects(e *enforcement, version string) []candidate {
	object := signaturepolicy.ClusterImagePolicy
	out := []candidate{{e.accepted.Own, object(signaturepolicy.ClusterImagePolicyName(e.pool.Name), version, e.accepted.Own), func(
		ctx context.Context, wanted *unstructured.Unstructured,
	) (*unstructured.Unstructured, error) {
		if err := controllerutil.SetControllerReference(e.config, wanted, r.client.Scheme()); err != nil {
			return nil, fmt.Errorf("setting the owner of ClusterImagePolicy %q: %w", wanted.GetName(), err)
		}
		return r.ensureClusterImagePolicy(ctx, wanted, isOwnedAlike)
	}}}
	for _, pool := range slices.Sorted(maps.Keys(e.accepted.Others)) {
		theirs := e.accepted.Others[pool]
		out = append(out, candidate{theirs, object(signaturepolicy.ClusterImagePolicyName(pool), version, theirs), r.requireOtherPolicy})
	}
	for _, trusted := range e.accepted.Trusted {
		out = append(out, candidate{trusted, object(signaturepolicy.TrustedClusterImagePolicyName(trusted.Name), version, trusted), func(
			ctx context.Context, wanted *unstructured.Unstructured,
		) (*unstructured.Unstructured, error) {
			wanted.SetLabels(map[string]string{signaturepolicy.TrustedLabel: ""})
			if err := controllerutil.SetOwnerReference(e.config, wanted, r.client.Scheme()); err != nil { // it goes with the last of all its owners
				return nil, fmt.Errorf("setting the owner of ClusterImagePolicy %q: %w", wanted.GetName(), err)
			}
			return r.ensureClusterImagePolicy(ctx, wanted, isTrusted)
		}})
	}
	return out
}

// isTrusted reports whether a ClusterImagePolicy is one of those for repositories of the trust
// policy, like the one that is wanted.
func isTrusted(found, _ metav1.Object) bool {
	_, is := found.GetLabels()[signaturepolicy.TrustedLabel]
	return is
}

// requireOtherPolicy returns a ClusterImagePolicy that someone else manages. If it does not enforce
// what is wanted, the error is errUseMachineConfig.
func (r *Reconciler) requireOtherPolicy(ctx context.Context, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found, err := r.clusterImagePolicy(ctx, wanted)
	if apierrors.IsForbidden(err) || err == nil && (found == nil || !equality.Semantic.DeepEqual(found.Object["spec"], wanted.Object["spec"])) {
		return nil, errUseMachineConfig
	}
	return found, err
}

// ensureRemaining enforces the other repositories by the pool's MachineConfig, and reports whether
// that was in place before. A ClusterImagePolicy's repository stays in it until nodes enforce that.
func (r *Reconciler) ensureRemaining(
	ctx context.Context, e *enforcement, said map[string]*unstructured.Unstructured, rest []signaturepolicy.Repository,
) (bool, error) {
	ours := e.ours()
	needed := rest
	for _, one := range e.accepted.All() {
		_, isSaid := said[one.Name]
		isOwn := one.Name == e.accepted.Own.Name
		if isSaid && ours != nil && !signaturepolicy.Enforce(e.existing.Files, one) && (isOwn || signaturepolicy.Says(ours[signaturepolicy.PolicyPath], one)) {
			needed = append(needed, one)
		}
	}
	switch {
	case len(needed) > 0:
		wasThere, err := r.ensurePolicyFiles(ctx, e, needed)
		if len(rest) == 0 && fault.IsTerminal(err) { // what keeps it from nodes is no matter any more
			err = nil
		}
		return wasThere, err
	case ours != nil:
		return false, r.removeMachineConfig(ctx, e.existing.ours)
	}
	return false, nil
}

// ours are the files of the pool's MachineConfig; nil where there is none that this controller made
// for it.
func (e *enforcement) ours() signaturepolicy.Files {
	if e.existing.ours == nil || !metav1.IsControlledBy(e.existing.ours, e.config) {
		return nil
	}
	files, err := signaturepolicy.FilesOf(e.existing.ours)
	if err != nil || files == nil {
		files = signaturepolicy.Files{} // someone edited it, and it is put right
	}
	return files
}

// overdue says of ClusterImagePolicies that no one acted on them.
func (r *Reconciler) overdue(e *enforcement, said map[string]*unstructured.Unstructured) error {
	for _, one := range e.accepted.All() {
		found := said[one.Name]
		if found == nil || signaturepolicy.Enforce(e.existing.Files, one) {
			continue
		}
		if created := found.GetCreationTimestamp(); !created.IsZero() && r.clock.Since(created.Time) > overdue {
			return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf(
				"no MachineConfig of the pool %q applies ClusterImagePolicy %q; check that the machine-config-operator runs, and its ClusterOperator",
				e.pool.Name, found.GetName()))
		}
	}
	return nil
}

// removeTrusted removes the ClusterImagePolicies for repositories that the trust policy does not
// name any more; and those that can't say it any more, when the MachineConfigs of all pools do.
func (r *Reconciler) removeTrusted(ctx context.Context, e *enforcement, version string, said map[string]*unstructured.Unstructured) error {
	kept := map[string]bool{}
	for _, object := range said {
		kept[object.GetName()] = true
	}
	for _, one := range e.accepted.Trusted {
		if name := signaturepolicy.TrustedClusterImagePolicyName(one.Name); !kept[name] {
			var err error
			if kept[name], err = r.isMissingSomewhere(ctx, one); err != nil {
				return err
			}
		}
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(signaturepolicy.ClusterImagePolicyKind.WithVersion(version))
	err := r.reader.List(ctx, list, client.HasLabels{signaturepolicy.TrustedLabel})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil // then there are none of ours
	}
	if err != nil {
		return fmt.Errorf("listing ClusterImagePolicies: %w", err)
	}
	gone := slices.DeleteFunc(list.Items, func(found unstructured.Unstructured) bool { return kept[found.GetName()] })
	if len(gone) == 0 {
		return nil
	}
	// Meanwhile another pool's reconcile may have followed a newer trust policy, and made them.
	now, err := r.accepted(ctx, e.config, e.trusted)
	if err != nil || !reflect.DeepEqual(now, e.accepted) {
		return err
	}
	for i := range gone {
		name := gone[i].GetName()
		if err := client.IgnoreNotFound(r.client.Delete(ctx, &gone[i])); err != nil {
			return fmt.Errorf("removing ClusterImagePolicy %q: %w", name, err)
		}
		ctrl.LoggerFrom(ctx).Info("A ClusterImagePolicy is not needed any more", "clusterImagePolicy", name)
	}
	return nil
}

// isMissingSomewhere reports whether a pool with a MachineOSConfig has no MachineConfig of ours
// that makes its nodes insist on signatures in a repository.
func (r *Reconciler) isMissingSomewhere(ctx context.Context, of signaturepolicy.Repository) (bool, error) {
	var list mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		if is, err := r.isMissingFor(ctx, &list.Items[i], of); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

func (r *Reconciler) isMissingFor(ctx context.Context, config *mcfgv1.MachineOSConfig, of signaturepolicy.Repository) (bool, error) {
	pool := &mcfgv1.MachineConfigPool{}
	err := r.client.Get(ctx, client.ObjectKey{Name: config.Spec.MachineConfigPool.Name}, pool)
	if apierrors.IsNotFound(err) {
		return false, nil // it has no nodes
	}
	if err != nil {
		return false, fmt.Errorf("reading MachineConfigPool %q: %w", config.Spec.MachineConfigPool.Name, err)
	}
	there, err := r.configured(ctx, pool)
	if err != nil {
		return false, err
	}
	ours := (&enforcement{config: config, pool: pool, existing: there}).ours()
	return ours == nil || there.inTheWay(pool) != nil || !signaturepolicy.Enforce(ours, of), nil //nolint:nilerr // what is in the way, its own reconcile says
}

// ensureClusterImagePolicy creates the object, or makes it as it should be, and gives it as it is.
// The error is errUseMachineConfig where the API server does not take it, as with a registry's name
// without a dot, where the kind is gone, and where the right to is missing:
// deploy/overlays/kubernetes gives none.
func (r *Reconciler) ensureClusterImagePolicy(
	ctx context.Context, wanted *unstructured.Unstructured, isOurs func(found, wanted metav1.Object) bool,
) (*unstructured.Unstructured, error) {
	name := wanted.GetName()
	instead := func(err error) error {
		ctrl.LoggerFrom(ctx).Info("A MachineConfig enforces signatures in place of a ClusterImagePolicy", "clusterImagePolicy", name, "reason", err.Error())
		return errUseMachineConfig
	}
	found, err := r.clusterImagePolicy(ctx, wanted)
	if apierrors.IsForbidden(err) {
		return nil, instead(err)
	}
	if err != nil {
		return nil, err
	}
	if found != nil && !isOurs(found, wanted) {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf("ClusterImagePolicy %q was made by someone else; remove it", name))
	}
	doing := "creating"
	switch {
	case found == nil:
		found = wanted
		err = r.client.Create(ctx, found)
	case equality.Semantic.DeepEqual(found.Object["spec"], wanted.Object["spec"]) && hasOwner(found, wanted.GetOwnerReferences()[0]):
		return found, nil
	default:
		doing = "changing"
		found.Object["spec"] = wanted.Object["spec"]
		if owner := wanted.GetOwnerReferences()[0]; !hasOwner(found, owner) {
			found.SetOwnerReferences(append(found.GetOwnerReferences(), owner))
		}
		err = r.client.Update(ctx, found)
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || doing == "creating" && apierrors.IsNotFound(err) {
		return nil, instead(err)
	}
	if doing == "creating" && apierrors.IsAlreadyExists(err) {
		return nil, fault.NewWaiting(mcfgv1.ReasonPreparing, firstRetry, fmt.Errorf("ClusterImagePolicy %q was created for another pool meanwhile", name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s ClusterImagePolicy %q: %w", doing, name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Signatures are enforced", "clusterImagePolicy", name, "doing", doing)
	return found, nil
}

// hasOwner reports whether an object has an owner, among others.
func hasOwner(object metav1.Object, owner metav1.OwnerReference) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
}

// clusterImagePolicy reads the object past the cache, which would go on watching a kind that is
// gone; nil where there is none.
func (r *Reconciler) clusterImagePolicy(ctx context.Context, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(wanted.GroupVersionKind())
	err := r.reader.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterImagePolicy %q: %w", wanted.GetName(), err)
	}
	return found, nil
}

// removeClusterImagePolicy removes the object, if it is ours.
func (r *Reconciler) removeClusterImagePolicy(ctx context.Context, e *enforcement, version string) error {
	sought := &unstructured.Unstructured{}
	sought.SetGroupVersionKind(signaturepolicy.ClusterImagePolicyKind.WithVersion(version))
	sought.SetName(signaturepolicy.ClusterImagePolicyName(e.pool.Name))
	if err := controllerutil.SetControllerReference(e.config, sought, r.client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of ClusterImagePolicy %q: %w", sought.GetName(), err)
	}
	found, err := r.clusterImagePolicy(ctx, sought)
	if apierrors.IsForbidden(err) {
		return nil // then it is none of ours
	}
	if err != nil || found == nil || !isOwnedAlike(found, sought) {
		return err
	}
	if err := client.IgnoreNotFound(r.client.Delete(ctx, found)); err != nil {
		return fmt.Errorf("removing ClusterImagePolicy %q: %w", found.GetName(), err)
	}
	ctrl.LoggerFrom(ctx).Info("The MachineConfig enforces signatures in place of the ClusterImagePolicy", "clusterImagePolicy", found.GetName())
	return nil
}

func (r *Reconciler) removeMachineConfig(ctx context.Context, ours *mcfgv1.MachineConfig) error {
	if err := client.IgnoreNotFound(r.client.Delete(ctx, ours.DeepCopy(), client.Preconditions{UID: &ours.UID})); err != nil {
		return fmt.Errorf("removing MachineConfig %q: %w", ours.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("The ClusterImagePolicy enforces signatures in place of the MachineConfig", "machineConfig", ours.Name)
	return nil
}
