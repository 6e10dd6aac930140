package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// refusing is a client whose registry takes the login and gives one answer to everything else.
func refusing(t *testing.T, status int, body string) *registry.Client {
	t.Helper()
	return client(t, func(o *registry.Options) {
		o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
			if isPing(r.URL) {
				return answer(r, http.StatusOK, ""), nil
			}
			return answer(r, status, body), nil
		})
	})
}

func TestClassifyAnswers(t *testing.T) {
	t.Parallel()
	const (
		image = mcfgv1.ReasonImageNotFound
		push  = mcfgv1.ReasonPushDenied
		bad   = mcfgv1.ReasonInvalid
		wait  = mcfgv1.ReasonWaiting
		again = "" // Transient
	)
	tests := map[string]struct {
		status      int
		body        string
		read, write string // reasons
		want        string // in both texts
	}{
		"400":                        {status: 400, read: again, write: again, want: "(400 Bad Request)"},
		"400, invalid name":          {status: 400, body: problem("NAME_INVALID", "invalid repository name"), read: bad, write: bad, want: "NAME_INVALID: invalid repository name"},
		"400, invalid manifest":      {status: 400, body: problem("MANIFEST_INVALID", "x"), read: bad, write: bad, want: "MANIFEST_INVALID: x"},
		"400, a blob is missing":     {status: 400, body: problem("MANIFEST_BLOB_UNKNOWN", "x"), read: again, write: again, want: "MANIFEST_BLOB_UNKNOWN: x"},
		"400, damaged on the way":    {status: 400, body: problem("DIGEST_INVALID", "x"), read: again, write: again, want: "DIGEST_INVALID: x"},
		"401":                        {status: 401, read: image, write: push, want: "(401 Unauthorized)"},
		"401, with a code":           {status: 401, body: problem("UNAUTHORIZED", "authentication required"), read: image, write: push, want: "UNAUTHORIZED: authentication required"},
		"403":                        {status: 403, read: image, write: push, want: "(403 Forbidden)"},
		"403, over quota":            {status: 403, body: problem("DENIED", "would exceed the quota"), read: image, write: push, want: "DENIED: would exceed the quota"},
		"404":                        {status: 404, read: image, write: push, want: "(404 Not Found)"},
		"404, unknown repository":    {status: 404, body: problem("NAME_UNKNOWN", "x"), read: image, write: push, want: "NAME_UNKNOWN: x"},
		"404, unknown manifest":      {status: 404, body: problem("MANIFEST_UNKNOWN", "x"), read: image, write: again, want: "MANIFEST_UNKNOWN: x"},
		"404, unknown blob":          {status: 404, body: problem("BLOB_UNKNOWN", "x"), read: image, write: again, want: "BLOB_UNKNOWN: x"},
		"404, the upload is lost":    {status: 404, body: problem("BLOB_UPLOAD_UNKNOWN", "x"), read: again, write: again, want: "BLOB_UPLOAD_UNKNOWN: x"},
		"405":                        {status: 405, read: bad, write: wait, want: "(405 Method Not Allowed)"},
		"405, read-only":             {status: 405, body: problem("UNSUPPORTED", "The operation is unsupported."), read: bad, write: wait, want: "UNSUPPORTED: The operation is unsupported."},
		"406":                        {status: 406, read: bad, write: bad, want: "(406 Not Acceptable)"},
		"408":                        {status: 408, read: again, write: again, want: "(408 Request Timeout)"},
		"410":                        {status: 410, read: image, write: push, want: "(410 Gone)"},
		"413":                        {status: 413, read: again, write: push, want: "(413 Request Entity Too Large)"},
		"415":                        {status: 415, read: bad, write: bad, want: "(415 Unsupported Media Type)"},
		"418":                        {status: 418, read: again, write: again, want: "(418 I'm a teapot)"},
		"429":                        {status: 429, body: problem("TOOMANYREQUESTS", "slow down"), read: again, write: again, want: "TOOMANYREQUESTS: slow down"},
		"500":                        {status: 500, read: again, write: again, want: "the registry fails (500 Internal Server Error)"},
		"500, whatever it claims":    {status: 500, body: problem("DENIED", "x"), read: again, write: again, want: "DENIED: x"},
		"502, a proxy's page":        {status: 502, body: "<html>nginx hunter2</html>", read: again, write: again, want: "(502 Bad Gateway)"},
		"503":                        {status: 503, read: again, write: again, want: "(503 Service Unavailable)"},
		"504":                        {status: 504, read: again, write: again, want: "(504 Gateway Timeout)"},
		"507, full":                  {status: 507, read: again, write: again, want: "(507 Insufficient Storage)"},
		"an answer without end":      {status: 403, body: strings.Repeat("x", 70000), read: image, write: push, want: "(403 Forbidden)"},
		"a message without end":      {status: 403, body: problem("DENIED", strings.Repeat("y", 5000)), read: image, write: push, want: "DENIED: " + strings.Repeat("y", 200) + "..."},
		"a message of several lines": {status: 403, body: problem("DENIED", `first\nhunter2`), read: image, write: push, want: "DENIED: first)"},
		"several errors":             {status: 403, body: `{"errors":[{"code":"A","message":"1"},{"code":"DENIED"},{"message":"3"},{"message":"hunter2"}]}`, read: image, write: push, want: "(403 Forbidden, A: 1, DENIED, 3)"},
		"a secret URL":               {status: 403, body: problem("DENIED", "see https://bot:hunter2@quay.io/x?sig=hunter2"), read: image, write: push, want: "https://REDACTED@quay.io/x?sig=REDACTED"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := refusing(t, tt.status, tt.body)
			_, err := c.Image(t.Context(), "quay.io/os/worker:x", amd64)
			requireMeaning(t, err, tt.read, `reading image "quay.io/os/worker:x": `, tt.want, tt.status)
			err = c.CanPush(t.Context(), "quay.io/os/worker")
			requireMeaning(t, err, tt.write, `checking access to repository "quay.io/os/worker": `, tt.want, tt.status)
		})
	}
}

