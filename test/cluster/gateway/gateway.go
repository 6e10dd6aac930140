package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/vishvananda/netlink"
)

const (
	// bridgeName is the link that carries the addresses of the nodes. A bridge
	// without ports works on kernels that have no dummy links.
	bridgeName = "lw0"
	prefix     = 24
)

// NodeAddress is the address of a cluster's n-th node, counted from 1. Each
// cluster has a namespace of its own, so all use the same addresses.
func NodeAddress(n int) string { return fmt.Sprintf("10.250.0.%d", n) }

// MaxNodes is how many nodes have an address.
const MaxNodes = 200

// Configure sets up the network namespace that the caller is in: loopback, and
// one address for each node.
func Configure(nodes int) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("starting the loopback interface: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeName
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("creating bridge %s (kernel feature bridge): %w", bridgeName, err)
	}
	for n := 1; n <= nodes; n++ {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(NodeAddress(n)), Mask: net.CIDRMask(prefix, 32)}}
		if err := netlink.AddrAdd(bridge, address); err != nil {
			return fmt.Errorf("adding address %s: %w", address, err)
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("starting bridge %s: %w", bridgeName, err)
	}
	// Components look for a default route to learn their own address. This one
	// leads to no one.
	route := &netlink.Route{LinkIndex: bridge.Index, Gw: net.ParseIP("10.250.0.254")}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("adding the default route: %w", err)
	}
	return nil
}

// Forward carries every connection of the listener to target, until ctx ends.
func Forward(ctx context.Context, listener net.Listener, target string) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		go carry(ctx, conn, target)
	}
}

func carry(ctx context.Context, outside net.Conn, target string) {
	defer func() { _ = outside.Close() }()
	inside, err := new(net.Dialer).DialContext(ctx, "tcp4", target)
	if err != nil {
		return // the client sees its connection closed, as without a server
	}
	defer func() { _ = inside.Close() }()
	both := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			both <- struct{}{}
		}()
	}
	<-both
	<-both
}
