package sign_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

var secretName = types.NamespacedName{Namespace: "layerwright", Name: "signing-key"}

func newSecret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretName.Namespace, Name: secretName.Name}, Data: data}
}

func good() map[string][]byte {
	return map[string][]byte{
		sign.SecretPrivateKey: ours().Private, sign.SecretPassword: []byte(signtest.Password), sign.SecretPublicKey: ours().Public,
	}
}

func without(data map[string][]byte, field string) map[string][]byte {
	delete(data, field)
	return data
}

func with(data map[string][]byte, field string, value []byte) map[string][]byte {
	data[field] = value
	return data
}

func TestKeysOfSecrets(t *testing.T) {
	t.Parallel()
	plain := encryptedKey(t, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	tests := map[string]struct {
		secret *corev1.Secret
		reason string
		want   string
	}{
		"a pair":                        {newSecret(good()), "", ""},
		"without the public key":        {newSecret(without(good(), sign.SecretPublicKey)), "", ""},
		"no secret":                     {nil, mcfgv1alpha1.ReasonWaitingForKey, `no signing key in secret "signing-key" in namespace "layerwright": it does not exist`},
		"an empty secret":               {newSecret(nil), mcfgv1alpha1.ReasonWaitingForKey, "it has no cosign.key"},
		"no password":                   {newSecret(without(good(), sign.SecretPassword)), mcfgv1alpha1.ReasonInvalidKey, "cosign.password of the secret \"signing-key\" in namespace \"layerwright\" can't be used: it is missing"},
		"another password":              {newSecret(with(good(), sign.SecretPassword, []byte("battery staple"))), mcfgv1alpha1.ReasonInvalidKey, "the password does not open it"},
		"no key":                        {newSecret(with(good(), sign.SecretPrivateKey, []byte("hello"))), mcfgv1alpha1.ReasonInvalidKey, "it is no private key as"},
		"a public key of another":       {newSecret(with(good(), sign.SecretPublicKey, others().Public)), mcfgv1alpha1.ReasonInvalidKey, "it is not the public key of cosign.key"},
		"a public key that is none":     {newSecret(with(good(), sign.SecretPublicKey, []byte("hello"))), mcfgv1alpha1.ReasonInvalidKey, "cosign.pub"},
		"a key that nodes can't verify": {newSecret(without(with(good(), sign.SecretPrivateKey, plain), sign.SecretPublicKey)), mcfgv1alpha1.ReasonInvalidKey, "nodes verify ECDSA and RSA alone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := fake.NewClientBuilder()
			if tt.secret != nil {
				objects = objects.WithObjects(tt.secret)
			}
			key, err := sign.NewSecretKeys(sign.SecretOptions{Reader: objects.Build(), Secret: secretName}).Key(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, ours().ID(), key.Public().ID())
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.True(t, fault.IsWaiting(err), "a person puts it right, and nothing tells when")
			assert.Positive(t, fault.After(err))
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.NotContains(t, err.Error(), "battery staple")
			assert.NotContains(t, err.Error(), signtest.Password)
		})
	}
}

// encryptedKey writes a private key as cosign does.
func encryptedKey(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	secret, err := encrypted.Encrypt(der, []byte(signtest.Password))
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED COSIGN PRIVATE KEY", Bytes: secret})
}

func TestTheSecretIsReadEachTime(t *testing.T) {
	t.Parallel()
	objects := fake.NewClientBuilder().WithObjects(newSecret(good())).Build()
	keys := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Secret: secretName})
	first, err := keys.Key(t.Context())
	require.NoError(t, err)
	again, err := keys.Key(t.Context())
	require.NoError(t, err)
	assert.Same(t, first, again, "it is decrypted once")

	secret := &corev1.Secret{}
	require.NoError(t, objects.Get(t.Context(), secretName, secret))
	secret.Data = map[string][]byte{sign.SecretPrivateKey: others().Private, sign.SecretPassword: []byte(signtest.Password)}
	require.NoError(t, objects.Update(t.Context(), secret))
	rotated, err := keys.Key(t.Context())
	require.NoError(t, err)
	assert.Equal(t, others().ID(), rotated.Public().ID())

	require.NoError(t, objects.Delete(t.Context(), secret))
	_, err = keys.Key(t.Context())
	require.ErrorContains(t, err, "it does not exist; restore it", "a key that was taken away signs nothing more")

	require.NoError(t, objects.Create(t.Context(), newSecret(good())))
	back, err := keys.Key(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ours().ID(), back.Public().ID())
}

func TestManyBuildsThatFindNoKeyMakeOne(t *testing.T) {
	t.Parallel()
	var written atomic.Int32
	objects := fake.NewClientBuilder().WithObjects(newSecret(nil)).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			written.Add(1)
			return c.Update(ctx, o, options...)
		},
	}).Build()
	keys := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Writer: objects, Secret: secretName, Generate: true})
	var builds errgroup.Group
	ids := make([]string, 8)
	for i := range ids {
		builds.Go(func() error {
			key, err := keys.Key(t.Context())
			if err == nil {
				ids[i] = key.ID()
			}
			return err
		})
	}
	require.NoError(t, builds.Wait())
	assert.Len(t, slices.Compact(ids), 1)
	assert.Equal(t, int32(1), written.Load())
}

