//go:build e2e

package host

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/rollout/agent/kargs"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	rollouthost "github.com/layerwright/layerwright/rollout/host"
	"github.com/layerwright/layerwright/test/host/power"
)

// errDone ends the wait for a reboot.
var errDone = errors.New("done")

// TestHost tells the life of a host: installed, updated, rolled back.
func TestHost(t *testing.T) {
	for _, mode := range []rollouthost.Mode{rollouthost.ModeBootc, rollouthost.ModeRPMOSTree} {
		t.Run(string(mode), func(t *testing.T) { testLife(t, mode) })
	}
}

func testLife(t *testing.T, mode rollouthost.Mode) { //nolint:thelper // a case, not a helper
	w := newWorld(t)
	next := w.sign(w.push("worker", w.with(w.base, map[string]string{"etc/lw.conf": "from the image\n", "usr/lib/lw": "1\n"}, "etc/chrony.conf")))
	w.install()
	w.boot()
	agent := w.agent(mode)
	at, err := agent.Status(t.Context())
	require.NoError(t, err)
	require.Nil(t, at.Staged)
	require.Equal(t, digestOf(t, w), at.Booted.Digest)
	require.Equal(t, "boot-1", w.sh("cat /proc/sys/kernel/random/boot_id"))
	require.Contains(t, w.sh("cat /proc/cmdline"), "console=ttyS0")
	w.sh("! touch /usr/x 2>/dev/null; ! touch /sysroot/x 2>/dev/null; ! touch /x 2>/dev/null; echo edit >> /etc/motd; echo keep > /var/persist")

	require.NoError(t, agent.Stage(t.Context(), mcfgv1.ImageDigestFormat(next), rollouthost.TrustSignature))
	line, err := agent.KernelArguments(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"rw", "console=ttyS0"}, line)
	huge := []string{"hugepagesz=1G", "hugepages=16", "hugepagesz=2M", "hugepages=16", `dyndbg="file drivers/usb/* +p"`, `kvm.dyndbg="file virt/kvm/* +p"`}
	require.NoError(t, agent.SetKernelArguments(t.Context(), rollouthost.ArgumentChange{From: line, To: slices.Concat([]string{"rw", "lw.test=1"}, huge)}))
	at, err = agent.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, next, at.Staged.Image)
	require.Equal(t, mcfgv1.ImageDigestFormat(next).Digest(), at.Staged.Digest)
	require.Empty(t, w.sh("ls /etc/lw.conf 2>/dev/null || true"), "it is not booted")

	w.reboot()
	at, err = agent.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, next, at.Booted.Image)
	require.Equal(t, digestOf(t, w), at.Rollback.Digest)
	require.Equal(t, "from the image\nkeep\nedit", w.sh("cat /etc/lw.conf /var/persist; tail -n 1 /etc/motd"))
	require.Empty(t, w.sh("ls /etc/chrony.conf 2>/dev/null || true"), "the image removes it")
	require.Contains(t, w.sh("cat /proc/cmdline"), "lw.test=1 "+strings.Join(huge, " "))
	require.NotContains(t, w.sh("cat /proc/cmdline"), "console=ttyS0")
	require.Equal(t, "boot-2", w.sh("cat /proc/sys/kernel/random/boot_id"))

	require.NoError(t, agent.Rollback(t.Context()))
	at, err = agent.Status(t.Context())
	require.NoError(t, err)
	require.True(t, at.RollbackQueued)
	w.reboot()
	at, err = agent.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, digestOf(t, w), at.Booted.Digest)
	require.Equal(t, next, at.Rollback.Image)

	third := w.sign(w.push("worker", w.with(w.base, map[string]string{"etc/lw.conf": "third\n"})))
	require.NoError(t, agent.Stage(t.Context(), mcfgv1.ImageDigestFormat(third), rollouthost.TrustSignature))
	w.reboot()
	require.Equal(t, "third", w.sh("cat /etc/lw.conf"), "an image after a rollback")
}

