package sign

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/rekor/pkg/generated/client"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/sigstore/pkg/signature/options"
	"k8s.io/utils/clock"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// KeylessOptions are what Keyless works with. The files are read each time that they are needed.
type KeylessOptions struct {
	// FulcioURL and RekorURL are where certificates and the transparency log are.
	FulcioURL, RekorURL string
	// TokenFile has the token that says to Fulcio who this is.
	TokenFile string
	// RootsFile has Fulcio's root certificates, and LogKeyFile the public key of the log, in PEM;
	// while they are exchanged, those of before and after.
	RootsFile, LogKeyFile string
	// Subject and Issuer are the identity that the certificates have to be for.
	Subject, Issuer string
	// Transport is for requests; http.DefaultTransport if it is nil. Timeout is that of each, 30 s
	// if it is 0.
	Transport http.RoundTripper
	Timeout   time.Duration
	// Clock says when to ask for another certificate; the system's if it is nil.
	Clock clock.PassiveClock
}

// Keyless signs without a key that is kept: with one of minutes, which Fulcio certifies for an
// identity, and in a transparency log. One certificate is used for all that is signed in its time.
type Keyless struct {
	options KeylessOptions
	fulcio  fulcio
	rekor   rekor

	// asking is for Fulcio, and mu for current.
	asking  SharedCall[*certificate]
	mu      sync.Mutex
	current *certificate
	refused *refusal
}

// Pauses before something is written to a log again whose answer was not accepted: entries stay
// there for ever. Each is twice the one before.
const (
	firstPause = 10 * time.Minute
	maxPause   = time.Hour
)

// refusal means that what the log has answered was not accepted.
type refusal struct {
	err error
	// by is the identity that did not accept it. Another one, with other files, may.
	by    IdentityOptions
	pause time.Duration
	until time.Time
}

// NewKeyless makes a Keyless, and asks no one.
func NewKeyless(o KeylessOptions) *Keyless {
	if o.Timeout == 0 {
		o.Timeout = ServiceTimeout
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Keyless{
		options: o,
		fulcio:  fulcio{newService(o.FulcioURL, o.Transport, o.Timeout)},
		rekor:   rekor{newService(o.RekorURL, o.Transport, o.Timeout)},
	}
}

// Key is the identity as it is now. Fulcio is asked for a certificate when something is to be
// signed. Where a file is missing, or can't be used, the error is Waiting with the reason
// WaitingForKey or InvalidKey, and names it.
func (k *Keyless) Key(context.Context) (*Key, error) {
	identity, err := k.identity()
	if err != nil {
		return nil, err
	}
	return &Key{keyless: k, identity: identity}, nil
}

// Trusted is the identity whose signatures nodes are to accept.
func (k *Keyless) Trusted(context.Context) (Trusted, error) {
	identity, err := k.identity()
	if err != nil {
		return Trusted{}, err
	}
	return Trusted{Identities: []*Identity{identity}}, nil
}

func (k *Keyless) identity() (*Identity, error) {
	roots, err := readFile(k.options.RootsFile, "Fulcio's root certificates")
	if err != nil {
		return nil, err
	}
	keys, err := readFile(k.options.LogKeyFile, "the transparency log's public key")
	if err != nil {
		return nil, err
	}
	identity, err := NewIdentity(IdentityOptions{Subject: k.options.Subject, Issuer: k.options.Issuer, Roots: roots, LogKeys: keys})
	if err != nil {
		return nil, InvalidKey(fmt.Errorf("no usable signing identity from the files %q and %q: %w", k.options.RootsFile, k.options.LogKeyFile, err))
	}
	return identity, nil
}

// readFile reads a file that someone else looks after.
func readFile(path, content string) ([]byte, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the administrator names it
	if err != nil {
		return nil, WaitForKey(fmt.Errorf("the file %q must have %s: %w", path, content, err))
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil, WaitForKey(fmt.Errorf("the file %q must have %s: it is empty", path, content))
	}
	return text, nil
}

// sign makes a signature of content that the log has seen, as the annotations of a layer. What
// Fulcio and the log have answered is verified as everyone will verify it: nothing leaves that
// would not be accepted.
func (k *Keyless) sign(ctx context.Context, identity *Identity, content []byte) (map[string]string, error) {
	layer, err := k.logged(ctx, func(ctx context.Context, c *certificate) (signatureLayer, upload, error) {
		signed, err := c.signer.SignMessage(bytes.NewReader(content), options.WithContext(ctx))
		layer := signatureLayer{Content: content, Annotations: map[string]string{static.SignatureAnnotationKey: base64.StdEncoding.EncodeToString(signed)}}
		return layer, func(ctx context.Context, log *client.Rekor) (*models.LogEntryAnon, error) {
			sum := sha256.New()
			_, _ = sum.Write(content) // a hash takes all
			return cosign.TLogUpload(ctx, log, signed, sum, c.pem)
		}, err
	}, identity, identity.verifySignature)
	return layer.Annotations, err
}

// seal makes a statement that the log has seen, as a layer.
func (k *Keyless) seal(ctx context.Context, identity *Identity, payload []byte) (registry.Attachment, error) {
	return k.logged(ctx, func(ctx context.Context, c *certificate) (signatureLayer, upload, error) {
		layer, err := seal(ctx, c.signer, payload)
		return layer, func(ctx context.Context, log *client.Rekor) (*models.LogEntryAnon, error) {
			return cosign.TLogUploadDSSEEnvelope(ctx, log, layer.Content, c.pem)
		}, err
	}, identity, func(ctx context.Context, layer signatureLayer) error {
		_, err := identity.verifyStatement(ctx, layer)
		return err
	})
}

// logged has something signed and logged. If the certificate runs out meanwhile, that happens again
// with another one, once. After a log's answer was not accepted nothing is written to it for some
// time, whatever is to be signed, unless the files change.
func (k *Keyless) logged(ctx context.Context, sign func(context.Context, *certificate) (signatureLayer, upload, error),
	identity *Identity, verify func(context.Context, signatureLayer) error,
) (signatureLayer, error) {
	if err := k.activeRefusal(identity); err != nil {
		return signatureLayer{}, err
	}
	var problem error
	for range 2 {
		c, err := k.certificate(ctx, identity)
		if err != nil {
			return signatureLayer{}, err
		}
		layer, record, err := sign(ctx, c)
		if err != nil {
			return signatureLayer{}, err
		}
		text, err := k.rekor.add(ctx, record)
		if err != nil {
			return signatureLayer{}, err
		}
		layer.Annotations[static.CertificateAnnotationKey], layer.Annotations[static.BundleAnnotationKey] = string(c.pem), text
		if len(c.chain) > 0 {
			layer.Annotations[static.ChainAnnotationKey] = string(c.chain)
		}
		if problem = verify(ctx, layer); problem == nil {
			k.accept()
			return layer, nil
		}
		k.forget(c)
		if !errors.Is(problem, errOutlived) {
			break
		}
	}
	return signatureLayer{}, k.refuse(identity, problem)
}

// refuse is the error of an answer of the log that is not accepted. It stays for a while.
func (k *Keyless) refuse(identity *Identity, problem error) error {
	err := fmt.Errorf("the answer of the transparency log %q is not accepted: %w", k.rekor.url, problem)
	r := &refusal{by: identity.options, pause: firstPause}
	if errors.Is(problem, errUnknownLog) {
		r.err = InvalidKey(fmt.Errorf("%w; write the public key that it has now (%s%s) into the file %q, beside the one before",
			err, k.rekor.url, publicKeyPath, k.options.LogKeyFile))
	} else {
		r.err = fault.NewTerminal(mcfgv1alpha1.ReasonSigningFailed, err)
	}
	now := k.options.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if before := k.refused; before != nil && reflect.DeepEqual(before.by, r.by) {
		if r.pause = before.pause; !now.Before(before.until) { // else several have asked at once
			r.pause = min(2*before.pause, maxPause)
		}
	}
	r.until = now.Add(r.pause)
	k.refused = r
	return r.err
}

// accept forgets what was not accepted before.
func (k *Keyless) accept() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = nil
}

