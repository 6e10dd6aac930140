package sign

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
)

const (
	// signingCertPath is where Fulcio makes certificates (version 2 of its API).
	signingCertPath = "/api/v2/signingCert"
	// ServiceTimeout is how long Fulcio, Rekor and a key management service may take for an answer.
	ServiceTimeout = 30 * time.Second
	// MaxAnswer is the largest answer that is read, in bytes.
	MaxAnswer = 1 << 20
	// MaxQuoted is the longest answer that is told, in bytes.
	MaxQuoted = 300
)

// service is a web service that speaks JSON.
type service struct {
	url    string
	client *http.Client
}

// newService makes a service. It follows no redirection: what is sent has a token in it.
func newService(url string, transport http.RoundTripper, timeout time.Duration) service {
	return service{url: strings.TrimRight(url, "/"), client: &http.Client{
		Transport: transport, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is what a service says.
type answer struct {
	code           int
	body           []byte
	location       string
	status, secret string
}

// isTransient reports whether the same request may be answered otherwise later.
func (a answer) isTransient() bool {
	return a.code >= http.StatusInternalServerError || a.code == http.StatusTooManyRequests || a.code == http.StatusRequestTimeout
}

// text is the answer as it may be told.
func (a answer) text() string {
	var said struct {
		Message string `json:"message"`
	}
	text := string(a.body)
	if json.Unmarshal(a.body, &said) == nil && said.Message != "" {
		text = said.Message
	}
	if a.secret != "" {
		text = strings.ReplaceAll(text, a.secret, "<token>")
	}
	text = strings.TrimSpace(text)
	return fmt.Sprintf("%s: %.*s", a.status, MaxQuoted, text)
}

func (s service) call(ctx context.Context, method, path string, content any) (_ answer, err error) {
	var body io.Reader = http.NoBody
	if content != nil {
		text, err := json.Marshal(content)
		if err != nil {
			return answer{}, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(response.Body, MaxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("reading its answer: %w", err)
	}
	return answer{code: response.StatusCode, status: response.Status, body: text, location: response.Header.Get("Location")}, nil
}

// certificate is one of Fulcio's, with the private key that it is for. The key exists in memory
// alone, and for minutes.
type certificate struct {
	signer signature.Signer
	leaf   *x509.Certificate
	// pem and chain are the certificate, and those that stand for it up to the root.
	pem, chain []byte
	// until is when another one is to be asked for, by this process's clock.
	until time.Time
}

// fulcio is an authority that gives certificates for identities.
type fulcio struct{ service }

// certify has a new key certified. The token says to Fulcio whose it is. What Fulcio answers is not
// verified here, but that the certificate is for the key. file is where the token is from.
func (f fulcio) certify(ctx context.Context, token, file string, now time.Time) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	// Whatever else a request has in it, Fulcio does not look at: the token says who it is.
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	a, err := f.call(ctx, http.MethodPost, signingCertPath, map[string]any{
		"credentials":               map[string]string{"oidcIdentityToken": token},
		"certificateSigningRequest": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}),
	})
	if err != nil {
		return nil, WaitForKey(fmt.Errorf("asking Fulcio at %q for a certificate: %w", f.url, err))
	}
	a.secret = token
	switch {
	case a.isTransient():
		return nil, WaitForKey(fmt.Errorf("asking Fulcio at %q for a certificate: it answers %s", f.url, a.text()))
	case a.code != http.StatusOK && a.code != http.StatusCreated:
		return nil, InvalidKey(fmt.Errorf("Fulcio at %q gives no certificate for the token of the file %q%s: %s", //nolint:staticcheck // a name
			f.url, file, expired(token, now), a.text()))
	}
	chain, err := readChain(a.body)
	if err != nil {
		return nil, WaitForKey(fmt.Errorf("asking Fulcio at %q for a certificate: %w", f.url, err))
	}
	return newCertificate(key, chain, now)
}

// readChain is the chain of an answer, the certificate first.
func readChain(body []byte) ([]string, error) {
	type signed struct {
		Chain struct {
			Certificates []string `json:"certificates"`
		} `json:"chain"`
	}
	var said struct {
		Embedded signed `json:"signedCertificateEmbeddedSct"`
		Detached signed `json:"signedCertificateDetachedSct"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return nil, errors.New("its answer can't be read")
	}
	if chain := said.Embedded.Chain.Certificates; len(chain) > 0 {
		return chain, nil
	}
	if chain := said.Detached.Chain.Certificates; len(chain) > 0 {
		return chain, nil
	}
	return nil, errors.New("its answer has no certificate")
}

func newCertificate(key *ecdsa.PrivateKey, chain []string, now time.Time) (*certificate, error) {
	leaf, err := oneCertificate([]byte(chain[0]))
	if err != nil {
		return nil, WaitForKey(fmt.Errorf("Fulcio's answer: %w", err)) //nolint:staticcheck // a name
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, WaitForKey(errors.New("Fulcio's certificate is for another key")) //nolint:staticcheck // a name
	}
	signer, err := signature.LoadSigner(key, Hash)
	if err != nil {
		return nil, fmt.Errorf("loading a key: %w", err)
	}
	// It is counted from when it was asked for: the clocks of Fulcio and of this process may
	// differ. The last fifth is for the log's answer.
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	c := &certificate{signer: signer, leaf: leaf, pem: []byte(chain[0]), until: now.Add(lifetime - lifetime/5)}
	for _, one := range chain[1:] {
		c.chain = append(c.chain, strings.TrimSpace(one)+"\n"...)
	}
	return c, nil
}

// expired says when a token has expired, as far as it tells; nothing if it has not.
func expired(token string, now time.Time) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 { //nolint:mnd // a JSON web token
		return " (it is no JSON web token)"
	}
	var claims struct {
		Expiry float64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expiry == 0 {
		return ""
	}
	if at := time.Unix(int64(claims.Expiry), 0); !at.After(now) {
		return fmt.Sprintf(" (it expired at %s)", utc(at))
	}
	return ""
}

// WaitForKey means that a key can't be used now.
func WaitForKey(err error) error {
	return fault.NewWaiting(mcfgv1alpha1.ReasonWaitingForKey, recheck, err)
}

// InvalidKey means that a key can't be used, however long someone waits.
func InvalidKey(err error) error {
	return fault.NewWaiting(mcfgv1alpha1.ReasonInvalidKey, recheck, err)
}

// recheck is when a Secret that can't be used is looked at again. It is not watched: that would
// take the right to list all of its namespace.
const recheck = 15 * time.Second
