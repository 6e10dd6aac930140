package releasetest

import (
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"

	inprocess "github.com/google/go-containerregistry/pkg/registry"
)

// Registry is one in this process that writes down what it is asked.
type Registry struct {
	handler http.Handler
	mu      sync.Mutex
	asked   []string
	// Before is called with the number of each request, from 1, before it is answered; nil for
	// nothing.
	Before func(n int)
}

// NewRegistry is an empty registry.
func NewRegistry() *Registry {
	return &Registry{handler: inprocess.New(inprocess.WithReferrersSupport(true), inprocess.Logger(log.New(io.Discard, "", 0)))}
}

// ServeHTTP answers a request.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, request.Method+" "+request.URL.Path)
	n := len(r.asked)
	r.mu.Unlock()
	if r.Before != nil {
		r.Before(n)
	}
	r.handler.ServeHTTP(w, request)
}

// Uploads are how many blobs were uploaded, and Asked how many requests there were, since the last
// call of Reset.
func (r *Registry) Uploads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(r.asked), func(a string) bool { return !strings.HasPrefix(a, "PUT ") || !strings.Contains(a, "/blobs/") }))
}

// Asked is how many requests there were since the last call of Reset.
func (r *Registry) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// Reset forgets the requests.
func (r *Registry) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = nil
}
