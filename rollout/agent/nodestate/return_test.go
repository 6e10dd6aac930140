package nodestate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The deployments of the hosts below: good ran before, bad is the one that nothing confirms.
const (
	stateroot = "ostree/deploy/default/deploy/"
	good      = "aa.0"
	bad       = "bb.0"
	confirmed = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// returning is a host whose image is not confirmed, with programs that stand in for its own.
type returning struct {
	t    *testing.T
	root string
	bin  string
}

// newReturning is a host that has booted bad.
func newReturning(t *testing.T) *returning {
	t.Helper()
	h := &returning{t: t, root: t.TempDir(), bin: t.TempDir()}
	for _, d := range []string{good, bad} {
		h.write(stateroot+d+"/etc/hostname", d)
	}
	h.write(stateroot+bad+".origin", "[origin]\ncontainer-image-reference=ostree-image-signed:docker://r.test/os@"+confirmed+"\n")
	h.boot(bad)
	h.write("proc/cmdline", "root=/dev/vda quiet ostree=/ostree/boot.1/default/cb/0\n")
	h.link("ostree/boot.1/default/ca/0", "../../../../"+stateroot+good)
	h.link("ostree/boot.1/default/cb/0", "../../../../"+stateroot+bad)
	h.write("boot/loader/entries/ostree-1-default.conf", entry("old", 1, "ca/0"))
	h.write("boot/loader/entries/ostree-2-default.conf", entry("new", 2, "cb/0"))
	h.write("etc/systemd/system/layerwright-return.sh", string(returnScript))
	h.program("systemctl", `case "$*" in *reboot) rm etc/systemd/system/layerwright-return.sh ;; esac`)
	h.program("mount", "")
	for _, tool := range []string{"cat", "dirname", "grep", "ln", "mv", "readlink", "rm", "sed", "sync"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(h.bin, tool)))
	}
	// Its sleep takes no time, and ends the tests that find nothing else to do.
	h.program("sleep", `[ "$(grep -c ^sleep "$0.log")" -lt 20 ] || rm -f etc/systemd/system/layerwright-return.sh`)
	h.program("timeout", `shift 3; case "$(cat "$(dirname "$0")/$1")" in *HANGS*) exit 124 ;; esac; exec "$@"`)
	return h
}

func entry(title string, version int, link string) string {
	return fmt.Sprintf("title %s\nversion %d\noptions root=/dev/vda ostree=/ostree/boot.1/default/%s %s=1\nlinux /%s\n", title, version, link, title, title)
}

func (h *returning) write(at, content string) {
	h.t.Helper()
	at = filepath.Join(h.root, at)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(h.t, os.WriteFile(at, []byte(content), 0o600))
}

func (h *returning) link(at, target string) {
	h.t.Helper()
	at = filepath.Join(h.root, at)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(at), 0o755))
	_ = os.Remove(at)
	require.NoError(h.t, os.Symlink(target, at))
}

// boot has the /etc of a deployment be the host's, and nothing else say so.
func (h *returning) boot(deployment string) {
	h.t.Helper()
	h.link("etc", stateroot+deployment+"/etc")
	h.write("etc/systemd/system/layerwright-return.sh", string(returnScript))
}

// program puts a program on the host, which notes that it was called.
func (h *returning) program(name, script string) {
	h.t.Helper()
	log := filepath.Join(h.bin, "sleep.log")
	content := fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>'%s'\n%s\n", name, log, script)
	require.NoError(h.t, os.WriteFile(filepath.Join(h.bin, name), []byte(content), 0o700))
}

// swapped is what a program does that works: the entries' versions change places.
const swapped = `sed -i 's/^version 1/version 3/' boot/loader/entries/ostree-1-default.conf`

