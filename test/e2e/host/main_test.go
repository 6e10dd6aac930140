//go:build e2e

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// isolated says that this process has mounts of its own.
const isolated = "LAYERWRIGHT_TEST_ISOLATED"

// standIn is the program under test.
var standIn string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "host:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs the tests in mounts of their own, so that nothing is left on the machine.
func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("these tests need root")
	}
	if os.Getenv(isolated) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stderr, append(os.Environ(), isolated+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		exit := (*exec.ExitError)(nil)
		if errors.As(err, &exit) {
			return exit.ExitCode(), nil
		}
		return 0, err
	}
	repository, err := toolchain.RepositoryRoot(".")
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "host-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	standIn = filepath.Join(dir, "standin")
	cmd := exec.Command("make", "--no-print-directory", "host-binary", "OUT="+standIn)
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("compiling the stand-in: %w\n%s", err, out)
	}
	return m.Run(), nil
}
