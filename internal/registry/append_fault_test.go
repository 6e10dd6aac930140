package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// mode is how a request goes wrong.
type mode func(next http.RoundTripper, r *http.Request) (*http.Response, error)

var modes = map[string]mode{
	"refused": func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		closeBody(r)
		return nil, syscall.ECONNREFUSED
	},
	"reset": func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		closeBody(r)
		return nil, syscall.ECONNRESET
	},
	"answer lost": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	},
	"answer cut": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil {
			response.Body = &cut{ReadCloser: response.Body, left: max(response.ContentLength/2, 0)}
		}
		return response, err
	},
	"request cut": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Body == nil || r.Body == http.NoBody {
			return nil, io.ErrUnexpectedEOF
		}
		half := r.Clone(r.Context())
		half.Body = &cut{ReadCloser: r.Body, left: max(r.ContentLength/2, 0)}
		response, err := next.RoundTrip(half)
		if err == nil {
			_ = response.Body.Close()
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	},
	"500": func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		closeBody(r)
		return answer(r, http.StatusInternalServerError, problem("UNKNOWN", "disk full")), nil
	},
	"503": func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		closeBody(r)
		return answer(r, http.StatusServiceUnavailable, "<html>"), nil
	},
	"429": func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		closeBody(r)
		return answer(r, http.StatusTooManyRequests, problem("TOOMANYREQUESTS", "slow down")), nil
	},
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// cut is a body that breaks off.
type cut struct {
	io.ReadCloser
	left int64
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// failing lets requests go wrong by their number.
type failing struct {
	next http.RoundTripper
	n    atomic.Int64
	when func(n int64) bool
	how  mode
}

// RoundTrip counts what arrives: attempts to find TLS on a loopback registry never do.
func (f *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return f.next.RoundTrip(r)
	}
	if f.when(f.n.Add(1)) {
		return f.how(f.next, r)
	}
	return f.next.RoundTrip(r)
}

// stage is where the faults happen: content in one place and a target in another.
type stage struct {
	content string
	host    string // of the target
	want    v1.Hash
}

// stages are the situations that each fault is tried in. Each call of a function gives the
// situation anew: a repository that has nothing yet.
func stages(t *testing.T) map[string]func() stage {
	t.Helper()
	disk, source := serveDirect(t, strictest(t)), serveDirect(t, inMemory())
	list := indexOf(t, types.OCIImageIndex, shape{arch: "amd64", layers: three.layers[:1]}, shape{arch: "arm64", layers: three.layers[:1], body: "arm"})
	mounting, copying := push(t, disk+"/base", three.make(t)), push(t, source+"/base", three.make(t))
	two := push(t, source+"/list", list)
	toMemory := func(content string) func() stage {
		want := appended(t, client(t), stage{content: content, host: serveDirect(t, inMemory())}.request(t, "fine")).Digest
		return func() stage { return stage{content: content, host: serveDirect(t, inMemory()), want: want} }
	}
	want := appended(t, client(t), stage{content: mounting, host: disk}.request(t, "fine")).Digest
	return map[string]func() stage{
		"mounting":                      func() stage { return stage{content: mounting, host: disk, want: want} },
		"copying":                       toMemory(copying),
		"copying an index":              toMemory(two),
		"copying to one that is strict": func() stage { return stage{content: copying, host: disk, want: want} },
	}
}

func (s stage) request(t *testing.T, repository string) registry.AppendRequest {
	t.Helper()
	return ordinary(t, s.content, s.host+"/os/"+slug(repository))
}

// requireNoHalfImage checks that what a tag names is whole, and what it should be.
func (s stage) requireNoHalfImage(t *testing.T, request registry.AppendRequest) {
	t.Helper()
	for _, tag := range request.Tags {
		if digest, there := tagged(t, request.Repository, tag); there {
			require.Equal(t, s.want, digest)
			s.requireWhole(t, request.Repository)
		}
	}
}

