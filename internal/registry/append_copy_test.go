package registry_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
)

func TestLayersAreMountedWithinARegistry(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(strictest(t)))
	for name, base := range shapes(t) {
		if name == "foreign" {
			continue
		}
		content := push(t, host+"/base/"+name, base)
		calls.reset()
		request := ordinary(t, content, host+"/os/"+name)
		request.Platforms = platformsOf(base)
		result := appended(t, client(t), request)
		images := len(request.Platforms)
		assert.Equal(t, images, calls.count("GET", "/blobs/"), "%s: configs come down, and nothing else", name)
		assert.LessOrEqual(t, calls.count("PATCH"), 2*images, "%s: layers and configs go up, and nothing else", name)
		if list, ok := base.(v1.ImageIndex); ok {
			assert.NotNil(t, list)
			getIndex(t, result.Image)
		} else {
			getImage(t, result.Image)
		}
	}
}

func TestInTheSameRepositoryNothingIsMounted(t *testing.T) {
	t.Parallel()
	calls := &journal{}
	host := serve(t, calls.wrap(strictest(t)))
	content := push(t, host+"/os", three.make(t))
	calls.reset()
	getImage(t, appended(t, client(t), ordinary(t, content, host+"/os")).Image)
	assert.Zero(t, calls.count("mount="))
	assert.Equal(t, 2, calls.count("PATCH"))
}

// guarded is a registry that notes who logged in.
func guarded(t *testing.T, account distribution.Account) (host string, logins func() []string) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	next := strictest(t, account)
	host = serveDirect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if header := r.Header.Get("Authorization"); header != "" {
			name, _, _ := r.BasicAuth()
			mu.Lock()
			seen[name] = true
			mu.Unlock()
		}
		next.ServeHTTP(w, r)
	}))
	return host, func() (names []string) {
		mu.Lock()
		defer mu.Unlock()
		for name := range seen {
			names = append(names, name)
		}
		clear(seen)
		return names
	}
}

func TestLayersAreCopiedFromAnotherRegistry(t *testing.T) {
	t.Parallel()
	reader := distribution.Account{Name: "reader", Password: "r"}
	writer := distribution.Account{Name: "writer", Password: "w", Push: true}
	source, sourceLogins := guarded(t, reader)
	target, targetLogins := guarded(t, writer)
	for name, base := range shapes(t) {
		if name == "foreign" {
			continue
		}
		content := push(t, source+"/base/"+name, base)
		sourceLogins()
		request := ordinary(t, content, target+"/os/"+name)
		request.Platforms = platformsOf(base)
		request.Source = client(t, func(o *registry.Options) { o.Keychain = reader })
		result := appended(t, client(t, func(o *registry.Options) { o.Keychain = writer }), request)
		assert.Equal(t, []string{"reader"}, sourceLogins(), name)
		assert.Equal(t, []string{"writer"}, targetLogins(), name)

		local := ordinary(t, push(t, target+"/base/"+name, base), target+"/local/"+name)
		local.Platforms = request.Platforms
		assert.Equal(t, appended(t, client(t), local).Digest, result.Digest, "%s: it is the same image", name)
		if _, ok := base.(v1.ImageIndex); ok {
			getIndex(t, result.Image)
		} else {
			getImage(t, result.Image)
		}
		targetLogins()
	}
}

// TestLayersAreCopiedWithoutAnImage brings layers to where an image is to be pushed.
func TestLayersAreCopiedWithoutAnImage(t *testing.T) {
	t.Parallel()
	near, far := &journal{}, &journal{}
	source := serve(t, near.wrap(strictest(t)))
	target := serve(t, far.wrap(strictest(t)))
	for name, base := range shapes(t) {
		if name == "foreign" {
			continue
		}
		content := push(t, source+"/base/"+name, base)
		for _, repository := range []string{source + "/os/" + name, target + "/os/" + name} {
			request := registry.AppendRequest{Content: content, Platforms: platformsOf(base), Repository: repository}
			near.reset()
			_, err := client(t).CopyLayers(t.Context(), request)
			require.NoError(t, err, name)
			assert.Zero(t, near.count("PATCH"), "%s: within a registry layers are mounted", name)
			tags, err := client(t).Tags(t.Context(), repository)
			require.NoError(t, err)
			assert.Empty(t, tags, name)

			near.reset()
			far.reset()
			traffic, err := client(t).CopyLayers(t.Context(), request)
			require.NoError(t, err, name)
			assert.Zero(t, traffic.BytesUp, "%s: once", name)
			assert.Zero(t, near.count("GET", "/blobs/sha256")-len(platformsOf(base)), "%s: configs are read again, and no layer", name)
		}
	}
	_, err := client(t).CopyLayers(t.Context(), registry.AppendRequest{Content: source + "/base/none@sha256:" + strings.Repeat("0", 64), Repository: target + "/os"})
	assert.True(t, registry.IsNotFound(err))
}

