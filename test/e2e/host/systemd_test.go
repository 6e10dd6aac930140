//go:build e2e

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/agent/nodestate"
)

// The deployments of the hosts below: the second one has booted, and nothing confirms it.
const (
	stateroot = "ostree/deploy/default/deploy/"
	before    = "aa.0"
	booted    = "bb.0"
	digest    = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// systemdHost is a host whose process 1 is this machine's systemd, in namespaces of its own. Its
// /usr is the machine's; deployments are folders, and bootc is what a test writes.
type systemdHost struct {
	t         *testing.T
	dir, root string
}

// startSystemd runs in namespaces, in the folder of the host: systemd has no other units than
// those of the host's /etc, so that nothing of the machine is touched.
const startSystemd = `
mount --make-rprivate /
for d in bin sbin lib lib64 usr; do if [ -L /$d ]; then ln -sfn "$(readlink /$d)" root/$d; elif [ -d /$d ]; then mkdir -p root/$d; mount --rbind /$d root/$d; fi; done
mkdir -p root/usr root/proc root/sys root/dev root/run root/tmp
mount --bind root/ostree/deploy/default/deploy/bb.0/etc root/etc
mount -t tmpfs bin root/usr/local
cp -a local/. root/usr/local/
mount -t proc proc root/proc
mount --bind cmdline root/proc/cmdline
mount -t sysfs -o ro sysfs root/sys
if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then mount -t cgroup2 cgroup root/sys/fs/cgroup; else
	mount -t tmpfs cgroup root/sys/fs/cgroup && mkdir root/sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd cgroup root/sys/fs/cgroup/systemd
fi
for d in run tmp dev; do mount -t tmpfs $d root/$d; done
for d in null zero full random urandom kmsg; do : >root/dev/$d; mount --bind /dev/null root/dev/$d; done
mkdir -p root/run/state; mount --bind state root/run/state
exec chroot root /usr/bin/env -i container=test SYSTEMD_UNIT_PATH=/etc/systemd/system /lib/systemd/systemd --system --unit=timers.target --log-target=console --log-level=info --show-status=0
`

func newSystemdHost(t *testing.T) *systemdHost {
	t.Helper()
	dir := t.TempDir()
	h := &systemdHost{t: t, dir: dir, root: filepath.Join(dir, "root")}
	require.NoError(t, os.MkdirAll(h.root, 0o755))
	require.NoError(t, syscall.Mount("disk", h.root, "tmpfs", 0, "size=4m"))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(h.root, syscall.MNT_DETACH)) })
	etc := "root/" + stateroot + booted + "/etc/"
	for path, content := range map[string]string{
		"root/" + stateroot + before + "/etc/hostname": before,
		etc + "passwd":                           "root:x:0:0::/:/bin/sh\n",
		etc + "machine-id":                       "0123456789abcdef0123456789abcdef\n",
		"root/etc/none":                          "",
		"root/boot/none":                         "",
		"disk/loader/entries/ostree-1.conf":      bootEntry("old", 1, "ca/0"),
		"disk/loader/entries/ostree-2.conf":      bootEntry("new", 2, "cb/0"),
		"cmdline":                                "root=/dev/vda ostree=/ostree/boot.1/default/cb/0\n",
		"state/calls":                            "",
		"local/bin/timeout":                      "#!/bin/sh\nshift 3\nexec /usr/bin/timeout -k 1 1 \"$@\"\n",
		"local/bin/sleep":                        "#!/bin/sh\necho sleep $* >>/run/state/calls\nexec /usr/bin/sleep 0.05\n",
		"local/bin/ostree":                       "#!/bin/sh\nexit 1\n",
		"local/bin/rpm-ostree":                   "#!/bin/sh\nexit 1\n",
		"root/" + stateroot + booted + ".origin": "[origin]\ncontainer-image-reference=ostree-image-signed:docker://r.test/os@" + digest + "\n",
	} {
		h.write(path, content)
	}
	for _, target := range []string{"sysinit", "basic", "timers", "shutdown", "umount", "final", "local-fs"} {
		h.write(etc+"systemd/system/"+target+".target", "[Unit]\nDefaultDependencies=no\n")
	}
	h.write(etc+"systemd/system/reboot.target", "[Unit]\nDefaultDependencies=no\nRequires=systemd-reboot.service\n")
	h.write(etc+"systemd/system/systemd-reboot.service", "[Unit]\nDefaultDependencies=no\nRequires=shutdown.target\nAfter=shutdown.target\n[Service]\nType=oneshot\nExecStart=/bin/systemctl --force --force reboot\n")
	for link, deployment := range map[string]string{"ca": before, "cb": booted} {
		at := filepath.Join(h.root, "ostree/boot.1/default", link)
		require.NoError(t, os.MkdirAll(at, 0o755))
		require.NoError(t, os.Symlink("../../../../"+stateroot+deployment, filepath.Join(at, "0")))
	}
	// What the agent does before the reboot, in the /etc that ostree brings along.
	armed := nodestate.Open(filepath.Join(h.root, stateroot, booted))
	require.NoError(t, armed.ArmRollbackTimer(nodestate.RollbackTimer{Digest: digest, Before: before, After: time.Second}))
	return h
}

