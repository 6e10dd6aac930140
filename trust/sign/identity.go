package sign

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v2/pkg/oci"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/tuf"
)

// Extensions of Fulcio's certificates that name the issuer of the identity: as a plain string, and
// as one in DER.
var (
	issuerExtension    = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	issuerExtensionDER = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
)

// Errors of what was signed without a key.
var (
	// errNoCertificate means that there is a signature, and no certificate with it.
	errNoCertificate = errors.New("it has no certificate")
	// errUnknownLog means that a log has seen a signature whose key no one trusts.
	errUnknownLog = errors.New("its log is not trusted")
	// errOutlived means that the log saw a signature when its certificate was not valid.
	errOutlived = errors.New("the certificate was not valid when the log saw the signature")
)

// IdentityOptions are what an Identity is made of; all of them are needed.
type IdentityOptions struct {
	// Subject is who signs: an email address, or a URI such as
	// https://kubernetes.io/namespaces/layerwright/serviceaccounts/layerwright-controller.
	Subject string
	// Issuer is the URL of the OpenID Connect provider that says so.
	Issuer string
	// Roots are the certificates of the authorities that may confirm it (Fulcio's), as PEM, one
	// after another.
	Roots []byte
	// LogKeys are the public keys (ECDSA) of the transparency logs (Rekor's) of which one has to
	// have seen each signature, as PEM, one after another.
	LogKeys []byte
}

// Identity is one that signs without a key of its own: each signature has a certificate that says
// who made it, valid for minutes, and a transparency log says that the signature was made in these
// minutes.
type Identity struct {
	options IdentityOptions
	roots   []*x509.Certificate
	logs    cosign.TrustedTransparencyLogPubKeys
	// logPEM are the keys of the logs as text, each for itself.
	logPEM [][]byte
}

// NewIdentity makes an Identity. Errors name what can't be used.
func NewIdentity(options IdentityOptions) (*Identity, error) {
	if options.Subject == "" || options.Issuer == "" {
		return nil, errors.New("an identity is a subject and an issuer; give both")
	}
	i := &Identity{options: options, logs: cosign.NewTrustedTransparencyLogPubKeys()}
	var err error
	if i.roots, err = cryptoutils.UnmarshalCertificatesFromPEM(options.Roots); err != nil || len(i.roots) == 0 {
		return nil, errors.New("reading root certificates: they have to be certificates in PEM")
	}
	keys, err := ParsePublicKeys(options.LogKeys)
	if err != nil {
		return nil, fmt.Errorf("the keys of the transparency log: %w", err)
	}
	for _, key := range keys {
		// cosign takes other keys here, and refuses whatever is verified with them later.
		if _, err := cosign.PemToECDSAKey(key.pem); err != nil {
			return nil, errors.New("the keys of the transparency log: nodes know logs with ECDSA keys alone")
		}
		if err := i.logs.AddTransparencyLogPubKey(key.pem, tuf.Active); err != nil {
			return nil, fmt.Errorf("the keys of the transparency log: %w", err)
		}
		i.logPEM = append(i.logPEM, key.PEM())
	}
	if len(keys) == 0 {
		return nil, errors.New("the keys of the transparency log: there is none")
	}
	return i, nil
}

// ID is the SHA-256 of issuer and subject, in hexadecimal: that of one and the same identity stays,
// whatever it signs with.
func (i *Identity) ID() string {
	sum := sha256.Sum256([]byte(i.options.Issuer + "\n" + i.options.Subject))
	return hex.EncodeToString(sum[:])
}

// String is the identity as people say it.
func (i *Identity) String() string { return i.options.Subject + " of " + i.options.Issuer }

// Subject is who signs.
func (i *Identity) Subject() string { return i.options.Subject }

// Issuer is who says so.
func (i *Identity) Issuer() string { return i.options.Issuer }

// Roots are the certificates of the authorities, as PEM.
func (i *Identity) Roots() []byte { return bytes.Clone(i.options.Roots) }

// LogKeys are the public keys of the logs, each as PEM.
func (i *Identity) LogKeys() [][]byte { return slices.Clone(i.logPEM) }

// IsEmail reports whether a subject is an email address. Nodes enforce no others.
func IsEmail(subject string) bool {
	return strings.Contains(subject, "@") && !strings.Contains(subject, "://")
}

