//go:build e2e

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/fixtures"
)

// isolated says that this process has mounts of its own.
const isolated = "LAYERWRIGHT_TEST_ISOLATED"

// importer is ostree-ext, skopeo the folder of what serves it, product the folder of our programs,
// and tiny the image that bases are made of.
var (
	importer, skopeo, product string
	tiny                      v1.Image
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs the tests in mounts of their own: /etc is that of a host, and nothing is left on the
// machine.
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
	logrus.SetOutput(io.Discard) // the registry logs what every client meets
	// Below /var/tmp is a disk, and no memory: ostree wants extended attributes.
	dir, err := os.MkdirTemp("/var/tmp", "layerwright-conformance-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := prepare(dir); err != nil {
		return 1, err
	}
	return m.Run(), unix.Unmount("/etc", unix.MNT_DETACH)
}

func prepare(dir string) error {
	repository, err := toolchain.RepositoryRoot(".")
	if err != nil {
		return err
	}
	product = filepath.Join(repository, "bin")
	bin, err := toolchain.FindHere(context.Background(), toolchain.OSTreeExt)
	if err != nil {
		return err
	}
	importer, skopeo = filepath.Join(bin, toolchain.OSTreeExt.Programs()[0]), filepath.Join(dir, "skopeo")
	cmd := exec.Command("make", "--no-print-directory", "skopeo-binary", "OUT="+filepath.Join(skopeo, "skopeo"))
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling what stands in for skopeo: %w\n%s", err, out)
	}
	if tiny, err = tinyImage(); err != nil {
		return err
	}
	return mountEtc(dir)
}

func tinyImage() (v1.Image, error) {
	cache, err := toolchain.CacheDir()
	if err != nil {
		return nil, err
	}
	maker, err := fixtures.New(fixtures.Options{CacheDir: cache, Streams: []fixtures.Stream{fixtures.RHEL9}})
	if err != nil {
		return nil, err
	}
	set, err := maker.Build(context.Background(), fixtures.Tiny)
	if err != nil {
		return nil, err
	}
	return set.OS[fixtures.RHEL9]["amd64"], nil
}

// mountEtc makes /etc one that can be changed.
func mountEtc(dir string) error {
	upper, work := filepath.Join(dir, "etc"), filepath.Join(dir, "work")
	for _, folder := range []string{upper, work} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
	}
	// The importer is served by a user without rights.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir="+upper+",workdir="+work)
}
