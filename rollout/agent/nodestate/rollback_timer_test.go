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
	digest, before := "sha256:"+strings.Repeat("0", 64), strings.Repeat("a", 64)+".0"
	way := RollbackTimer{Digest: digest, Before: before, After: 90 * time.Second}
	require.NoError(t, h.DisarmRollbackTimer(), "there is none")
	require.NoError(t, h.ArmRollbackTimer(way))
	way.After = time.Minute
	require.NoError(t, h.ArmRollbackTimer(way), "it can be repeated, and changed")
	for _, no := range []string{"", "sha256:0123", digest + "; reboot", digest + "\nExecStart=reboot", "%n" + digest} {
		require.ErrorContains(t, h.ArmRollbackTimer(RollbackTimer{Digest: no}), "is no digest", "systemd reads it")
	}
	for _, no := range []string{"../" + before, before + `" x`, "%n.0", "a.0\n"} {
		require.ErrorContains(t, h.ArmRollbackTimer(RollbackTimer{Digest: digest, Before: no}), "is no deployment", "systemd reads it")
	}

	service, timer := get(t, root, rollbackService), get(t, root, rollbackTimer)
	assert.Contains(t, service, "\nExecStart=/bin/sh "+rollbackScript+" "+digest+" \""+before+"\"\nRestart=on-failure\n")
	assert.Contains(t, service, "\nStartLimitIntervalSec=0\n", "it never gives up")
	assert.Contains(t, service, "\nConditionPathExists="+rollbackScript+"\n", "systemd keeps units whose files are gone")
	assert.Contains(t, timer, "\nOnActiveSec=60\n", "after a soft reboot, that of the boot is over")
	assert.Contains(t, service, "\nEnvironment=SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1\n")
	assert.Equal(t, string(returnScript), get(t, root, rollbackScript))
	assert.Equal(t, timer, get(t, root, filepath.Dir(rollbackWanted)+"/../layerwright-return.timer"))
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", root+rollbackTimer).CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, h.DisarmRollbackTimer())
	for _, at := range []string{rollbackService, rollbackScript, rollbackTimer, rollbackWanted} {
		assert.NoFileExists(t, root+at)
	}
}
