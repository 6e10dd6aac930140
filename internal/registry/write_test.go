package registry_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	distribution "github.com/layerwright/layerwright/test/cluster/registry"
)

func TestCanPush(t *testing.T) {
	t.Parallel()
	dir, calls := t.TempDir(), &journal{}
	host := serve(t, calls.wrap(distribution.New(t.Context(), distribution.Options{Dir: dir, Accounts: []distribution.Account{pusher, puller}})))
	require.NoError(t, client(t).CanPush(t.Context(), host+"/os/worker"))
	assert.Equal(t, 1, calls.count("POST", "/blobs/uploads/"))
	assert.Equal(t, 1, calls.count("DELETE", "/blobs/uploads/"))
	left, err := filepath.Glob(filepath.Join(dir, "docker/registry/v2/repositories/os/worker/_uploads/*/data"))
	require.NoError(t, err)
	assert.Empty(t, left, "the upload is cancelled (the registry itself leaves a folder, which it purges in time)")

	tests := map[string]struct {
		login   func(o *registry.Options)
		want    string
		wantNot string
	}{
		"an account that may only pull": {
			login: func(o *registry.Options) { o.Keychain = puller },
			want:  `the registry denies write access (403 Forbidden, DENIED: account pull may pull but not push); check that the push secret's account for "` + host + `" may push it`,
		},
		"a wrong password": {
			login: func(o *registry.Options) { o.Keychain = distribution.Account{Name: "push", Password: "wrong"} },
			want:  `the registry denies write access (401 Unauthorized, UNAUTHORIZED: authentication required); check that the push secret's account`,
		},
		"no credentials": {
			login: func(o *registry.Options) { o.Keychain = logins{} },
			want:  `the registry denies write access (401 Unauthorized, UNAUTHORIZED: authentication required); the push secret has no credentials for "` + host + `"`,
		},
		"no secret": {
			login: func(o *registry.Options) { o.Keychain = registry.NoSecret("spec.field") },
			want: `the registry denies write access (401 Unauthorized, UNAUTHORIZED: authentication required); ` +
				`no secret with credentials for "` + host + `" is named: name one in spec.field`,
		},
		"a person who has not logged in": {
			login: func(o *registry.Options) { o.Keychain = registry.Logins{Keychain: logins{}} },
			want:  `the registry denies write access (401 Unauthorized, UNAUTHORIZED: authentication required); log in with "podman login ` + host + `" or "docker login ` + host + `"`,
		},
		"a person who may only pull": {
			login: func(o *registry.Options) { o.Keychain = registry.Logins{Keychain: puller} },
			want:  `the registry denies write access (403 Forbidden, DENIED: account pull may pull but not push); check that the account of your login to "` + host + `" may push it`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := client(t, tt.login).CanPush(t.Context(), host+"/os/worker")
			require.ErrorContains(t, err, `checking access to repository "`+host+`/os/worker": `+tt.want)
			assert.NotContains(t, err.Error(), "hunter2")
			assert.True(t, registry.IsDenied(err))
			assert.Equal(t, fault.Terminal, fault.ClassOf(err))
			assert.Equal(t, mcfgv1.ReasonPushDenied, fault.Reason(err))
		})
	}
}

func TestCanPushAllowsFailedCancel(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w http.ResponseWriter, r *http.Request){
		"no cancelling": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"a broken connection": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	}
	for name, onDelete := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := inMemory()
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					onDelete(w, r)
					return
				}
				backend.ServeHTTP(w, r)
			}))
			require.NoError(t, client(t).CanPush(t.Context(), host+"/os"))
		})
	}
}

// TestCanPushStaysWithItsRegistry has an upload location on another host, which must not see the
// credentials.
func TestCanPushStaysWithItsRegistry(t *testing.T) {
	t.Parallel()
	seen := &journal{}
	other := serve(t, seen.wrap(http.NotFoundHandler()))
	tests := map[string]int{"accepted elsewhere": http.StatusAccepted, "redirected": http.StatusTemporaryRedirect}
	for name, status := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, _, ok := r.BasicAuth(); !ok {
					w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				w.Header().Set("Location", "http://"+other+"/elsewhere")
				w.WriteHeader(status)
			}))
			err := client(t).CanPush(t.Context(), host+"/os")
			assert.Equal(t, status == http.StatusAccepted, err == nil, "%v", err)
			assert.Zero(t, seen.count(""))
		})
	}
}