func requireMeaning(t *testing.T, err error, reason, begin, want string, status int) {
	t.Helper()
	require.Error(t, err)
	assert.True(t, strings.HasPrefix(err.Error(), begin), err.Error())
	require.ErrorContains(t, err, want)
	assert.NotContains(t, err.Error(), "hunter2")
	assert.LessOrEqual(t, len([]rune(err.Error())), fault.MaxMessage)
	assert.Equal(t, reason, fault.Reason(err), err.Error())
	class := fault.Terminal
	switch reason {
	case "":
		class = fault.Transient
	case mcfgv1.ReasonWaiting:
		class = fault.Waiting
		assert.Positive(t, fault.After(err))
	}
	assert.Equal(t, class, fault.ClassOf(err), err.Error())
	var typed *registry.Error
	require.ErrorAs(t, err, &typed)
	assert.Equal(t, status, typed.Status)
}

func TestNetworkFailuresAreTransient(t *testing.T) {
	t.Parallel()
	tests := map[string]error{
		"no such host":  &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "quay.oi", IsNotFound: true}},
		"refused":       &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
		"reset":         &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"cut":           io.ErrUnexpectedEOF,
		"timeout":       &net.OpError{Op: "dial", Net: "tcp", Err: timeout{}},
		"a certificate": errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
		"with a secret": fmt.Errorf("after redirect to https://s3.test/blob?X-Amz-Signature=hunter2: %w", io.EOF),
	}
	for name, cause := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			c := client(t, func(o *registry.Options) {
				o.Transport = tripper(func(*http.Request) (*http.Response, error) { tried++; return nil, cause })
			})
			for _, err := range []error{resolve(t.Context(), c), c.CanPush(t.Context(), "quay.io/os")} {
				require.ErrorIs(t, err, cause)
				assert.Equal(t, fault.Transient, fault.ClassOf(err))
				assert.NotContains(t, err.Error(), "hunter2")
				assert.False(t, registry.IsNotFound(err) || registry.IsDenied(err))
			}
			assert.LessOrEqual(t, tried, 6, "tries are bounded")
		})
	}
}

func resolve(ctx context.Context, c *registry.Client) error {
	_, err := c.Resolve(ctx, "quay.io/os:x")
	return err
}

// timeout is what the net package says, and the context's error too.
type timeout struct{}

