package sigstore

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// lifetime is that of the certificates.
const lifetime = 10 * time.Minute

// Authority stands in for Fulcio: version 2 of its API, with a root, an authority in between, and
// no log of certificates.
type Authority struct {
	// URL is where it is.
	URL string
	// Now is the time that it says; the system's as long as no one sets it.
	Now func() time.Time
	// RootUntil and MiddleUntil are when the authorities that Rotate makes expire; in two days
	// where they are zero.
	RootUntil, MiddleUntil time.Time
	// Change changes each certificate before it is signed, where it is set.
	Change func(*x509.Certificate)

	issuer *Issuer

	mu           sync.Mutex
	answer       func(http.ResponseWriter, *http.Request) bool
	root, middle *x509.Certificate
	key          *ecdsa.PrivateKey
	issued       int
}

// NewAuthority makes an authority for identities of an issuer that is there for as long as the
// test.
func NewAuthority(tb testing.TB, issuer *Issuer) *Authority {
	tb.Helper()
	a := &Authority{issuer: issuer, Now: time.Now}
	a.Rotate()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		answer := a.answer
		a.mu.Unlock()
		switch {
		case answer != nil && answer(w, r):
		case r.Method == http.MethodPost && r.URL.Path == "/api/v2/signingCert":
			a.sign(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	tb.Cleanup(server.Close)
	a.URL = server.URL
	return a
}

// Answering has something else answer, until it is called again; nil is the authority itself.
func (a *Authority) Answering(answer func(http.ResponseWriter, *http.Request) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// Issued is how many certificates there are.
func (a *Authority) Issued() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// Roots is the root, as PEM.
func (a *Authority) Roots() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return certificatePEM(a.root.Raw)
}

// Rotate gives the authority another root.
func (a *Authority) Rotate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	rootKey, key := newKey(), newKey()
	authority := func(name string, until time.Time) *x509.Certificate {
		if until.IsZero() {
			until = time.Now().Add(48 * time.Hour)
		}
		return &x509.Certificate{
			SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	}
	certify := func(template, by *x509.Certificate, public *ecdsa.PublicKey, with *ecdsa.PrivateKey) *x509.Certificate {
		return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, by, public, with))))
	}
	template := authority("root", a.RootUntil)
	a.root = certify(template, template, &rootKey.PublicKey, rootKey)
	a.middle, a.key = certify(authority("middle", a.MiddleUntil), a.root, &key.PublicKey, rootKey), key
}

func (a *Authority) sign(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Credentials struct {
			Token string `json:"oidcIdentityToken"`
		} `json:"credentials"`
		CSR []byte `json:"certificateSigningRequest"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		decline(w, err.Error())
		return
	}
	claims, err := a.issuer.claims(request.Credentials.Token, a.Now())
	if err != nil {
		decline(w, "There was an error processing the identity token")
		return
	}
	block, _ := pem.Decode(request.CSR)
	if block == nil {
		decline(w, "The certificate signing request could not be parsed")
		return
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		decline(w, "The signature supplied in the request could not be verified")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.issued++
	template := Certificate(claims.Email, claims.Issuer, a.Now())
	if claims.Email == "" {
		template = Certificate(claims.Subject, claims.Issuer, a.Now())
	}
	if a.Change != nil {
		a.Change(template)
	}
	leaf := must(x509.CreateCertificate(rand.Reader, template, a.middle, csr.PublicKey, a.key))
	reply(w, http.StatusOK, map[string]any{"signedCertificateDetachedSct": map[string]any{"chain": map[string]any{"certificates": []string{
		string(certificatePEM(leaf)), string(certificatePEM(a.middle.Raw)), string(certificatePEM(a.root.Raw)),
	}}, "signedCertificateTimestamp": ""}})
}

// Certificate is what Fulcio would certify of an identity.
func Certificate(subject, issuer string, now time.Time) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: serial(), NotBefore: now, NotAfter: now.Add(lifetime), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(issuer)},
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: must(asn1.MarshalWithParams(issuer, "utf8"))},
		},
	}
	if strings.Contains(subject, "://") {
		template.URIs = []*url.URL{must(url.Parse(subject))}
	} else {
		template.EmailAddresses = []string{subject}
	}
	return template
}

func decline(w http.ResponseWriter, message string) {
	reply(w, http.StatusBadRequest, map[string]any{"code": 3, "message": message, "details": []any{}})
}

func serial() *big.Int { return must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))) }

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
