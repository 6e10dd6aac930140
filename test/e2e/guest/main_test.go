//go:build e2e

package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/test/guest"
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
	if os.Geteuid() != 0 {
		return 1, errors.New("these tests need root")
	}
	if err := guest.Check(); err != nil {
		return 1, fmt.Errorf("these tests boot virtual machines: %w, or run make deps", err)
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
	defer func() { err = errors.Join(err, cluster(ctx, "down")) }()
	if err := cluster(ctx, "up", "--guests", "1"); err != nil {
		return 1, err
	}
	return m.Run(), nil
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
