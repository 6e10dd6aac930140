//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// nobodyID is the user and group without rights.
const nobodyID = 65534

// nobody is a user without rights, with copies of what the program needs, because checkout and
// cache may not be readable to others.
type nobody struct {
	t   *testing.T
	dir string
	// path is where the user finds programs.
	path string
}

// newNobody also takes the cluster down at the end.
func newNobody(t *testing.T) *nobody {
	t.Helper()
	dir, err := os.MkdirTemp("", "lw-e2e-") //nolint:usetesting // t.TempDir is not accessible to others
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	n := &nobody{t: t, dir: dir, path: os.Getenv("PATH")}
	n.give("checkout/hack", filepath.Join(repository, "hack", "cluster"))
	n.give("program", program)
	n.give("cache", filepath.Join(cacheDir(t), "tools"))
	t.Cleanup(func() {
		r := n.run("down")
		require.Zero(t, r.code, r.stderr)
	})
	return n
}

func cacheDir(t *testing.T) string {
	t.Helper()
	return filepath.Dir(filepath.Dir(filepath.Dir(named(t, clusterName).Kubeconfig())))
}

// give copies files and folders into a folder of the user.
func (n *nobody) give(folder string, files ...string) {
	n.t.Helper()
	folder = filepath.Join(n.dir, folder)
	require.NoError(n.t, os.MkdirAll(folder, 0o755))
	for _, file := range files {
		out, err := exec.CommandContext(n.t.Context(), "cp", "--archive", file, folder).CombinedOutput()
		require.NoError(n.t, err, string(out))
	}
	out, err := exec.CommandContext(n.t.Context(), "chown", "--recursive", strconv.Itoa(nobodyID)+":"+strconv.Itoa(nobodyID), n.dir).CombinedOutput()
	require.NoError(n.t, err, string(out))
}

// run runs bin/cluster as the user, in the user's checkout.
func (n *nobody) run(args ...string) result {
	n.t.Helper()
	return finish(n.t, n.command(args...))
}

func (n *nobody) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(n.t.Context()), filepath.Join(n.dir, "program", "cluster"), args...)
	cmd.Dir = filepath.Join(n.dir, "checkout")
	cmd.Env = append(os.Environ(), "LAYERWRIGHT_CACHE="+filepath.Join(n.dir, "cache"), "HOME="+n.dir, "PATH="+n.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
	return cmd
}
