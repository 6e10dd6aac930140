package kms

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Vault stands in for HashiCorp Vault, with its own transit engine at transit.
type Vault struct {
	// Address is its URL, and Token may do everything.
	Address, Token string

	tb   testing.TB
	stop func()
}

// NewVault starts one for as long as the test. A test before `make tools SIGNING=1` fails.
func NewVault(tb testing.TB) *Vault {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), filepath.Join(find(tb, toolchain.Vault), "vault"))
	var log strings.Builder
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	v := &Vault{tb: tb}
	v.stop = func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
	tb.Cleanup(func() {
		if v.stop(); tb.Failed() {
			tb.Log(log.String())
		}
	})
	if err := json.NewDecoder(stdout).Decode(v); err != nil {
		tb.Fatalf("Vault did not start: %v", err)
	}
	v.do(http.MethodPost, "sys/mounts/transit", map[string]any{"type": "transit"})
	return v
}

// Stop ends it before the test does.
func (v *Vault) Stop() { v.stop() }

// CreateKey makes a key of a type of the transit engine, such as ecdsa-p256.
func (v *Vault) CreateKey(name, keyType string) {
	v.tb.Helper()
	v.do(http.MethodPost, "transit/keys/"+name, map[string]any{"type": keyType})
}

// RotateKey gives a key a new version.
func (v *Vault) RotateKey(name string) {
	v.tb.Helper()
	v.do(http.MethodPost, "transit/keys/"+name+"/rotate", nil)
}

// TokenFor makes a token that may sign with one key, and read its public key.
func (v *Vault) TokenFor(key string) string {
	v.tb.Helper()
	v.do(http.MethodPut, "sys/policies/acl/sign-"+key, map[string]any{"policy": fmt.Sprintf(
		`path "transit/keys/%s" { capabilities = ["read"] } path "transit/sign/%s/*" { capabilities = ["update"] }`, key, key)})
	var made struct {
		Auth struct {
			Token string `json:"client_token"`
		} `json:"auth"`
	}
	if err := json.Unmarshal(v.do(http.MethodPost, "auth/token/create", map[string]any{"policies": []string{"sign-" + key}}), &made); err != nil {
		v.tb.Fatal(err)
	}
	return made.Auth.Token
}

// RevokeToken takes a token away.
func (v *Vault) RevokeToken(token string) {
	v.tb.Helper()
	v.do(http.MethodPost, "auth/token/revoke", map[string]any{"token": token})
}

func (v *Vault) do(method, path string, content any) []byte {
	v.tb.Helper()
	body, err := json.Marshal(content)
	if err != nil {
		v.tb.Fatal(err)
	}
	request, err := http.NewRequestWithContext(v.tb.Context(), method, v.Address+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		v.tb.Fatal(err)
	}
	request.Header.Set("X-Vault-Token", v.Token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		v.tb.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= http.StatusBadRequest {
		v.tb.Fatalf("%s %s: %s %s %v", method, path, response.Status, text, err)
	}
	return text
}
