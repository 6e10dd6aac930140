package images

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
)

// TrustPolicy has an administrator's trust policy; *trust.ConfigMap is one.
type TrustPolicy interface {
	// Policy is the policy as it is now. Where there is none that can be used, the error is Waiting
	// and says what is wrong.
	Policy(ctx context.Context) (*trust.Policy, error)
	// IsIn reports whether it is in the ConfigMap of this name.
	IsIn(name types.NamespacedName) bool
}

// IsGated reports whether images are trusted only when they are signed.
func (k *Keeper) IsGated() bool { return k.options.Signer != nil || k.options.TrustPolicy != nil }

// thisCluster is whose keys those are that images are signed with here.
const thisCluster = "this cluster"

// verifyImage makes sure that an image is trusted, as it is in the registry now: by the cluster's
// own keys, where it is in a repository of the cluster, or by what the trust policy says of its
// repository. It is read by its digest, so no tag matters. What is not trusted is Terminal (see
// IsRejection).
func (k *Keeper) verifyImage(ctx context.Context, images sign.Registry, pinned string, isOwn bool) (trust.Verdict, error) {
	rules, err := k.rulesFor(ctx, pinned, isOwn)
	if err != nil {
		return trust.Verdict{}, err
	}
	if len(rules) == 0 {
		return trust.Verdict{}, fault.NewTerminal(mcfgv1alpha1.ReasonNotTrusted, k.untrusted(pinned))
	}
	var errs []error
	for _, rule := range rules {
		verdict, err := rule.Verify(ctx, images, pinned, k.clock.Now())
		if err == nil {
			return verdict, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return trust.Verdict{}, errs[0]
	}
	return trust.Verdict{}, fault.Join(errs...)
}

// rulesFor are the rules of which an image has to meet one.
func (k *Keeper) rulesFor(ctx context.Context, pinned string, isOwn bool) ([]trust.Rule, error) {
	repository, err := trust.RepositoryOf(pinned)
	if err != nil {
		return nil, fault.NewTerminal(mcfgv1alpha1.ReasonNotTrusted, err)
	}
	policy := &trust.Policy{}
	if k.options.TrustPolicy != nil {
		if policy, err = k.options.TrustPolicy.Policy(ctx); err != nil {
			return nil, err
		}
	}
	var rules []trust.Rule
	if isOwn && k.options.OwnKeys != nil {
		trusted, err := k.options.OwnKeys.Trusted(ctx)
		if err != nil {
			return nil, err
		}
		rules = append(rules, trust.Rule{Whose: thisCluster, Trusted: trusted, Demands: policy.Own})
	}
	if rule, has := policy.For(repository); has {
		rules = append(rules, rule)
	}
	return rules, nil
}

// untrusted says that no signer is configured for the repository of an image, and what helps.
func (k *Keeper) untrusted(pinned string) error {
	repository, _ := trust.RepositoryOf(pinned) // it was read before
	what := "write a trust policy with it and the public key that signs its images, and set --trust-policy"
	if k.options.TrustPolicy != nil {
		what = "name it in the trust policy, with the public key that its images are signed with"
	}
	return fmt.Errorf("no trusted signer is configured for the repository %q; %s", repository, what)
}

// IsRejection reports whether an error says that an image is not trusted, rather than that this
// can't be found out now.
func IsRejection(err error) bool {
	if registry.IsNotFound(err) {
		return true
	}
	return fault.IsTerminal(err) && (fault.Reason(err) == mcfgv1alpha1.ReasonNotSigned || fault.Reason(err) == mcfgv1alpha1.ReasonNotTrusted)
}

// reader is a client that can read an image which this cluster did not make, and reports whether it
// is in a repository of the cluster. That is read as it is written, with the push secret of its
// MachineOSConfig; others with what the nodes of the pool pull with, as far as the pool's
// MachineOSConfig says it.
func (r *Reconciler) reader(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) (_ *registry.Client, isOwn bool, _ error) {
	repository, err := trust.RepositoryOf(string(image.Spec.PullSpec))
	if err != nil {
		return nil, false, fault.NewTerminal(mcfgv1alpha1.ReasonNotTrusted, err)
	}
	var list mcfgv1.MachineOSConfigList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	var secrets []string
	for i := range list.Items {
		config := &list.Items[i]
		if isIn(repository, config) {
			own, err := r.credentials.Credentials(ctx, config)
			if own.Push != nil {
				err = nil
			}
			return own.Push, true, err
		}
		if config.Spec.MachineConfigPool.Name != image.Spec.MachineConfigPool {
			continue
		}
		for _, secret := range []*mcfgv1.ImageSecretObjectReference{config.Spec.CurrentImagePullSecret, config.Spec.BaseImagePullSecret} {
			if secret != nil {
				secrets = append(secrets, secret.Name)
			}
		}
	}
	images, err := r.credentials.ReadWith(ctx, image.Spec.MachineConfigPool, secrets...)
	return images, false, err
}

// isIn reports whether a repository is that of a MachineOSConfig: exactly, a/b is not a/b-evil.
func isIn(repository string, config *mcfgv1.MachineOSConfig) bool {
	name, err := credentials.Repository(config.Spec.RenderedImagePushSpec)
	if err != nil {
		return false
	}
	own, err := trust.RepositoryOf(name)
	return err == nil && own == repository
}

// MayReuse reports whether an image that has the tag and the labels of the one that is wanted may
// be taken for it. Where images are signed, that takes the signature of the key that signs now: it
// was made after the image had been checked, and says that labels and layers are ours. The keys of
// before do not do: what one of them has signed would get the signature of the new one.
func (k *Keeper) MayReuse(ctx context.Context, images *registry.Client, pinned string) (bool, error) {
	if k.options.Signer == nil {
		return true, nil
	}
	if k.options.OwnKeys == nil {
		return false, nil
	}
	trusted, err := k.options.OwnKeys.Trusted(ctx)
	if err != nil {
		return false, ignoreWaiting(err) // the image is made, and waits for its signature
	}
	_, err = trust.Rule{Whose: thisCluster, Trusted: trusted.Signing()}.Verify(ctx, images, pinned, k.clock.Now())
	if IsRejection(err) {
		return false, nil
	}
	return err == nil, err
}

func ignoreWaiting(err error) error {
	if fault.IsWaiting(err) {
		return nil
	}
	return err
}

// signedReason returns the reason of the condition Signed for an error of signing or verification.
func signedReason(err error) string {
	switch {
	case registry.IsNotFound(err):
		return mcfgv1alpha1.ReasonImageGone
	case IsRejection(err), fault.IsWaiting(err), fault.Reason(err) == mcfgv1.ReasonControllerKilled:
		return fault.Reason(err)
	default:
		return mcfgv1alpha1.ReasonUnreachable
	}
}
