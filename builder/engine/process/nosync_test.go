//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package process

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// syncMark is the variable of the process that must not wait for the disk.
const syncMark = "LAYERWRIGHT_TEST_NOSYNC"

// TestABuildDoesNotWaitForTheDisk has another process ask for it, and a child of that: a filter
// can't be taken back. Calls that are made find out that there is no such file, those that do
// nothing say that all is well.
func TestABuildDoesNotWaitForTheDisk(t *testing.T) {
	const nothing = -1
	calls := map[string]func(int) error{"fsync": unix.Fsync, "fdatasync": unix.Fdatasync, "syncfs": unix.Syncfs}
	switch os.Getenv(syncMark) {
	case "":
		for name, call := range calls {
			require.ErrorIs(t, call(nothing), unix.EBADF, name)
		}
		runAgain(t, "parent")
	case "parent":
		require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "as in a pod")
		require.NoError(t, dontWaitForDisk())
		runAgain(t, "child")
	default:
		for name, call := range calls {
			require.NoError(t, call(nothing), name)
		}
		_, err := os.Open("/none")
		require.ErrorIs(t, err, os.ErrNotExist, "other calls are made")
	}
}

// runAgain runs the test that calls it in another process.
func runAgain(t *testing.T, as string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), syncMark+"="+as)
	output, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", output)
}
