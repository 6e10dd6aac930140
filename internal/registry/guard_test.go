package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// bare is a response without a body.
func bare(r *http.Request, status int, header http.Header) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: r, ProtoMajor: 1, ProtoMinor: 1}
}

func TestWhereARegistryMayRedirectTo(t *testing.T) {
	t.Parallel()
	names := map[string][]string{
		"registry.example": {"203.0.113.5"}, "inside.example": {"10.1.2.3"}, "storage.example": {"198.51.100.7"},
		"private.example": {"203.0.113.9", "192.168.7.7"}, "metadata.example": {"169.254.169.254"}, "shared.example": {"100.64.3.3"},
		"mapped.example": {"::ffff:169.254.169.254"}, "unique.example": {"fd12::1"}, "azure.example": {"168.63.129.16"}, "alibaba.example": {"100.100.100.200"},
		"itself.example": {"127.0.0.1"}, "nat64.example": {"64:ff9b::a01:203"}, "own-nat64.example": {"64:ff9b:1::c0a8:101"},
		"6to4.example": {"2002:a01:203::1"}, "teredo.example": {"2001::f5fe:fdfc"}, "compatible.example": {"::10.1.2.3"},
		"nat64-metadata.example": {"64:ff9b::a9fe:a9fe"}, "nat64-public.example": {"64:ff9b::c633:6407"}, "mixed.example": {"203.0.113.9", "10.1.2.3"},
	}
	const cloud, private = "clouds reserve for the machine itself", "a private address, while the registry's own is public"
	for _, test := range []struct{ from, to, refused string }{
		{"registry.example", "storage.example", ""},
		{"registry.example", "registry.example", ""},
		{"registry.example", "unknown.example", ""},
		{"registry.example", "private.example", private},
		{"registry.example", "shared.example", private},
		{"registry.example", "unique.example", private},
		{"registry.example", "itself.example", private},
		{"registry.example", "nat64.example", private},
		{"registry.example", "own-nat64.example", private},
		{"registry.example", "6to4.example", private},
		{"registry.example", "teredo.example", private},
		{"registry.example", "compatible.example", private},
		{"registry.example", "nat64-public.example", ""},
		{"registry.example", "nat64-metadata.example", cloud},
		{"inside.example", "nat64-metadata.example", cloud},
		{"mixed.example", "itself.example", private}, // one private answer does not make it private
		{"allowed.example", "private.example", ""},
		{"allowed.example", "metadata.example", cloud},
		{"registry.example", "metadata.example", cloud},
		{"registry.example", "mapped.example", cloud},
		{"registry.example", "alibaba.example", cloud},
		{"registry.example", "169.254.169.254", "denied"}, // the library's own words
		{"registry.example", "168.63.129.16", cloud},
		{"inside.example", "private.example", ""},
		{"inside.example", "storage.example", ""},
		{"inside.example", "metadata.example", cloud},
		{"inside.example", "azure.example", cloud},
	} {
		t.Run(test.from+" to "+test.to, func(t *testing.T) {
			t.Parallel()
			reached := false
			c := client(t, func(o *registry.Options) {
				o.Pointers.PrivateStorage = []string{"allowed.example"}
				o.Pointers.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
					var found []netip.Addr
					for _, text := range names[host] {
						found = append(found, netip.MustParseAddr(text))
					}
					if found == nil {
						return nil, errors.New("no such host")
					}
					return found, nil
				}
				o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
					switch r.URL.Path {
					case "/v2/":
						return bare(r, http.StatusOK, nil), nil
					case "/there":
						reached = true
						return bare(r, http.StatusNotFound, nil), nil
					default:
						return bare(r, http.StatusTemporaryRedirect, http.Header{"Location": {"https://" + test.to + "/there"}}), nil
					}
				})
			})
			_, err := c.Resolve(t.Context(), test.from+"/os:x")
			require.ErrorContains(t, err, test.refused)
			assert.Equal(t, test.refused == "", reached)
		})
	}
}

