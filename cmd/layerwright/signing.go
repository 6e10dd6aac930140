//go:build !client

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/kmskey"
)

// signingOptions say what images are signed with; the zero value signs none.
type signingOptions struct {
	secret   string
	generate bool
	kmsKey   string
	// trustedKeys is the file with the keys that are trusted beside kmsKey.
	trustedKeys string
	keyless     keylessOptions
	enforce     bool
	// trustPolicy is the ConfigMap with the administrators' trust policy; empty where there is
	// none.
	trustPolicy string
	// builderID is what the provenance of images calls this installation.
	builderID string
}

// keylessOptions say how images are signed without a key; the zero value does not.
type keylessOptions struct {
	fulcioURL, rekorURL   string
	tokenFile             string
	fulcioRoots, rekorKey string
	identity, issuer      string
}

func (o *signingOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.secret, "signing-secret", o.secret,
		"secret with the key that images are signed with: cosign.key and cosign.password, as \"cosign generate-key-pair k8s://<namespace>/<name>\" writes them; without it, without --signing-kms-key and without --signing-fulcio-url, images are not signed")
	flags.BoolVar(&o.generate, "generate-signing-key", o.generate,
		"create a key if the secret of --signing-secret exists without one")
	flags.StringVar(&o.kmsKey, "signing-kms-key", o.kmsKey,
		"key in a key management service that images are signed with, such as awskms:///alias/os, in place of a secret: awskms, azurekms, gcpkms, hashivault or openbao, whose clients are in the image of the controller; any other service takes its plug-in of sigstore, sigstore-kms-<service>, in the PATH")
	flags.StringVar(&o.trustedKeys, "signing-trusted-keys", o.trustedKeys,
		"file with further public keys in PEM that are trusted beside that of --signing-kms-key, while a key is rotated, for example of a mounted ConfigMap; it is read each time")
	o.keyless.addFlags(flags)
	flags.BoolVar(&o.enforce, "enforce-signatures", o.enforce,
		"make nodes of pools with a MachineOSConfig refuse unsigned images of its repository and of those that the trust policy names: with ClusterImagePolicies where the cluster has that kind and it can express the rule, else with the MachineConfig 99-<pool>-layerwright-signature-policy")
	flags.StringVar(&o.trustPolicy, "trust-policy", o.trustPolicy,
		"ConfigMap in the namespace of --namespace whose policy.yaml says which images that were built elsewhere are trusted, and what provenance has to say; without it only images that this cluster has signed are trusted")
	flags.StringVar(&o.builderID, "builder-id", cmp.Or(o.builderID, provenance.DefaultBuilderID),
		"URI that says, in the provenance of images, who made them; give each installation its own where a policy has to tell them apart")
}

func (o *keylessOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.fulcioURL, "signing-fulcio-url", o.fulcioURL,
		"URL of the Fulcio that certifies who signs images, in place of a key; it must be https, except on this host; it needs the other --signing flags of an identity too")
	flags.StringVar(&o.rekorURL, "signing-rekor-url", o.rekorURL, "URL of the Rekor that logs each signature; it must be https, except on this host")
	flags.StringVar(&o.tokenFile, "signing-identity-token-file", o.tokenFile,
		"file with the OpenID Connect token that says to Fulcio who signs, such as a projected token of the service account; it is read each time")
	flags.StringVar(&o.fulcioRoots, "signing-fulcio-roots", o.fulcioRoots,
		"file with the root certificates of the Fulcio in PEM, for example of a mounted ConfigMap; it is read each time")
	flags.StringVar(&o.rekorKey, "signing-rekor-key", o.rekorKey, "file with the public key of the Rekor in PEM; it is read each time")
	flags.StringVar(&o.identity, "signing-identity", o.identity,
		"subject that the certificates must have: an email address, or a URI, which nodes can't enforce")
	flags.StringVar(&o.issuer, "signing-issuer", o.issuer, "URL of the issuer of the token, which the certificates have to name")
}

func (o *signingOptions) check() error {
	if err := o.checkKey(); err != nil {
		return err
	}
	if u, err := url.Parse(o.builderID); o.builderID != "" && (err != nil || u.Scheme == "") {
		return fmt.Errorf("--builder-id: %q is no URI with a scheme, such as https://builds.example.com/layerwright", o.builderID)
	}
	switch {
	case o.enforce && !o.isOn():
		return errors.New("--enforce-signatures: it needs a key, --signing-secret or --signing-kms-key, or an identity, --signing-fulcio-url")
	case o.trustPolicy != "" && len(validation.IsDNS1123Subdomain(o.trustPolicy)) > 0:
		return fmt.Errorf("--trust-policy %q: it has to be the name of a ConfigMap in the namespace of --namespace", o.trustPolicy)
	case o.enforce && o.keyless.identity != "" && !sign.IsEmail(o.keyless.identity):
		return fmt.Errorf("--enforce-signatures: nodes verify only email addresses, and --signing-identity is %q; use an email address or a key", o.keyless.identity)
	}
	return o.keyless.check()
}