// verifySignature returns why a layer is not signed by the identity, nil if it is.
func (i *Identity) verifySignature(ctx context.Context, layer signatureLayer) error {
	signed := layer.Annotations[static.SignatureAnnotationKey]
	if signed == "" {
		return errNoSignature
	}
	return i.verify(ctx, layer, hashedRecord, cosign.VerifyImageSignature, signed)
}

// cosignVerdict is one of cosign's functions that judge what lies in an image.
type cosignVerdict func(context.Context, oci.Signature, v1.Hash, *cosign.CheckOpts) (bool, error)

// verify has cosign judge a layer whose entry in the log is of a kind, and says why it refused.
func (i *Identity) verify(ctx context.Context, layer signatureLayer, kind recordKind, verdict cosignVerdict, signed string) error {
	text, has := layer.Annotations[static.CertificateAnnotationKey]
	if !has {
		return errNoCertificate
	}
	leaf, err := oneCertificate([]byte(text))
	if err != nil {
		return err
	}
	// There is no way around the log: without it nothing says that the certificate had not expired.
	logged, err := i.logged([]byte(layer.Annotations[static.BundleAnnotationKey]), kind)
	if err != nil {
		return err
	}
	at := time.Unix(logged.Payload.IntegratedTime, 0)
	by, err := i.handedIn([]byte(layer.Annotations[static.ChainAnnotationKey]), at)
	if err != nil {
		return err
	}
	certificate, err := cryptoutils.MarshalCertificateToPEM(leaf)
	if err != nil {
		return err
	}
	sig, err := static.NewSignature(layer.Content, signed, static.WithCertChain(certificate, nil), static.WithBundle(logged))
	if err != nil {
		return err
	}
	if _, err := verdict(ctx, sig, v1.Hash{}, by); err != nil {
		return i.whyRefused(sig, leaf, at, by)
	}
	return i.asNodes(leaf)
}

// handedIn is all that cosign judges with: it asks no service, and no certificate of an authority
// is among it that was not valid at the time of the log. cosign itself looks at the leaf's alone
// (GO-2026-4529).
func (i *Identity) handedIn(chain []byte, at time.Time) (*cosign.CheckOpts, error) {
	between, err := cryptoutils.UnmarshalCertificatesFromPEM(chain)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate's chain: %w", err)
	}
	// Nodes judge the same way: the last certificate of the chain is the root, and is trusted only
	// if it is among those that are trusted.
	between = between[:max(0, len(between)-1)]
	return &cosign.CheckOpts{
		RootCerts: validAt(i.roots, at), IntermediateCerts: validAt(between, at), RekorPubKeys: &i.logs,
		Identities: []cosign.Identity{{Subject: i.options.Subject, Issuer: i.options.Issuer}},
		Offline:    true, IgnoreSCT: true,
	}, nil
}

// validAt is never nil: the system's authorities would take its place.
func validAt(certificates []*x509.Certificate, at time.Time) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, certificate := range certificates {
		if cosign.CheckExpiry(certificate, at) == nil {
			pool.AddCert(certificate)
		}
	}
	return pool
}

// whyRefused says for people what cosign has refused.
func (i *Identity) whyRefused(sig oci.Signature, leaf *x509.Certificate, at time.Time, by *cosign.CheckOpts) error {
	if _, err := cosign.VerifyBundle(sig, by); err != nil {
		return errors.New("the log's entry is about another signature: its certificate, its signature or its content is another")
	}
	if cosign.CheckExpiry(leaf, at) != nil {
		return fmt.Errorf("%w: the log says %s, the certificate %s to %s; their clocks may differ", errOutlived,
			utc(at), utc(leaf.NotBefore), utc(leaf.NotAfter))
	}
	if err := i.stands(leaf, by); err != nil {
		return err
	}
	return errors.New("it is not made with the certificate's key")
}

// confirms tells why a certificate that Fulcio gives now does not stand for the identity; nil where
// it does.
func (i *Identity) confirms(leaf *x509.Certificate, chain []byte) error {
	by, err := i.handedIn(chain, leaf.NotBefore)
	if err != nil {
		return err
	}
	return i.stands(leaf, by)
}

func (i *Identity) stands(leaf *x509.Certificate, by *cosign.CheckOpts) error {
	if _, err := cosign.TrustedCert(leaf, by.RootCerts, by.IntermediateCerts); err != nil {
		return fmt.Errorf("the certificate does not chain to a trusted root: %w", errors.Unwrap(err)) // around it is advice about TUF
	}
	if err := i.asNodes(leaf); err != nil {
		return err
	}
	return cosign.CheckCertificatePolicy(leaf, by)
}