func TestNothingPointsIntoPrivateNetworks(t *testing.T) {
	t.Parallel()
	const inside = "https://inside.example/secret"
	layer := static.NewLayer([]byte("all"), types.OCILayer)
	image, err := mutate.Append(three.make(t), mutate.Addendum{Layer: layer, URLs: []string{inside}})
	require.NoError(t, err)
	digest, err := layer.Digest()
	require.NoError(t, err)
	// how the registry points there: its answer to a request, nil for the usual one.
	for name, how := range map[string]func(r *http.Request) *http.Response{
		"by the realm of tokens": func(r *http.Request) *http.Response {
			if r.URL.Path != "/v2/" {
				return nil
			}
			return bare(r, http.StatusUnauthorized, http.Header{"Www-Authenticate": {`Bearer realm="` + inside + `",service="x"`}})
		},
		"by the place of an upload": func(r *http.Request) *http.Response {
			if r.Method != http.MethodPost {
				return nil
			}
			return bare(r, http.StatusAccepted, http.Header{"Location": {inside}})
		},
		"by the URL of a layer": func(r *http.Request) *http.Response {
			if !strings.HasSuffix(r.URL.Path, "/os/blobs/"+digest.String()) || r.Method != http.MethodGet {
				return nil
			}
			return bare(r, http.StatusNotFound, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage := map[string]string{"registry.example": serve(t, inMemory()), "other.example": serve(t, inMemory())}
			content := push(t, storage["registry.example"]+"/os", image)
			var reached []string
			c := client(t, func(o *registry.Options) {
				o.Pointers.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
					addresses := map[string]string{"registry.example": "203.0.113.5", "other.example": "203.0.113.6", "inside.example": "10.1.2.3"}
					return []netip.Addr{netip.MustParseAddr(addresses[host])}, nil
				}
				o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Host == "inside.example" {
						reached = append(reached, r.Method)
						return bare(r, http.StatusOK, nil), nil
					}
					if pointing := how(r); pointing != nil {
						return pointing, nil
					}
					to := r.Clone(r.Context())
					to.URL.Scheme, to.URL.Host, to.Host = "http", storage[r.URL.Host], ""
					response, err := http.DefaultTransport.RoundTrip(to)
					if err == nil {
						response.Request = r
					}
					return response, err
				})
			})
			request := ordinary(t, strings.Replace(content, storage["registry.example"], "registry.example", 1), "other.example/elsewhere")
			_, err := c.Append(t.Context(), request)
			require.ErrorContains(t, err, `points to "inside.example", which is a private address, while the registry's own is public`)
			assert.Empty(t, reached)
		})
	}
}

func TestRedirectsKeepSecretsFromOtherHosts(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	c := client(t, func(o *registry.Options) {
		o.Keychain = pusher
		o.Pointers.Lookup = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
		o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
			seen[r.URL.Host] += r.Header.Get("Authorization")
			switch {
			case r.URL.Path == "/v2/":
				return bare(r, http.StatusUnauthorized, http.Header{"Www-Authenticate": {`Basic realm="test"`}}), nil
			case strings.HasPrefix(r.URL.Path, "/v2/"):
				return bare(r, http.StatusTemporaryRedirect, http.Header{"Location": {"https://sub.registry.example/there"}}), nil
			default:
				return bare(r, http.StatusNotFound, nil), nil
			}
		})
	})
	_, err := c.Resolve(t.Context(), "registry.example/os:x")
	require.Error(t, err)
	assert.Contains(t, seen["registry.example"], "Basic ")
	require.Contains(t, seen, "sub.registry.example", "the redirect is followed")
	assert.Empty(t, seen["sub.registry.example"])
}

func TestPlainHTTPIsOptIn(t *testing.T) {
	t.Parallel()
	for host, loopback := range map[string]bool{
		"10.1.2.3:5000": false, "192.168.1.1:5000": false, "registry.local": false, "registry.example:5000": false,
		"127.0.0.1:5000": true, "localhost:5000": true,
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			schemes := map[string]bool{}
			try := func(allowed ...string) {
				clear(schemes)
				c := client(t, func(o *registry.Options) {
					o.PlainHTTP = allowed
					o.Transport = tripper(func(r *http.Request) (*http.Response, error) {
						schemes[r.URL.Scheme] = true
						return nil, io.ErrClosedPipe
					})
				})
				_, err := c.Resolve(t.Context(), host+"/os:x")
				require.ErrorIs(t, err, io.ErrClosedPipe)
				require.ErrorIs(t, c.CanPush(t.Context(), host+"/os"), io.ErrClosedPipe)
			}
			try()
			assert.Equal(t, loopback, schemes["http"])
			try("other.example:5000")
			assert.Equal(t, loopback, schemes["http"])
			try(host)
			assert.True(t, schemes["http"])
			name, _, _ := strings.Cut(host, ":")
			try(name)
			assert.True(t, schemes["http"], "all of its ports")
		})
	}
	t.Run("a registry without TLS is told how to be allowed", func(t *testing.T) {
		t.Parallel()
		c := client(t, func(o *registry.Options) {
			o.Keychain = authn.NewMultiKeychain()
			o.Transport = tripper(func(*http.Request) (*http.Response, error) {
				return nil, fmt.Errorf("reading: %w", http.ErrSchemeMismatch)
			})
		})
		_, err := c.Resolve(t.Context(), "10.1.2.3:5000/os:x")
		require.ErrorContains(t, err, `give the registry "10.1.2.3:5000" a certificate, or allow it to have none with --plain-http-registry`)
	})
}

