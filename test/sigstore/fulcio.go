package sigstore

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Fulcio is the real one.
type Fulcio struct {
	// URL is where it is.
	URL string
	// Roots is its root, as PEM. It is made anew each time that it starts.
	Roots []byte
}

// FulcioOptions say whose tokens Fulcio takes, and where it runs.
type FulcioOptions struct {
	// Config is its configuration in YAML.
	Config string
	// Command runs it, such as in another network, where Listen opens a listener and Dial connects;
	// all are nil for this machine's loopback.
	Command []string
	Listen  func(context.Context) (net.Listener, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewFulcio starts Fulcio for email addresses of an issuer, for as long as the test. A test before
// `make tools SIGNING=1` fails.
func NewFulcio(tb testing.TB, issuer *Issuer) *Fulcio {
	tb.Helper()
	return StartFulcio(tb, FulcioOptions{
		Config: fmt.Sprintf("oidc-issuers:\n  %s:\n    issuer-url: %s\n    client-id: %s\n    type: email\n", issuer.URL, issuer.URL, Audience),
	})
}

// StartFulcio is NewFulcio for other issuers and other places.
func StartFulcio(tb testing.TB, options FulcioOptions) *Fulcio {
	tb.Helper()
	if options.Listen == nil {
		options.Listen = listen
	}
	dir := tb.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(options.Config), 0o600); err != nil {
		tb.Fatal(err)
	}
	host, port := freePort(tb, options.Listen)
	_, grpc := freePort(tb, options.Listen)
	_, metrics := freePort(tb, options.Listen)
	p := start(tb, "Fulcio", append(options.Command, find(tb, toolchain.Fulcio, "fulcio"), "serve", "--ca=ephemeralca", "--ct-log-url=", "--config-path="+config,
		"--host="+host, "--grpc-host=127.0.0.1", "--port="+port, "--grpc-port="+grpc, "--metrics-port="+metrics, "--legacy-unix-domain-socket="+filepath.Join(dir, "s")))
	f := &Fulcio{URL: "http://" + net.JoinHostPort(host, port)}
	client := &http.Client{Transport: &http.Transport{DialContext: options.Dial, DisableKeepAlives: true}}
	p.wait(tb, func(ctx context.Context) error { return f.root(ctx, client) })
	return f
}

// root asks for the root.
func (f *Fulcio) root(ctx context.Context, client *http.Client) error {
	text, err := get(ctx, client, f.URL+"/api/v2/trustBundle")
	if err != nil {
		return err
	}
	var bundle struct {
		Chains []struct {
			Certificates []string `json:"certificates"`
		} `json:"chains"`
	}
	if err := json.Unmarshal(text, &bundle); err != nil || len(bundle.Chains) != 1 {
		return fmt.Errorf("reading its trust bundle %.200q", text)
	}
	certificates := bundle.Chains[0].Certificates
	f.Roots = []byte(certificates[len(certificates)-1])
	return nil
}
