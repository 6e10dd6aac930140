package sign_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/common"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/sign"
	"github.com/layerwright/layerwright/trust/sign/kmskey"
)

// Variables that make this program the plug-in of a service.
const (
	pluginMode = "LAYERWRIGHT_TEST_PLUGIN"
	pluginKey  = "LAYERWRIGHT_TEST_PLUGIN_KEY"
)

// token is what the service is used with.
const token = "hvs.hunter2-token" //nolint:gosec // it opens nothing

// localKey is a key that signs with any hash function, as services do.
type localKey struct{ signature.SignerVerifier }

func (localKey) CreateKey(context.Context, string) (crypto.PublicKey, error) { return nil, nil }
func (localKey) SupportedAlgorithms() []string                               { return nil }
func (localKey) DefaultAlgorithm() string                                    { return "" }
func (localKey) CryptoSigner(context.Context, func(error)) (crypto.Signer, crypto.SignerOpts, error) {
	return nil, nil, nil
}

// actAsPlugin answers one request as a service's plug-in does in some mode, and gives the exit
// code.
func actAsPlugin(mode string) int {
	refuse := func(code int, message string) int {
		_ = handler.WriteErrorResponse(os.Stdout, errors.New(message))
		return code
	}
	for _, argument := range os.Args {
		if strings.Contains(argument, token) {
			return refuse(1, "everyone can read arguments")
		}
	}
	switch mode {
	case "hang":
		select {}
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: with "+token)
		return 3
	case "garbage":
		fmt.Fprintln(os.Stdout, "hello")
		return 0
	case "endless":
		for range 1 << 10 {
			fmt.Fprint(os.Stdout, strings.Repeat("x", 1<<12))
		}
		return 0
	case "empty":
		fmt.Fprintln(os.Stdout, "{}")
		return 0
	case "noKey":
		fmt.Fprintln(os.Stdout, `{"publicKey":{"publicKeyPEM":"aGVsbG8="}}`)
		return 0
	case "denied":
		return refuse(1, "GET https://user:hunter2@vault:8200/v1/transit/keys/os\nCode: 403. Errors:\n\n* permission denied for "+token)
	case "reference":
		return refuse(64, "kms specification should be in the format test://<key>")
	}
	request, err := handler.GetPluginArgs(os.Args)
	if err != nil || os.Args[1] != common.ProtocolVersion || request.InitOptions.KeyResourceID != "keys/os" || request.InitOptions.CtxDeadline == nil {
		return refuse(1, "another request was expected")
	}
	text, err := os.ReadFile(os.Getenv(pluginKey))
	if err != nil {
		return refuse(1, err.Error())
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return refuse(1, err.Error())
	}
	with := request.InitOptions.HashFunc
	if mode == "sha384" {
		with = crypto.SHA384
	}
	signer, err := signature.LoadSignerVerifier(key, with)
	if err != nil {
		return refuse(1, err.Error())
	}
	if _, err := handler.Dispatch(os.Stdout, os.Stdin, request, localKey{signer}); err != nil {
		return 1
	}
	return 0
}

// service is a key management service with one key, and what is used of it.
type service struct {
	t       *testing.T
	keyFile string

	mu    sync.Mutex
	mode  string
	asked int
}

func newService(t *testing.T, mode string) *service {
	t.Helper()
	s := &service{t: t, mode: mode, keyFile: filepath.Join(t.TempDir(), "key.pem")}
	s.exchange(newECDSA(t))
	return s
}

func newECDSA(t *testing.T) crypto.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// exchange gives the service another key.
func (s *service) exchange(key crypto.PrivateKey) {
	s.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

func (s *service) turn(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
}

func (s *service) environment() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return append(slices.Clone(os.Environ()), pluginMode+"="+s.mode, pluginKey+"="+s.keyFile, "TEST_TOKEN="+token, "TEST_TOKEN_FILE=/run/token")
}

func (s *service) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// options are for the service's key.
func (s *service) options() kmskey.Options {
	return kmskey.Options{URI: "test://keys/os", Environment: s.environment, LookPath: func(program string) (string, error) {
		if program != "sigstore-kms-test" {
			return "", exec.ErrNotFound
		}
		return os.Executable()
	}}
}

func (s *service) keys() *kmskey.Keys { return kmskey.New(s.options()) }