func TestTag(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	pinned := push(t, host+"/os", three.make(t))
	require.NoError(t, client(t).Tag(t.Context(), pinned, "worker"))
	digest, there, err := client(t).Exists(t.Context(), host+"/os", "worker")
	require.NoError(t, err)
	require.True(t, there)
	assert.True(t, strings.HasSuffix(pinned, digest.String()))

	gone := host + "/os@sha256:" + strings.Repeat("0", 64)
	err = client(t).Tag(t.Context(), gone, "worker")
	require.ErrorContains(t, err, `reading image "`+gone+`": it does not exist`)
	assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))

	err = client(t, func(o *registry.Options) { o.Keychain = puller }).Tag(t.Context(), pinned, "other")
	require.ErrorContains(t, err, `tagging image "`+host+`/os:other": the registry denies write access`)
	assert.Equal(t, mcfgv1.ReasonPushDenied, fault.Reason(err))
}

func TestDelete(t *testing.T) {
	t.Parallel()
	host := serveDirect(t, strictest(t))
	c := client(t)
	pinned := push(t, host+"/os", three.make(t))
	require.NoError(t, c.Tag(t.Context(), pinned, "worker"))

	got, err := c.DeleteTag(t.Context(), host+"/os", "base")
	require.NoError(t, err)
	assert.Equal(t, registry.Deletion{Outcome: registry.Deleted}, got)
	tags, err := c.Tags(t.Context(), host+"/os")
	require.NoError(t, err)
	assert.Equal(t, []string{"worker"}, tags, "the other tag has the image still")
	getImage(t, pinned)

	got, err = c.DeleteTag(t.Context(), host+"/os", "base")
	require.NoError(t, err)
	assert.Equal(t, registry.Gone, got.Outcome)
	assert.Contains(t, got.Detail, "404 Not Found")

	got, err = client(t, func(o *registry.Options) { o.Keychain = puller }).DeleteManifest(t.Context(), pinned)
	require.NoError(t, err)
	assert.Equal(t, registry.Deletion{Outcome: registry.Denied, Detail: "403 Forbidden, DENIED: account pull may pull but not push"}, got)

	got, err = c.DeleteManifest(t.Context(), pinned)
	require.NoError(t, err)
	assert.Equal(t, registry.Deleted, got.Outcome)
	_, there, err := c.Exists(t.Context(), host+"/os", "worker")
	require.NoError(t, err)
	assert.False(t, there)
	got, err = c.DeleteManifest(t.Context(), pinned)
	require.NoError(t, err)
	assert.Equal(t, registry.Gone, got.Outcome)
}

