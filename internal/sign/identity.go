package sign

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// Annotations of what was signed without a key, as cosign names them.
const (
	certificateAnnotation = "dev.sigstore.cosign/certificate"
	chainAnnotation       = "dev.sigstore.cosign/chain"
	bundleAnnotation      = "dev.sigstore.cosign/bundle"
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
	roots   *x509.CertPool
	// logs are the keys of the logs, by their ID.
	logs map[string]*ecdsa.PublicKey
	// logPEM are the same as text, each for itself.
	logPEM [][]byte
}

// NewIdentity makes an Identity. Errors name what can't be used.
func NewIdentity(options IdentityOptions) (*Identity, error) {
	if options.Subject == "" || options.Issuer == "" {
		return nil, errors.New("an identity is a subject and an issuer; give both")
	}
	i := &Identity{options: options, roots: x509.NewCertPool(), logs: map[string]*ecdsa.PublicKey{}}
	roots, err := cryptoutils.UnmarshalCertificatesFromPEM(options.Roots)
	if err != nil || len(roots) == 0 {
		return nil, errors.New("reading root certificates: they have to be certificates in PEM")
	}
	for _, root := range roots {
		i.roots.AddCert(root)
	}
	keys, err := ParsePublicKeys(options.LogKeys)
	if err != nil {
		return nil, fmt.Errorf("the keys of the transparency log: %w", err)
	}
	for _, key := range keys {
		parsed, err := cryptoutils.UnmarshalPEMToPublicKey(key.pem)
		if err != nil {
			return nil, fmt.Errorf("the keys of the transparency log: %w", err)
		}
		log, is := parsed.(*ecdsa.PublicKey)
		if !is {
			return nil, errors.New("the keys of the transparency log: nodes know logs with ECDSA keys alone")
		}
		i.logs[key.ID()] = log
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
func (i *Identity) verifySignature(layer signatureLayer) error {
	signed := decoded(layer)
	if signed == nil {
		return errNoSignature
	}
	leaf, err := i.certified(layer, func(body []byte, certificate *x509.Certificate) error {
		return checkHashedRecord(body, layer.Content, signed, certificate)
	})
	if err != nil {
		return err
	}
	key, err := NewPublicKey(leaf.PublicKey)
	if err != nil {
		return fmt.Errorf("the certificate's key: %w", err)
	}
	if !key.Verifies(layer.Content, signed) {
		return errors.New("it is not made with the certificate's key")
	}
	return nil
}

// certified is the certificate of a layer, if it is for this identity and was valid at the time
// that the log has of the signature. What the log has to have seen is for the caller to say.
func (i *Identity) certified(layer signatureLayer, isLogged func(body []byte, certificate *x509.Certificate) error) (*x509.Certificate, error) {
	text, has := layer.Annotations[certificateAnnotation]
	if !has {
		return nil, errNoCertificate
	}
	leaf, err := oneCertificate([]byte(text))
	if err != nil {
		return nil, err
	}
	// There is no way around the log: without it nothing says that the certificate had not expired.
	logged, err := i.logged([]byte(layer.Annotations[bundleAnnotation]))
	if err != nil {
		return nil, err
	}
	if err := isLogged(logged.Body, leaf); err != nil {
		return nil, err
	}
	at := time.Unix(logged.IntegratedTime, 0)
	if at.Before(leaf.NotBefore) || at.After(leaf.NotAfter) {
		return nil, fmt.Errorf("%w: the log says %s, the certificate %s to %s; their clocks may differ", errOutlived,
			utc(at), utc(leaf.NotBefore), utc(leaf.NotAfter))
	}
	return leaf, i.confirms(leaf, []byte(layer.Annotations[chainAnnotation]), at)
}

func utc(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// confirms tells why a certificate does not stand for the identity at a time; nil where it does.
// Nodes judge the same way: the last certificate of the chain is the root, and is trusted only if
// it is among those that are trusted.
func (i *Identity) confirms(leaf *x509.Certificate, chain []byte, at time.Time) error {
	between := x509.NewCertPool()
	if len(chain) > 0 {
		certificates, err := cryptoutils.UnmarshalCertificatesFromPEM(chain)
		if err != nil {
			return fmt.Errorf("reading the certificate's chain: %w", err)
		}
		for n := range len(certificates) - 1 {
			between.AddCert(certificates[n])
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: i.roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	}); err != nil {
		return fmt.Errorf("the certificate does not chain to a trusted root: %w", err)
	}
	issuer, err := issuerOf(leaf)
	if err != nil {
		return err
	}
	if issuer != i.options.Issuer {
		return fmt.Errorf("the certificate's issuer of identities is %q, not %q", issuer, i.options.Issuer)
	}
	subjects := slices.Clone(leaf.EmailAddresses)
	if !IsEmail(i.options.Subject) {
		subjects = texts(leaf.URIs)
	}
	if !slices.Contains(subjects, i.options.Subject) {
		return fmt.Errorf("the certificate is for %q, not for %q", slices.Concat(leaf.EmailAddresses, texts(leaf.URIs)), i.options.Subject)
	}
	return nil
}

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