// activeRefusal returns the error of the log's last answer while nothing may be written to it, else
// nil.
func (k *Keyless) activeRefusal(identity *Identity) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.refused; r != nil && reflect.DeepEqual(r.by, identity.options) && k.options.Clock.Now().Before(r.until) {
		return fmt.Errorf("%w; the next try is at %s, or when the files change", r.err, utc(r.until))
	}
	return nil
}

// certificate is the one to sign with.
func (k *Keyless) certificate(ctx context.Context, identity *Identity) (*certificate, error) {
	if c := k.usable(identity); c != nil {
		return c, nil
	}
	return k.asking.Ask(ctx, func(ctx context.Context) (*certificate, error) {
		if c := k.usable(identity); c != nil { // someone else has asked meanwhile
			return c, nil
		}
		return k.certify(ctx, identity)
	})
}

// usable is the certificate that is there, if it can be used now; else nil.
func (k *Keyless) usable(identity *Identity) *certificate {
	k.mu.Lock()
	c := k.current
	k.mu.Unlock()
	// Roots may have been exchanged since it was made.
	if c == nil || !k.options.Clock.Now().Before(c.until) || identity.confirms(c.leaf, c.chain) != nil {
		return nil
	}
	return c
}

// certify asks Fulcio for a certificate.
func (k *Keyless) certify(ctx context.Context, identity *Identity) (*certificate, error) {
	token, err := readFile(k.options.TokenFile, "the identity token for Fulcio")
	if err != nil {
		return nil, err
	}
	c, err := k.fulcio.certify(ctx, string(token), k.options.TokenFile, k.options.Clock.Now())
	if err != nil {
		return nil, err
	}
	// Its own time is what counts: this process's clock may be wrong.
	if err := identity.confirms(c.leaf, c.chain); err != nil {
		return nil, InvalidKey(fmt.Errorf("the certificate that Fulcio at %q gives for the token of the file %q is not accepted, with the roots of the file %q: %w",
			k.fulcio.url, k.options.TokenFile, k.options.RootsFile, err))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = c
	return c, nil
}

// forget has another certificate asked for the next time.
func (k *Keyless) forget(c *certificate) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == c {
		k.current = nil
	}
}
