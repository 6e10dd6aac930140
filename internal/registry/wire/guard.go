package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// Guard refuses requests that a registry, or whoever writes its name into an object, must not have
// this program make.
type Guard struct {
	Pointers

	Next      http.RoundTripper
	PlainHTTP []string
}

// LookupFunc finds the addresses of a host.
type LookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

// Asking says with each request which registry it is made for, and with which account.
type Asking struct {
	Registry string
	// Account identifies the credentials; empty for none.
	Account string
	Next    http.RoundTripper

	// isPublic reports whether the registry was reached at an address that is not private. What DNS
	// says of it may be something else each time.
	isPublic atomic.Bool
}

// askingKey is the key of a request's Asking in its context.
type askingKey struct{}

// RoundTrip adds itself.
func (a *Asking) RoundTrip(request *http.Request) (*http.Response, error) {
	return a.Next.RoundTrip(request.WithContext(context.WithValue(request.Context(), askingKey{}, a)))
}

// askingOf is what a request is made for; empty where no one said it.
func askingOf(request *http.Request) *Asking {
	if asking, ok := request.Context().Value(askingKey{}).(*Asking); ok {
		return asking
	}
	return &Asking{Registry: request.URL.Host}
}

// RoundTrip refuses to follow a registry into networks that only this program reaches, and asks
// with TLS where plain HTTP was not allowed: go-containerregistry would try both with every private
// address.
func (g *Guard) RoundTrip(request *http.Request) (*http.Response, error) {
	asking := askingOf(request)
	checked, refusal, err := g.check(request, asking)
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // a transport's duty
		}
		return nil, err
	}
	if checked.URL.Scheme == "http" && !MayBePlain(checked.URL.Host, g.PlainHTTP) {
		encrypted := *checked
		encrypted.URL = new(*checked.URL)
		encrypted.URL.Scheme = "https"
		checked = &encrypted
	}
	response, err := g.Next.RoundTrip(checked)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		err = fmt.Errorf("%w; give the registry %q a certificate, or allow it to have none with --plain-http-registry",
			err, request.URL.Host)
	case err != nil && (errors.Is(err, errPrivate) || refusal.Load()):
		err = pointsError(asking.Registry, request.URL.Host, isPrivateText)
	}
	return response, err
}

// check looks at each request for a host that is not the registry's own: by a redirect, by the
// realm of its token service, by the place of an upload or the URL of a layer the registry may name
// any. Which addresses are reached in the end is known when they are: DNS may have other answers
// then. The request that it returns is refused at that time.
func (g *Guard) check(request *http.Request, asking *Asking) (checked *http.Request, refused *atomic.Bool, err error) {
	refused = &atomic.Bool{}
	ctx, isProxied := request.Context(), isProxied(request)
	if asking.Registry == request.URL.Host {
		asking.isPublic.CompareAndSwap(false, isProxied) // what a proxy reaches is not known here
		trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
			if address, ok := remoteOf(got.Conn); ok && !isPrivate(address) {
				asking.isPublic.Store(true)
			}
		}}
		return request.WithContext(httptrace.WithClientTrace(ctx, trace)), refused, nil
	}
	isPublic, err := g.follow(ctx, asking.Registry, request.URL.Host, asking.isPublic.Load())
	if err != nil || !isPublic || isProxied {
		return request, refused, err
	}
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { // it may be one that another request made
		if address, ok := remoteOf(got.Conn); ok && isPrivate(address) {
			refused.Store(true)
			_ = got.Conn.Close()
		}
	}}
	return request.WithContext(httptrace.WithClientTrace(context.WithValue(ctx, publicKey{}, true), trace)), refused, nil
}

func isProxied(request *http.Request) bool {
	proxy, err := http.ProxyFromEnvironment(request)
	return err == nil && proxy != nil
}

func remoteOf(connection net.Conn) (netip.Addr, bool) {
	if connection == nil || connection.RemoteAddr() == nil {
		return netip.Addr{}, false
	}
	found, err := netip.ParseAddrPort(connection.RemoteAddr().String())
	return found.Addr(), err == nil
}

// Pointers decide where registries may point to.
type Pointers struct {
	// Lookup finds the addresses of hosts; nil asks DNS.
	Lookup LookupFunc
	// PrivateStorage are registries, as hosts with or without a port, that may point to private
	// addresses though their own are public.
	PrivateStorage []string
}

// Check refuses to follow a registry to a host, each with or without a port, that clouds reserve
// for the machine itself, or from a public registry into private networks.
func (p *Pointers) Check(ctx context.Context, registry, host string) error {
	if registry == host {
		return nil
	}
	_, err := p.follow(ctx, registry, host, false)
	return err
}

// follow is Check, which also reports whether the registry is a public one that may not point to
// private addresses. It is private only if all of its addresses are.
func (p *Pointers) follow(ctx context.Context, registry, host string, wasPublic bool) (isPublic bool, err error) {
	lookup := p.Lookup
	if lookup == nil {
		lookup = lookupDNS
	}
	from, to := (&url.URL{Host: registry}).Hostname(), (&url.URL{Host: host}).Hostname()
	addresses := lookup.addresses(ctx, to)
	if slices.ContainsFunc(addresses, isReserved) {
		return true, pointsError(from, to, "which is an address that clouds reserve for the machine itself")
	}
	if slices.Contains(p.PrivateStorage, registry) || slices.Contains(p.PrivateStorage, from) {
		return false, nil
	}
	if !wasPublic {
		own := lookup.addresses(ctx, from)
		if len(own) > 0 && !slices.ContainsFunc(own, func(a netip.Addr) bool { return !isPrivate(a) }) {
			return false, nil
		}
	}
	if slices.ContainsFunc(addresses, isPrivate) {
		return true, pointsError(from, to, isPrivateText)
	}
	return true, nil
}

const isPrivateText = "which is a private address, while the registry's own is public"

func pointsError(from, to, why string) error {
	return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf(
		"the registry %q points to %q, %s; this is not followed. Where it is right, start the controller with --private-storage-registry", from, to, why))
}

// addresses are those of a host. What has none here is for the transport to find out: a proxy may
// know it.
func (l LookupFunc) addresses(ctx context.Context, host string) []netip.Addr {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}
	}
	found, err := l(ctx, host)
	if err != nil {
		return nil
	}
	return found
}

func lookupDNS(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

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

// What is not connected to.
var (
	errReserved = errors.New("clouds reserve this address for the machine itself, and it is never asked")
	errPrivate  = errors.New("a registry with a public address points to this private one")
)

// IsRefusal reports whether this program did not want to connect.
func IsRefusal(err error) bool { return errors.Is(err, errReserved) || errors.Is(err, errPrivate) }

// publicKey is the key of requests that may reach no private address.
type publicKey struct{}

// DialContext connects to registries and webhooks, and to no address that clouds reserve for the
// machine itself, whatever name it has been given.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialPatience, Control: func(_, address string, _ syscall.RawConn) error {
		found, err := netip.ParseAddrPort(address)
		switch {
		case err == nil && isReserved(found.Addr()):
			return errReserved
		case err == nil && ctx.Value(publicKey{}) != nil && isPrivate(found.Addr()):
			return errPrivate
		}
		return nil
	}}
	return dialer.DialContext(ctx, network, address)
}

// dialPatience is how long a connection may take to be made.
const dialPatience = 10 * time.Second