// requireWhole checks that a repository has the wanted image with all that belongs to it. These
// registries take no blob under a wrong digest.
func (s stage) requireWhole(t *testing.T, repository string) {
	t.Helper()
	desc := get(t, repository+"@"+s.want.String())
	if !desc.MediaType.IsIndex() {
		img, err := desc.Image()
		require.NoError(t, err)
		require.NoError(t, validate.Image(img, validate.Fast))
		return
	}
	list, err := desc.ImageIndex()
	require.NoError(t, err)
	require.NoError(t, validate.Index(list, validate.Fast))
}

// requireItHeals checks that doing it again, without faults, ends in the wanted image.
func (s stage) requireItHeals(t *testing.T, request registry.AppendRequest) {
	t.Helper()
	require.Equal(t, s.want, appended(t, client(t), request).Digest)
	for _, tag := range request.Tags {
		digest, there := tagged(t, request.Repository, tag)
		require.True(t, there)
		require.Equal(t, s.want, digest)
	}
	s.requireWhole(t, request.Repository)
}

// sameToAll are modes that no registry sees anything of: one registry shows what they do.
var sameToAll = []string{"refused", "503", "429"}

// TestAppendSurvivesOneFaultAnywhere lets each single request go wrong, in each way. Most is healed
// by trying again at once.
func TestAppendSurvivesOneFaultAnywhere(t *testing.T) {
	t.Parallel()
	for name, fresh := range stages(t) {
		for kind, how := range modes {
			if slices.Contains(sameToAll, kind) && name != "copying" {
				continue
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				healed := eachRequest(t, fresh, how, func(bad, n int64) bool { return n == bad })
				if kind != "refused" { // which is nothing that passes within seconds
					assert.Greater(t, healed*stride(), int64(10))
				}
			})
		}
	}
}

// TestAppendSurvivesTheEndOfARegistryAnywhere lets everything go wrong from one request on, as when
// the registry goes down for good.
func TestAppendSurvivesTheEndOfARegistryAnywhere(t *testing.T) {
	t.Parallel()
	for name, fresh := range stages(t) {
		for _, kind := range []string{"refused", "answer lost", "request cut", "500"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				assert.Zero(t, eachRequest(t, fresh, modes[kind], func(bad, n int64) bool { return n >= bad }))
			})
		}
	}
}

// stride is the distance between the points at which something fails: with -short, a sample of
// them is tried.
func stride() int64 {
	if testing.Short() {
		return 4
	}
	return 1
}

// eachRequest breaks the first request, then the second, and so on until there are no more, and
// returns how often that was healed at once.
func eachRequest(t *testing.T, fresh func() stage, how mode, when func(bad, n int64) bool) (healed int64) {
	t.Helper()
	for bad := int64(1); ; bad += stride() {
		s := fresh()
		f := &failing{next: transport(t), how: how, when: func(n int64) bool { return when(bad, n) }}
		c := client(t, func(o *registry.Options) { o.Transport, o.Jobs = f, 1 })
		request := s.request(t, fmt.Sprintf("%s %d", t.Name(), bad))
		result, err := c.Append(t.Context(), request)
		if f.n.Load() < bad {
			require.NoError(t, err)
			require.Greater(t, bad, int64(15), "there were requests")
			return healed
		}
		if err == nil {
			healed++
			require.Equal(t, s.want, result.Digest)
		} else {
			require.Equal(t, fault.Transient, fault.ClassOf(err), "%d: %v", bad, err)
		}
		s.requireNoHalfImage(t, request)
		s.requireItHeals(t, request)
	}
}

// TestAppendCanBeCancelledAnywhere ends the context at each request.
func TestAppendCanBeCancelledAnywhere(t *testing.T) {
	t.Parallel()
	for name, fresh := range stages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for bad := int64(1); ; bad += stride() {
				s := fresh()
				ctx, cancel := context.WithCancel(t.Context())
				f := &failing{next: transport(t), when: func(n int64) bool { return n == bad }}
				f.how = func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
					cancel()
					return next.RoundTrip(r)
				}
				c := client(t, func(o *registry.Options) { o.Transport, o.Jobs = f, 1 })
				request := s.request(t, fmt.Sprintf("%s %d", t.Name(), bad))
				_, err := c.Append(ctx, request)
				cancel()
				if f.n.Load() < bad {
					require.NoError(t, err)
					require.Greater(t, bad, int64(15), "there were requests")
					return
				}
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, fault.Transient, fault.ClassOf(err))
				s.requireNoHalfImage(t, request)
				s.requireItHeals(t, request)
			}
		})
	}
}

