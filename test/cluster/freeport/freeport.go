package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// The ports to choose from. The kernel's own range begins at 32768.
const (
	first = 10000
	last  = 29999
)

// tries is how many ports are tried.
const tries = 100

// Listen listens on a free port of an IPv4 address.
func Listen(ctx context.Context, host string) (*net.TCPListener, error) {
	var err error
	for range tries {
		port := first + rand.IntN(last-first+1) //nolint:gosec // not a secret
		var l net.Listener
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return l.(*net.TCPListener), nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, fmt.Errorf("looking for a free port of %s: %w", host, err)
}
