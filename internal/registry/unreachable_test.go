package registry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

func TestErrorsTellNoOneWhatListensWhere(t *testing.T) {
	t.Parallel()
	const same = `image "10.1.2.3:22/os:x": the registry "10.1.2.3:22" can't be reached: it refuses connections, does not answer, or is no registry; ` +
		"check its host and port, and allow it with --plain-http-registry where it has no TLS; the log of the controller says more"
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	tests := map[string]struct {
		err    error // else it answers
		status int
		text   string
		says   string // empty: the same as all others
	}{
		"nothing listens":                    {err: dial(syscall.ECONNREFUSED)},
		"no route":                           {err: dial(syscall.EHOSTUNREACH)},
		"no answer":                          {err: dial(context.DeadlineExceeded)},
		"it hangs up":                        {err: io.EOF},
		"it speaks another protocol":         {err: fmt.Errorf("malformed HTTP response %q", "SSH-2.0-OpenSSH_9.9")},
		"it has no TLS":                      {err: http.ErrSchemeMismatch},
		"its TLS is none":                    {err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}},
		"a server of web pages":              {status: http.StatusNotFound, text: "<html>"},
		"its name is unknown":                {err: dial(&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}), says: "no such host"},
		"its certificate is not trusted":     {err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, says: "unknown authority"},
		"a registry that knows no such user": {status: http.StatusForbidden, text: `{"errors":[{"code":"DENIED","message":"no"}]}`, says: "denies read access"},
		"a registry that fails":              {status: http.StatusBadGateway, says: "502 Bad Gateway"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []string
			transport := tripper(func(r *http.Request) (*http.Response, error) {
				if tt.err != nil {
					return nil, tt.err
				}
				return answer(r, tt.status, tt.text), nil
			})
			about := func(o *registry.Options) {
				o.Transport = transport
				o.Unreachable = func(registry string, err error) { told = append(told, registry+": "+err.Error()) }
			}
			_, err := client(t, about).Resolve(t.Context(), "10.1.2.3:22/os:x")
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				require.Empty(t, told)
				return
			}
			require.EqualError(t, err, "resolving "+same)
			assert.Equal(t, fault.Transient, fault.ClassOf(err))
			require.Len(t, told, 1)
			require.Error(t, client(t, about).CanPush(t.Context(), "10.1.2.3:22/os"))
			_, err = client(t, func(o *registry.Options) { o.Transport = transport }).Resolve(t.Context(), "10.1.2.3:22/os:x")
			assert.NotContains(t, err.Error(), "can't be reached", "a person at a terminal learns it")
		})
	}
}

func TestARealPortThatIsClosed(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, image := range []string{closed.Listener.Addr().String() + "/os:x"} {
		_, err := client(t, func(o *registry.Options) { o.Unreachable = func(string, error) {} }).Resolve(t.Context(), image)
		require.ErrorContains(t, err, "can't be reached: it refuses connections, does not answer, or is no registry")
	}
}
