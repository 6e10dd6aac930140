package stack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/fixtures"
)

// Registry is the cluster's registry as programs of the host use it.
type Registry struct {
	// Host is its name and port.
	Host      string
	transport http.RoundTripper
	state     *state
}

// Registry returns the registry, or an error that says why it can't be reached.
func (s *Stack) Registry(ctx context.Context) (*Registry, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	if st.RegistryPort == 0 {
		return nil, fmt.Errorf("cluster %q has no registry: it was made with --control-plane-only", s.name)
	}
	if !st.ControlPlaneOnly {
		if err := requireRegistryName(ctx, s.RegistryHost()); err != nil {
			return nil, err
		}
	}
	ca, err := os.ReadFile(s.Authority())
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return &Registry{Host: s.registry(st), transport: transport, state: st}, nil
}

// requireRegistryName returns an error that says how to get the name back.
func requireRegistryName(ctx context.Context, host string) error {
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || !slices.Contains(addresses, "127.0.0.1") {
		return fmt.Errorf("this host does not know the registry's name %s as 127.0.0.1 (its line in /etc/hosts is missing): run up again", host)
	}
	return nil
}

// pullLogin is the docker configuration that pulls from the registry.
func (s *Stack) pullLogin(st *state) ([]byte, error) {
	return st.account("pull").DockerConfig(s.registry(st))
}

// account is an account of the registry by its name, "pull" or "push"; nil where there is none.
func (st *state) account(name string) *registry.Account {
	i := slices.IndexFunc(st.Accounts, func(a registry.Account) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &st.Accounts[i]
}

// Options make go-containerregistry use the registry as an account, "pull" or
// "push".
func (r *Registry) Options(ctx context.Context, account string) []remote.Option {
	auth := authn.Anonymous
	if a := r.state.account(account); a != nil {
		auth = a.Login()
	}
	return []remote.Option{remote.WithContext(ctx), remote.WithTransport(r.transport), remote.WithAuth(auth)}
}

// Login is the user name and password of an account, "pull" or "push".
func (r *Registry) Login(ctx context.Context, account string) (*authn.AuthConfig, error) {
	return authn.Authorization(ctx, r.state.account(account).Login())
}

// FixturesPath is where PushFixtures puts images in the registry.
const FixturesPath = "os"

// FetchPackage fetches a package for the full base OS images, unless it is in the cache.
func (s *Stack) FetchPackage(ctx context.Context, name string, report func(format string, args ...any)) (*fixtures.Package, error) {
	maker, err := s.fixtures(nil, report)
	if err != nil {
		return nil, err
	}
	return maker.Package(ctx, name)
}

// fixtures makes base images; programs are those of images that boot.
func (s *Stack) fixtures(streams []fixtures.Stream, report func(format string, args ...any), programs ...string) (*fixtures.Maker, error) {
	return fixtures.New(fixtures.Options{
		CacheDir: s.cache,
		Streams:  streams,
		Programs: programs,
		Progress: fixtures.ProgressFunc(func(e fixtures.Event) { report("%s", e) }),
	})
}

// PushFixtures makes the base OS images of a kind, unless they are in the
// cache, and pushes what the registry lacks.
func (s *Stack) PushFixtures(ctx context.Context, kind fixtures.Kind, streams []fixtures.Stream, report func(format string, args ...any)) (*fixtures.References, error) {
	registry, err := s.Registry(ctx)
	if err != nil {
		return nil, err
	}
	maker, err := s.fixtures(streams, report)
	if kind == fixtures.Bootable {
		maker, err = s.guestFixtures(ctx, streams, report)
	}
	if err != nil {
		return nil, err
	}
	return maker.Push(ctx, kind, registry.Host+"/"+FixturesPath, registry.Options(ctx, "push")...)
}
