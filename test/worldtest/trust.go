package worldtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/internal/status/statustest"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/trust"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// SBOMs is an SBOM that has one text, or fails.
type SBOMs struct {
	Text  string
	Err   error
	About []sbom.Subject
}

// Make makes a list.
func (b *SBOMs) Make(_ context.Context, about sbom.Subject) ([]byte, error) {
	b.About = append(b.About, about)
	return []byte(b.Text), b.Err
}

// Attesting makes a Builder attest and sign.
func (w *World) Attesting(made *SBOMs) func(*Settings) {
	return func(o *Settings) {
		signer := sign.NewSigner(w.SecretKeys())
		o.Signer, o.Attester = signer, signer
		if made != nil {
			o.SBOMs = made
		}
	}
}

// Stated are the predicates of a type that a key has stated about an image.
func (w *World) Stated(image, predicateType string, by KeyPair) ([]json.RawMessage, error) {
	return w.Takes(by).VerifyAttestation(w.T.Context(), registry.New(registry.Options{}), image, predicateType)
}

// ReadStated reads the only predicate of a type that a key has stated about an image.
func (w *World) ReadStated(image, predicateType string, by KeyPair, predicate any) {
	w.T.Helper()
	found, err := w.Stated(image, predicateType, by)
	require.NoError(w.T, err)
	require.Len(w.T, found, 1)
	require.NoError(w.T, json.Unmarshal(found[0], predicate))
}

// Provenance is what an image is stated to be made of, verified with the key.
func (w *World) Provenance(image string, by KeyPair) *provenance.Predicate {
	w.T.Helper()
	p := &provenance.Predicate{}
	w.ReadStated(image, sign.PredicateProvenance, by, p)
	return p
}

const policyMap = "trust"

// Trusting makes a Builder go by the trust policy of the ConfigMap "trust".
func (w *World) Trusting(o *Settings) {
	o.TrustPolicy = trust.NewConfigMap(w, apitypes.NamespacedName{Namespace: Namespace, Name: policyMap})
}

// Policy is a ConfigMap with a trust policy.
func Policy(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: policyMap}, Data: map[string]string{trust.PolicyKey: text}}
}

// Trusts is the entry of a policy that trusts a key in a repository of the world's registry, with
// further fields.
func (w *World) Trusts(repository string, key KeyPair, more ...string) string {
	text := fmt.Sprintf("  - repository: %s/%s\n    publicKeys: %q\n", w.Registry.Host, repository, key.Public)
	for _, line := range more {
		text += "    " + line + "\n"
	}
	return text
}

// PolicyOf is a trust policy of entries.
func PolicyOf(entries ...string) *corev1.ConfigMap {
	return Policy("repositories:\n" + strings.Join(entries, ""))
}

// Repolicy changes the policy.
func (w *World) Repolicy(to *corev1.ConfigMap) {
	w.T.Helper()
	w.Quietly(func() error {
		object := &corev1.ConfigMap{}
		if err := w.Get(w.T.Context(), apitypes.NamespacedName{Namespace: Namespace, Name: policyMap}, object); err != nil {
			return err
		}
		object.Data = to.Data
		return w.Update(w.T.Context(), object)
	})
}

// Signs signs an image as another cluster does.
func (w *World) Signs(key KeyPair, pinned string) {
	w.T.Helper()
	_, err := key.Signer().Sign(w.T.Context(), registry.New(registry.Options{}), pinned)
	require.NoError(w.T, err)
}

// Look has each reconciler reconcile an image, checks that what it says follows what
// was said before, and gives Signed and Ready.
func (w *World) Look(b *Process, name string) (signed, ready string) {
	w.T.Helper()
	_, _ = w.LookAt(b, name)
	image := Read(w, &mcfgv1alpha1.MachineOSImage{}, name)
	return SignedText(image), Text(image.Status.Conditions, status.Ready)
}

// LookAt reconciles an image, by its name.
func (w *World) LookAt(b *Process, name string) (ctrl.Result, error) {
	w.T.Helper()
	before := Read(w, &mcfgv1alpha1.MachineOSImage{}, name)
	var result ctrl.Result
	var failed error
	if b.Keeper.IsGated() {
		result, failed = w.ReconcileImage(b, name)
	}
	_, err := (&images.ReadyReconciler{Keeper: b.Keeper}).Reconcile(w.T.Context(), Request(name))
	require.NoError(w.T, err)
	statustest.RequireStep(w.T, before, Read(w, &mcfgv1alpha1.MachineOSImage{}, name))
	return result, failed
}

// WithSBOMs makes a Builder attest with the key of the Secret "signing", SBOMs too.
func (w *World) WithSBOMs(o *Settings) {
	signer := sign.NewSigner(w.SecretKeys())
	o.Signer, o.Attester = signer, signer
	o.SBOMs = sbom.New(baseimage.New(baseimage.Options{CacheDir: w.CacheDir}), "v1", w.Clock)
}

// Enforcing makes a Builder that makes nodes insist on the key of the Secret "signing".
func (w *World) Enforcing(o *Settings) {
	o.Trust = w.SecretKeys()
}

// KeyPair is what a Secret has.
type KeyPair struct{ signtest.Pair }

// Keys of stories are made once: encrypting takes its time.
var (
	FirstKey  = sync.OnceValue(NewKeyPair)
	SecondKey = sync.OnceValue(NewKeyPair)
)

// NewKeyPair makes a key pair.
func NewKeyPair() KeyPair { return KeyPair{signtest.NewPair()} }

// Secret has the pair as the controller reads it.
func (p KeyPair) Secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "signing"},
		Data:       map[string][]byte{sign.SecretPrivateKey: p.Private, sign.SecretPassword: []byte(signtest.Password)},
	}
}

// SecretKeys has the key of the Secret "signing".
func (w *World) SecretKeys() *sign.SecretKeys {
	secret := apitypes.NamespacedName{Namespace: Namespace, Name: "signing"}
	return sign.NewSecretKeys(sign.SecretOptions{Reader: w, Secret: secret, Load: signtest.LoadKey})
}

// Signing makes a Builder sign with the key of the Secret "signing".
func (w *World) Signing(o *Settings) {
	keys := w.SecretKeys()
	o.Signer, o.OwnKeys = sign.NewSigner(keys), keys
}

// Takes is the policy of who takes images of the pools' repository by one key.
func (w *World) Takes(by KeyPair) sign.Policy {
	return sign.Policy{{Repository: w.Registry.Host + "/host/os", Keys: Must(sign.ParsePublicKeys(by.Public))}}
}

// ReconcileImage reconciles an image.
func (w *World) ReconcileImage(b *Process, image string) (ctrl.Result, error) {
	return (&images.Reconciler{Keeper: b.Keeper}).Reconcile(w.T.Context(), Request(image))
}

// OnlyImage is the MachineOSImage, of which there is one.
func (w *World) OnlyImage() *mcfgv1alpha1.MachineOSImage {
	w.T.Helper()
	images := w.Images()
	require.Len(w.T, images, 1)
	return &images[0]
}

// SignedText is what the condition Signed of an image says.
func SignedText(image *mcfgv1alpha1.MachineOSImage) string {
	return Text(image.Status.Conditions, mcfgv1alpha1.ImageSigned)
}
