package sign

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"path"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
)

// entriesPath is where Rekor has its entries.
const entriesPath = "/api/v1/log/entries"

// publicKeyPath is where it has its public key, for people.
const publicKeyPath = "/api/v1/log/publicKey"

// bundle is what an annotation has of an entry of the log: the entry, and the log's promise that it
// is there from that time on.
type bundle struct {
	SignedEntryTimestamp []byte
	Payload              entry
}

// entry is a record with its place in the log. Its fields are in the order of canonical JSON (RFC
// 8785), which is what the log signs; no value of theirs has a character that this form writes
// otherwise than encoding/json.
type entry struct {
	// Body is the record, as the log keeps it.
	Body []byte `json:"body"`
	// IntegratedTime is when the log took it, in seconds since 1970.
	IntegratedTime int64 `json:"integratedTime"`
	// LogID is the SHA-256 of the log's public key, in hexadecimal.
	LogID    string `json:"logID"`
	LogIndex int64  `json:"logIndex"`
}

// record is something that Rekor keeps.
type record struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Spec       json.RawMessage `json:"spec"`
}

// The record of a signature of something that has a hash.
const (
	hashedRecordKind    = "hashedrekord"
	hashedRecordVersion = "0.0.1"
	hashName            = "sha256"
)

type hashedRecord struct {
	Data struct {
		Hash recordHash `json:"hash"`
	} `json:"data"`
	Signature struct {
		Content   []byte `json:"content"`
		PublicKey struct {
			Content []byte `json:"content"`
		} `json:"publicKey"`
	} `json:"signature"`
}