func (timeout) Error() string   { return "i/o timeout" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
func (timeout) Is(err error) bool {
	return err == context.DeadlineExceeded
}

// TestTheEndOfAContextStaysOne has a registry that hangs at each point of a call.
func TestTheEndOfAContextStaysOne(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]func(r *http.Request) bool{
		"at the login": func(r *http.Request) bool { return isPing(r.URL) },
		"later":        func(r *http.Request) bool { return !isPing(r.URL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			c := client(t, func(o *registry.Options) {
				o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
					if !hangs(r) {
						return answer(r, http.StatusOK, ""), nil
					}
					cancel(nil)
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
			})
			calls := map[string]func() error{
				"Resolve": func() error { return resolve(ctx, c) },
				"CanPush": func() error { return c.CanPush(ctx, "quay.io/os") },
				"Tags":    func() error { _, err := c.Tags(ctx, "quay.io/os"); return err },
				"Delete":  func() error { _, err := c.DeleteTag(ctx, "quay.io/os", "x"); return err },
				"Append": func() error {
					_, err := c.Append(ctx, registry.AppendRequest{Content: "quay.io/os@sha256:" + strings.Repeat("0", 64), Repository: "quay.io/x"})
					return err
				},
			}
			for name, call := range calls {
				err := call()
				require.ErrorIs(t, err, context.Canceled, name)
				assert.Equal(t, fault.Transient, fault.ClassOf(err), name)
			}
		})
	}
}

func TestADeadlineEndsAHangingRegistry(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	host := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(stop) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := client(t).Resolve(ctx, host+"/os:x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, fault.Transient, fault.ClassOf(err))
}

func TestTokenServersThatRefuse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		body   string
		reason string
	}{
		"401":                      {status: 401, reason: mcfgv1.ReasonImageNotFound},
		"403":                      {status: 403, reason: mcfgv1.ReasonImageNotFound},
		"400, a token has expired": {status: 400, body: `{"error":"invalid_grant"}`, reason: mcfgv1.ReasonImageNotFound},
		"500":                      {status: 500},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var host string
			host = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" {
					w.WriteHeader(tt.status)
					_, _ = io.WriteString(w, tt.body)
					return
				}
				w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+host+`/token",service="test"`)
				w.WriteHeader(http.StatusUnauthorized)
			}))
			_, err := client(t).Resolve(t.Context(), host+"/os:x")
			require.Error(t, err)
			assert.Equal(t, tt.reason, fault.Reason(err), err)
			assert.Equal(t, tt.reason != "", registry.IsDenied(err))
		})
	}
}

func TestManifestsThatAreNoImages(t *testing.T) {
	t.Parallel()
	const (
		oci    = "application/vnd.oci.image.manifest.v1+json"
		config = `"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":2,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}`
	)
	tests := map[string]struct{ mediaType, manifest, config, want string }{
		"the first schema":       {mediaType: "application/vnd.docker.distribution.manifest.v1+prettyjws", manifest: `{"schemaVersion":1}`, want: "Docker's first schema"},
		"no JSON":                {mediaType: oci, manifest: `{`, want: "its manifest can't be read"},
		"an index that is none":  {mediaType: "application/vnd.oci.image.index.v1+json", manifest: `[]`, want: "its index can't be read"},
		"another type":           {mediaType: "text/plain", manifest: `{}`, want: `a manifest of the unknown type "text/plain"`},
		"an artifact":            {mediaType: oci, manifest: `{"config":{"mediaType":"application/vnd.cncf.helm.config.v1+json"}}`, want: "it is no container image: its config has the type"},
		"a config without end":   {mediaType: oci, manifest: `{"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":99999999999}}`, want: "its config is larger than"},
		"more layers than diffs": {mediaType: oci, manifest: `{` + config + `,"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":1,"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}]}`, config: "{}", want: "it has 1 layers in its manifest and 0 in its config"},
		"no platform":            {mediaType: oci, manifest: `{` + config + `}`, config: "{}", want: "its config does not say what platform it is for"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.Contains(r.URL.Path, "/manifests/"):
					w.Header().Set("Content-Type", tt.mediaType)
					_, _ = io.WriteString(w, tt.manifest)
				case strings.Contains(r.URL.Path, "/blobs/"):
					_, _ = io.WriteString(w, tt.config)
				}
			}))
			_, err := client(t).Image(t.Context(), host+"/os:x", amd64)
			require.ErrorContains(t, err, `reading image "`+host+`/os:x": `)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, fault.Terminal, fault.ClassOf(err))
			assert.Equal(t, mcfgv1.ReasonInvalid, fault.Reason(err))
		})
	}
}

func TestMediaTypesThatRegistriesGetWrong(t *testing.T) {
	t.Parallel()
	backend := inMemory()
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/") {
			w = &late{ResponseWriter: w, change: func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json") }}
		}
		backend.ServeHTTP(w, r)
	}))
	pinned := push(t, host+"/os", three.make(t))
	config, err := client(t).Config(t.Context(), pinned, amd64)
	require.NoError(t, err)
	assert.Equal(t, "amd64", config.Architecture)
}
