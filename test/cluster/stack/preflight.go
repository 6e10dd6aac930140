package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/freeport"
	"github.com/layerwright/layerwright/test/cluster/node"
)

// facts are what the machine must offer for a cluster with nodes.
type facts struct {
	uid         int
	fileSystems []string
	// programs maps what must be installed to the error of looking for it.
	programs map[string]error
	// namespaces and cgroups are errors of using them, or nil.
	namespaces, cgroups error
}

// UnsupportedError says why the machine can't run a cluster with nodes.
type UnsupportedError struct{ Reason string }

func (e *UnsupportedError) Error() string {
	return "a cluster with nodes can't run here: " + e.Reason + "; `cluster up --control-plane-only` needs none of this and still works"
}

// judge returns the first thing that is missing, as one line.
func (f facts) judge() error {
	if f.uid != 0 {
		return &UnsupportedError{Reason: fmt.Sprintf("it needs root and this is user %d (try sudo)", f.uid)}
	}
	for program, err := range f.programs {
		if err != nil {
			return &UnsupportedError{Reason: fmt.Sprintf("the program %s is missing (`make deps` installs it)", program)}
		}
	}
	for _, fs := range []string{"overlay", "tmpfs", "mqueue", "proc"} {
		if !slices.Contains(f.fileSystems, fs) {
			return &UnsupportedError{Reason: fmt.Sprintf("the kernel has no %s file system", fs)}
		}
	}
	if f.namespaces != nil {
		return &UnsupportedError{Reason: fmt.Sprintf("no network or mount namespace can be made: %v", f.namespaces)}
	}
	if f.cgroups != nil {
		return &UnsupportedError{Reason: f.cgroups.Error()}
	}
	return nil
}

// look gathers the facts of this machine.
func look() (facts, error) {
	f := facts{uid: os.Geteuid(), programs: map[string]error{}}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return f, fmt.Errorf("reading the kernel's file systems: %w", err)
	}
	for line := range strings.Lines(string(known)) {
		fields := strings.Fields(line)
		f.fileSystems = append(f.fileSystems, fields[len(fields)-1])
	}
	_, f.programs["nft"] = exec.LookPath("nft")
	_, f.cgroups = node.DetectCgroups()
	if f.uid == 0 {
		f.namespaces = tryNamespaces()
	}
	return f, nil
}

// tryNamespaces moves a thread, which ends after that, into new namespaces.
func tryNamespaces() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	}()
	return <-result
}

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

// choosePort returns a port that is free now.
func choosePort(preferred int, demanded bool) (int, error) {
	l, err := listenLoopback(preferred, demanded)
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// handedListener opens a port just before the process that gets it starts.
func handedListener(port int) func() ([]*os.File, error) {
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