// TestKernelArgumentsWithoutRPMOSTree has bootc track the agent's arguments: alone, and on top of
// an image that is staged.
func TestKernelArgumentsWithoutRPMOSTree(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.Remove(filepath.Join(w.machine.Tools, "usr/bin/rpm-ostree")))
	next := w.sign(w.push("worker", w.with(w.base, map[string]string{"etc/lw.conf": "next\n"})))
	w.install()
	w.boot()
	agent := w.agent(rollouthost.ModeAuto)
	var record kargs.Record
	change := func(want ...string) rollouthost.ArgumentChange {
		line, err := agent.KernelArguments(t.Context())
		require.NoError(t, err)
		return rollouthost.ArgumentChange{From: line, To: record.Plan(line, cmdline.Arguments{}, cmdline.Join[string](nil, nil, want))}
	}
	set := func(want ...string) {
		c := change(want...)
		require.NoError(t, agent.CheckKernelArguments(t.Context(), c))
		require.NoError(t, agent.SetKernelArguments(t.Context(), c))
		require.True(t, change(want...).IsEmpty(), "what is staged has them")
	}
	requireBooted := func(line string) {
		require.Equal(t, "rw console=ttyS0"+line, regexp.MustCompile(` ?ostree=\S+`).ReplaceAllString(w.sh("cat /proc/cmdline"), ""))
	}
	set("a=1", `b="c d"`)
	w.reboot()
	requireBooted(` a=1 b="c d"`)
	require.Contains(t, w.sh("cat /boot/loader/entries/*.conf"), `x-options-source-layerwright a=1 b="c d"`)

	set("a=2", "b")
	set(`b`, "a=2") // at once
	w.reboot()
	requireBooted(" b a=2")

	require.NoError(t, agent.Stage(t.Context(), mcfgv1.ImageDigestFormat(next), rollouthost.TrustSignature))
	set("a=2", "b", "c")
	require.NoError(t, agent.Lock(t.Context()))
	at, err := agent.Status(t.Context())
	require.NoError(t, err)
	require.True(t, at.Staged.Locked, "bootc status says downloadOnly")
	require.NoError(t, agent.Unlock(t.Context()))
	w.reboot()
	require.Equal(t, "next", w.sh("cat /etc/lw.conf"))
	requireBooted(" a=2 b c")

	twice := change("p=1G", "n=16", "p=2M", "n=16")
	require.ErrorContains(t, agent.CheckKernelArguments(t.Context(), twice), "its bootc 1.16 keeps each argument once, and n would be there twice")
	require.Error(t, agent.SetKernelArguments(t.Context(), twice))
	at, err = agent.Status(t.Context())
	require.NoError(t, err)
	require.Nil(t, at.Staged)

	set()
	w.reboot()
	requireBooted("")
	first := w.sh("grep -l ^version.*$(grep -h ^version /boot/loader/entries/*.conf | sort -k2 -n | tail -n 1 | cut -d' ' -f2) /boot/loader/entries/*.conf")
	require.NotContains(t, w.sh("cat "+first), "x-options-source")
}

// TestReturnWithoutPrograms has the host return by the boot loader's entries alone, and ostree and
// bootc go on from there.
func TestReturnWithoutPrograms(t *testing.T) {
	w := newWorld(t)
	next := w.sign(w.push("worker", w.with(w.base, map[string]string{"etc/lw.conf": "next\n"})))
	w.install()
	w.boot()
	agent := w.agent(rollouthost.ModeBootc)
	at, err := agent.Status(t.Context())
	require.NoError(t, err)
	files := nodestate.Open(w.machine.Root())
	require.NoError(t, files.ArmRollbackTimer(nodestate.RollbackTimer{
		Digest: mcfgv1.ImageDigestFormat(next).Digest(), Before: at.Booted.Checkout, After: time.Minute,
	}))
	// Busybox has what the script calls; the programs that roll back are not in its path.
	const script = `mkdir -p /tmp/bin && cd /tmp/bin && for tool in ln mv readlink rm sleep sync timeout; do ln -sf /usr/bin/busybox $tool; done
printf '#!/usr/bin/busybox sh\nrm /etc/systemd/system/layerwright-return.sh\n' >systemctl && printf '#!/usr/bin/busybox sh\n' >mount && chmod 755 systemctl mount
busybox mount -o remount,bind,rw /sysroot; busybox mount -o remount,bind,rw /boot || true
cd / && eval "$(busybox sed -n 's|^ExecStart=/bin/sh|PATH=/tmp/bin exec /usr/bin/busybox sh|p' /etc/systemd/system/layerwright-return.service)"`
	require.Contains(t, w.sh(script), "nothing to do: ostree/deploy/default/deploy/"+at.Booted.Checkout+" runs")

	require.NoError(t, agent.Stage(t.Context(), mcfgv1.ImageDigestFormat(next), rollouthost.TrustSignature))
	w.reboot()
	require.Equal(t, "next", w.sh("cat /etc/lw.conf"))
	require.Contains(t, w.sh(script), "returning from")
	w.reboot()
	back, err := agent.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, at.Booted, back.Booted)
	require.Equal(t, next, back.Rollback.Image)

	third := w.sign(w.push("worker", w.with(w.base, map[string]string{"etc/lw.conf": "third\n"})))
	require.NoError(t, agent.Stage(t.Context(), mcfgv1.ImageDigestFormat(third), rollouthost.TrustSignature))
	w.reboot()
	require.Equal(t, "third", w.sh("cat /etc/lw.conf"))
}