func TestAKeyIsGenerated(t *testing.T) {
	t.Parallel()
	objects := fake.NewClientBuilder().WithObjects(newSecret(nil)).Build()
	keys := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Writer: objects, Secret: secretName, Generate: true})
	key, err := keys.Key(t.Context())
	require.NoError(t, err)
	secret := &corev1.Secret{}
	require.NoError(t, objects.Get(t.Context(), secretName, secret))
	assert.GreaterOrEqual(t, len(secret.Data[sign.SecretPassword]), 26)
	public, err := sign.ParsePublicKeys(secret.Data[sign.SecretPublicKey])
	require.NoError(t, err)
	assert.Equal(t, key.Public().ID(), public[0].ID())

	other, err := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Writer: objects, Secret: secretName, Generate: true}).Key(t.Context())
	require.NoError(t, err)
	assert.Equal(t, key.Public().ID(), other.Public().ID(), "after a restart it is the same")

	require.NoError(t, objects.Delete(t.Context(), secret))
	_, err = keys.Key(t.Context())
	require.ErrorContains(t, err, "it does not exist", "none is made in place of one that was lost: nodes would not know it")
}

func TestAKeyMayNotBeWritten(t *testing.T) {
	t.Parallel()
	objects := fake.NewClientBuilder().WithObjects(newSecret(nil)).Build()
	forbidding := interceptor.NewClient(objects, interceptor.Funcs{Update: forbid})
	_, err := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Writer: forbidding, Secret: secretName, Generate: true}).Key(t.Context())
	require.ErrorContains(t, err, "allow it to update this secret")
	assert.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
}

func TestTrustedKeys(t *testing.T) {
	t.Parallel()
	ids := func(data map[string][]byte) ([]string, error) {
		objects := fake.NewClientBuilder().WithObjects(newSecret(data)).Build()
		trusted, err := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Secret: secretName}).Trusted(t.Context())
		var out []string
		for _, key := range trusted.Keys {
			out = append(out, key.ID())
		}
		return out, err
	}
	mine, theirs := ours().ID(), others().ID()
	got, err := ids(good())
	require.NoError(t, err)
	assert.Equal(t, []string{mine}, got)
	got, err = ids(with(good(), sign.SecretTrusted, bytes.Join([][]byte{others().Public, ours().Public, others().Public}, nil)))
	require.NoError(t, err)
	assert.Equal(t, []string{mine, theirs}, got, "each once")
	_, err = ids(with(good(), sign.SecretTrusted, []byte("hello")))
	require.ErrorContains(t, err, "trusted.pub")
}

func TestAKeyNeverShowsItself(t *testing.T) {
	t.Parallel()
	key := ours().Key
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		assert.Equal(t, key.Public().ID(), fmt.Sprintf(verb, key))
	}
}

func TestAKeyIsNotMadeInPlaceOfOneThatIsLost(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]map[string][]byte{
		"the public key is left": {sign.SecretPublicKey: ours().Public},
		"the password is left":   {sign.SecretPassword: []byte(signtest.Password)},
		"an empty private key":   with(good(), sign.SecretPrivateKey, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := fake.NewClientBuilder().WithObjects(newSecret(data)).Build()
			_, err := sign.NewSecretKeys(sign.SecretOptions{Reader: objects, Writer: objects, Secret: secretName, Generate: true}).Key(t.Context())
			require.ErrorContains(t, err, "restore it, or empty the secret")
			assert.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
			secret := &corev1.Secret{}
			require.NoError(t, objects.Get(t.Context(), secretName, secret))
			assert.Empty(t, secret.Data[sign.SecretPrivateKey])
			assert.Equal(t, data[sign.SecretPublicKey], secret.Data[sign.SecretPublicKey], "it stays the one that nodes know")
		})
	}
}

// While keys are rotated, nodes must not be told of one state's key with the other's trusted ones.
func TestTrustedKeysAreThoseOfOneMoment(t *testing.T) {
	t.Parallel()
	objects := fake.NewClientBuilder().WithObjects(newSecret(with(good(), sign.SecretTrusted, others().Public))).Build()
	reads := 0
	exchanging := interceptor.NewClient(objects, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if reads++; reads == 2 {
				changed := &corev1.Secret{}
				if err := c.Get(ctx, key, changed); err != nil {
					return err
				}
				changed.Data = map[string][]byte{
					sign.SecretPrivateKey: others().Private, sign.SecretPassword: []byte(signtest.Password), sign.SecretTrusted: ours().Public,
				}
				if err := c.Update(ctx, changed); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	trusted, err := sign.NewSecretKeys(sign.SecretOptions{Reader: exchanging, Secret: secretName}).Trusted(t.Context())
	require.NoError(t, err)
	assert.Len(t, trusted.Keys, 2)
	assert.Equal(t, ours().Key.ID(), trusted.Keys[0].ID())
}

func TestParsePublicKeys(t *testing.T) {
	t.Parallel()
	none, err := sign.ParsePublicKeys([]byte("\n"))
	require.NoError(t, err)
	assert.Empty(t, none)
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(edwards)
	require.NoError(t, err)
	_, err = sign.ParsePublicKeys(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	require.ErrorIs(t, err, sign.ErrKeyType)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err = x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	_, err = sign.ParsePublicKeys(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	require.ErrorContains(t, err, `in a block "PRIVATE KEY"`)

	broken := bytes.Replace(others().Public, []byte("-----END"), []byte("----END"), 1)
	for name, text := range map[string][]byte{
		"the first is cut off": bytes.Join([][]byte{broken, ours().Public}, nil),
		"the last is cut off":  bytes.Join([][]byte{ours().Public, broken}, nil),
	} {
		_, err = sign.ParsePublicKeys(text)
		require.ErrorContains(t, err, "there is something that is no PEM", name+": a key that is dropped in silence is missing on nodes")
	}
	commented, err := sign.ParsePublicKeys(bytes.Join([][]byte{[]byte("# of 2025\n"), ours().Public, []byte("# of 2026\n"), others().Public}, nil))
	require.NoError(t, err)
	assert.Len(t, commented, 2)
}

func forbid(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, o.GetName(), nil)
}
