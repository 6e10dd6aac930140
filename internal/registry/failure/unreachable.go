package failure

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/layerwright/layerwright/internal/registry/wire"
)

// isUnreachable reports whether nothing answered as a registry does. A name that does not exist, a
// certificate that is not trusted and what this program refuses itself are no such failures.
func isUnreachable(err error) bool {
	var answer *transport.Error
	if errors.As(err, &answer) {
		isFirst := answer.Request != nil && answer.Request.URL != nil && answer.Request.URL.Path == "/v2/"
		return isFirst && len(answer.Errors) == 0 && !IsTransient(answer.StatusCode)
	}
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var silent *wire.SilentError
	var pause *wire.PauseError
	isKnown := errors.As(err, &pause) || errors.As(err, &name) || errors.As(err, &certificate) || errors.As(err, &silent)
	if isKnown || wire.IsRefusal(err) || errors.Is(err, context.Canceled) {
		return false
	}
	var request *url.Error
	var connection *net.OpError
	return errors.As(err, &request) || errors.As(err, &connection) || errors.Is(err, http.ErrSchemeMismatch)
}
