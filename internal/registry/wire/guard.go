package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Guard refuses requests that a registry, or whoever writes its name into an object, must not have
// this program make.
type Guard struct {
	Next      http.RoundTripper
	PlainHTTP []string
	Lookup    LookupFunc
}

// LookupFunc finds the addresses of a host.
type LookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

// Asking says with each request which registry it is made for.
type Asking struct {
	Registry string
	Next     http.RoundTripper
}

// registryKey is the key of a request's registry in its context.
type registryKey struct{}

// RoundTrip adds the registry.
func (a *Asking) RoundTrip(request *http.Request) (*http.Response, error) {
	return a.Next.RoundTrip(request.WithContext(context.WithValue(request.Context(), registryKey{}, a.Registry)))
}

// RoundTrip refuses to follow a registry into networks that only this program reaches, and asks
// with TLS where plain HTTP was not allowed: go-containerregistry would try both with every private
// address.
func (g *Guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := g.checkHost(request); err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // a transport's duty
		}
		return nil, err
	}
	if request.URL.Scheme == "http" && !MayBePlain(request.URL.Host, g.PlainHTTP) {
		encrypted := *request
		encrypted.URL = new(*request.URL)
		encrypted.URL.Scheme = "https"
		request = &encrypted
	}
	response, err := g.Next.RoundTrip(request)
	if errors.Is(err, http.ErrSchemeMismatch) {
		err = fmt.Errorf("%w; give the registry %q a certificate, or allow it to have none with --plain-http-registry",
			err, request.URL.Host)
	}
	return response, err
}

// checkHost looks at each host that is not the registry's own: by a redirect, by the realm of its
// token service, by the place of an upload or the URL of a layer the registry may name any.
func (g *Guard) checkHost(request *http.Request) error {
	registry, _ := request.Context().Value(registryKey{}).(string)
	return CheckPointer(request.Context(), g.Lookup, registry, request.URL.Host)
}

// CheckPointer refuses to follow a registry to a host, each with or without a port, that clouds
// reserve for the machine itself, or from a public registry into private networks. Without lookup
// DNS is asked.
func CheckPointer(ctx context.Context, lookup LookupFunc, registry, host string) error {
	if registry == host {
		return nil
	}
	if lookup == nil {
		lookup = lookupDNS
	}
	from, to := (&url.URL{Host: registry}).Hostname(), (&url.URL{Host: host}).Hostname()
	addresses := lookup.addresses(ctx, to)
	if slices.ContainsFunc(addresses, isReserved) {
		return pointsError(from, to, "which is an address that clouds reserve for the machine itself")
	}
	if slices.ContainsFunc(addresses, isPrivate) && !slices.ContainsFunc(lookup.addresses(ctx, from), isPrivate) {
		return pointsError(from, to, "which is a private address, while the registry's own is public")
	}
	return nil
}

func pointsError(from, to, why string) error {
	return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("the registry %q points to %q, %s; this is not followed", from, to, why))
}

// addresses are those of a host. What has none here is for the transport to find out: a proxy may
// know it.
func (l LookupFunc) addresses(ctx context.Context, host string) []netip.Addr {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address.Unmap()}
	}
	found, err := l(ctx, host)
	if err != nil {
		return nil
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found
}

func lookupDNS(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// reserved are the addresses where clouds give machines their credentials, beside link-local ones.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("fd00:c1::/32"), netip.MustParsePrefix("fd20:ce::/32"),
}

func isReserved(a netip.Addr) bool {
	return a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() ||
		slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// sharedSpace is what providers and some network plugins use as private addresses (RFC 6598).
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

func isPrivate(a netip.Addr) bool { return a.IsPrivate() || a.IsLoopback() || sharedSpace.Contains(a) }

// MayBePlain reports whether a host may be asked without TLS: a loopback address may, and one of
// those that are allowed, which are hosts with a port, or without one for all of theirs.
func MayBePlain(host string, allowed []string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return isLoopback(name) || slices.Contains(allowed, host) || slices.Contains(allowed, name)
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && address.IsLoopback()
}

var errReserved = errors.New("clouds reserve this address for the machine itself, and it is never asked")

// DialContext connects to registries and webhooks, and to no address that clouds reserve for the
// machine itself, whatever name it has been given.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialPatience, Control: func(_, address string, _ syscall.RawConn) error {
		if found, err := netip.ParseAddrPort(address); err == nil && isReserved(found.Addr().WithZone("").Unmap()) {
			return errReserved
		}
		return nil
	}}
	return dialer.DialContext(ctx, network, address)
}

// dialPatience is how long a connection may take to be made.
const dialPatience = 10 * time.Second