// asNodes tells why nodes refuse a certificate that cosign may accept: they want a key of two
// kinds, an email address to be one, and both extensions with the issuer to say the same.
func (i *Identity) asNodes(leaf *x509.Certificate) error {
	if _, err := NewPublicKey(leaf.PublicKey); err != nil {
		return fmt.Errorf("the certificate's key: %w", err)
	}
	issuer, err := issuerOf(leaf)
	if err != nil {
		return err
	}
	if issuer != i.options.Issuer {
		return fmt.Errorf("the certificate's issuer of identities is %q, not %q", issuer, i.options.Issuer)
	}
	subjects := leaf.EmailAddresses
	if !IsEmail(i.options.Subject) {
		subjects = texts(leaf.URIs)
	}
	if !slices.Contains(subjects, i.options.Subject) {
		return fmt.Errorf("the certificate is for %q, not for %q", slices.Concat(leaf.EmailAddresses, texts(leaf.URIs)), i.options.Subject)
	}
	return nil
}

func utc(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func texts(urls []*url.URL) []string {
	var out []string
	for _, u := range urls {
		out = append(out, u.String())
	}
	return out
}

// issuerOf is who told Fulcio whom a certificate is for. Where the two extensions that say it
// differ, no one did.
func issuerOf(leaf *x509.Certificate) (string, error) {
	var issuers []string
	for _, extension := range leaf.Extensions {
		switch {
		case extension.Id.Equal(issuerExtension):
			issuers = append(issuers, string(extension.Value))
		case extension.Id.Equal(issuerExtensionDER):
			var issuer string
			if rest, err := asn1.Unmarshal(extension.Value, &issuer); err != nil || len(rest) > 0 {
				return "", errors.New("the certificate's issuer of identities can't be read")
			}
			issuers = append(issuers, issuer)
		}
	}
	issuers = slices.Compact(issuers)
	if len(issuers) != 1 {
		return "", fmt.Errorf("the certificate has to name one issuer of identities, and names %q", issuers)
	}
	return issuers[0], nil
}

// oneCertificate reads a certificate in PEM with nothing behind it.
func oneCertificate(text []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != string(cryptoutils.CertificatePEMType) || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("its certificate has to be one, in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading its certificate: %w", err)
	}
	return certificate, nil
}

// recordKind is what a log keeps, as it names it.
type recordKind struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// What is signed as content that has a hash, and what is signed in an envelope. cosign would take
// further kinds.
var (
	hashedRecord   = recordKind{Kind: "hashedrekord", APIVersion: "0.0.1"}
	envelopeRecord = recordKind{Kind: "dsse", APIVersion: "0.0.1"}
)

// logged is the entry of a layer that one of the trusted logs has signed. cosign reads an entry
// before it looks at that: what anyone may have written into a registry does not get so far.
func (i *Identity) logged(text []byte, kind recordKind) (*bundle.RekorBundle, error) {
	if len(text) == 0 {
		return nil, errors.New("no transparency log has seen it")
	}
	logged := &bundle.RekorBundle{}
	body, is := "", false
	if json.Unmarshal(text, logged) == nil {
		body, is = logged.Payload.Body.(string)
	}
	switch key, err := i.logKey(logged.Payload.LogID); {
	case !is:
		return nil, errors.New("what it has of the transparency log can't be read")
	case err != nil:
		return nil, err
	case cosign.VerifySET(logged.Payload, logged.SignedEntryTimestamp, key) != nil:
		return nil, errors.New("the transparency log has not signed this entry")
	}
	record, err := base64.StdEncoding.DecodeString(body)
	var has recordKind
	if err != nil || json.Unmarshal(record, &has) != nil {
		return nil, errors.New("the log's entry can't be read")
	}
	if has != kind {
		return nil, fmt.Errorf("the log's entry is a %q of version %q, not a %q of version %q", has.Kind, has.APIVersion, kind.Kind, kind.APIVersion)
	}
	return logged, nil
}

func (i *Identity) logKey(id string) (*ecdsa.PublicKey, error) {
	if id == "" {
		return nil, errors.New("no transparency log has an entry for it")
	}
	if key, is := i.logs.Keys[id].PubKey.(*ecdsa.PublicKey); is {
		return key, nil
	}
	return nil, fmt.Errorf("%w: the transparency log %q", errUnknownLog, id)
}