func TestLayersAreCopiedWhereMountingIsRefused(t *testing.T) {
	t.Parallel()
	isMount := func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Get("mount") != "" }
	tests := map[string]func(w http.ResponseWriter, r *http.Request, next http.Handler){
		"ignored": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.URL.RawQuery = ""
			next.ServeHTTP(w, r)
		},
		"forbidden": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) },
		"401":       func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusUnauthorized) },
		"404":       func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusNotFound) },
		"a failure": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(http.StatusInternalServerError)
		},
		"a broken connection": func(http.ResponseWriter, *http.Request, http.Handler) {
			panic(http.ErrAbortHandler)
		},
	}
	for name, onMount := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := strictest(t)
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if isMount(r) {
					onMount(w, r, backend)
					return
				}
				backend.ServeHTTP(w, r)
			}))
			content := push(t, host+"/base", three.make(t))
			result := appended(t, client(t), ordinary(t, content, host+"/os"))
			getImage(t, result.Image)
			assert.Greater(t, result.Traffic.BytesDown, int64(290), "three layers came down")
		})
	}
}

// tokens is a registry whose token server refuses a login as a whole when it asks for something
// that the account may not have.
func tokens(t *testing.T, may func(account, scope string) bool) string {
	t.Helper()
	backend := inMemory()
	var host string
	host = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, _, _ := r.BasicAuth()
		switch granted, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); {
		case r.URL.Path == "/token":
			for _, scope := range r.URL.Query()["scope"] {
				if !may(account, scope) {
					w.WriteHeader(http.StatusForbidden)
					return
				}
			}
			_ = json.NewEncoder(w).Encode(map[string]string{"token": strings.Join(r.URL.Query()["scope"], " ")})
		case !bearer, isPing(r.URL):
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		case !strings.Contains(granted, ":"+repositoryOf(r)+":"):
			w.WriteHeader(http.StatusForbidden)
		default:
			backend.ServeHTTP(w, r)
		}
	}))
	return host
}

func repositoryOf(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	for _, part := range []string{"/manifests/", "/blobs/", "/tags/"} {
		path, _, _ = strings.Cut(path, part)
	}
	return path
}

func TestAnAccountThatMayNotReadTheBaseCopies(t *testing.T) {
	t.Parallel()
	host := tokens(t, func(account, scope string) bool {
		return account == pusher.Name ||
			account == "reader" && scope == "repository:base:pull" ||
			account == "writer" && strings.HasPrefix(scope, "repository:os:")
	})
	content := push(t, host+"/base", three.make(t))
	request := ordinary(t, content, host+"/os")
	request.Source = client(t, func(o *registry.Options) { o.Keychain = distribution.Account{Name: "reader", Password: "x"} })
	result := appended(t, client(t, func(o *registry.Options) { o.Keychain = distribution.Account{Name: "writer", Password: "x"} }), request)
	getImage(t, result.Image)

	both := ordinary(t, content, host+"/os2")
	again := appended(t, client(t), both)
	assert.Equal(t, result.Digest, again.Digest)

	_, err := client(t, func(o *registry.Options) { o.Keychain = distribution.Account{Name: "reader", Password: "x"} }).
		Append(t.Context(), ordinary(t, content, host+"/os3"))
	require.ErrorContains(t, err, "the registry denies write access")
	assert.True(t, registry.IsDenied(err))
}

