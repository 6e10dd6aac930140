//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// clusterName is the cluster that most tests share.
const clusterName = "e2e"

// repository is the checkout under test, program its bin/cluster.
var repository, program string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// run brings the shared cluster up, runs the tests, and sees to it that down
// leaves the machine as it was.
func run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("these tests need root")
	}
	if repository, err = toolchain.RepositoryRoot("."); err != nil {
		return 1, err
	}
	program = filepath.Join(repository, "bin", "cluster")
	// Clusters of a run that was killed would fail this one, because their objects outlive it.
	for _, name := range []string{clusterName, second, streamsCluster, archCluster, mortal} {
		if err := command(context.Background(), "down", "--name", name); err != nil {
			return 1, err
		}
	}
	before, err := lookAtHost()
	if err != nil {
		return 1, err
	}
	if err := command(context.Background(), "up"); err != nil {
		return 1, err
	}
	// Tests that run side by side mostly wait for the cluster. More of them than this make a small
	// machine miss deadlines.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, 4*runtime.NumCPU()))); err != nil {
		return 1, err
	}
	code = m.Run()
	if err := command(context.Background(), "down"); err != nil {
		return 1, err
	}
	after, err := lookAtHost()
	if err != nil {
		return 1, err
	}
	if diff := cmp.Diff(before, after); diff != "" {
		return 1, fmt.Errorf("down left the machine different (-before +after):\n%s", diff)
	}
	return code, nil
}

// command runs bin/cluster on the shared cluster, visibly.
func command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, program, append([]string{"--name", clusterName}, args...)...)
	cmd.Dir = repository
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cluster %v: %w", args, err)
	}
	return nil
}

// result is how a run of bin/cluster ended.
type result struct {
	stdout, stderr string
	code           int
}

// cluster runs bin/cluster with arguments of the test's own.
func cluster(t *testing.T, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = repository
	return finish(t, cmd)
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	stdout, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) {
		return result{stdout: string(stdout), stderr: string(exit.Stderr), code: exit.ExitCode()}
	}
	require.NoError(t, err)
	return result{stdout: string(stdout)}
}

// mustCluster is cluster for what has to succeed.
func mustCluster(t *testing.T, args ...string) string {
	t.Helper()
	r := cluster(t, args...)
	require.Zero(t, r.code, "cluster %v:\n%s%s", args, r.stdout, r.stderr)
	return r.stdout
}

func shared(t *testing.T) *stack.Stack {
	t.Helper()
	return named(t, clusterName)
}

func named(t *testing.T, name string) *stack.Stack {
	t.Helper()
	cache, err := toolchain.CacheDir()
	require.NoError(t, err)
	s, err := stack.New(repository, cache, name)
	require.NoError(t, err)
	return s
}

func config(t *testing.T) *rest.Config {
	t.Helper()
	c, err := shared(t).Config()
	require.NoError(t, err)
	return c
}

func clients(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config(t))
	require.NoError(t, err)
	return c
}
