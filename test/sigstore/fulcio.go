package sigstore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Fulcio is the real one.
type Fulcio struct {
	// URL is where it is.
	URL string
	// Roots is its root, as PEM. It is made anew each time that it starts.
	Roots []byte
}

// startTime is how long it may take to start.
const startTime = time.Minute

// NewFulcio starts Fulcio for identities of an issuer, for as long as the test. A test before `make tools` fails.
func NewFulcio(tb testing.TB, issuer *Issuer) *Fulcio {
	tb.Helper()
	dir := tb.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("oidc-issuers:\n  %s:\n    issuer-url: %s\n    client-id: %s\n    type: email\n", issuer.URL, issuer.URL, Audience)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	port, grpc, metrics := freePort(tb), freePort(tb), freePort(tb)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	cmd := exec.CommandContext(ctx, filepath.Join(find(tb), "fulcio"), "serve", "--ca=ephemeralca", "--ct-log-url=", "--config-path="+config,
		"--host=127.0.0.1", "--grpc-host=127.0.0.1", "--port="+port, "--grpc-port="+grpc, "--metrics-port="+metrics,
		"--legacy-unix-domain-socket="+filepath.Join(dir, "s"))
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	tb.Cleanup(func() {
		cancel()
		if <-ended; tb.Failed() {
			tb.Log(log.String())
		}
	})
	f := &Fulcio{URL: "http://127.0.0.1:" + port}
	f.wait(tb, ended)
	return f
}

// wait waits for its root, as long as it has not ended.
func (f *Fulcio) wait(tb testing.TB, ended <-chan struct{}) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		root, err := f.root(ctx)
		if err == nil {
			f.Roots = []byte(root)
			return
		}
		select {
		case <-again.C:
		case <-ended:
			tb.Fatal("Fulcio ended")
		case <-ctx.Done():
			tb.Fatalf("Fulcio did not start: %v", err)
		}
	}
}

func (f *Fulcio) root(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+"/api/v2/trustBundle", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var bundle struct {
		Chains []struct {
			Certificates []string `json:"certificates"`
		} `json:"chains"`
	}
	if err := json.Unmarshal(text, &bundle); err != nil || len(bundle.Chains) != 1 {
		return "", fmt.Errorf("reading its trust bundle %.200q", text)
	}
	certificates := bundle.Chains[0].Certificates
	return certificates[len(certificates)-1], nil
}

func find(tb testing.TB) string {
	tb.Helper()
	cache, err := toolchain.CacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	root, err := toolchain.RepositoryRoot(".")
	if err != nil {
		tb.Fatal(err)
	}
	bin, err := toolchain.New(root, cache).Find(tb.Context(), toolchain.Fulcio)
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// freePort is one that nothing listens on.
func freePort(tb testing.TB) string {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		tb.Fatal(err)
	}
	return port
}