// abortAfter breaks one connection after so many bytes of a matching request, or of its answer.
type abortAfter struct {
	next    http.Handler
	matches func(r *http.Request) bool
	upload  bool
	left    atomic.Int64
	armed   atomic.Bool
}

func (a *abortAfter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.matches(r) || !a.armed.CompareAndSwap(true, false) {
		a.next.ServeHTTP(w, r)
		return
	}
	if a.upload {
		_, _ = io.CopyN(io.Discard, r.Body, a.left.Load())
		panic(http.ErrAbortHandler)
	}
	a.next.ServeHTTP(&broken{ResponseWriter: w, left: a.left.Load()}, r)
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
	panic(http.ErrAbortHandler)
}

// broken sends the begin of an answer.
type broken struct {
	http.ResponseWriter
	left int64
}

func (b *broken) Write(p []byte) (int, error) {
	n := min(int64(len(p)), b.left)
	b.left -= n
	_, _ = b.ResponseWriter.Write(p[:n])
	return len(p), nil
}

// TestAConnectionIsLostAnywhere cuts real connections, in both directions.
func TestAConnectionIsLostAnywhere(t *testing.T) {
	t.Parallel()
	is := func(method, path string) func(r *http.Request) bool {
		return func(r *http.Request) bool { return r.Method == method && strings.Contains(r.URL.Path, path) }
	}
	tests := map[string]struct {
		matches func(r *http.Request) bool
		upload  bool
		size    int64 // about that of the body
		step    int64
	}{
		"layers and config, on the way up": {matches: is("PATCH", ""), upload: true, size: 110, step: 2},
		"the manifest, on the way up":      {matches: is("PUT", "/manifests/sha256"), upload: true, size: 900, step: 30},
		"the tag, on the way up":           {matches: is("PUT", "/manifests/worker"), upload: true, size: 900, step: 90},
		"the manifest, on the way down":    {matches: is("GET", "/manifests/"), size: 700, step: 30},
		"config and layers, down":          {matches: is("GET", "/blobs/"), size: 700, step: 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := &abortAfter{next: inMemory(), matches: tt.matches}
			source := serve(t, origin)
			s := stage{content: push(t, source+"/base", three.make(t)), host: serveDirect(t, inMemory())}
			s.want = appended(t, client(t), s.request(t, "fine")).Digest
			for left := int64(0); left <= tt.size; left += tt.step * stride() {
				breaker := &abortAfter{next: inMemory(), matches: tt.matches, upload: true}
				s.host = serve(t, breaker)
				if !tt.upload {
					breaker = origin
				}
				breaker.left.Store(left)
				breaker.armed.Store(true)
				request := s.request(t, fmt.Sprintf("%s %d", name, left))
				result, err := client(t).Append(t.Context(), request)
				require.False(t, breaker.armed.Swap(false), "a connection was cut")
				if err == nil {
					require.Equal(t, s.want, result.Digest)
				} else {
					require.Equal(t, fault.Transient, fault.ClassOf(err), err)
				}
				s.requireNoHalfImage(t, request)
				s.requireItHeals(t, request)
			}
		})
	}
}

