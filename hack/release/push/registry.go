package push

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is where images go, and how to talk to it.
type Registry struct {
	// To is a registry or a part of one, such as registry.example.com/layerwright.
	To string
	// CA is a file with certificates of authorities that are trusted beside those of the system.
	CA string
}

// AddFlags adds a flag for each field.
func (r *Registry) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&r.To, "to", "", "`registry`, or part of one, that the images go to")
	flags.StringVar(&r.CA, "ca", "", "`file` with certificates (PEM) of the registry's authority, where the system does not know it")
}

// Options are for Images: credentials as `docker login` and `podman login` leave them.
func (r *Registry) Options() ([]remote.Option, error) {
	transport := remote.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented to be one
	if r.CA != "" {
		certificates, err := os.ReadFile(r.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the registry's certificates: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(certificates) {
			return nil, fmt.Errorf("reading the registry's certificates: %q has no certificate in PEM", r.CA)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return []remote.Option{
		remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(transport), remote.WithUserAgent("layerwright-release"),
	}, nil
}
