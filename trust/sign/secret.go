package sign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/parsed"
)

// Keys of the Secret. The first three are those of `cosign generate-key-pair k8s://`.
const (
	SecretPrivateKey = "cosign.key"
	SecretPassword   = "cosign.password"
	SecretPublicKey  = "cosign.pub"
	// SecretTrusted has further public keys that nodes accept, as PEM: those before and after,
	// while keys are rotated.
	SecretTrusted = "trusted.pub"
)

// SecretOptions are what SecretKeys works with.
type SecretOptions struct {
	// Reader asks the API server, since no cache has secrets.
	Reader client.Reader
	// Writer fills in a key that is generated; needed with Generate alone.
	Writer client.Writer
	// Secret is the one with the key.
	Secret types.NamespacedName
	// Generate makes a key where the Secret is there and has none.
	Generate bool
	// Load decrypts a key; LoadKey where it is nil.
	Load func(private, password []byte) (*Key, error)
}

// SecretKeys has the key of a Secret. The Secret is read each time, so that a key which was taken
// away signs nothing more, and decrypted once.
type SecretKeys struct {
	options SecretOptions
	// generating is held while a key is made, which takes 64 MiB for a moment: many builds find the
	// Secret empty at once.
	generating sync.Mutex
	key        parsed.Value[*Key]
}

// NewSecretKeys makes a SecretKeys, and reads nothing.
func NewSecretKeys(options SecretOptions) *SecretKeys {
	if options.Load == nil {
		options.Load = LoadKey
	}
	return &SecretKeys{options: options}
}

// Key is the key that the Secret has now. Where that is none, the error is Waiting, with the reason
// WaitingForKey or InvalidKey.
func (s *SecretKeys) Key(ctx context.Context) (*Key, error) {
	secret, err := s.secret(ctx)
	if err != nil {
		return nil, err
	}
	return s.keyOf(secret)
}

func (s *SecretKeys) keyOf(secret *corev1.Secret) (*Key, error) {
	return s.key.Of(secret, func() (*Key, error) { return s.load(secret) })
}

// Trusted are the keys whose signatures nodes are to accept: that of Key, and those that the Secret
// names beside it.
func (s *SecretKeys) Trusted(ctx context.Context) (Trusted, error) {
	secret, err := s.secret(ctx)
	if err != nil {
		return Trusted{}, err
	}
	key, err := s.keyOf(secret)
	if err != nil {
		return Trusted{}, err
	}
	trusted, err := TrustedWith(key.public, secret.Data[SecretTrusted])
	if err != nil {
		return Trusted{}, s.invalid(SecretTrusted, err)
	}
	return trusted, nil
}

// TrustedWith are the key that signs and the others of a text, each once.
func TrustedWith(key *PublicKey, text []byte) (Trusted, error) {
	more, err := ParsePublicKeys(text)
	if err != nil {
		return Trusted{}, err
	}
	trusted := []*PublicKey{key}
	for _, k := range more {
		if !slices.ContainsFunc(trusted, func(o *PublicKey) bool { return o.ID() == k.ID() }) {
			trusted = append(trusted, k)
		}
	}
	return Trusted{Keys: trusted}, nil
}

// secret reads the Secret, and gives it a key where it has none and is to get one.
func (s *SecretKeys) secret(ctx context.Context) (*corev1.Secret, error) {
	secret, err := s.read(ctx)
	if err != nil || hasKey(secret) {
		return secret, err
	}
	if !s.options.Generate {
		return nil, s.missing(fmt.Errorf("it has no %s; create the secret with `cosign generate-key-pair k8s://...`", SecretPrivateKey))
	}
	s.generating.Lock()
	defer s.generating.Unlock()
	if secret, err = s.read(ctx); err != nil || hasKey(secret) { // another one was faster
		return secret, err
	}
	// Someone has taken a key away, or a part of the Secret is lost: nodes would refuse what a new
	// key signs.
	for _, left := range []string{SecretPublicKey, SecretPassword} {
		if len(secret.Data[left]) > 0 {
			return nil, s.missing(fmt.Errorf("it has %s and no %s: restore it, or empty the secret to have a new key made", left, SecretPrivateKey))
		}
	}
	return s.generate(ctx, secret)
}

func (s *SecretKeys) read(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.options.Reader.Get(ctx, s.options.Secret, secret)
	if apierrors.IsNotFound(err) {
		return nil, s.missing(errors.New("it does not exist; restore it, or create one with `cosign generate-key-pair k8s://...`"))
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %q: %w", s.options.Secret.Name, err)
	}
	return secret, nil
}

func hasKey(secret *corev1.Secret) bool { return len(secret.Data[SecretPrivateKey]) > 0 }

// generate fills in a key. Of two processes that do so at once the API server lets one through, and
// the other reads its key the next time.
func (s *SecretKeys) generate(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	password := generatePassword()
	private, public, err := GenerateKey(password)
	if err != nil {
		return nil, err
	}
	filled := secret.DeepCopy()
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	filled.Data[SecretPrivateKey], filled.Data[SecretPassword], filled.Data[SecretPublicKey] = private, password, public
	err = s.options.Writer.Update(ctx, filled)
	if apierrors.IsForbidden(err) {
		return nil, s.missing(errors.New("it has no key, and Layerwright may not write one; allow it to update this secret"))
	}
	if err != nil {
		return nil, fmt.Errorf("writing a key into secret %q: %w", s.options.Secret.Name, err)
	}
	return filled, nil
}

func (s *SecretKeys) load(secret *corev1.Secret) (*Key, error) {
	password, has := secret.Data[SecretPassword]
	if !has {
		return nil, s.invalid(SecretPassword, errors.New("it is missing"))
	}
	key, err := s.options.Load(secret.Data[SecretPrivateKey], password)
	if err != nil {
		return nil, s.invalid(SecretPrivateKey, err)
	}
	if text := bytes.TrimSpace(secret.Data[SecretPublicKey]); len(text) > 0 {
		public, err := ParsePublicKeys(text)
		if err != nil {
			return nil, s.invalid(SecretPublicKey, err)
		}
		if len(public) != 1 || public[0].ID() != key.public.ID() {
			return nil, s.invalid(SecretPublicKey, fmt.Errorf("it is not the public key of %s", SecretPrivateKey))
		}
	}
	return key, nil
}

func (s *SecretKeys) missing(why error) error {
	return fault.NewWaiting(mcfgv1alpha1.ReasonWaitingForKey, recheck,
		fmt.Errorf("no signing key in secret %q in namespace %q: %w", s.options.Secret.Name, s.options.Secret.Namespace, why))
}

func (s *SecretKeys) invalid(field string, why error) error {
	return fault.NewWaiting(mcfgv1alpha1.ReasonInvalidKey, recheck,
		fmt.Errorf("%s of the secret %q in namespace %q can't be used: %w", field, s.options.Secret.Name, s.options.Secret.Namespace, why))
}