type recordHash struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"value"`
}

func hashOf(content []byte) recordHash {
	sum := sha256.Sum256(content)
	return recordHash{Algorithm: hashName, Value: hex.EncodeToString(sum[:])}
}

// newHashedRecord is the record of a signature of content, with the certificate in PEM.
func newHashedRecord(content, signed, certificate []byte) (record, error) {
	var h hashedRecord
	h.Data.Hash = hashOf(content)
	h.Signature.Content, h.Signature.PublicKey.Content = signed, certificate
	spec, err := json.Marshal(h)
	return record{APIVersion: hashedRecordVersion, Kind: hashedRecordKind, Spec: spec}, err
}

// checkHashedRecord returns why a record is not that of a signature, nil if it is.
func checkHashedRecord(body, content, signed []byte, certificate *x509.Certificate) error {
	var h hashedRecord
	if err := readRecord(body, hashedRecordKind, hashedRecordVersion, &h); err != nil {
		return err
	}
	if !isCertificate(h.Signature.PublicKey.Content, certificate) {
		return errors.New("the log's entry is about another certificate")
	}
	if !bytes.Equal(h.Signature.Content, signed) {
		return errors.New("the log's entry is about another signature")
	}
	if h.Data.Hash != hashOf(content) {
		return errors.New("the log's entry is about something else")
	}
	return nil
}

// The record of an envelope (DSSE): what is proposed, and what the log makes of it.
const (
	envelopeRecordKind    = "dsse"
	envelopeRecordVersion = "0.0.1"
)

type proposedEnvelope struct {
	ProposedContent struct {
		Envelope  string   `json:"envelope"`
		Verifiers [][]byte `json:"verifiers"`
	} `json:"proposedContent"`
}

type envelopeRecord struct {
	EnvelopeHash recordHash `json:"envelopeHash"`
	Signatures   []struct {
		Verifier []byte `json:"verifier"`
	} `json:"signatures"`
}

// newEnvelopeRecord is the record of an envelope, with the certificate in PEM.
func newEnvelopeRecord(envelope, certificate []byte) (record, error) {
	var p proposedEnvelope
	p.ProposedContent.Envelope, p.ProposedContent.Verifiers = string(envelope), [][]byte{certificate}
	spec, err := json.Marshal(p)
	return record{APIVersion: envelopeRecordVersion, Kind: envelopeRecordKind, Spec: spec}, err
}

// checkEnvelopeRecord returns why a record is not that of an envelope with its signatures, nil if
// it is.
func checkEnvelopeRecord(body, envelope []byte, certificate *x509.Certificate) error {
	var e envelopeRecord
	if err := readRecord(body, envelopeRecordKind, envelopeRecordVersion, &e); err != nil {
		return err
	}
	if len(e.Signatures) != 1 || !isCertificate(e.Signatures[0].Verifier, certificate) {
		return errors.New("the log's entry is about another certificate")
	}
	if e.EnvelopeHash != hashOf(envelope) {
		return errors.New("the log's entry is about something else")
	}
	return nil
}

func readRecord(body []byte, kind, version string, spec any) error {
	var r record
	if err := json.Unmarshal(body, &r); err != nil {
		return errors.New("the log's entry can't be read")
	}
	if r.Kind != kind || r.APIVersion != version {
		return fmt.Errorf("the log's entry is a %q of version %q, not a %q of version %q", r.Kind, r.APIVersion, kind, version)
	}
	if err := json.Unmarshal(r.Spec, spec); err != nil {
		return errors.New("the log's entry can't be read")
	}
	return nil
}

// isCertificate compares without the line breaks of PEM.
func isCertificate(text []byte, certificate *x509.Certificate) bool {
	block, rest := pem.Decode(text)
	return block != nil && len(bytes.TrimSpace(rest)) == 0 && bytes.Equal(block.Bytes, certificate.Raw)
}

// logged is the entry of a bundle that one of the trusted logs stands for.
func (i *Identity) logged(text []byte) (entry, error) {
	if len(text) == 0 {
		return entry{}, errors.New("no transparency log has seen it")
	}
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		return entry{}, errors.New("what it has of the transparency log can't be read")
	}
	if b.Payload.LogID == "" {
		return entry{}, errors.New("no transparency log has an entry for it")
	}
	key, is := i.logs[b.Payload.LogID]
	if !is {
		return entry{}, fmt.Errorf("%w: the transparency log %q", errUnknownLog, b.Payload.LogID)
	}
	canonical, err := json.Marshal(b.Payload)
	if err != nil {
		return entry{}, fmt.Errorf("writing the log's entry: %w", err)
	}
	sum := sha256.Sum256(canonical)
	if !ecdsa.VerifyASN1(key, sum[:], b.SignedEntryTimestamp) {
		return entry{}, errors.New("the transparency log has not signed this entry")
	}
	return b.Payload, nil
}

// rekor is a transparency log.
type rekor struct{ service }

// add adds a record, and gives the log's promise as the text of an annotation. A record that is
// there already is taken from there. What the log answers is not verified here.
func (l rekor) add(ctx context.Context, r record) (string, error) {
	a, err := l.call(ctx, http.MethodPost, entriesPath, r)
	if err != nil {
		return "", fmt.Errorf("writing to the transparency log %q: %w", l.url, err)
	}
	if a.code == http.StatusConflict {
		id := path.Base(a.location)
		if _, err := hex.DecodeString(id); err != nil {
			return "", fmt.Errorf("writing to the transparency log %q: it has the entry, and did not answer where", l.url)
		}
		if a, err = l.call(ctx, http.MethodGet, entriesPath+"/"+id, nil); err != nil {
			return "", fmt.Errorf("reading the entry %q of the transparency log %q: %w", id, l.url, err)
		}
		// What is queued exists, and has no place in the log yet.
		if a.code == http.StatusNotFound {
			return "", fmt.Errorf("reading the entry %q of the transparency log %q: it exists and is not there yet: %s", id, l.url, a.text())
		}
	}
	switch {
	case a.isTransient():
		return "", fmt.Errorf("writing to the transparency log %q: it answers %s", l.url, a.text())
	case a.code != http.StatusCreated && a.code != http.StatusOK:
		return "", fault.NewTerminal(mcfgv1alpha1.ReasonSigningFailed, fmt.Errorf("the transparency log %q does not take the signature: %s", l.url, a.text()))
	}
	text, err := readEntry(a.body)
	if err != nil {
		return "", fmt.Errorf("writing to the transparency log %q: %w", l.url, err)
	}
	return text, nil
}

func readEntry(body []byte) (string, error) {
	var entries map[string]struct {
		entry

		Verification struct {
			SignedEntryTimestamp []byte `json:"signedEntryTimestamp"`
		} `json:"verification"`
	}
	if err := json.Unmarshal(body, &entries); err != nil || len(entries) != 1 {
		return "", errors.New("its answer is not one entry")
	}
	var b bundle
	for _, e := range entries {
		b = bundle{SignedEntryTimestamp: e.Verification.SignedEntryTimestamp, Payload: e.entry}
	}
	text, err := json.Marshal(b)
	return string(text), err
}
