package sigstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Rekor is the real one, with a log of its own.
type Rekor struct {
	// URL is where it is.
	URL string
	// PublicKey is the key of the log, as it says itself, in PEM.
	PublicKey []byte

	tb      testing.TB
	command []string
	running *process
}

// NewRekor starts Rekor, and Trillian that keeps its log, for as long as the test. A test before
// `make tools SIGNING=1` fails.
func NewRekor(tb testing.TB) *Rekor {
	tb.Helper()
	dir := tb.TempDir()
	key := filepath.Join(dir, "rekor.key")
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(newKey()))})
	if err := os.WriteFile(key, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	log, tree := startTrillian(tb)
	_, logPort, err := net.SplitHostPort(log)
	if err != nil {
		tb.Fatal(err)
	}
	host, port := freePort(tb, listen)
	r := &Rekor{tb: tb, URL: "http://" + net.JoinHostPort(host, port), command: []string{
		find(tb, toolchain.Rekor, "rekor"), "serve", "--rekor_server.address=" + host, "--port=" + port, "--rekor_server.signer=" + key,
		"--trillian_log_server.port=" + logPort, "--trillian_log_server.tlog_id=" + tree,
		// All but the index, which needs a database.
		"--enable_retrieve_api=false", "--enabled_api_endpoints=getLogInfo,getPublicKey,getLogProof,createLogEntry,getLogEntryByIndex,getLogEntryByUUID,searchLogQuery",
	}}
	r.Start()
	return r
}

// startTrillian starts a log, and says where it is, and its tree.
func startTrillian(tb testing.TB) (address, tree string) {
	tb.Helper()
	program := find(tb, toolchain.Rekor, "trillian")
	said := filepath.Join(tb.TempDir(), "said")
	p := start(tb, "Trillian", []string{"sh", "-c", `exec "$0" >"$1"`, program, said})
	p.wait(tb, func(context.Context) error {
		text, err := os.ReadFile(said)
		if err != nil {
			return err
		}
		_, err = fmt.Sscanf(string(text), "%s %s\n", &address, &tree)
		return err
	})
	return address, tree
}

// Stop stops Rekor. What is in its log stays.
func (r *Rekor) Stop() { r.running.stop() }

// Start starts Rekor again.
func (r *Rekor) Start() {
	r.tb.Helper()
	r.running = start(r.tb, "Rekor", r.command)
	r.running.wait(r.tb, func(ctx context.Context) (err error) {
		r.PublicKey, err = get(ctx, http.DefaultClient, r.URL+"/api/v1/log/publicKey")
		return err
	})
}

// Logged is an entry as Rekor gives it to others, with the proof that it is in the tree.
type Logged struct {
	Entry

	Verification struct {
		SignedEntryTimestamp []byte `json:"signedEntryTimestamp"`
		Proof                Proof  `json:"inclusionProof"`
	} `json:"verification"`
}

// Proof says that an entry is in a tree.
type Proof struct {
	// LogIndex is its place in a tree of TreeSize entries, which has RootHash.
	LogIndex int64  `json:"logIndex"`
	TreeSize int64  `json:"treeSize"`
	RootHash string `json:"rootHash"`
	// Hashes lead from the entry to the root.
	Hashes []string `json:"hashes"`
	// Checkpoint is the root, signed by the log.
	Checkpoint string `json:"checkpoint"`
}

// Entry asks Rekor for an entry by its place.
func (r *Rekor) Entry(index int64) Logged {
	r.tb.Helper()
	text, err := get(r.tb.Context(), http.DefaultClient, fmt.Sprintf("%s/api/v1/log/entries?logIndex=%d", r.URL, index))
	if err != nil {
		r.tb.Fatal(err)
	}
	var entries map[string]Logged
	if err := json.Unmarshal(text, &entries); err != nil || len(entries) != 1 {
		r.tb.Fatalf("reading an entry of Rekor: %v %.200s", err, text)
	}
	var one Logged
	for _, one = range entries {
	}
	return one
}

// Len is how many entries there are.
func (r *Rekor) Len() int {
	r.tb.Helper()
	text, err := get(r.tb.Context(), http.DefaultClient, r.URL+"/api/v1/log")
	if err != nil {
		r.tb.Fatal(err)
	}
	var log struct {
		Size int `json:"treeSize"`
	}
	if err := json.Unmarshal(text, &log); err != nil {
		r.tb.Fatalf("reading Rekor's log: %v %.200s", err, text)
	}
	return log.Size
}

// Proven tells why an entry is not proven to be in the log, by the tree that the log has signed;
// nil where it is.
func (r *Rekor) Proven(l Logged) error {
	proof := l.Verification.Proof
	leaf := sha256.Sum256(append([]byte{0}, l.Body...))
	root, err := rootOf(leaf[:], proof)
	if err != nil {
		return err
	}
	if root != proof.RootHash {
		return fmt.Errorf("the proof leads to %s, not to the root %s", root, proof.RootHash)
	}
	// A checkpoint is its text, an empty line, and lines with signatures: a dash, the log's name,
	// and 4 bytes that say which key it is before the signature.
	text, signatures, _ := strings.Cut(proof.Checkpoint, "\n\n")
	lines, fields := strings.Split(text, "\n"), strings.Fields(signatures)
	if len(lines) < 3 || len(fields) != 3 {
		return fmt.Errorf("no checkpoint: %q", proof.Checkpoint)
	}
	signed, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil || len(signed) < 4 {
		return fmt.Errorf("no signature: %q", fields[2])
	}
	block, _ := pem.Decode(r.PublicKey)
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(text + "\n"))
	if !ecdsa.VerifyASN1(key.(*ecdsa.PublicKey), sum[:], signed[4:]) {
		return errors.New("the log has not signed its checkpoint")
	}
	if hash, err := base64.StdEncoding.DecodeString(lines[2]); err != nil || hex.EncodeToString(hash) != root || lines[1] != strconv.FormatInt(proof.TreeSize, 10) {
		return fmt.Errorf("the checkpoint is about another tree: %q", text)
	}
	return nil
}

// rootOf is the root that a proof leads to from a leaf (RFC 6962, section 2.1.1).
func rootOf(hash []byte, proof Proof) (string, error) {
	at, last := proof.LogIndex, proof.TreeSize-1
	for _, text := range proof.Hashes {
		sibling, err := hex.DecodeString(text)
		if err != nil || last == 0 {
			return "", fmt.Errorf("no proof: %v", proof.Hashes)
		}
		pair := append(append([]byte{1}, hash...), sibling...)
		if at%2 == 1 || at == last {
			pair = append(append([]byte{1}, sibling...), hash...)
			for at%2 == 0 && at != 0 {
				at, last = at/2, last/2
			}
		}
		sum := sha256.Sum256(pair)
		hash, at, last = sum[:], at/2, last/2
	}
	if last != 0 {
		return "", fmt.Errorf("the proof ends below the root: %v", proof.Hashes)
	}
	return hex.EncodeToString(hash), nil
}
