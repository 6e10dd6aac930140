package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/builder/provenance"
	"github.com/layerwright/layerwright/internal/sign"
	"github.com/layerwright/layerwright/internal/trust"
)

// signingOptions say what images are signed with; the zero value signs none.
type signingOptions struct {
	secret   string
	generate bool
	kmsKey   string
	enforce  bool
	// trustPolicy is the ConfigMap with the administrators' trust policy; empty where there is none.
	trustPolicy string
	// builderID is what the provenance of images calls this installation.
	builderID string
}

func (o *signingOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.secret, "signing-secret", o.secret,
		"secret with the key that images are signed with: cosign.key and cosign.password, as `cosign generate-key-pair k8s://<namespace>/<name>` writes them; without it, and without --signing-kms-key, images are not signed")
	flags.BoolVar(&o.generate, "generate-signing-key", o.generate,
		"make a key where the secret of --signing-secret is there and has none")
	flags.StringVar(&o.kmsKey, "signing-kms-key", o.kmsKey,
		"key in a key management service that images are signed with, such as awskms:///alias/os, in place of a secret; it takes the program sigstore-kms-<scheme> in the PATH")
	flags.BoolVar(&o.enforce, "enforce-signatures", o.enforce,
		"make nodes of pools with a MachineOSConfig refuse images of its repository that are not signed: with the MachineConfig 99-<pool>-layerwright-signature-policy, or the ClusterImagePolicy layerwright-<pool> where the cluster has that kind and it can say it")
	flags.StringVar(&o.trustPolicy, "trust-policy", o.trustPolicy,
		"ConfigMap in the namespace of --namespace whose policy.yaml says which images count that were built elsewhere, and what provenance has to say; without it images count that this cluster has signed")
	flags.StringVar(&o.builderID, "builder-id", cmp.Or(o.builderID, provenance.DefaultBuilderID),
		"URI that says, in the provenance of images, who made them; give each installation its own where a policy has to tell them apart")
}

func (o *signingOptions) check() error {
	if u, err := url.Parse(o.builderID); o.builderID != "" && (err != nil || u.Scheme == "") {
		return fmt.Errorf("--builder-id: %q is no URI with a scheme, such as https://builds.example.com/layerwright", o.builderID)
	}
	switch {
	case o.enforce && !o.isOn():
		return errors.New("--enforce-signatures: it needs a key, --signing-secret or --signing-kms-key")
	case o.secret != "" && o.kmsKey != "":
		return errors.New("--signing-secret and --signing-kms-key: images are signed with one key; name one of them")
	case o.generate && o.secret == "":
		return errors.New("--generate-signing-key: it needs --signing-secret, to keep the key in")
	case o.trustPolicy != "" && len(validation.IsDNS1123Subdomain(o.trustPolicy)) > 0:
		return fmt.Errorf("--trust-policy %q: it has to be the name of a ConfigMap in the namespace of --namespace", o.trustPolicy)
	}
	return nil
}

// policy is the trust policy; nil where there is none.
func (o *signingOptions) policy(namespace string, manager ctrl.Manager) builder.TrustPolicy {
	if o.trustPolicy == "" {
		return nil
	}
	return trust.NewConfigMap(manager.GetAPIReader(), types.NamespacedName{Namespace: namespace, Name: o.trustPolicy})
}

// isOn tells whether images are signed.
func (o *signingOptions) isOn() bool { return o.secret != "" || o.kmsKey != "" }

// signingKeys are the key that signs, and those that nodes accept.
type signingKeys interface {
	sign.Keys
	builder.Trust
}

// keys are the keys that images are signed with; nil where they are not signed.
func (o *signingOptions) keys(namespace string, manager ctrl.Manager) signingKeys {
	switch {
	case o.kmsKey != "":
		return sign.NewKMSKeys(o.kmsKey)
	case o.secret != "":
		return sign.NewSecretKeys(sign.SecretOptions{
			Reader: manager.GetAPIReader(), Writer: manager.GetClient(),
			Secret: types.NamespacedName{Namespace: namespace, Name: o.secret}, Generate: o.generate,
		})
	}
	return nil
}
