//go:build e2e

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/stack/guests"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

const (
	// clusterName is a cluster of these tests' own, and nodeName its guest.
	clusterName = "e2e-guest"
	nodeName    = "guest1"
)

// playground is the cluster, program what brings it up and takes it down, in the folder repository.
var (
	playground          *stack.Stack
	repository, program string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e/guest:", err)
		code = 1
	}
	os.Exit(code)
}

// run brings the cluster up, runs the tests, and removes it whatever became of them.
func run(m *testing.M) (code int, err error) {
	if err := canRun(); err != nil {
		if os.Getenv("CI") != "" {
			return 1, err
		}
		fmt.Fprintln(os.Stderr, "SKIPPED:", err)
		return 0, nil
	}
	if repository, err = toolchain.RepositoryRoot("."); err != nil {
		return 1, err
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		return 1, err
	}
	if playground, err = stack.New(repository, cache, clusterName); err != nil {
		return 1, err
	}
	program = filepath.Join(repository, "bin", "cluster")
	ctrl.SetLogger(logr.Discard())
	ctx := context.Background()
	// One of a run that was killed goes first.
	if err := cluster(ctx, "down"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster(ctx, "down"), leftovers()) }()
	if err := cluster(ctx, "up", "--guests", "1"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// canRun is why these tests can't run here; nil where they can.
func canRun() error {
	if os.Geteuid() != 0 {
		return errors.New("tests that boot virtual machines need root")
	}
	if err := guests.Check(); err != nil {
		return fmt.Errorf("%w, or run make deps", err)
	}
	return nil
}

// leftovers are what a cluster that is down has left on this machine: its folder with the disks of
// guests, mounts, and processes, QEMU's among them. None is right, whatever the tests have done.
func leftovers() error {
	var left []string
	if _, err := os.Stat(playground.Dir()); !errors.Is(err, fs.ErrNotExist) {
		left = append(left, playground.Dir())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, playground.Dir()) {
			left = append(left, "mount "+strings.Fields(line)[4])
		}
	}
	// Everything of a cluster names its folder, in its environment or on its command line.
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && bytes.Contains(text, []byte(playground.Dir()+"/")) { // others have ended
				left = append(left, file)
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("the cluster is down, and left: %q", left)
	}
	return nil
}

// cluster runs bin/cluster, visibly.
func cluster(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, program, append([]string{"--name", clusterName}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = repository, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cluster %v: %w", args, err)
	}
	return nil
}