func TestKeysOfAServiceSign(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newService(t, "sign")
	keys := s.keys()
	trusted, err := keys.Trusted(t.Context())
	require.NoError(t, err)
	key, err := keys.Key(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []*sign.PublicKey{key.Public()}, trusted.Keys)
	assert.Equal(t, 1, s.requests(), "the public key is kept")
	assert.Equal(t, key.Public().ID(), fmt.Sprintf("%#v", key))

	image := w.push("os/worker", "one")
	signed, err := sign.NewSigner(keys).Sign(t.Context(), w.client, image)
	require.NoError(t, err)
	assert.Equal(t, sign.Signature{Reference: signed.Reference, KeyID: key.ID(), Added: 1}, signed)
	_, err = sign.NewSigner(keys).Attest(t.Context(), w.client, image, sign.Statement{PredicateType: sign.PredicateProvenance, Predicate: []byte(`{}`)})
	require.NoError(t, err)
	policy := sign.Policy{{Repository: w.host + "/os/worker", Keys: trusted.Keys}}
	_, err = policy.Verify(t.Context(), w.client, image)
	require.NoError(t, err)
	_, err = policy.VerifyAttestation(t.Context(), w.client, image, sign.PredicateProvenance)
	require.NoError(t, err)

	before := s.requests()
	signed, err = sign.NewSigner(keys).Sign(t.Context(), w.client, image)
	require.NoError(t, err)
	assert.Zero(t, signed.Added)
	assert.Equal(t, before, s.requests(), "what is signed is not signed again")
}

func TestKeysOfAServiceThatFails(t *testing.T) {
	t.Parallel()
	edwards := func(t *testing.T, s *service) {
		t.Helper()
		_, key, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		s.exchange(key)
	}
	tests := map[string]struct {
		mode   string
		change func(*testing.T, *service)
		with   func(*kmskey.Options)
		reason string
		want   []string
	}{
		"no URI":                   {with: func(o *kmskey.Options) { o.URI = "../bin://key" }, reason: mcfgv1alpha1.ReasonInvalidKey, want: []string{`"../bin://key" is no URI of a key, such as`}},
		"no key":                   {with: func(o *kmskey.Options) { o.URI = "awskms://" }, reason: mcfgv1alpha1.ReasonInvalidKey, want: []string{`"awskms://" is no URI of a key`}},
		"no program":               {with: func(o *kmskey.Options) { o.URI = "other://key" }, reason: mcfgv1alpha1.ReasonInvalidKey, want: []string{`"other://key"`, `no program "sigstore-kms-other" in the PATH: take Layerwright's image`}},
		"no key can be called so":  {mode: "reference", reason: mcfgv1alpha1.ReasonInvalidKey, want: []string{"should be in the format test://<key>"}},
		"a key of another kind":    {mode: "sign", change: edwards, reason: mcfgv1alpha1.ReasonInvalidKey, want: []string{"nodes verify ECDSA and RSA alone", "ECDSA on P-256"}},
		"refuses":                  {mode: "denied", reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"Code: 403. Errors: * permission denied for <TEST_TOKEN>", "https://REDACTED@vault:8200", "credentials that may use the key"}},
		"does not answer":          {mode: "hang", with: func(o *kmskey.Options) { o.Timeout = 50 * time.Millisecond }, reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"has not answered within 50ms", "reaches it"}},
		"crashes":                  {mode: "crash", reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"running sigstore-kms-test: exit status 3: panic: with <TEST_TOKEN>"}},
		"says something else":      {mode: "garbage", reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"the program sigstore-kms-test gives no valid answer"}},
		"says too much":            {mode: "endless", reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"gives no valid answer"}},
		"says nothing":             {mode: "empty", reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"gives no public key"}},
		"has something for a key":  {mode: "noKey", reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"gives no valid public key"}},
		"the program can't be run": {with: func(o *kmskey.Options) { o.LookPath = func(string) (string, error) { return os.DevNull, nil } }, reason: mcfgv1alpha1.ReasonWaitingForKey, want: []string{"running sigstore-kms-test: ", "permission denied"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, tt.mode)
			options := s.options()
			if tt.with != nil {
				tt.with(&options)
			}
			if tt.change != nil {
				tt.change(t, s)
			}
			_, err := kmskey.New(options).Key(t.Context())
			require.Error(t, err)
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.True(t, fault.IsWaiting(err))
			assert.Contains(t, err.Error(), "--signing-kms-key")
			assert.Contains(t, err.Error(), options.URI)
			assert.NotContains(t, err.Error(), "\n", "it is one sentence of a condition")
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
			for _, secret := range []string{token, "hunter2"} {
				assert.NotContains(t, err.Error(), secret)
			}
		})
	}
}

func TestConcurrentSignersShareAServiceFailure(t *testing.T) {
	t.Parallel()
	s, now := newService(t, "denied"), clocktesting.NewFakePassiveClock(time.Now())
	options := s.options()
	options.Clock = now
	keys := kmskey.New(options)
	for range 3 {
		_, err := keys.Key(t.Context())
		require.ErrorContains(t, err, "403")
	}
	assert.Equal(t, 1, s.requests())
	s.turn("sign")
	now.SetTime(now.Now().Add(15 * time.Second))
	_, err := keys.Key(t.Context())
	require.NoError(t, err, "when images are looked at again, the service is asked again")
}

