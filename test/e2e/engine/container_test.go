//go:build e2e

package engine

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/hack/release/binimage"
)

// Capabilities that the tests leave to a container.
var (
	// usual are those that containers have by default.
	usual = []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
	}
	// mounting are those and the one that allows mounts.
	mounting = append(slices.Clone(usual), unix.CAP_SYS_ADMIN)
	// mapping are what a user namespace with many users takes. The last one is for files of the
	// pod, which someone else may have written.
	mapping = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETFCAP, unix.CAP_DAC_OVERRIDE}
)

// container is what enter is told, in the environment.
type container struct {
	Root, Shared string
	Capabilities []uintptr
	Command      []string
}

const containerVariable = "LAYERWRIGHT_TEST_CONTAINER"

// contained makes a command one of a container of the builder's image. The test program is the
// runtime: enter does the rest.
func (p *pod) contained(t *testing.T, capabilities []uintptr, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	c := container{Root: filepath.Join(t.TempDir(), "root"), Shared: p.dir, Capabilities: capabilities}
	c.Command = append([]string{"/usr/bin/layerwright-builder"}, cmd.Args[1:]...)
	image, err := binimage.Build(binimage.Options{Binary: program, Root: true, Folders: []string{"/var/tmp"}})
	require.NoError(t, err)
	for path, content := range files(t, mutate.Extract(image)) {
		if content == "" {
			continue
		}
		target := filepath.Join(c.Root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
		require.NoError(t, os.WriteFile(target, []byte(content), 0o755))
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	runtime := exec.CommandContext(t.Context(), "/proc/self/exe")
	runtime.Env = []string{containerVariable + "=" + string(text)}
	runtime.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	return runtime
}

// enter is what a container runtime does, as far as the builder notices: a root of its own with
// what Kubernetes mounts, and only some capabilities. It does not return unless it fails.
func enter(text string) error {
	runtime.LockOSThread()
	var c container
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	in := func(path string) string { return filepath.Join(c.Root, path) }
	for _, dir := range []string{"proc", "dev", "sys", "tmp", "old", c.Shared} {
		if err := os.MkdirAll(in(dir), 0o755); err != nil {
			return err
		}
	}
	binds := [][2]string{{c.Shared, in(c.Shared)}}
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
		binds = append(binds, [2]string{file, in(file)})
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(c.Root, c.Root, "", unix.MS_BIND, ""),
		unix.Mount("proc", in("proc"), "proc", 0, ""),
		unix.Mount("/sys", in("sys"), "", unix.MS_BIND|unix.MS_REC, ""),
		unix.Mount("tmpfs", in("dev"), "tmpfs", 0, "mode=755"),
		os.Mkdir(in("dev/shm"), 0o1777), os.Mkdir(in("dev/pts"), 0o755),
	)
	for _, bind := range binds {
		if strings.HasPrefix(bind[0], "/dev/") || strings.HasPrefix(bind[0], "/etc/") {
			err = errors.Join(err, os.WriteFile(bind[1], nil, 0o644))
		}
		err = errors.Join(err, unix.Mount(bind[0], bind[1], "", unix.MS_BIND, ""))
	}
	err = errors.Join(err, unix.PivotRoot(c.Root, in("old")), os.Chdir("/"), unix.Unmount("/old", unix.MNT_DETACH))
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP && err == nil; capability++ {
		if !slices.Contains(c.Capabilities, capability) {
			err = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		}
	}
	if err != nil {
		return err
	}
	return syscall.Exec(c.Command[0], c.Command, []string{"PATH=/usr/bin"})
}

func TestTheImageOfTheBuilderIsAllItNeeds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		capabilities []uintptr
		note         string
	}{
		"with the right to mount":          {capabilities: mounting},
		"with what containers have":        {capabilities: usual, note: "runs in a user namespace"},
		"with what a user namespace takes": {capabilities: mapping, note: "runs in a user namespace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			p := newPod(t, h, "FROM os-base-image\nRUN echo hello > /etc/hello && chown 1000:1000 /etc/hello && id\n", nil)
			for _, step := range backend.Steps() {
				if step == backend.Push {
					p.login(t, pusher)
				}
				out, err := p.contained(t, tt.capabilities, p.command(t, step)).CombinedOutput()
				require.NoError(t, err, string(out))
				e := p.ended(t, step, 0, string(out))
				require.Nil(t, e.report.Failure, e.output)
				if tt.note != "" {
					assert.Contains(t, e.report.Notes, tt.note)
				}
				if step == backend.Push {
					assert.Equal(t, "hello\n", files(t, mutate.Extract(h.get(t, e.report.Image)))["etc/hello"])
				}
			}
		})
	}
}

func TestContainerWithoutNamespaces(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN true\n", nil)
	cmd := p.contained(t, nil, p.command(t, backend.Fetch))
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	e := p.ended(t, backend.Fetch, cmd.ProcessState.ExitCode(), string(out))
	require.NotNil(t, e.report.Failure, e.output)
	assert.Equal(t, backend.ExitInfrastructure, e.code)
	assert.Contains(t, e.report.Failure.Message, "user namespace", e.output)
}

func TestRunLinesSeeOnlyTheContainer(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; tr '\\0' '\\n' < $p/environ; done; ls -R /proc/1/root/etc 2>&1; cat /proc/1/root/"+
		strings.Repeat("../", 3)+"etc/layerwright/* 2>&1; true\n", nil)
	p.succeed(t, backend.Fetch)
	p.login(t, pusher)
	for name, capabilities := range map[string][]uintptr{"with the right to mount": mounting, "without": usual} {
		cmd := p.command(t, backend.Build)
		out, err := p.contained(t, capabilities, cmd).CombinedOutput()
		require.NoError(t, err, name+string(out))
		for _, account := range append(secretsOf(puller), secretsOf(pusher)...) {
			assert.NotContains(t, string(out), account, name)
		}
		require.NoError(t, removeAll(p, "work/storage/overlay-containers"))
	}
}
