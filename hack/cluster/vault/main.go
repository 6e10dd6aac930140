// Command vault stands in for HashiCorp Vault in tests: Vault's own transit engine, which keeps
// keys and signs, behind the part of its HTTP API that the engine is used by. Tokens and policies
// are made here: a policy is a list of paths. All is in memory.
//
// It prints its address and its root token as one line of JSON, and ends when its standard input
// does.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/sdk/logical"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx := context.Background()
	s := &server{storage: &logical.InmemStorage{}, root: newToken(), policies: map[string][]string{}, tokens: map[string][]string{}}
	if err := s.start(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serve := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- serve.Serve(listener) }()
	err = json.NewEncoder(os.Stdout).Encode(map[string]string{"address": "http://" + listener.Addr().String(), "token": s.root})
	if err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	return <-ended
}

func newToken() string { return "hvs." + rand.Text() }

type server struct {
	engine  logical.Backend
	storage logical.Storage
	root    string

	mu sync.Mutex
	// policies are paths by name, tokens the policies that they have.
	policies, tokens map[string][]string
}

// start makes the engine.
func (s *server) start(ctx context.Context) error {
	config := &logical.BackendConfig{
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr}), StorageView: s.storage,
		System: &logical.StaticSystemView{DefaultLeaseTTLVal: time.Hour, MaxLeaseTTLVal: time.Hour},
	}
	engine, err := transit.Backend(ctx, config)
	if err != nil {
		return err
	}
	// The released library refuses paths that can be created without a check whether they are
	// there; a release of Vault is built with another one. Nothing here creates any.
	for _, path := range engine.Paths {
		if path.ExistenceCheck == nil {
			delete(path.Operations, logical.CreateOperation)
			delete(path.Callbacks, logical.CreateOperation)
		}
	}
	s.engine = engine
	if err := engine.Setup(ctx, config); err != nil {
		return err
	}
	return engine.Initialize(ctx, &logical.InitializationRequest{Storage: s.storage})
}

// ServeHTTP answers one request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	content := map[string]any{}
	if r.Method != http.MethodGet {
		decoder := json.NewDecoder(r.Body)
		decoder.UseNumber()
		if err := decoder.Decode(&content); err != nil {
			refuse(w, http.StatusBadRequest, fmt.Errorf("failed to parse JSON input: %w", err))
			return
		}
	}
	switch token := r.Header.Get("X-Vault-Token"); {
	case !s.may(token, path):
		refuse(w, http.StatusForbidden, errors.New("permission denied"))
	case strings.HasPrefix(path, "transit/"):
		s.ask(w, r, strings.TrimPrefix(path, "transit/"), content)
	default:
		s.manage(w, path, content)
	}
}

// may reports whether a token may use a path.
func (s *server) may(token, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token == s.root {
		return true
	}
	for _, policy := range s.tokens[token] {
		if slices.ContainsFunc(s.policies[policy], func(allowed string) bool {
			beginning, all := strings.CutSuffix(allowed, "*")
			return path == allowed || all && strings.HasPrefix(path, beginning)
		}) {
			return true
		}
	}
	return false
}

// ask has the engine answer.
func (s *server) ask(w http.ResponseWriter, r *http.Request, path string, content map[string]any) {
	request := &logical.Request{ID: rand.Text(), Operation: logical.UpdateOperation, Path: path, Data: content, Storage: s.storage}
	if r.Method == http.MethodGet {
		request.Operation = logical.ReadOperation
	}
	response, err := s.engine.HandleRequest(r.Context(), request)
	if code, err := logical.RespondErrorCommon(request, response, err); code != 0 || err != nil {
		refuse(w, max(code, http.StatusBadRequest), err)
		return
	}
	if response == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer(w, http.StatusOK, logical.LogicalResponseToHTTPResponse(response))
}

// allowed finds the paths of a policy.
var allowed = regexp.MustCompile(`path "([^"]+)"`)

// manage makes policies and tokens.
func (s *server) manage(w http.ResponseWriter, path string, content map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	policy, isPolicy := strings.CutPrefix(path, "sys/policies/acl/")
	switch {
	case path == "sys/mounts/transit":
		w.WriteHeader(http.StatusNoContent) // it is there
	case isPolicy:
		text, _ := content["policy"].(string)
		s.policies[policy] = nil
		for _, found := range allowed.FindAllStringSubmatch(text, -1) {
			s.policies[policy] = append(s.policies[policy], found[1])
		}
		w.WriteHeader(http.StatusNoContent)
	case path == "auth/token/create":
		token := newToken()
		names, _ := content["policies"].([]any)
		for _, name := range names {
			s.tokens[token] = append(s.tokens[token], fmt.Sprint(name))
		}
		answer(w, http.StatusOK, map[string]any{"auth": map[string]any{"client_token": token}})
	case path == "auth/token/revoke":
		delete(s.tokens, fmt.Sprint(content["token"]))
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusNotFound, errors.New("no handler for route \""+path+"\""))
	}
}

func refuse(w http.ResponseWriter, code int, err error) {
	texts := []string{}
	if err != nil {
		texts = append(texts, err.Error())
	}
	answer(w, code, map[string]any{"errors": texts})
}

func answer(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}
