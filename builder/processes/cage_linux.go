package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Users of the namespace, as the machine has them where root builds: no one has these there.
const (
	firstID = 1 << 30
	ids     = 1 << 16
)

// cacheDir is a folder that users of the namespace reach.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/layerwright", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "layerwright", "builds"), err
}

// cage is a user namespace that the steps run in. Root makes one of users that the machine does not
// have; other users need newuidmap for that, which unshare calls.
type cage struct {
	program string
	isRoot  bool
}

// newCage finds out how to make one. Where root builds, the program is copied: those users may not
// be allowed to read where it is.
func newCage(dir, program string) (cage, error) {
	c := cage{program: program, isRoot: os.Geteuid() == 0}
	if _, err := exec.LookPath("unshare"); err != nil {
		return c, fmt.Errorf("to build, install the program unshare (util-linux 2.38): %w", err)
	}
	if !c.isRoot {
		for _, needed := range []string{"newuidmap", "newgidmap"} {
			if _, err := exec.LookPath(needed); err != nil {
				return c, fmt.Errorf("to build, be root, or install the program newuidmap (package uidmap or shadow-utils): %w", err)
			}
		}
		return c, nil
	}
	c.program = filepath.Join(dir, filepath.Base(program))
	if err := copyProgram(program, c.program); err != nil {
		return c, fmt.Errorf("copying %q: %w", program, err)
	}
	return c, errors.Join(c.own(c.program), c.own(dir))
}

func copyProgram(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	defer in.Close()                                                      //nolint:errcheck // it is only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700) //nolint:gosec // in a folder of its own
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// asRoot are the arguments of unshare that make a user root of a namespace.
func asRoot() []string { return []string{"--user", "--map-root-user", "--map-auto"} }

// own gives a file to root of the namespace.
func (c cage) own(path string) error {
	if !c.isRoot {
		return nil
	}
	return os.Lchown(path, firstID, firstID)
}

// command is the program in the namespace.
func (c cage) command(ctx context.Context, args ...string) *exec.Cmd {
	// The steps see no process but their own, which have passwords in their environment, and what
	// they leave behind ends with them.
	own := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", c.program}
	if !c.isRoot {
		own = append(asRoot(), own...)
	}
	cmd := exec.CommandContext(ctx, "unshare", append(own, args...)...) //nolint:gosec // no shell reads it
	// In a session of its own it has no terminal that a RUN line could read or type into.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // unshare itself hears no signal
	if c.isRoot {
		mapped := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: ids}}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings, cmd.SysProcAttr.GidMappingsEnableSetgroups = mapped, mapped, true
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	}
	return cmd
}

// explain says what helps where a step could not begin.
func (c cage) explain(err error) error {
	if c.isRoot {
		return fmt.Errorf("%w; it needs user namespaces (sysctl user.max_user_namespaces)", err)
	}
	return fmt.Errorf("%w; it needs user namespaces (sysctl user.max_user_namespaces) and lines for your user in /etc/subuid and /etc/subgid", err)
}

// remove removes a folder with files of users of the namespace.
func (c cage) remove(ctx context.Context, dir string) error {
	if c.isRoot || c.program == "" {
		return os.RemoveAll(dir)
	}
	if err := exec.CommandContext(ctx, "unshare", append(asRoot(), "--", "rm", "-rf", "--", dir)...).Run(); err != nil { //nolint:gosec // no shell reads it
		return os.RemoveAll(dir)
	}
	return nil
}