// TestWhatIsReachedDecides has DNS answer the check otherwise than the connection that follows.
func TestWhatIsReachedDecides(t *testing.T) {
	reached := false
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(inside.Close)
	address, err := netip.ParseAddrPort(inside.Listener.Addr().String())
	require.NoError(t, err)
	const public = "203.0.113.5"
	// public is an address of the registry that a connection to loopback stands for.
	transport := func(dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
		return &http.Transport{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			connection, err := dial(ctx, network, inside.Listener.Addr().String())
			if err == nil && strings.HasPrefix(to, "registry.example") {
				connection = from{connection, netip.AddrPortFrom(netip.MustParseAddr(public), 443)}
			}
			return connection, err
		}}
	}
	ask := func(g *wire.Guard, asking *wire.Asking, host string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/there", http.NoBody)
		require.NoError(t, err)
		asking.Next = g
		response, err := asking.RoundTrip(request)
		if err == nil {
			require.NoError(t, response.Body.Close())
		}
		return err
	}
	plain := []string{"registry.example", "pointed.example"}
	const refused = `points to "pointed.example", which is a private address`
	// lies has DNS say of the registry that it is private, and of all else that it is public.
	lies := wire.Pointers{Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "registry.example" {
			return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("198.51.100.7")}, nil
	}}
	require.True(t, address.Addr().IsLoopback())

	t.Run("when a connection is made", func(t *testing.T) {
		g := &wire.Guard{Next: transport(wire.DialContext), PlainHTTP: plain, Pointers: lies}
		asking := &wire.Asking{Registry: "registry.example"}
		require.NoError(t, ask(g, asking, "registry.example"))
		reached = false
		require.ErrorContains(t, ask(g, asking, "pointed.example"), refused)
		require.False(t, reached)
	})
	t.Run("when a connection is there already", func(t *testing.T) {
		g := &wire.Guard{Next: transport((&net.Dialer{}).DialContext), PlainHTTP: plain, Pointers: lies}
		require.NoError(t, ask(g, &wire.Asking{Registry: "pointed.example"}, "pointed.example"), "it is its own registry")
		asking := &wire.Asking{Registry: "registry.example"}
		require.NoError(t, ask(g, asking, "registry.example"))
		reached = false
		require.ErrorContains(t, ask(g, asking, "pointed.example"), refused)
		require.False(t, reached)
	})
	t.Run("where it is allowed", func(t *testing.T) {
		pointers := lies
		pointers.PrivateStorage = []string{"registry.example"}
		g := &wire.Guard{Next: transport(wire.DialContext), PlainHTTP: plain, Pointers: pointers}
		asking := &wire.Asking{Registry: "registry.example"}
		require.NoError(t, ask(g, asking, "registry.example"))
		require.NoError(t, ask(g, asking, "pointed.example"))
	})
}

// from is a connection to another address than its real one.
type from struct {
	net.Conn

	address netip.AddrPort
}

func (f from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(f.address) }

func TestReservedAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"169.254.169.254:80", "168.63.129.16:80", "100.100.100.200:80", "[fe80::1]:80", "[fd00:ec2::254]:80", "[::ffff:169.254.169.254]:80", "[64:ff9b::a9fe:a9fe]:80",
	} {
		_, err := wire.DialContext(t.Context(), "tcp", address)
		require.ErrorContains(t, err, "clouds reserve this address", address)
	}
	host := serve(t, inMemory())
	connection, err := wire.DialContext(t.Context(), "tcp", host)
	require.NoError(t, err)
	require.NoError(t, connection.Close())
}
