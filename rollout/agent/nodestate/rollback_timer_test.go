package nodestate

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRollbackTimer(t *testing.T) {
	t.Parallel()
	root, h := newHost(t)
	digest := "sha256:" + strings.Repeat("0", 64)
	way := RollbackTimer{Digest: digest, After: 90 * time.Second, Booted: "bootc status --booted --format=json", Rollback: "bootc rollback"}
	require.NoError(t, h.DisarmRollbackTimer(), "there is none")
	require.NoError(t, h.ArmRollbackTimer(way))
	way.After = time.Minute
	require.NoError(t, h.ArmRollbackTimer(way), "it can be repeated, and changed")
	for _, no := range []string{"", "sha256:0123", digest + "; reboot", digest + "\nExecStart=reboot", "%n" + digest} {
		require.ErrorContains(t, h.ArmRollbackTimer(RollbackTimer{Digest: no}), "is no digest", "a shell and systemd read it")
	}

	service, timer := get(t, root, rollbackService), get(t, root, rollbackTimer)
	assert.Contains(t, service, "ExecCondition=/bin/sh -c 'bootc status --booted --format=json | grep -qF "+digest+"'\nExecStart=bootc rollback\n")
	assert.Contains(t, service, "\nConditionPathExists="+rollbackService+"\n", "systemd keeps units whose files are gone")
	assert.Contains(t, timer, "\nOnActiveSec=60\n", "after a soft reboot, that of the boot is over")
	assert.Contains(t, service, "\nEnvironment=SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1\n")
	assert.Equal(t, timer, get(t, root, filepath.Dir(rollbackWanted)+"/../layerwright-return.timer"))
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", root+rollbackTimer).CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, h.DisarmRollbackTimer())
	for _, at := range []string{rollbackService, rollbackTimer, rollbackWanted} {
		assert.NoFileExists(t, root+at)
	}
}