func TestAppendKeepsAnUnreadableLayer(t *testing.T) {
	t.Parallel()
	source, target := serve(t, strictest(t)), serve(t, strictest(t))
	base := three.make(t)
	layers, err := base.Layers()
	require.NoError(t, err)
	lost, err := layers[1].Digest()
	require.NoError(t, err)
	tests := map[string]struct {
		remove func(t *testing.T, host, content string)
		target string
		want   string
	}{
		"the image, before it begins": {remove: deleteManifest, target: target, want: `reading image %q: it does not exist (404 Not Found, MANIFEST_UNKNOWN`},
		"a layer, before it is copied": {
			remove: func(t *testing.T, host, content string) { t.Helper(); deleteBlob(t, host, content, lost) }, target: target,
			want: "reading layer " + lost.String() + ` of image %q: it does not exist (404 Not Found, BLOB_UNKNOWN`,
		},
		"a layer, before it is mounted": {
			remove: func(t *testing.T, host, content string) { t.Helper(); deleteBlob(t, host, content, lost) }, target: source,
			want: "reading layer " + lost.String() + ` of image %q: it does not exist (404 Not Found, BLOB_UNKNOWN`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content := push(t, source+"/base/"+slug(name), base)
			request := ordinary(t, content, tt.target+"/os/"+slug(name))
			layer := request.Layer
			request.Layer = func(ctx context.Context, p v1.Platform, below v1.Image) (registry.Opener, error) {
				tt.remove(t, source, content) // manifest and config have been read
				return layer(ctx, p, below)
			}
			if strings.HasPrefix(name, "the image") {
				tt.remove(t, source, content)
				request.Layer = layer
			}
			_, err := client(t).Append(t.Context(), request)
			require.ErrorContains(t, err, fmt.Sprintf(tt.want, content))
			assert.Equal(t, fault.Terminal, fault.ClassOf(err))
			assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))
			for _, tag := range request.Tags {
				_, there := tagged(t, request.Repository, tag)
				assert.False(t, there)
			}
		})
	}
}

func deleteManifest(t *testing.T, _, content string) {
	t.Helper()
	deletion, err := client(t).DeleteManifest(t.Context(), content)
	require.NoError(t, err)
	require.Equal(t, registry.Deleted, deletion.Outcome)
}

func deleteBlob(t *testing.T, host, content string, digest v1.Hash) {
	t.Helper()
	repository, _, _ := strings.Cut(strings.TrimPrefix(content, host), "@")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+host+"/v2"+repository+"/blobs/"+digest.String(), http.NoBody)
	require.NoError(t, err)
	request.SetBasicAuth(pusher.Name, pusher.Password)
	response, err := (&http.Client{Transport: transport(t)}).Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusAccepted, response.StatusCode)
}

// TestContentManifestDisappearsAfterReading shows what is enough: the layers.
func TestContentManifestDisappearsAfterReading(t *testing.T) {
	t.Parallel()
	host := serve(t, strictest(t))
	content := push(t, host+"/base", three.make(t))
	request := ordinary(t, content, host+"/os")
	layer := request.Layer
	request.Layer = func(ctx context.Context, p v1.Platform, below v1.Image) (registry.Opener, error) {
		deleteManifest(t, host, content)
		return layer(ctx, p, below)
	}
	getImage(t, appended(t, client(t), request).Image)
}

// TestThePushSecretIsRevokedMidway takes the right to write away at each request that writes.
func TestThePushSecretIsRevokedMidway(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"401": http.StatusUnauthorized, "403": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := serveDirect(t, inMemory())
			s := stage{content: push(t, source+"/base", three.make(t)), host: serveDirect(t, inMemory())}
			s.want = appended(t, client(t), s.request(t, "fine")).Digest
			for allowed := int64(0); ; allowed++ {
				var writes atomic.Int64
				backend := inMemory()
				s.host = serveDirect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet && r.Method != http.MethodHead && writes.Add(1) > allowed {
						w.WriteHeader(status)
						_, _ = io.WriteString(w, problem("DENIED", "the account was disabled"))
						return
					}
					backend.ServeHTTP(w, r)
				}))
				request := s.request(t, "os")
				_, err := client(t, func(o *registry.Options) { o.Jobs = 1 }).Append(t.Context(), request)
				if err == nil {
					require.Equal(t, int64(5*3+3), allowed, "five blobs, and the manifest three times")
					return
				}
				require.ErrorContains(t, err, "the registry denies write access ("+name)
				require.ErrorContains(t, err, "DENIED: the account was disabled")
				assert.Equal(t, mcfgv1.ReasonPushDenied, fault.Reason(err))
				s.requireNoHalfImage(t, request)
			}
		})
	}
}

func TestAppendClassifiesErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		method string
		status int
		body   string
		reason string
		class  fault.Class
		want   string
	}{
		"no such repository":   {method: "POST", status: 404, body: problem("NAME_UNKNOWN", "x"), class: fault.Terminal, reason: mcfgv1.ReasonPushDenied, want: "the repository does not exist"},
		"read-only":            {method: "POST", status: 405, class: fault.Waiting, reason: mcfgv1.ReasonWaiting, want: "the registry takes no uploads"},
		"too large":            {method: "PATCH", status: 413, class: fault.Terminal, reason: mcfgv1.ReasonPushDenied, want: "the registry takes no uploads of this size"},
		"full":                 {method: "PATCH", status: 500, class: fault.Transient, want: "the registry fails (500"},
		"the upload is lost":   {method: "PATCH", status: 404, body: problem("BLOB_UPLOAD_UNKNOWN", "x"), class: fault.Transient, want: "BLOB_UPLOAD_UNKNOWN"},
		"damaged":              {method: "PUT", status: 400, body: problem("DIGEST_INVALID", "x"), class: fault.Transient, want: "DIGEST_INVALID"},
		"an unwanted manifest": {method: "PUT", status: 415, class: fault.Terminal, reason: mcfgv1.ReasonInvalid, want: "the registry does not take such an image"},
		"asked to wait":        {method: "PATCH", status: 429, class: fault.Transient, want: "429"},
		"over quota":           {method: "POST", status: 403, body: problem("DENIED", "quota exceeded"), class: fault.Terminal, reason: mcfgv1.ReasonPushDenied, want: "DENIED: quota exceeded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend, broken := inMemory(), &atomic.Bool{}
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if broken.Load() && r.Method == tt.method {
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
					return
				}
				backend.ServeHTTP(w, r)
			}))
			request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
			broken.Store(true)
			_, err := client(t).Append(t.Context(), request)
			require.ErrorContains(t, err, `pushing image "`+host+`/os@sha256:`)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.class, fault.ClassOf(err))
			assert.Equal(t, tt.reason, fault.Reason(err))
			broken.Store(false)
			getImage(t, appended(t, client(t), request).Image)
		})
	}
}

func TestAppendEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			backend, hangs, hung := inMemory(), &atomic.Bool{}, make(chan struct{})
			var once sync.Once
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if hangs.Load() && r.Method == method {
					once.Do(func() { close(hung) })
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					return
				}
				backend.ServeHTTP(w, r)
			}))
			request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
			hangs.Store(true)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-hung
				cancel(context.DeadlineExceeded)
			}()
			_, err := client(t).Append(ctx, request)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, fault.Transient, fault.ClassOf(err))
			hangs.Store(false)
			getImage(t, appended(t, client(t), request).Image)
		})
	}
}

func TestManyAppendToTheSameRepository(t *testing.T) {
	t.Parallel()
	host := serve(t, strictest(t))
	content := push(t, host+"/base", three.make(t))
	c := client(t)
	var group sync.WaitGroup
	results := make([]*registry.Result, 8)
	for i := range results {
		request := ordinary(t, content, host+"/os")
		group.Go(func() {
			var err error
			results[i], err = c.Append(t.Context(), request)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	for _, result := range results {
		require.NotNil(t, result)
		assert.Equal(t, results[0].Digest, result.Digest)
	}
	getImage(t, results[0].Image)
	digest, there := tagged(t, host+"/os", "worker")
	assert.True(t, there)
	assert.Equal(t, results[0].Digest, digest)
}

// TestTheLayerBreaksWhileItIsSent has a layer that can be read twice, and no third time.
func TestTheLayerBreaksWhileItIsSent(t *testing.T) {
	t.Parallel()
	host := serve(t, inMemory())
	request := ordinary(t, push(t, host+"/base", three.make(t)), host+"/os")
	content, broken := archive(t, file{"etc/motd", "hello"}), fault.NewTerminal(mcfgv1.ReasonInvalidMachineConfig, errors.New("the source is gone"))
	var opened atomic.Int64
	request.Layer = func(context.Context, v1.Platform, v1.Image) (registry.Opener, error) {
		return func() (io.ReadCloser, error) {
			if opened.Add(1) > 3 {
				return nil, broken
			}
			return opener(content)()
		}, nil
	}
	_, err := client(t).Append(t.Context(), request)
	require.ErrorIs(t, err, broken)
	assert.Equal(t, mcfgv1.ReasonInvalidMachineConfig, fault.Reason(err))
	_, there := tagged(t, host+"/os", "worker")
	assert.False(t, there)
}
