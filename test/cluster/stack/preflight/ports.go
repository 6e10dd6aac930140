package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/freeport"
)

// listenLoopback opens a port of the host: the preferred one, or any if that
// is taken and not demanded.
func listenLoopback(preferred int, demanded bool) (*net.TCPListener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred)))
	if err != nil && !demanded {
		return freeport.Listen(context.Background(), "127.0.0.1")
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of 127.0.0.1 is occupied: end what listens there (`ss -ltnp 'sport = :%d'` names it), or `cluster down` and up again to use another", preferred, preferred)
	}
	if err != nil {
		return nil, fmt.Errorf("listening on port %d of 127.0.0.1: %w", preferred, err)
	}
	return l.(*net.TCPListener), nil
}

// ChoosePort returns a port of the host that is free now: the preferred one, or any if that is
// taken and not demanded.
func ChoosePort(preferred int, demanded bool) (int, error) {
	l, err := listenLoopback(preferred, demanded)
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// HandedListener opens a port of the host just before the process that gets it starts.
func HandedListener(port int) func() ([]*os.File, error) {
	return func() ([]*os.File, error) {
		l, err := listenLoopback(port, true)
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		f, err := l.File()
		return []*os.File{f}, err
	}
}
