package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/power"
)

// Machine is one that can be switched on and off. All fields are required.
type Machine struct {
	// Disk is the folder of the physical root.
	Disk string
	// Dir is where it is mounted, in the mount namespace that Boot is called in.
	Dir string
	// Tools is the folder that Install has made.
	Tools string
	// Line is how the host asks for a reboot.
	Line power.Line
}

// Root is the root of the system that has booted.
func (m *Machine) Root() string { return filepath.Join(m.Dir, "sysroot") }

// IsBooted reports whether the machine runs, in the mount namespace that it is called in.
func (m *Machine) IsBooted() bool {
	_, err := os.Stat(filepath.Join(m.Root(), "run", "ostree-booted"))
	return err == nil
}

func (m *Machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.Dir}, parts...)...)
}

// mount is one that a boot makes.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", m.source, m.target, err)
	}
	if readOnly := uintptr(unix.MS_BIND | unix.MS_RDONLY); m.flags&readOnly == readOnly {
		// A bind mount takes the flag only when it is there.
		return unix.Mount("", m.target, "", unix.MS_REMOUNT|readOnly, "")
	}
	return nil
}

func mountAll(mounts ...mount) error {
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// Boot boots what the disk's boot loader entries say, as the boot with this ID.
func (m *Machine) Boot(ctx context.Context, id string) error {
	disk := deployments.Sysroot{Path: m.Disk}
	commandLine, err := disk.NextBoot()
	if err != nil {
		return err
	}
	if err := m.early(commandLine, id); err != nil {
		return err
	}
	if err := m.prepareRoot(ctx); err != nil {
		return err
	}
	return m.late()
}

// early is what an initial RAM disk has: the disk, a /proc with the command line, and
// ostree-prepare-root.
func (m *Machine) early(commandLine, id string) error {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	// What is moved must not lie in mounts that are shared with others.
	if err := mountAll(mount{"tmpfs", m.Dir, "tmpfs", 0, "mode=755"}, mount{"", m.Dir, "", unix.MS_PRIVATE, ""}); err != nil {
		return err
	}
	for _, dir := range []string{"sysroot", "proc", "run", "tools"} {
		if err := os.Mkdir(m.path(dir), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"cmdline": commandLine, "boot_id": id} {
		if err := os.WriteFile(m.path(name), []byte(text+"\n"), 0o444); err != nil {
			return err
		}
	}
	return mountAll(
		mount{m.Disk, m.path("sysroot"), "", unix.MS_BIND, ""},
		mount{"", m.path("sysroot"), "", unix.MS_PRIVATE, ""},
		mount{"proc", m.path("proc"), "proc", 0, ""},
		mount{m.path("cmdline"), m.path("proc", "cmdline"), "", unix.MS_BIND, ""},
		mount{m.Tools, m.path("tools"), "", unix.MS_BIND | unix.MS_RDONLY, ""},
	)
}

// prepareRoot runs ostree's own program, which puts the deployment where the disk was, and the disk
// below it.
func (m *Machine) prepareRoot(ctx context.Context) error {
	tool := deployments.BundledTool("/tools/"+bundle, "ostree-prepare-root")
	cmd := exec.CommandContext(ctx, tool[0], append(tool[1:], "/sysroot")...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.Dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ostree-prepare-root: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// late is what systemd and ostree's units do on a host: the file systems that are no disk, /var,
// and a disk that is read-only.
func (m *Machine) late() error {
	root := func(parts ...string) string { return filepath.Join(append([]string{m.Root()}, parts...)...) }
	err := mountAll(
		mount{"run", root("run"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		mount{"tmp", root("tmp"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		mount{"proc", root("proc"), "proc", unix.MS_RDONLY, ""},
		mount{m.path("cmdline"), root("proc", "cmdline"), "", unix.MS_BIND, ""},
		mount{m.path("boot_id"), root("proc", "sys", "kernel", "random", "boot_id"), "", unix.MS_BIND, ""},
		mount{"/sys", root("sys"), "", unix.MS_BIND | unix.MS_RDONLY, ""},
		mount{"dev", root("dev"), "tmpfs", unix.MS_NOSUID, "mode=755"},
		mount{root("sysroot", "ostree", "deploy", deployments.Stateroot, "var"), root("var"), "", unix.MS_BIND, ""},
		mount{"", root("sysroot"), "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY, ""},
		// The programs that the image lacks lie over it.
		mount{"usr", root("usr"), "overlay", unix.MS_RDONLY, "lowerdir=" + m.path("tools", "usr") + ":" + root("usr")},
	)
	if err != nil {
		return err
	}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := os.WriteFile(root("dev", device), nil, 0o600); err != nil {
			return err
		}
		if err := (mount{"/dev/" + device, root("dev", device), "", unix.MS_BIND, ""}).do(); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, root("dev", link)); err != nil {
			return err
		}
	}
	// What the host's tmpfiles.d would make.
	for dir, mode := range map[string]fs.FileMode{
		"run/ostree": 0o755, "run/media": 0o755, power.Dir: 0o755, "var/home": 0o755, "var/roothome": 0o700, "var/opt": 0o755, "var/srv": 0o755,
		"var/mnt": 0o755, "var/usrlocal": 0o755, "var/lib": 0o755, "var/log": 0o755, "var/tmp": fs.ModeSticky | 0o777,
	} {
		if err := os.MkdirAll(root(dir), mode.Perm()); err != nil {
			return err
		}
		if err := os.Chmod(root(dir), mode); err != nil {
			return err
		}
	}
	if err := os.WriteFile(root("run", "ostree-booted"), nil, 0o644); err != nil {
		return err
	}
	return mountAll(
		mount{m.Line.Dir, root(power.Dir), "", unix.MS_BIND, ""},
		// Containers that follow the host's mounts need them shared, as systemd makes them.
		mount{"", m.Root(), "", unix.MS_REC | unix.MS_SHARED, ""},
	)
}

// Shutdown ends the system. What is staged becomes what boots next, as ostree's unit does it,
// unless the host is to lose it.
func (m *Machine) Shutdown(ctx context.Context) error {
	if !m.IsBooted() {
		return nil
	}
	var err error
	if !m.Line.Has(power.OldImage) {
		err = m.finish(ctx)
	}
	return errors.Join(err, unix.Unmount(m.Dir, unix.MNT_DETACH))
}

// ShutdownName is what the stand-in is called by to do what ostree's unit does at shutdown.
const ShutdownName = "layerwright-shutdown"

// finish runs in the root that ends.
func (m *Machine) finish(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "/"+bundle+"/standin")
	cmd.Args[0], cmd.Dir, cmd.Env = ShutdownName, "/", []string{"LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.Root()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making bootable what is staged: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
