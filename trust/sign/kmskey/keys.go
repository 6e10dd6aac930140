package kmskey

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/common"
	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/trust/sign"
)

// Times of keys of a service.
const (
	// kmsRefresh is when the public key is asked for again: the service may have rotated the key.
	kmsRefresh = 10 * time.Minute
	// kmsAgain is how long one failure stands for all who want the key, so that they don't wait for
	// a service that is away one after another.
	kmsAgain = 5 * time.Second
)

// kmsProcesses is how many requests are made at once. Each is a process, of some 50 MB.
const kmsProcesses = 2

// Options are what KMSKeys works with. The zero value of each but URI is for use in a program.
type Options struct {
	// URI names the key as cosign does: <service>://<key>.
	URI string
	// TrustedFile names a file with further trusted public keys, as PEM: those before and after,
	// while keys are rotated. It is read each time, and may have none in it; empty if there is no
	// file.
	TrustedFile string
	// Timeout is how long the service may take for an answer; 30 s if it is 0.
	Timeout time.Duration
	// Environment is what the service's client finds address and credentials in, read each time;
	// os.Environ if it is nil.
	Environment func() []string
	// LookPath finds the program that is the service's client; exec.LookPath if it is nil.
	LookPath func(program string) (string, error)
	// Clock says when to ask again; the system's if it is nil.
	Clock clock.PassiveClock
}

// Keys has a key that a key management service keeps. For <service>://... it runs the program
// sigstore-kms-<service>, which is sigstore's plug-in protocol: the clients of the services are not
// part of this program.
type Keys struct {
	plugin  plugin
	trusted string
	clock   clock.PassiveClock

	// asking is for the service, and mu for the rest.
	asking  sign.SharedCall[*sign.Key]
	mu      sync.Mutex
	key     *sign.Key
	problem error
	// until is how long key and problem stand.
	until time.Time
}

// New makes a KMSKeys, and asks no one: the service may be away while the program starts.
func New(o Options) *Keys {
	service, reference, _ := strings.Cut(o.URI, "://")
	if o.Timeout == 0 {
		o.Timeout = sign.ServiceTimeout
	}
	if o.Environment == nil {
		o.Environment = os.Environ
	}
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Keys{clock: o.Clock, trusted: o.TrustedFile, plugin: plugin{
		uri: o.URI, program: pluginPrefix + service, reference: reference,
		timeout: o.Timeout, environment: o.Environment, lookPath: o.LookPath, slots: make(chan struct{}, kmsProcesses),
	}}
}

// Key is the key. The service is asked for its public key now and then; while it is away, the one
// that it had is trusted. Where it never said one, the error is Waiting: with the reason
// WaitingForKey where it can't be asked or refuses, and InvalidKey where the URI or the key is such
// that waiting won't help.
func (k *Keys) Key(ctx context.Context) (*sign.Key, error) {
	if key, problem, stands := k.known(); stands {
		return key, problem
	}
	return k.asking.Ask(ctx, func(ctx context.Context) (*sign.Key, error) {
		if key, problem, stands := k.known(); stands { // someone else has asked meanwhile
			return key, problem
		}
		k.learn(k.plugin.publicKey(ctx))
		key, problem, _ := k.known()
		return key, problem
	})
}

// known is what the service said last, and whether it is still to be believed.
func (k *Keys) known() (_ *sign.Key, problem error, stands bool) { //nolint:revive // the error is what is known
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.key, k.problem, k.clock.Now().Before(k.until)
}

// learn keeps what the service said. While it says nothing, the key that it had stays.
func (k *Keys) learn(public *sign.PublicKey, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = k.clock.Now().Add(kmsRefresh)
	switch {
	case err == nil:
		k.key, k.problem = sign.NewKey(keySigner{keys: k, public: public})
	case k.key == nil:
		k.problem, k.until = err, k.clock.Now().Add(kmsAgain)
	}
}

