package sigstore

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Log stands in for Rekor: version 1 of its API, as far as entries go, without the tree.
type Log struct {
	// URL is where it is.
	URL string
	// Now is the time that it says; the system's as long as no one sets it.
	Now func() time.Time

	key *ecdsa.PrivateKey

	mu sync.Mutex
	// answer answers in its place, where it does.
	answer  func(http.ResponseWriter, *http.Request) bool
	entries map[string]Entry
	order   []string
}

// Entry is one of the log, in the form of the API.
type Entry struct {
	Body           []byte `json:"body"`
	IntegratedTime int64  `json:"integratedTime"`
	LogID          string `json:"logID"`
	LogIndex       int64  `json:"logIndex"`

	Verification *Verification `json:"verification,omitempty"`
}

// Verification is what says that an entry is in the log.
type Verification struct {
	SignedEntryTimestamp []byte `json:"signedEntryTimestamp"`
}

// NewLog makes a log that is there for as long as the test.
func NewLog(tb testing.TB) *Log {
	tb.Helper()
	l := &Log{key: newKey(), Now: time.Now, entries: map[string]Entry{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/log/entries", l.add)
	mux.HandleFunc("GET /api/v1/log/entries/{id}", l.get)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		l.mu.Lock()
		answer := l.answer
		l.mu.Unlock()
		if answer == nil || !answer(w, request) {
			mux.ServeHTTP(w, request)
		}
	}))
	tb.Cleanup(server.Close)
	l.URL = server.URL
	return l
}

// PublicKey is the key of the log, as PEM.
func (l *Log) PublicKey() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(&l.key.PublicKey))})
}

// Answering has something else answer, until it is called again; nil is the log itself.
func (l *Log) Answering(answer func(http.ResponseWriter, *http.Request) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// Len is how many entries there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// First is the first entry, as the answer to a request for it.
func (l *Log) First() map[string]Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return map[string]Entry{l.order[0]: l.entries[l.order[0]]}
}

// Sign signs an entry anew.
func (l *Log) Sign(e Entry) Entry {
	e.Verification = nil
	sum := sha256.Sum256(must(json.Marshal(e))) // its fields are in canonical order
	e.Verification = &Verification{must(ecdsa.SignASN1(rand.Reader, l.key, sum[:]))}
	return e
}

// proposal is an entry as it is given, or one as it is kept.
type proposal struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Spec       json.RawMessage `json:"spec"`
}