// checkKey wants one key at most, and what belongs to it.
func (o *signingOptions) checkKey() error {
	switch {
	case o.secret != "" && o.kmsKey != "":
		return errors.New("--signing-secret and --signing-kms-key: images are signed with one key; name one of them")
	case (o.secret != "" || o.kmsKey != "") && o.keyless != (keylessOptions{}):
		return errors.New("--signing-fulcio-url: images are signed with a key or without; name one of --signing-secret, --signing-kms-key and --signing-fulcio-url")
	case o.generate && o.secret == "":
		return errors.New("--generate-signing-key: it needs --signing-secret, to keep the key in")
	case o.trustedKeys != "" && o.kmsKey == "":
		return errors.New("--signing-trusted-keys: it needs --signing-kms-key; beside the key of a secret, trusted keys are those of the secret's trusted.pub")
	case o.kmsKey != "":
		return kmskey.CheckURI(o.kmsKey)
	}
	return nil
}

// check wants all of it or nothing.
func (o *keylessOptions) check() error {
	if *o == (keylessOptions{}) {
		return nil
	}
	for _, flag := range []struct{ name, value string }{
		{"signing-fulcio-url", o.fulcioURL},
		{"signing-rekor-url", o.rekorURL},
		{"signing-identity-token-file", o.tokenFile},
		{"signing-fulcio-roots", o.fulcioRoots},
		{"signing-rekor-key", o.rekorKey},
		{"signing-identity", o.identity},
		{"signing-issuer", o.issuer},
	} {
		if flag.value == "" {
			return fmt.Errorf("--%s: signing without a key needs it", flag.name)
		}
	}
	for _, flag := range []struct{ name, value string }{{"signing-fulcio-url", o.fulcioURL}, {"signing-rekor-url", o.rekorURL}} {
		if parsed, err := url.Parse(flag.value); err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
			return fmt.Errorf("--%s: %q is no URL of a web service", flag.name, flag.value)
		} else if parsed.Scheme != "https" && !isLoopback(parsed.Hostname()) {
			return fmt.Errorf("--%s: %q has no encryption, and the identity token would be sent for everyone to read; take one with https", flag.name, flag.value)
		}
	}
	return nil
}

// isLoopback reports whether a host is this one, such as for a proxy beside the controller that has
// the encryption.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// policy is the trust policy; nil where there is none.
func (o *signingOptions) policy(namespace string, manager ctrl.Manager) images.TrustPolicy {
	if o.trustPolicy == "" {
		return nil
	}
	return trust.NewConfigMap(manager.GetAPIReader(), types.NamespacedName{Namespace: namespace, Name: o.trustPolicy})
}

// isOn reports whether images are signed.
func (o *signingOptions) isOn() bool {
	return o.secret != "" || o.kmsKey != "" || o.keyless != (keylessOptions{})
}

// signingKeys are the key that signs, and those that nodes accept.
type signingKeys interface {
	sign.Keys
	images.Trust
}

// keys are the keys that images are signed with; nil where they are not signed.
func (o *signingOptions) keys(namespace string, manager ctrl.Manager) signingKeys {
	switch {
	case o.keyless.fulcioURL != "":
		return sign.NewKeyless(sign.KeylessOptions{
			FulcioURL: o.keyless.fulcioURL, RekorURL: o.keyless.rekorURL, TokenFile: o.keyless.tokenFile,
			RootsFile: o.keyless.fulcioRoots, LogKeyFile: o.keyless.rekorKey, Subject: o.keyless.identity, Issuer: o.keyless.issuer,
		})
	case o.kmsKey != "":
		return kmskey.New(kmskey.Options{URI: o.kmsKey, TrustedFile: o.trustedKeys})
	case o.secret != "":
		return sign.NewSecretKeys(sign.SecretOptions{
			Reader: manager.GetAPIReader(), Writer: manager.GetClient(),
			Secret: types.NamespacedName{Namespace: namespace, Name: o.secret}, Generate: o.generate,
		})
	}
	return nil
}
