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
func (status *Status) Listen(ctx context.Context) (net.Listener, error) {
	pid := 0
	for _, p := range status.Processes {
		if p.Name == gatewayName {
			pid = p.Pid
		}
	}
	if pid == 0 {
		return nil, fmt.Errorf("cluster %q has no network of its own", status.Name)
	}
	type opened struct {
		listener net.Listener
		err      error
	}
	made := make(chan opened)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine, and nothing else runs in its network
		var o opened
		defer func() { made <- o }()
		namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			o.err = err
			return
		}
		defer func() { _ = namespace.Close() }()
		if o.err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); o.err == nil {
			o.listener, o.err = new(net.ListenConfig).Listen(ctx, "tcp4", gateway.NodeAddress(1)+":0")
		}
	}()
	o := <-made
	return o.listener, o.err
}
