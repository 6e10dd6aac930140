package sigstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Audience is whom tokens are for.
const Audience = "sigstore"

// Issuer is an OpenID Connect provider.
type Issuer struct {
	// URL is its name, and where its keys are.
	URL string
	key *ecdsa.PrivateKey
}

// NewIssuer makes a provider that is there for as long as the test.
func NewIssuer(tb testing.TB) *Issuer {
	tb.Helper()
	i := &Issuer{key: newKey()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := i.key.PublicKey.Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		x, y := point[1:33], point[33:]
		reply(w, http.StatusOK, map[string]any{"keys": []any{map[string]string{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one", "x": encode(x), "y": encode(y),
		}}})
	})
	server := httptest.NewServer(mux)
	tb.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// EmailToken is a token for an email address.
func (i *Issuer) EmailToken(address string, until time.Time) string {
	return i.Token(map[string]any{"sub": "account-of-" + address, "email": address, "email_verified": true}, until)
}

// Token is a token with claims, beside those of all tokens.
func (i *Issuer) Token(claims map[string]any, until time.Time) string {
	all := map[string]any{"iss": i.URL, "aud": Audience, "iat": until.Add(-time.Hour).Unix(), "exp": until.Unix()}
	for name, value := range claims {
		all[name] = value
	}
	text := encode(must(json.Marshal(map[string]string{"alg": "ES256", "kid": "one", "typ": "JWT"}))) + "." + encode(must(json.Marshal(all)))
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		panic(err)
	}
	const size = 32
	return text + "." + encode(append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...))
}

// claims are those of a token of the issuer that has not expired.
func (i *Issuer) claims(token string, now time.Time) (claims struct {
	Email   string `json:"email"`
	Subject string `json:"sub"`
	Issuer  string `json:"iss"`
	Expiry  int64  `json:"exp"`
}, err error,
) {
	head, signed, _ := cutLast(token, ".")
	_, body, found := strings.Cut(head, ".")
	raw, err := base64.RawURLEncoding.DecodeString(signed)
	if !found || err != nil || len(raw) != 64 {
		return claims, errors.New("no token")
	}
	sum := sha256.Sum256([]byte(head))
	if !ecdsa.Verify(&i.key.PublicKey, sum[:], number(raw[:32]), number(raw[32:])) {
		return claims, errors.New("by another issuer")
	}
	text, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return claims, err
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return claims, err
	}
	if !now.Before(time.Unix(claims.Expiry, 0)) {
		return claims, errors.New("it has expired")
	}
	return claims, nil
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func encode(content []byte) string { return base64.RawURLEncoding.EncodeToString(content) }

func reply(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(must(json.Marshal(content)))
}
