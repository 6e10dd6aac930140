package kms

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Credentials that the stand-in for AWS knows.
const (
	AWSAccessKey = "AKIDLAYERWRIGHTTEST0"
	AWSSecretKey = "hunter2-aws-secret-access-key"
)

// awsKey is what the key is called.
const awsKey = "alias/os"

// AWS stands in for AWS KMS, with the key alias/os.
type AWS struct {
	// URI is that of the key.
	URI string

	host, authority string
	key             *ecdsa.PrivateKey

	mu     sync.Mutex
	denied bool
}

// NewAWS starts one for as long as the test.
func NewAWS(tb testing.TB) *AWS {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	a := &AWS{key: key, authority: filepath.Join(tb.TempDir(), "aws.pem")}
	server := httptest.NewTLSServer(a)
	tb.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(a.authority, certificate, 0o600); err != nil {
		tb.Fatal(err)
	}
	a.host = strings.TrimPrefix(server.URL, "https://")
	a.URI = "awskms://" + a.host + "/" + awsKey
	return a
}

// Host is where it is.
func (a *AWS) Host() string { return a.host }

// Environment is what a client needs to use it.
func (a *AWS) Environment() []string {
	return []string{
		"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=" + AWSAccessKey, "AWS_SECRET_ACCESS_KEY=" + AWSSecretKey, "AWS_EC2_METADATA_DISABLED=true",
		"SSL_CERT_FILE=" + a.authority,
	}
}

// Deny takes the right to sign away.
func (a *AWS) Deny() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.denied = true
}

// ServeHTTP answers one request.
func (a *AWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="+AWSAccessKey+"/") {
		refuse(w, "UnrecognizedClientException", "The security token included in the request is invalid.")
		return
	}
	var request struct {
		KeyID            string `json:"KeyId"`
		Message          []byte
		MessageType      string
		SigningAlgorithm string
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		refuse(w, "SerializationException", err.Error())
		return
	}
	if request.KeyID != awsKey {
		refuse(w, "NotFoundException", "Alias arn:aws:kms:eu-central-1:111122223333:"+request.KeyID+" is not found.")
		return
	}
	const arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	about := map[string]any{"KeyId": arn, "KeySpec": "ECC_NIST_P256", "KeyUsage": "SIGN_VERIFY", "SigningAlgorithms": []string{"ECDSA_SHA_256"}}
	a.mu.Lock()
	denied := a.denied
	a.mu.Unlock()
	switch _, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "TrentService."); {
	case operation == "GetPublicKey":
		about["PublicKey"], _ = x509.MarshalPKIXPublicKey(a.key.Public())
		answer(w, http.StatusOK, about)
	case operation == "DescribeKey":
		about["Arn"], about["Enabled"], about["KeyState"] = arn, true, "Enabled"
		answer(w, http.StatusOK, map[string]any{"KeyMetadata": about})
	case operation == "Sign" && denied:
		refuse(w, "AccessDeniedException", "User: arn:aws:iam::111122223333:user/os is not authorized to perform: kms:Sign on resource: "+arn)
	case operation == "Sign" && request.MessageType == "DIGEST" && request.SigningAlgorithm == "ECDSA_SHA_256":
		signed, err := a.key.Sign(rand.Reader, request.Message, crypto.SHA256)
		if err != nil {
			refuse(w, "ValidationException", err.Error())
			return
		}
		answer(w, http.StatusOK, map[string]any{"KeyId": arn, "Signature": signed, "SigningAlgorithm": request.SigningAlgorithm})
	default:
		refuse(w, "UnknownOperationException", operation)
	}
}

func refuse(w http.ResponseWriter, kind, message string) {
	answer(w, http.StatusBadRequest, map[string]any{"__type": kind, "message": message})
}

func answer(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content) //nolint:errchkjson // who asks sees what is missing
}
