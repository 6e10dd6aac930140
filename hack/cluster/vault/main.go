// Command vault is HashiCorp Vault for tests: its own core, HTTP API and transit engine, as `vault server -dev` starts them, without the engines and the
// storage that nobody here uses. All is in memory. It prints its address and its root token as one line of JSON, and ends when its standard input does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx := context.Background()
	core, err := newCore()
	if err != nil {
		return err
	}
	token, err := unsealed(ctx, core)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core}), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	err = json.NewEncoder(os.Stdout).Encode(map[string]string{"address": "http://" + listener.Addr().String(), "token": token})
	if err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- errors.Join(err, server.Close())
	}()
	return <-ended
}

func newCore() (*vault.Core, error) {
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	storage, err := inmem.NewInmem(nil, log)
	if err != nil {
		return nil, err
	}
	return vault.NewCore(&vault.CoreConfig{
		Physical: storage, Logger: log, DisableMlock: true, LogicalBackends: map[string]logical.Factory{"transit": transit.Factory},
	})
}

// unsealed makes a core ready, and gives its root token.
func unsealed(ctx context.Context, core *vault.Core) (token string, err error) {
	made, err := core.Initialize(ctx, &vault.InitParams{BarrierConfig: &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}})
	if err != nil {
		return "", err
	}
	if len(made.SecretShares) != 1 {
		return "", fmt.Errorf("there are %d shares of the key, and not one", len(made.SecretShares))
	}
	_, err = core.Unseal(made.SecretShares[0])
	return made.RootToken, err
}