func bootEntry(title string, version int, link string) string {
	return fmt.Sprintf("title %s\nversion %d\noptions ostree=/ostree/boot.1/default/%s\n", title, version, link)
}

// unit writes a unit of the host's /etc.
func (h *systemdHost) unit(name, content string) {
	h.t.Helper()
	h.write("root/"+stateroot+booted+"/etc/systemd/system/"+name, content)
}

func (h *systemdHost) write(path, content string) {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h.t, os.WriteFile(path, []byte(content), 0o755))
}

func (h *systemdHost) read(path string) string {
	h.t.Helper()
	content, err := os.ReadFile(filepath.Join(h.dir, path))
	require.NoError(h.t, err)
	return string(content)
}

// cgroup is one of the host's own, below which systemd makes others.
func (h *systemdHost) cgroup() (file string) {
	h.t.Helper()
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(top + "/systemd"); err == nil {
		top += "/systemd"
	}
	dir := filepath.Join(top, "layerwright-"+filepath.Base(h.dir)+fmt.Sprint(os.Getpid()))
	require.NoError(h.t, os.MkdirAll(dir, 0o755))
	h.t.Cleanup(func() { // the deepest first
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i])
		}
	})
	return filepath.Join(dir, "cgroup.procs")
}

// untilReboot runs the host until it reboots, and returns what systemd has said.
func (h *systemdHost) untilReboot() string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", "echo $$ >"+h.cgroup()+
		"; exec unshare --mount --pid --fork --kill-child --net --ipc --uts --cgroup /bin/sh -exc '"+startSystemd+"'")
	cmd.Dir = h.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	exit := (*exec.ExitError)(nil)
	require.ErrorAs(h.t, err, &exit, "%s", &said)
	status, is := exit.Sys().(syscall.WaitStatus)
	// Process 1 of a namespace that reboots ends by this signal (reboot(2)).
	require.True(h.t, is && (status.Signal() == syscall.SIGHUP || status.ExitStatus() == 128+int(syscall.SIGHUP)), "it did not reboot: %v: %s", err, &said)
	return said.String()
}

// TestReturnUnderSystemd has the units that the agent writes run by systemd itself.
func TestReturnUnderSystemd(t *testing.T) {
	const mountBoot = "[Unit]\nDefaultDependencies=no\n[Mount]\nWhat=/boot.disk\nWhere=/boot\nType=none\nOptions=bind\n"
	withBoot := func(h *systemdHost) {
		h.unit("boot.mount", mountBoot)
		require.NoError(h.t, os.CopyFS(filepath.Join(h.root, "boot.disk"), os.DirFS(filepath.Join(h.dir, "disk"))))
	}
	exchanged := func(h *systemdHost) {
		require.Equal(h.t, bootEntry("old", 2, "ca/0"), h.read("root/boot.disk/loader/entries/ostree-2.conf"))
	}
	tests := map[string]struct {
		host func(h *systemdHost)
		then func(h *systemdHost)
	}{
		"bootc that fails ten times is asked again": {func(h *systemdHost) {
			h.write("local/bin/bootc", "#!/bin/sh\necho bootc $* >>/run/state/calls\n[ \"$(grep -c bootc /run/state/calls)\" -gt 10 ]\n")
		}, func(h *systemdHost) { require.Equal(h.t, 11, strings.Count(h.read("state/calls"), "bootc rollback\n")) }},
		"bootc that hangs is ended, and another way is taken": {func(h *systemdHost) {
			withBoot(h)
			h.write("local/bin/bootc", "#!/bin/sh\nexec /usr/bin/sleep 1000\n")
		}, exchanged},
		"bootc that is missing needs no bootc, on a full disk": {func(h *systemdHost) {
			withBoot(h)
			fill, err := os.Create(filepath.Join(h.root, "fill"))
			require.NoError(h.t, err)
			for err == nil {
				_, err = fill.Write(make([]byte, 4096))
			}
			require.ErrorIs(h.t, err, syscall.ENOSPC)
			require.NoError(h.t, errors.Join(fill.Truncate(3<<20), fill.Close())) // /boot is another disk
		}, exchanged},
		"after a soft reboot the command line is not asked": {func(h *systemdHost) {
			withBoot(h)
			h.write("cmdline", "ostree=/ostree/boot.1/default/ca/0\n")
		}, exchanged},
		"a shell that is killed is started again": {func(h *systemdHost) {
			h.unit("layerwright-return.service.d/soon.conf", "[Service]\nRestartSec=0\n")
			h.write("local/bin/bootc", "#!/bin/sh\necho bootc $* >>/run/state/calls\n[ \"$(grep -c bootc /run/state/calls)\" -gt 3 ] || kill -9 $(cat /proc/$PPID/status | sed -n \"s/PPid:[^0-9]*//p\")\n")
		}, func(h *systemdHost) { require.Equal(h.t, 4, strings.Count(h.read("state/calls"), "bootc rollback\n")) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newSystemdHost(t)
			tt.host(h)
			said := h.untilReboot()
			t.Log(said)
			tt.then(h)
		})
	}
}
