package builder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs/signaturepolicy"
)

// overdue is when a ClusterImagePolicy should have become part of a pool's MachineConfigs.
const overdue = 10 * time.Minute

// errNotForTheKind is that a ClusterImagePolicy can't say what is wanted.
var errNotForTheKind = errors.New("a ClusterImagePolicy can't say it")

// ensure has one of the two say what nodes insist on, and then not the other. What says it now goes only when the other one is certain to be seen
// with it or before: nodes must not take anything in between. Both at once do no harm, since they say the same of the repository.
func (r *policyReconciler) ensure(ctx context.Context, e *enforcement) error {
	version, err := r.clusterImagePolicyVersion()
	if err != nil {
		return err
	}
	if version == "" {
		_, err := r.byMachineConfig(ctx, e)
		return err
	}
	if wanted := signaturepolicy.ClusterImagePolicy(e.pool.Name, version, e.accepted); wanted != nil {
		if err := r.byClusterImagePolicy(ctx, e, wanted); !errors.Is(err, errNotForTheKind) {
			return err
		}
	}
	wasThere, err := r.byMachineConfig(ctx, e)
	if err != nil || !wasThere {
		return err
	}
	return r.removeClusterImagePolicy(ctx, e, version)
}

// clusterImagePolicyVersion is the version of the kind that the cluster has; empty where it has none. A kind that is there is remembered by the client;
// else the API server is asked each time, which costs a request or two, so that a kind which is added later is seen.
func (r *policyReconciler) clusterImagePolicyVersion() (string, error) {
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

// byClusterImagePolicy has the ClusterImagePolicy say it. A MachineConfig that says it stays, and is kept as it should be, until the pool's other
// MachineConfigs have what became of the ClusterImagePolicy: only then do nodes insist on it.
func (r *policyReconciler) byClusterImagePolicy(ctx context.Context, e *enforcement, wanted *unstructured.Unstructured) error {
	if err := controllerutil.SetControllerReference(e.config, wanted, r.client.Scheme()); err != nil {
		return fmt.Errorf("setting the owner of ClusterImagePolicy %q: %w", wanted.GetName(), err)
	}
	isIn := signaturepolicy.Enforce(e.there.files, e.accepted)
	isOurs := e.there.ours != nil && isOwnedAlike(e.there.ours, wanted)
	if isOurs && !isIn {
		if _, err := r.byMachineConfig(ctx, e); err != nil && !fault.IsTerminal(err) { // what keeps it from nodes is no matter any more
			return err
		}
	}
	found, err := r.ensureClusterImagePolicy(ctx, wanted)
	if err != nil {
		return err
	}
	if isOurs && isIn {
		return r.removeMachineConfig(ctx, e.there.ours)
	}
	if created := found.GetCreationTimestamp(); !isIn && !created.IsZero() && r.clock.Since(created.Time) > overdue {
		return fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf(
			"no MachineConfig of the pool %q has what ClusterImagePolicy %q says; see whether the machine-config-operator runs, and its ClusterOperator",
			e.pool.Name, wanted.GetName()))
	}
	return nil
}

// ensureClusterImagePolicy creates the object, or makes it as it should be, and gives it as it is. The error is errNotForTheKind where the API server
// does not take it, as with a registry's name without a dot, where the kind is gone, and where the right to is missing: deploy/overlays/kubernetes gives none.
func (r *policyReconciler) ensureClusterImagePolicy(ctx context.Context, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	name := wanted.GetName()
	instead := func(err error) error {
		ctrl.LoggerFrom(ctx).Info("A MachineConfig enforces signatures in place of a ClusterImagePolicy", "clusterImagePolicy", name, "reason", err.Error())
		return errNotForTheKind
	}
	found, err := r.clusterImagePolicy(ctx, wanted)
	if apierrors.IsForbidden(err) {
		return nil, instead(err)
	}
	if err != nil {
		return nil, err
	}
	if found != nil && !isOwnedAlike(found, wanted) {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, fmt.Errorf("ClusterImagePolicy %q was made by somebody else; remove it", name))
	}
	doing := "creating"
	switch {
	case found == nil:
		found = wanted
		err = r.client.Create(ctx, found)
	case equality.Semantic.DeepEqual(found.Object["spec"], wanted.Object["spec"]):
		return found, nil
	default:
		doing = "changing"
		found.Object["spec"] = wanted.Object["spec"]
		err = r.client.Update(ctx, found)
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || doing == "creating" && apierrors.IsNotFound(err) {
		return nil, instead(err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s ClusterImagePolicy %q: %w", doing, name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Signatures are enforced", "clusterImagePolicy", name, "doing", doing)
	return found, nil
}

// clusterImagePolicy reads the object past the cache, which would go on watching a kind that is gone; nil where there is none.
func (r *policyReconciler) clusterImagePolicy(ctx context.Context, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
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
func (r *policyReconciler) removeClusterImagePolicy(ctx context.Context, e *enforcement, version string) error {
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

func (r *policyReconciler) removeMachineConfig(ctx context.Context, ours *mcfgv1.MachineConfig) error {
	if err := client.IgnoreNotFound(r.client.Delete(ctx, ours.DeepCopy(), client.Preconditions{UID: &ours.UID})); err != nil {
		return fmt.Errorf("removing MachineConfig %q: %w", ours.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("The ClusterImagePolicy enforces signatures in place of the MachineConfig", "machineConfig", ours.Name)
	return nil
}