// run runs the script until it ends, and returns what it called.
func (h *returning) run(shell string) (calls []string) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "/bin/"+shell, "etc/systemd/system/layerwright-return.sh", confirmed, good)
	cmd.Dir, cmd.Env = h.root, []string{"PATH=" + h.bin}
	out, err := cmd.CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	h.t.Logf("%s", out)
	log, err := os.ReadFile(filepath.Join(h.bin, "sleep.log"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(log)) {
		call := strings.TrimSpace(line)
		if strings.HasPrefix(call, "timeout ") || strings.HasPrefix(call, "sleep ") && len(calls) > 0 && strings.HasPrefix(calls[len(calls)-1], "systemctl --no-block") {
			continue
		}
		calls = append(calls, call)
	}
	return calls
}

const reboots = "systemctl --no-block reboot"

func TestReturn(t *testing.T) {
	t.Parallel()
	remounts := []string{"mount -o remount,rw /sysroot", "mount -o remount,rw /boot"}
	tests := map[string]struct {
		host func(h *returning)
		want []string
	}{
		"bootc rolls back": {func(h *returning) { h.program("bootc", swapped) }, []string{"bootc rollback", reboots}},
		"rpm-ostree does where there is no bootc": {
			func(h *returning) { h.program("rpm-ostree", swapped) }, []string{"rpm-ostree rollback", reboots},
		},
		"ostree does where bootc fails": {func(h *returning) {
			h.program("bootc", "echo 'opendir(boot): Operation not permitted' >&2; exit 1")
			h.program("ostree", swapped)
		}, []string{"bootc rollback", "ostree admin set-default 1", reboots}},
		"ostree does where bootc hangs": {func(h *returning) {
			h.program("bootc", "# HANGS")
			h.program("ostree", swapped)
		}, []string{"ostree admin set-default 1", reboots}},
		"ostree does where bootc does nothing": {func(h *returning) {
			h.program("bootc", "")
			h.program("ostree", swapped)
		}, []string{"bootc rollback", "ostree admin set-default 1", reboots}},
		"entries are exchanged where no program can": {func(*returning) {}, append(remounts[:2:2], reboots)},
		"a rollback that is queued is not taken back": {func(h *returning) {
			h.program("bootc", "exit 1")
			h.write("boot/loader/entries/ostree-1-default.conf", entry("old", 3, "ca/0"))
		}, []string{reboots}},
		"it goes on until bootc works, without entries": {func(h *returning) {
			require.NoError(h.t, os.RemoveAll(filepath.Join(h.root, "boot")))
			h.program("bootc", `[ "$(grep -c ^bootc "$(dirname "$0")/sleep.log")" -gt 3 ]`)
		}, []string{
			"systemctl start boot.mount", "bootc rollback", "sleep 5", "systemctl start boot.mount", "bootc rollback", "sleep 10",
			"systemctl start boot.mount", "bootc rollback", "sleep 20", "systemctl start boot.mount", "bootc rollback", reboots,
		}},
		"/boot is mounted first": {func(h *returning) {
			boot := filepath.Join(h.root, "boot")
			require.NoError(h.t, os.Rename(boot, boot+".disk"))
			h.program("systemctl", `case "$*" in *boot.mount) mv boot.disk boot ;; *) rm etc/systemd/system/layerwright-return.sh ;; esac`)
			h.program("bootc", "[ -d boot ] && "+swapped)
		}, []string{"systemctl start boot.mount", "bootc rollback", reboots}},
		"what someone has staged does not boot": {func(h *returning) {
			h.write("run/ostree/staged-deployment", "")
			h.program("bootc", "! [ -e run/ostree/staged-deployment ] && "+swapped)
		}, []string{"bootc rollback", reboots}},
		"an origin that can't be read is no other image": {func(h *returning) {
			require.NoError(h.t, os.Remove(filepath.Join(h.root, stateroot+bad+".origin")))
			h.program("bootc", swapped)
		}, []string{"bootc rollback", reboots}},
		"the command line says it where /etc does not": {func(h *returning) {
			require.NoError(h.t, os.Remove(filepath.Join(h.root, "etc")))
			h.write("etc/systemd/system/layerwright-return.sh", string(returnScript))
			h.program("bootc", swapped)
		}, []string{"bootc rollback", reboots}},
		"after a soft reboot the command line is wrong": {func(h *returning) {
			h.write("proc/cmdline", "ostree=/ostree/boot.1/default/ca/0\n")
			h.program("bootc", swapped)
		}, []string{"bootc rollback", reboots}},
		"a reboot that fails is asked for again": {func(h *returning) {
			h.program("bootc", swapped)
			h.program("systemctl", `case "$*" in "--force reboot") rm etc/systemd/system/layerwright-return.sh ;; *) exit 1 ;; esac`)
		}, []string{"bootc rollback", reboots, "systemctl --force reboot", "sleep 5"}},
		"there is nothing to do where it has returned": {func(h *returning) { h.boot(good) }, nil},
		"another image is left alone": {func(h *returning) {
			h.write(stateroot+bad+".origin", "[origin]\ncontainer-image-reference=ostree-image-signed:docker://r.test/os@sha256:1\n")
		}, nil},
	}
	for name, tt := range tests {
		for _, shell := range []string{"dash", "bash"} {
			t.Run(name+" ("+shell+")", func(t *testing.T) {
				t.Parallel()
				h := newReturning(t)
				tt.host(h)
				require.Equal(t, tt.want, h.run(shell))
			})
		}
	}
}