func TestKeysOfAServiceThatGoesAway(t *testing.T) {
	t.Parallel()
	w, s, now := newWorld(t), newService(t, "sign"), clocktesting.NewFakePassiveClock(time.Now())
	options := s.options()
	options.Clock = now
	keys := kmskey.New(options)
	key, err := keys.Key(t.Context())
	require.NoError(t, err)
	s.turn("denied")
	now.SetTime(now.Now().Add(time.Hour))
	same, err := keys.Key(t.Context())
	require.NoError(t, err, "what was signed can be verified")
	assert.Equal(t, key.ID(), same.ID())
	image := w.push("os/worker", "one")
	_, err = sign.NewSigner(keys).Sign(t.Context(), w.client, image)
	require.ErrorContains(t, err, "Code: 403. Errors: * permission denied", "and nothing is signed")
	assert.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
	assert.NotContains(t, err.Error(), token)
	s.turn("sign")
	_, err = sign.NewSigner(keys).Sign(t.Context(), w.client, image)
	require.NoError(t, err)
}

func TestServiceThatRotatesItsKey(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newService(t, "sign")
	keys := s.keys()
	before, err := keys.Key(t.Context())
	require.NoError(t, err)
	s.exchange(newECDSA(t))
	image := w.push("os/worker", "one")
	_, err = sign.NewSigner(keys).Sign(t.Context(), w.client, image)
	require.ErrorContains(t, err, "the key of the service has changed")
	assert.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))
	signed, err := sign.NewSigner(keys).Sign(t.Context(), w.client, image)
	require.NoError(t, err, "it is asked for the new one at once")
	assert.NotEqual(t, before.ID(), signed.KeyID)
	assert.Equal(t, 1, signed.Added, "what no key verifies was not attached")
}

func TestRotatedServiceKeyIsReadAgain(t *testing.T) {
	t.Parallel()
	s, now := newService(t, "sign"), clocktesting.NewFakePassiveClock(time.Now())
	options := s.options()
	options.Clock = now
	keys := kmskey.New(options)
	before, err := keys.Key(t.Context())
	require.NoError(t, err)
	s.exchange(newECDSA(t))
	now.SetTime(now.Now().Add(time.Hour))
	after, err := keys.Key(t.Context())
	require.NoError(t, err)
	assert.NotEqual(t, before.ID(), after.ID())
}

// While a key is rotated, nodes know both, before one and after the other signs.
func TestTrustedKeysBesideThatOfAService(t *testing.T) {
	t.Parallel()
	s, file := newService(t, "sign"), filepath.Join(t.TempDir(), "trusted.pub")
	options := s.options()
	options.TrustedFile = file
	keys := kmskey.New(options)
	_, err := keys.Trusted(t.Context())
	require.ErrorContains(t, err, "of --signing-trusted-keys, with the keys trusted besides", "a file that is lost takes no key from nodes")
	assert.Equal(t, mcfgv1alpha1.ReasonWaitingForKey, fault.Reason(err))

	write := func(text []byte) { require.NoError(t, os.WriteFile(file, text, 0o600)) }
	write(nil)
	alone, err := keys.Trusted(t.Context())
	require.NoError(t, err)
	require.Len(t, alone.Keys, 1)
	write(ours().Public)
	both, err := keys.Trusted(t.Context())
	require.NoError(t, err)
	require.Len(t, both.Keys, 2)
	assert.Equal(t, alone.Keys[0].ID(), both.Keys[0].ID())
	assert.Equal(t, ours().Key.ID(), both.Keys[1].ID())

	write([]byte("hello"))
	_, err = keys.Trusted(t.Context())
	require.ErrorContains(t, err, "of --signing-trusted-keys can't be used")
	assert.Equal(t, mcfgv1alpha1.ReasonInvalidKey, fault.Reason(err))
}

func TestAServiceThatSignsAsNodesDoNotVerify(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t), newService(t, "sha384")
	image := w.push("os/worker", "one")
	_, err := sign.NewSigner(s.keys()).Sign(t.Context(), w.client, image)
	require.ErrorContains(t, err, "nodes can't verify its signatures")
	assert.Equal(t, mcfgv1alpha1.ReasonInvalidKey, fault.Reason(err))
	there, err := w.client.Attachments(t.Context(), image, sign.Signatures)
	require.NoError(t, err)
	assert.Empty(t, there)
}

func TestCancelledWaitForAService(t *testing.T) {
	t.Parallel()
	s := newService(t, "hang")
	ctx, cancel := context.WithCancel(t.Context())
	options := s.options()
	options.Timeout = time.Second // of the program that stays behind
	environment := options.Environment
	options.Environment = func() []string { // just before the program starts
		defer cancel()
		return environment()
	}
	_, err := kmskey.New(options).Key(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCheckKMSURI(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{"awskms:///alias/os", "hashivault://os", "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k", "my-hsm://1"} {
		require.NoError(t, kmskey.CheckURI(uri))
	}
	for _, uri := range []string{"", "os", "alias/os", "awskms:", "awskms://", "../x://y", "a/b://c", "AWSKMS://c", "://c"} {
		require.ErrorContains(t, kmskey.CheckURI(uri), "is no URI of a key", uri)
	}
}
