package preflight

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

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

// Check looks at this machine and returns the first thing that is missing, as an *UnsupportedError.
func Check() error {
	f, err := look()
	if err != nil {
		return err
	}
	return f.judge()
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
