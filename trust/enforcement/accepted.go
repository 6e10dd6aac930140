package enforcement

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// Accepted are the repositories that a pool's nodes are to insist on signatures in.
type Accepted struct {
	// Own is that of the pool's MachineOSConfig.
	Own signaturepolicy.Repository
	// Others are those of other pools that the trust policy speaks of too, by the name of the pool:
	// without a word about them, nodes that come from another pool would refuse what that one's
	// MachineOSConfig has made.
	Others map[string]signaturepolicy.Repository
	// Trusted are the rest of the trust policy, the same for all pools, sorted by name.
	Trusted []signaturepolicy.Repository
}

// All are all of them.
func (a *Accepted) All() []signaturepolicy.Repository {
	out := []signaturepolicy.Repository{a.Own}
	for _, pool := range slices.Sorted(maps.Keys(a.Others)) {
		out = append(out, a.Others[pool])
	}
	return append(out, a.Trusted...)
}

// accepted reads what nodes of a MachineOSConfig's pool are to accept. While there is a trust
// policy that can't be used, they keep what they have.
func (r *Reconciler) accepted(ctx context.Context, config *mcfgv1.MachineOSConfig, own sign.Trusted) (*Accepted, error) {
	policy := &trust.Policy{}
	if r.options.TrustPolicy != nil {
		var err error
		policy, err = r.options.TrustPolicy.Policy(ctx)
		if fault.IsWaiting(err) {
			return nil, fault.NewTerminal(fault.Reason(err), fmt.Errorf("the signature policy of nodes is not changed: %w", err))
		}
		if err != nil {
			return nil, err
		}
	}
	repository, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil {
		return nil, err
	}
	pools := map[string]string{}
	var list mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		name, err := credentials.Repository(other.Spec.RenderedImagePushSpec)
		if other.Name != config.Name && other.DeletionTimestamp.IsZero() && err == nil && name != repository { // what is wrong with it, itself says
			pools[other.Spec.MachineConfigPool.Name] = name
		}
	}
	return Accept(policy, own, repository, pools)
}

// Accept joins a trust policy with the repositories of pools, as the gate of images does: in these
// the cluster's own keys are trusted, or what the policy says of them. Nodes have one scope for a
// repository and for those below it. Where the policy wants other keys for the one than for the
// others they can't be told, and neither of both is left out unseen.
func Accept(policy *trust.Policy, own sign.Trusted, repository string, pools map[string]string) (*Accepted, error) {
	scopes := map[string]signaturepolicy.Repository{}
	below := map[string]signaturepolicy.Repository{}
	for _, entry := range policy.Repositories() {
		there, has := scopes[entry.Name]
		scope := accepting(entry.Name, sign.Trusted{Keys: entry.Keys})
		if scope.Below = entry.Below; entry.Below {
			below[entry.Name] = scope
		}
		if has && !isAlike(there, scope) {
			return nil, fault.NewTerminal(mcfgv1alpha1.ReasonInvalidTrustPolicy, fmt.Errorf(
				"the signature policy of nodes is not changed: the trust policy has different keys for %q and for %q, which nodes cannot distinguish; "+
					"give both the same keys, or name the repositories below one by one", entry.Name, entry.Name+"/*"))
		}
		scopes[entry.Name] = scope
	}
	join := func(pool string) (signaturepolicy.Repository, bool, error) {
		out := accepting(pool, own)
		name, err := trust.RepositoryOf(pool)
		if err != nil {
			return out, false, fault.NewTerminal(mcfgv1.ReasonInvalid, err)
		}
		rule, has := policy.For(name)
		if has && out.Identity == nil { // nodes can't be told that a key or an identity is enough
			out.Keys = sorted(append(out.Keys, accepting(pool, rule.Trusted).Keys...))
		}
		wide, isWide := below[name]
		if isWide && !isAlike(wide, out) {
			return out, false, fault.NewTerminal(mcfgv1alpha1.ReasonInvalidTrustPolicy, fmt.Errorf(
				"the signature policy of nodes is not changed: %q is the repository of a MachineOSConfig, and the trust policy has other keys for %q, which nodes cannot "+
					"distinguish; name the repositories below one by one", name, name+"/*"))
		}
		delete(scopes, name)
		return out, has || isWide, nil
	}
	mine, _, err := join(repository)
	if err != nil {
		return nil, err
	}
	out := &Accepted{Own: mine, Others: map[string]signaturepolicy.Repository{}}
	for pool, name := range pools {
		theirs, isSpokenOf, err := join(name)
		if err != nil {
			return nil, err
		}
		if isSpokenOf {
			out.Others[pool] = theirs
		}
	}
	for _, name := range slices.Sorted(maps.Keys(scopes)) {
		out.Trusted = append(out.Trusted, scopes[name])
	}
	return out, nil
}

// isAlike reports whether the same have to have signed.
func isAlike(a, b signaturepolicy.Repository) bool {
	return a.Identity == nil && b.Identity == nil && slices.EqualFunc(a.Keys, b.Keys, bytes.Equal)
}

// sorted sorts keys, each of them once: that another of them signs now is no other policy, which
// would make another image.
func sorted(keys [][]byte) [][]byte {
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}