func TestDeleteKnowsTheQuirks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status  int
		body    string
		want    registry.Outcome // empty for an error
		detail  string
		manyAsk bool
	}{
		"200 is done too":                {status: 200, want: registry.Deleted},
		"404 without a code":             {status: 404, body: "<html>", want: registry.Gone, detail: "404 Not Found"},
		"410":                            {status: 410, want: registry.Gone, detail: "410 Gone"},
		"unknown manifest":               {status: 404, body: problem("MANIFEST_UNKNOWN", "manifest unknown"), want: registry.Gone, detail: "404 Not Found, MANIFEST_UNKNOWN: manifest unknown"},
		"unknown repository":             {status: 404, body: problem("NAME_UNKNOWN", "x"), want: registry.Gone, detail: "404 Not Found, NAME_UNKNOWN: x"},
		"Quay: 401, may not delete":      {status: 401, body: problem("UNAUTHORIZED", "access to the requested resource is not authorized"), want: registry.Denied, detail: "401 Unauthorized, UNAUTHORIZED: access to the requested resource is not authorized"},
		"Docker Hub: denied":             {status: 403, body: problem("DENIED", "requested access to the resource is denied"), want: registry.Denied, detail: "403 Forbidden, DENIED: requested access to the resource is denied"},
		"403 without a code":             {status: 403, want: registry.Denied, detail: "403 Forbidden"},
		"405, deleting is off":           {status: 405, body: problem("UNSUPPORTED", "The operation is unsupported."), want: registry.Unsupported, detail: "405 Method Not Allowed, UNSUPPORTED: The operation is unsupported."},
		"405 without a code":             {status: 405, want: registry.Unsupported, detail: "405 Method Not Allowed"},
		"400, not by tag":                {status: 400, body: problem("UNSUPPORTED", "x"), want: registry.Unsupported, detail: "400 Bad Request, UNSUPPORTED: x"},
		"400, a tag is no digest":        {status: 400, body: problem("DIGEST_INVALID", "x"), want: registry.Unsupported, detail: "400 Bad Request, DIGEST_INVALID: x"},
		"400 without a code":             {status: 400, want: registry.Unsupported, detail: "400 Bad Request"},
		"Quay: 500, deleted":             {status: 500, body: problem("UNKNOWN", "Tag was deleted or has expired"), want: registry.Gone, detail: "500 Internal Server Error, UNKNOWN: Tag was deleted or has expired"},
		"Quay: 500, expired":             {status: 500, body: problem("UNKNOWN", "unknown: has expired"), want: registry.Gone, detail: "500 Internal Server Error, UNKNOWN: unknown: has expired"},
		"500 of another kind":            {status: 500, body: problem("UNKNOWN", "disk full")},
		"500 that claims to be a 404":    {status: 500, body: problem("MANIFEST_UNKNOWN", "x")},
		"503":                            {status: 503, manyAsk: true},
		"429":                            {status: 429, body: problem("TOOMANYREQUESTS", "x"), manyAsk: true},
		"409, something else is at work": {status: 409},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &journal{}
			host := serve(t, asked.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
				}
			})))
			got, err := client(t).DeleteTag(t.Context(), host+"/os", "worker-0a1b")
			if tt.want == "" {
				require.ErrorContains(t, err, `deleting tag "`+host+`/os:worker-0a1b": the registry fails`)
				assert.Equal(t, fault.Transient, fault.ClassOf(err))
				assert.Equal(t, map[bool]int{true: 3, false: 1}[tt.manyAsk], asked.count("DELETE"))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, registry.Deletion{Outcome: tt.want, Detail: tt.detail}, got)
			assert.Equal(t, 1, asked.count("DELETE"))
		})
	}
}

func TestPlainHTTPIsForTheNamedHostsOnly(t *testing.T) {
	t.Parallel()
	var schemes []string
	try := func(o *registry.Options) {
		o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
			schemes = append(schemes, r.URL.Scheme)
			return nil, io.ErrClosedPipe
		})
	}
	for _, call := range []func(c *registry.Client, ctx context.Context, host string) error{
		func(c *registry.Client, ctx context.Context, host string) error {
			_, err := c.Resolve(ctx, host+"/os:x")
			return err
		},
		func(c *registry.Client, ctx context.Context, host string) error { return c.CanPush(ctx, host+"/os") },
		func(c *registry.Client, ctx context.Context, host string) error {
			_, err := c.DeleteTag(ctx, host+"/os", "x")
			return err
		},
	} {
		schemes = nil
		require.ErrorIs(t, call(client(t, try), t.Context(), "registry.example:5000"), io.ErrClosedPipe)
		assert.NotContains(t, schemes, "http")
		schemes = nil
		plain := client(t, try, func(o *registry.Options) { o.PlainHTTP = []string{"registry.example:5000"} })
		require.ErrorIs(t, call(plain, t.Context(), "registry.example:5000"), io.ErrClosedPipe)
		assert.Contains(t, schemes, "http")
		schemes = nil
		require.ErrorIs(t, call(plain, t.Context(), "other.example:5000"), io.ErrClosedPipe)
		assert.NotContains(t, schemes, "http")
	}
}

// problem is a registry's error.
func problem(code, message string) string {
	return `{"errors":[{"code":"` + code + `","message":"` + message + `"}]}`
}