// TestCopyingStreams has a source that sends the end of a layer only after its begin has arrived at
// the target: whoever holds layers in memory or on disk before sending them waits forever.
func TestCopyingStreams(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	var once sync.Once
	backend := strictest(t)
	target := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			r.Body = &noticed{ReadCloser: r.Body, enough: 128 << 10, notice: func() { once.Do(func() { close(arrived) }) }}
		}
		backend.ServeHTTP(w, r)
	}))
	origin := strictest(t)
	source := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin.ServeHTTP(&patient{ResponseWriter: w, begin: 512 << 10, wait: arrived, done: r.Context().Done()}, r)
	}))
	big := shape{layers: three.layers[:1], body: noise(1 << 20)}
	content := push(t, source+"/base", big.make(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := client(t).Append(ctx, ordinary(t, content, target+"/os"))
	require.NoError(t, err)
	getImage(t, result.Image)
}

// noise is text that hardly gets smaller.
func noise(size int) string {
	out, state := make([]byte, size), uint32(1)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = byte(state >> 24)
	}
	return string(out)
}

// noticed tells when enough has been read.
type noticed struct {
	io.ReadCloser
	enough int
	notice func()
}

func (n *noticed) Read(p []byte) (int, error) {
	read, err := n.ReadCloser.Read(p)
	if n.enough -= read; n.enough <= 0 {
		n.notice()
	}
	return read, err
}

// patient sends the begin of an answer and waits before the rest.
type patient struct {
	http.ResponseWriter
	begin      int
	wait, done <-chan struct{}
}

func (p *patient) Write(b []byte) (int, error) {
	if p.begin -= len(b); p.begin <= 0 {
		select {
		case <-p.wait:
		case <-p.done:
		}
	}
	return p.ResponseWriter.Write(b)
}

func TestNothingIsWrittenToDisk(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	source, target := serve(t, inMemory()), serve(t, inMemory())
	content := push(t, source+"/base", shape{layers: three.layers, body: noise(1 << 20)}.make(t))
	appended(t, client(t), ordinary(t, content, target+"/os"))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestRedirectedBlobsGetNoCredentials has a registry that sends readers to another host for its
// blobs, as those with an object store do.
func TestRedirectedBlobsGetNoCredentials(t *testing.T) {
	t.Parallel()
	for name, scheme := range map[string]string{"basic": "", "bearer": "bearer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := inMemory()
			var logins, reads atomic.Int32 // layers are read side by side
			store := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reads.Add(1)
				if r.Header.Get("Authorization") != "" || r.URL.User != nil {
					logins.Add(1)
				}
				backend.ServeHTTP(w, r)
			}))
			var host string
			host = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case scheme == "bearer" && r.URL.Path == "/token":
					_, _ = io.WriteString(w, `{"token":"hunter2"}`)
				case scheme == "bearer" && r.Header.Get("Authorization") == "":
					w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="test"`)
					w.WriteHeader(http.StatusUnauthorized)
				case scheme == "" && r.Header.Get("Authorization") == "":
					w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
					w.WriteHeader(http.StatusUnauthorized)
				case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
					redirect(w, store, r)
				default:
					backend.ServeHTTP(w, r)
				}
			}))
			target := serve(t, inMemory())
			content := push(t, host+"/base", three.make(t))
			getImage(t, appended(t, client(t), ordinary(t, content, target+"/os")).Image)
			assert.EqualValues(t, 4, reads.Load(), "a config and three layers")
			assert.Zero(t, logins.Load())
		})
	}
}

func TestRedirectErrorsHideSignedURLs(t *testing.T) {
	t.Parallel()
	backend := inMemory()
	store := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			redirect(w, store, r)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	content := push(t, host+"/base", three.make(t))
	_, err := client(t).Append(t.Context(), ordinary(t, content, host+"/os"))
	require.ErrorContains(t, err, `reading image "`+content+`": `)
	assert.NotContains(t, err.Error(), "hunter2")
}

// redirect sends a reader to another host, with a signature that is worth as much as a password.
func redirect(w http.ResponseWriter, store string, r *http.Request) {
	w.Header().Set("Location", "http://"+store+r.URL.Path+"?X-Amz-Signature=hunter2")
	w.WriteHeader(http.StatusTemporaryRedirect)
}
