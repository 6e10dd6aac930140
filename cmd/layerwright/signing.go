package main

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/builder"
	"github.com/layerwright/layerwright/internal/sign"
)

// signingOptions say what images are signed with; the zero value signs none.
type signingOptions struct {
	secret   string
	generate bool
	kmsKey   string
	enforce  bool
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
}

func (o *signingOptions) check() error {
	switch {
	case o.enforce && o.secret == "" && o.kmsKey == "":
		return errors.New("--enforce-signatures: it needs a key, --signing-secret or --signing-kms-key")
	case o.secret != "" && o.kmsKey != "":
		return errors.New("--signing-secret and --signing-kms-key: images are signed with one key; name one of them")
	case o.generate && o.secret == "":
		return errors.New("--generate-signing-key: it needs --signing-secret, to keep the key in")
	}
	return nil
}

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