func digestOf(tb testing.TB, w *world) string {
	tb.Helper()
	digest, err := w.base.Digest()
	require.NoError(tb, err)
	return digest.String()
}

// TestFaults has each way in which a host can fail, and that it works again after it.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.install()
	w.boot()
	agent := w.agent(rollouthost.ModeAuto)
	stage := func(image string) error {
		return agent.Stage(t.Context(), mcfgv1.ImageDigestFormat(image), rollouthost.TrustSignature)
	}
	requireStaged := func(t *testing.T, image string) {
		t.Helper()
		at, err := agent.Status(t.Context())
		require.NoError(t, err)
		if image == "" {
			require.Nil(t, at.Staged)
			return
		}
		require.Equal(t, image, at.Staged.Image)
	}
	unsigned := w.push("worker", w.with(w.base, map[string]string{"etc/a": "unsigned\n"}))

	t.Run("an image without a signature is refused", func(t *testing.T) {
		require.ErrorContains(t, stage(unsigned), "A signature was required, but no signature exists")
		requireStaged(t, "")
	})
	image := w.sign(unsigned)
	t.Run("a full disk is named in ostree's words", func(t *testing.T) {
		require.NoError(t, w.machine.Line.Set(power.DiskFull))
		require.ErrorContains(t, stage(image), "would be exceeded")
		requireStaged(t, "")
	})
	t.Run("a connection that breaks is named", func(t *testing.T) {
		require.NoError(t, w.machine.Line.Set(power.PullCut))
		require.ErrorContains(t, stage(image), "connection reset by peer")
		requireStaged(t, "")
	})
	for _, mode := range []rollouthost.Mode{rollouthost.ModeBootc, rollouthost.ModeRPMOSTree} {
		t.Run("what is staged can be taken back by "+string(mode), func(t *testing.T) {
			require.NoError(t, w.machine.Line.Set())
			require.NoError(t, stage(image))
			requireStaged(t, image)
			require.NoError(t, w.agent(mode).Unstage(t.Context(), mcfgv1.ImageDigestFormat(image)))
			requireStaged(t, "")
		})
	}
	t.Run("what is staged and locked does not boot", func(t *testing.T) {
		finalization := rollouthost.FinalizationIn(w.machine.Root())
		can, err := finalization.CanLock()
		require.NoError(t, err)
		require.True(t, can)
		require.NoError(t, finalization.Lock())
		require.NoError(t, stage(image))
		requireStaged(t, image)
		w.reboot()
		at, err := agent.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, digestOf(t, w), at.Booted.Digest)
		requireStaged(t, "")
		isLocked, err := finalization.IsLocked()
		require.NoError(t, err)
		require.False(t, isLocked, "it lasts for a boot")
	})
	t.Run("what is staged can get lost", func(t *testing.T) {
		require.NoError(t, stage(image))
		require.NoError(t, w.machine.Line.Set(power.OldImage))
		w.reboot()
		at, err := agent.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, digestOf(t, w), at.Booted.Digest)
		require.NoError(t, w.machine.Line.Set())
	})
	t.Run("a reboot is asked of who owns the machine", func(t *testing.T) {
		require.ErrorContains(t, agent.Reboot(t.Context(), "a test"), "no one watches over this host")
		asked := make(chan string)
		go func() {
			_ = w.machine.Line.Wait(func(what string) error { asked <- what; return errDone })
		}()
		require.EventuallyWithT(t, func(c *assert.CollectT) { require.NoError(c, agent.Reboot(t.Context(), "a test")) }, time.Minute, 10*time.Millisecond)
		require.Equal(t, power.Reboot, <-asked)
	})
	t.Run("an image without a kernel can't be staged", func(t *testing.T) {
		kernels := w.sh("ls /usr/lib/modules")
		broken := w.sign(w.push("worker", w.with(w.base, map[string]string{}, "usr/lib/modules/"+kernels)))
		require.ErrorContains(t, stage(broken), "failed to find kernel")
	})
}
