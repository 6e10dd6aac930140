package registrytest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	memory "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

// Server is a registry on a loopback port, without TLS.
type Server struct {
	// Host is its host and port, as images have it.
	Host string

	mu     sync.Mutex
	answer func(http.ResponseWriter, *http.Request) bool
	seen   []string
	sent   int64
}

// New runs a registry until the test ends: the handler, or one that is in memory where it is nil.
func New(tb testing.TB, handler http.Handler) *Server {
	tb.Helper()
	if handler == nil {
		handler = memory.New(memory.Logger(log.New(io.Discard, "", 0)))
	}
	s := &Server{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Method+" "+r.URL.Path)
		answer := s.answer
		s.mu.Unlock()
		if answer == nil || !answer(w, r) {
			handler.ServeHTTP(&meter{w, s}, r)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // what answers may break connections
	server.Start()
	tb.Cleanup(server.Close)
	s.Host = strings.TrimPrefix(server.URL, "http://")
	return s
}

// Answer has a function answer in the registry's place, from now on and where it says that it did;
// nil ends that.
func (s *Server) Answer(answer func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Immutables are how registries say that a tag may not be moved, by their names.
var Immutables = map[string]Refusal{
	"ECR":    {http.StatusBadRequest, `{"errors":[{"code":"TAG_INVALID","message":"The image tag 'x' already exists in the 'os' repository and cannot be overwritten because the tag is immutable."}]}`, false},
	"Harbor": {http.StatusPreconditionFailed, `{"errors":[{"code":"PRECONDITION","message":"Failed to process request due to 'os:x' configured as immutable."}]}`, true},
	"Quay":   {http.StatusConflict, `{"errors":[{"code":"TAG_IMMUTABLE","message":"tag is immutable","detail":{}}]}`, true},
}

// Refusal is an answer.
type Refusal struct {
	Status int
	Body   string
	// Keeps says that images with such tags can't be deleted either.
	Keeps bool
}

// FixTags has the registry refuse to move a tag from now on. One that it does not know of yet is
// fixed when it is pushed next, and one whose image is deleted is free.
func (s *Server) FixTags(refusal Refusal) {
	fixed := map[string]string{}
	s.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		_, tag, isManifest := strings.Cut(r.URL.Path, "/manifests/")
		digest, isDigest := strings.CutPrefix(tag, "sha256:")
		if !isManifest || r.Method != http.MethodDelete && (r.Method != http.MethodPut || isDigest) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		defer s.mu.Unlock()
		refused := false
		if r.Method == http.MethodPut {
			is := fmt.Sprintf("%x", sha256.Sum256(body))
			was, has := fixed[r.URL.Path]
			if refused = has && was != is; !refused {
				fixed[r.URL.Path] = is
			}
		} else if refused = refusal.Keeps && slices.Contains(slices.Collect(maps.Values(fixed)), digest); !refused {
			maps.DeleteFunc(fixed, func(_, is string) bool { return is == digest })
		}
		if refused {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(refusal.Status)
			_, _ = io.WriteString(w, refusal.Body)
		}
		return refused
	})
}

// Requests are those since it was made, or made to forget, such as "PUT
// /v2/os/worker/manifests/worker".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// Count is how many of them have a method and, in their path, a part.
func (s *Server) Count(method, part string) int {
	n := 0
	for _, request := range s.Requests() {
		if path, is := strings.CutPrefix(request, method+" "); is && strings.Contains(path, part) {
			n++
		}
	}
	return n
}

// Sent is how many bytes the registry has answered since then.
func (s *Server) Sent() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// Forget begins to count anew, and returns the requests until now.
func (s *Server) Forget() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen, s.sent = nil, 0
	return seen
}

// Layer is a layer of files, by path; a path that ends in "/" is a folder.
func Layer(tb testing.TB, files map[string]string) v1.Layer { //nolint:ireturn // that is how go-containerregistry has layers
	tb.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[path]))}
		if strings.HasSuffix(path, "/") {
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
		}
		require.NoError(tb, w.WriteHeader(header))
		_, err := io.WriteString(w, files[path])
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	require.NoError(tb, err)
	return layer
}

// Image is an image or an index.
type Image interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// Push stores an image under a name without the host, and returns its name by digest.
func (s *Server) Push(tb testing.TB, reference string, image Image) string {
	tb.Helper()
	ref, err := name.ParseReference(s.Host + "/" + reference)
	require.NoError(tb, err)
	require.NoError(tb, remote.Push(ref, image, remote.WithContext(tb.Context())))
	digest, err := image.Digest()
	require.NoError(tb, err)
	return ref.Context().Digest(digest.String()).String()
}

// meter counts what is answered.
type meter struct {
	http.ResponseWriter
	server *Server
}

// Write counts.
func (m *meter) Write(b []byte) (int, error) {
	m.server.mu.Lock()
	m.server.sent += int64(len(b))
	m.server.mu.Unlock()
	return m.ResponseWriter.Write(b)
}