// Trusted are the keys whose signatures nodes are to accept: that of Key, and those of the file.
func (k *Keys) Trusted(ctx context.Context) (sign.Trusted, error) {
	key, err := k.Key(ctx)
	if err != nil {
		return sign.Trusted{}, err
	}
	var more []byte
	if k.trusted != "" {
		if more, err = os.ReadFile(k.trusted); err != nil { // without it, a key that nodes need might be missing
			return sign.Trusted{}, sign.WaitForKey(fmt.Errorf("cannot read the file %q of --signing-trusted-keys, with the keys trusted besides %q: %w", k.trusted, k.plugin.uri, err))
		}
	}
	trusted, err := sign.TrustedWith(key.Public(), more)
	if err != nil {
		return sign.Trusted{}, sign.InvalidKey(fmt.Errorf("the file %q of --signing-trusted-keys can't be used: %w", k.trusted, err))
	}
	return trusted, nil
}

// sign signs a message, and makes sure that the public key verifies that: the service may have
// rotated the key, or sign otherwise than nodes verify.
func (k *Keys) sign(ctx context.Context, public *sign.PublicKey, message []byte) ([]byte, error) {
	signed, err := k.plugin.sign(ctx, message)
	if err != nil {
		return nil, err
	}
	if public.Verifies(message, signed) {
		return signed, nil
	}
	now, err := k.plugin.publicKey(ctx)
	switch {
	case err != nil:
		return nil, err
	case now.ID() == public.ID():
		return nil, sign.InvalidKey(k.plugin.about(errors.New("nodes can't verify its signatures: they verify ECDSA, and RSA with PKCS #1 v1.5, each with SHA-256; " +
			"name a key of that kind, such as ECDSA on P-256")))
	}
	k.forget()
	return nil, sign.WaitForKey(k.plugin.about(errors.New("the key of the service has changed; signing is tried again with the new key")))
}

// forget has the service asked for its key the next time.
func (k *Keys) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = time.Time{}
}

// keySigner signs with a key as long as the service has it.
type keySigner struct {
	keys   *Keys
	public *sign.PublicKey
}

// PublicKey is what the service said last.
func (s keySigner) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return cryptoutils.UnmarshalPEMToPublicKey(s.public.PEM())
}

// SignMessage has the service sign.
func (s keySigner) SignMessage(message io.Reader, opts ...signature.SignOption) ([]byte, error) {
	ctx := context.Background() //nolint:forbidigo // the interface hands one in by an option alone
	for _, opt := range opts {
		opt.ApplyContext(&ctx)
	}
	content, err := io.ReadAll(message)
	if err != nil {
		return nil, err
	}
	return s.keys.sign(ctx, s.public, content)
}

// publicKey asks for the public key.
func (p plugin) publicKey(ctx context.Context) (*sign.PublicKey, error) {
	answer, err := p.ask(ctx, &common.MethodArgs{
		MethodName: common.PublicKeyMethodName,
		PublicKey:  &common.PublicKeyArgs{PublicKeyOptions: &common.PublicKeyOptions{}},
	}, nil)
	if err != nil {
		return nil, err
	}
	if answer.PublicKey == nil {
		return nil, p.unexpected("no public key")
	}
	parsed, err := cryptoutils.UnmarshalPEMToPublicKey(answer.PublicKey.PublicKeyPEM)
	if err != nil {
		return nil, p.unexpected("no valid public key")
	}
	public, err := sign.NewPublicKey(parsed)
	if err != nil {
		return nil, sign.InvalidKey(p.about(fmt.Errorf("%w; name a key of that kind, such as ECDSA on P-256", err)))
	}
	return public, nil
}

// sign asks for the signature of a message.
func (p plugin) sign(ctx context.Context, message []byte) ([]byte, error) {
	answer, err := p.ask(ctx, &common.MethodArgs{
		MethodName:  common.SignMessageMethodName,
		SignMessage: &common.SignMessageArgs{SignOptions: &common.SignOptions{}},
	}, message)
	if err != nil {
		return nil, err
	}
	if answer.SignMessage == nil {
		return nil, p.unexpected("no signature")
	}
	return answer.SignMessage.Signature, nil
}
