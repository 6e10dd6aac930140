package nodestate

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWayBack(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	way := WayBack{Digest: "sha256:0123", After: 90 * time.Second, Booted: "bootc status --booted --format=json", Rollback: "bootc rollback"}
	require.NoError(t, h.CloseWayBack(), "there is none")
	require.NoError(t, h.LeaveWayBack(way))
	way.After = time.Minute
	require.NoError(t, h.LeaveWayBack(way), "it can be repeated, and changed")

	service, timer := get(t, root, wayBackService), get(t, root, wayBackTimer)
	assert.Contains(t, service, "ExecCondition=/bin/sh -c 'bootc status --booted --format=json | grep -qF sha256:0123'\nExecStart=bootc rollback\n")
	assert.Contains(t, service, "\nConditionPathExists="+wayBackService+"\n", "systemd keeps units whose files are gone")
	assert.Contains(t, timer, "\nOnActiveSec=60\n", "after a soft reboot, that of the boot is over")
	assert.Contains(t, service, "\nEnvironment=SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1\n")
	assert.Equal(t, timer, get(t, root, filepath.Dir(wayBackWanted)+"/../layerwright-return.timer"))
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", root+wayBackTimer).CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, h.CloseWayBack())
	for _, at := range []string{wayBackService, wayBackTimer, wayBackWanted} {
		assert.NoFileExists(t, root+at)
	}
}