func (l *Log) add(w http.ResponseWriter, request *http.Request) {
	var p proposal
	if err := json.NewDecoder(request.Body).Decode(&p); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	spec, err := canonical(p)
	if err != nil {
		refuse(w, http.StatusBadRequest, "error processing entry: "+err.Error())
		return
	}
	body := must(json.Marshal(proposal{p.APIVersion, p.Kind, spec}))
	leaf := sha256.Sum256(append([]byte{0}, body...))
	id := hex.EncodeToString(leaf[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Location", "/api/v1/log/entries/"+id)
	if _, has := l.entries[id]; has {
		refuse(w, http.StatusConflict, "an equivalent entry already exists in the transparency log with UUID "+id)
		return
	}
	log := sha256.Sum256(must(x509.MarshalPKIXPublicKey(&l.key.PublicKey)))
	l.entries[id] = l.Sign(Entry{Body: body, IntegratedTime: l.Now().Unix(), LogID: hex.EncodeToString(log[:]), LogIndex: int64(len(l.order))})
	l.order = append(l.order, id)
	reply(w, http.StatusCreated, map[string]Entry{id: l.entries[id]})
}

func (l *Log) get(w http.ResponseWriter, request *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := request.PathValue("id")
	e, has := l.entries[id]
	if !has {
		refuse(w, http.StatusNotFound, "entry not found")
		return
	}
	reply(w, http.StatusOK, map[string]Entry{id: e})
}

func refuse(w http.ResponseWriter, code int, message string) {
	reply(w, code, map[string]any{"code": code, "message": message})
}

// canonical is what the log keeps of a proposal, once it has verified the signature.
func canonical(p proposal) (json.RawMessage, error) {
	switch p.Kind + "/" + p.APIVersion {
	case "hashedrekord/0.0.1":
		return hashedRecord(p.Spec)
	case "dsse/0.0.1":
		return envelopeRecord(p.Spec)
	}
	return nil, fmt.Errorf("entry of kind %q and version %q is not known", p.Kind, p.APIVersion)
}

func hashedRecord(text []byte) (json.RawMessage, error) {
	var spec struct {
		Data struct {
			Hash struct {
				Algorithm string `json:"algorithm"`
				Value     string `json:"value"`
			} `json:"hash"`
		} `json:"data"`
		Signature struct {
			Content   []byte `json:"content"`
			PublicKey struct {
				Content []byte `json:"content"`
			} `json:"publicKey"`
		} `json:"signature"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	sum, err := hex.DecodeString(spec.Data.Hash.Value)
	if err != nil || spec.Data.Hash.Algorithm != "sha256" || len(sum) != sha256.Size {
		return nil, errors.New("invalid value for hash")
	}
	key, normal, err := verifier(spec.Signature.PublicKey.Content)
	if err != nil {
		return nil, err
	}
	if !ecdsa.VerifyASN1(key, sum, spec.Signature.Content) {
		return nil, errors.New("verifying signature: invalid signature when validating ASN.1 encoded signature")
	}
	spec.Signature.PublicKey.Content = normal
	return json.Marshal(spec)
}

// envelopeRecord is for one signature.
func envelopeRecord(text []byte) (json.RawMessage, error) {
	var spec struct {
		Content struct {
			Envelope  string   `json:"envelope"`
			Verifiers [][]byte `json:"verifiers"`
		} `json:"proposedContent"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, err
	}
	var envelope struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			Sig string `json:"sig"`
		} `json:"signatures"`
	}
	if err := json.Unmarshal([]byte(spec.Content.Envelope), &envelope); err != nil {
		return nil, err
	}
	if len(envelope.Signatures) != 1 || len(spec.Content.Verifiers) != 1 {
		return nil, errors.New("DSSE envelope must contain 1 signature")
	}
	key, normal, err := verifier(spec.Content.Verifiers[0])
	if err != nil {
		return nil, err
	}
	signed, err := base64.StdEncoding.DecodeString(envelope.Signatures[0].Sig)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(envelope.PayloadType), envelope.PayloadType, len(envelope.Payload), envelope.Payload))
	if !ecdsa.VerifyASN1(key, sum[:], signed) {
		return nil, errors.New("could not verify envelope")
	}
	hash := func(content []byte) map[string]string {
		sum := sha256.Sum256(content)
		return map[string]string{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}
	}
	return json.Marshal(map[string]any{
		"envelopeHash": hash([]byte(spec.Content.Envelope)), "payloadHash": hash(envelope.Payload),
		"signatures": []any{map[string]any{"signature": envelope.Signatures[0].Sig, "verifier": normal}},
	})
}

// verifier is the key of a certificate, or a public key itself, and its text as the log keeps it.
func verifier(text []byte) (*ecdsa.PublicKey, []byte, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil, errors.New("invalid public key: failure decoding PEM")
	}
	var parsed any
	var err error
	if block.Type == "CERTIFICATE" {
		var certificate *x509.Certificate
		if certificate, err = x509.ParseCertificate(block.Bytes); err == nil {
			parsed = certificate.PublicKey
		}
	} else {
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	}
	if err != nil {
		return nil, nil, err
	}
	key, is := parsed.(*ecdsa.PublicKey)
	if !is {
		return nil, nil, errors.New("entry algorithms are not allowed")
	}
	return key, pem.EncodeToMemory(block), nil
}

func number(content []byte) *big.Int { return new(big.Int).SetBytes(content) }

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}
