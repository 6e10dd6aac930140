package sign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"runtime/debug"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"
)

// Hash is the one that nodes verify with.
const Hash = crypto.SHA256

// Errors of private keys.
var (
	// ErrNoKey means that what should be a private key is none that cosign can read.
	ErrNoKey = errors.New("it is no private key as `cosign generate-key-pair` writes them")
	// ErrPassword means that the password does not open the private key.
	ErrPassword = errors.New("the password does not open it")
	// errNoSignature means that an annotation has no signature.
	errNoSignature = errors.New("it has no signature")
	// errNotBy means that a key has not made a signature.
	errNotBy = errors.New("it is by another key")
	// ErrKeyType means that nodes can't verify what the key signs.
	ErrKeyType = errors.New("nodes verify ECDSA and RSA alone")
)

// Key is what signs: a private key that is ready, or an identity that signs without one. It never
// shows itself: formatted, it is its ID.
type Key struct {
	signer signature.Signer
	public *PublicKey

	// keyless signs in place of the two, as the identity.
	keyless  *Keyless
	identity *Identity
}

// LoadKey decrypts a private key in cosign's format, which takes about 0.4 s and 64 MiB for that
// time (128 MiB for keys that OWASP's parameters were chosen for): keep the key. cosign's own
// function would sign with the hash of the curve, and nodes verify SHA-256 alone.
func LoadKey(private, password []byte) (*Key, error) {
	block, _ := pem.Decode(private)
	if block == nil || block.Type != cosign.SigstorePrivateKeyPemType && block.Type != cosign.CosignPrivateKeyPemType {
		return nil, ErrNoKey
	}
	plain, err := encrypted.Decrypt(block.Bytes, password)
	debug.FreeOSMemory() // the garbage is many times what an idle process has, and Go would keep it for minutes
	if err != nil {      // its text may be about any of both
		return nil, ErrPassword
	}
	parsed, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return nil, ErrNoKey
	}
	signer, err := signature.LoadSigner(parsed, Hash)
	if err != nil {
		return nil, ErrKeyType
	}
	return NewKey(signer)
}

// NewKey is the key of a signer.
func NewKey(signer signature.Signer) (*Key, error) {
	public, err := signer.PublicKey()
	if err != nil {
		return nil, err
	}
	known, err := NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	return &Key{signer: signer, public: known}, nil
}

// OneKey is a key as Keys that have no other, and trust no other.
func OneKey(key *Key) SingleKey { return SingleKey{key} }

// SingleKey is made by OneKey.
type SingleKey struct{ key *Key }

// Key is it.
func (s SingleKey) Key(context.Context) (*Key, error) { return s.key, nil }

// Trusted is its public key alone.
func (s SingleKey) Trusted(context.Context) (Trusted, error) {
	return Trusted{Keys: []*PublicKey{s.key.Public()}}, nil
}

// Public is the key that verifies what this one signs; nil of an identity.
func (k *Key) Public() *PublicKey { return k.public }

// ID is that of the public key, or of the identity.
func (k *Key) ID() string { return k.authority().ID() }

// String is the ID, so that no log has more.
func (k *Key) String() string { return k.ID() }

// GoString is the same.
func (k *Key) GoString() string { return k.String() }

// authority is what verifies the signatures that the key makes.
func (k *Key) authority() authority {
	if k.identity != nil {
		return k.identity
	}
	return k.public
}

// sign signs content, and gives the signature as the annotations of its layer.
func (k *Key) sign(ctx context.Context, content []byte) (map[string]string, error) {
	if k.identity != nil {
		return k.keyless.sign(ctx, k.identity, content)
	}
	ctx, cancel := context.WithTimeout(ctx, ServiceTimeout)
	defer cancel()
	signed, err := k.signer.SignMessage(bytes.NewReader(content), options.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return map[string]string{static.SignatureAnnotationKey: base64.StdEncoding.EncodeToString(signed)}, nil
}

// SignBlob signs content that is no image, as `cosign sign-blob` does: the signature in base64. An
// identity signs none.
func (k *Key) SignBlob(ctx context.Context, content []byte) ([]byte, error) {
	if k.identity != nil {
		return nil, errors.New("signing a file takes a key")
	}
	annotations, err := k.sign(ctx, content)
	return []byte(annotations[static.SignatureAnnotationKey]), err
}

// GenerateKey makes a key pair (ECDSA, P-256) in cosign's format, the private one encrypted with
// the password.
func GenerateKey(password []byte) (private, public []byte, err error) {
	pair, err := cosign.GenerateKeyPair(func(bool) ([]byte, error) { return password, nil })
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	return pair.PrivateBytes, pair.PublicBytes, nil
}

// generatePassword is for keys that no one types the password of.
func generatePassword() []byte { return []byte(rand.Text()) }

// PublicKey verifies signatures.
type PublicKey struct {
	verifier signature.Verifier
	id       string
	pem      []byte
}

// NewPublicKey is a key that nodes can verify with.
func NewPublicKey(key crypto.PublicKey) (*PublicKey, error) {
	switch key.(type) {
	case *ecdsa.PublicKey, *rsa.PublicKey:
	default:
		return nil, ErrKeyType
	}
	verifier, err := signature.LoadVerifier(key, Hash)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(der)
	text, err := cryptoutils.MarshalPublicKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return &PublicKey{verifier: verifier, id: hex.EncodeToString(id[:]), pem: text}, nil
}

// ParsePublicKeys reads public keys in PEM, one or more after each other.
func ParsePublicKeys(text []byte) ([]*PublicKey, error) {
	var keys []*PublicKey
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		block, after := pem.Decode(rest)
		// Decode passes over a block that is cut off.
		if block == nil || bytes.Count(rest[:len(rest)-len(after)], []byte("-----BEGIN ")) != 1 {
			return nil, errors.New("reading public keys: there is something that is no PEM")
		}
		rest = after
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading a public key in a block %q: %w", block.Type, err)
		}
		key, err := NewPublicKey(parsed)
		if err != nil {
			return nil, fmt.Errorf("reading a public key: %w", err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// ID is the SHA-256 of the key in DER, in hexadecimal.
func (k *PublicKey) ID() string { return k.id }

// PEM is the key as text.
func (k *PublicKey) PEM() []byte { return bytes.Clone(k.pem) }

// Verifies reports whether the key has signed a message.
func (k *PublicKey) Verifies(message, signed []byte) bool {
	return k.verifier.VerifySignature(bytes.NewReader(signed), bytes.NewReader(message)) == nil
}

// verifySignature returns why a layer is not signed with the key, nil if it is.
func (k *PublicKey) verifySignature(ctx context.Context, layer signatureLayer) error {
	signed := layer.Annotations[static.SignatureAnnotationKey]
	if signed == "" {
		return errNoSignature
	}
	sig, err := static.NewSignature(layer.Content, signed)
	if err != nil {
		return err
	}
	if _, err := cosign.VerifyImageSignature(ctx, sig, v1.Hash{}, k.handedIn()); err != nil {
		return errNotBy
	}
	return nil
}

// handedIn is all that cosign judges with. What is signed with a key needs no log.
func (k *PublicKey) handedIn() *cosign.CheckOpts {
	return &cosign.CheckOpts{SigVerifier: k.verifier, IgnoreTlog: true, Offline: true}
}
