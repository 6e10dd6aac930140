package stack

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/gateway"
)

// Listen opens a listener in the cluster's network, at the address of its first
// node and a free port, where pods reach it. A socket stays in the network that
// it was made in.
func (status *Status) Listen(ctx context.Context) (listener net.Listener, err error) {
	err = status.inside(func() error {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp4", gateway.NodeAddress(1)+":0")
		return err
	})
	return listener, err
}

// Dial connects to an address in the cluster's network, as a process there would.
func (status *Status) Dial(ctx context.Context, network, address string) (connection net.Conn, err error) {
	err = status.inside(func() error {
		connection, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return connection, err
}

// Within is the beginning of a command that runs in the cluster's network and knows names as pods
// do.
func (status *Status) Within() ([]string, error) {
	namespace, err := status.network()
	if err != nil {
		return nil, err
	}
	return []string{
		"nsenter", "--net=" + namespace, "unshare", "--mount", "sh", "-c",
		`names=$(mktemp) && echo nameserver "$0" >"$names" && mount --bind "$names" /etc/resolv.conf && rm "$names" && exec "$@"`,
		gateway.NodeAddress(1),
	}, nil
}

// network is the file of the network's namespace.
func (status *Status) network() (string, error) {
	pid := 0
	for _, p := range status.Processes {
		if p.Name == gatewayName {
			pid = p.Pid
		}
	}
	if pid == 0 {
		return "", fmt.Errorf("cluster %q has no network of its own", status.Name)
	}
	return fmt.Sprintf("/proc/%d/ns/net", pid), nil
}

// inside does something in the cluster's network.
func (status *Status) inside(do func() error) error {
	path, err := status.network()
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine, and nothing else runs in its network
		done <- func() error {
			namespace, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = namespace.Close() }()
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return do()
		}()
	}()
	return <-done
}