// TestReturnNeverGivesUp has a host on which nothing works, for as long as the test lasts.
func TestReturnNeverGivesUp(t *testing.T) {
	t.Parallel()
	h := newReturning(t)
	for _, program := range []string{"bootc", "rpm-ostree", "ostree", "mount"} {
		h.program(program, "exit 1")
	}
	require.NoError(t, os.RemoveAll(filepath.Join(h.root, "boot")))
	var pauses []string
	for _, call := range h.run("dash") {
		if pause, is := strings.CutPrefix(call, "sleep "); is {
			pauses = append(pauses, pause)
		}
	}
	require.Len(t, pauses, 20)
	require.Equal(t, []string{"5", "10", "20", "40", "80", "160", "320", "320"}, pauses[:8])
}

// TestReturnExchangesEntries looks at what the boot loader and ostree then read.
func TestReturnExchangesEntries(t *testing.T) {
	t.Parallel()
	t.Run("of different kernels", func(t *testing.T) {
		t.Parallel()
		h := newReturning(t)
		h.run("dash")
		require.Equal(t, entry("old", 2, "ca/0"), get(t, h.root, "/boot/loader/entries/ostree-2-default.conf"))
		require.Equal(t, entry("new", 1, "cb/0"), get(t, h.root, "/boot/loader/entries/ostree-1-default.conf"))
	})
	t.Run("of one kernel, whose links have an order", func(t *testing.T) {
		t.Parallel()
		h := newReturning(t)
		h.link("ostree/boot.1/default/cc/0", "../../../../"+stateroot+bad)
		h.link("ostree/boot.1/default/cc/1", "../../../../"+stateroot+good)
		h.write("boot/loader/entries/ostree-1-default.conf", entry("old", 1, "cc/1"))
		h.write("boot/loader/entries/ostree-2-default.conf", entry("new", 2, "cc/0"))
		h.run("dash")
		require.Equal(t, entry("old", 2, "cc/0"), get(t, h.root, "/boot/loader/entries/ostree-2-default.conf"))
		require.Equal(t, entry("new", 1, "cc/1"), get(t, h.root, "/boot/loader/entries/ostree-1-default.conf"))
		for link, want := range map[string]string{"cc/0": good, "cc/1": bad} {
			target, err := os.Readlink(filepath.Join(h.root, "ostree/boot.1/default", link))
			require.NoError(t, err)
			require.Equal(t, want, filepath.Base(target))
		}
	})
}
