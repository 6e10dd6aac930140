//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/host/deployments"
	"github.com/layerwright/layerwright/test/host/machine"
	"github.com/layerwright/layerwright/test/host/power"
)

func main() {
	logrus.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := &host{
		sysroot: &deployments.Sysroot{Path: "/", Tool: deployments.FindTool()},
		line:    power.Line{Dir: power.Dir}, out: os.Stdout,
	}
	name := filepath.Base(os.Args[0])
	err := h.run(ctx, name, os.Args[1:])
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &exit) && h.child:
		os.Exit(exit.ExitCode()) //nolint:gocritic // the process ends here, and its context with it
	default:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// host is the host that the program runs on.
type host struct {
	sysroot *deployments.Sysroot
	line    power.Line
	out     io.Writer
	// child reports whether the work is done by this program again.
	child bool
}

// errUsage is a command line that the real program may know and this one does not.
var errUsage = errors.New("the stand-in does not know this command line")

// run is the program called name.
func (h *host) run(ctx context.Context, name string, args []string) error {
	programs := map[string]func(context.Context, []string) error{
		"bootc": h.bootc, "rpm-ostree": h.rpmOSTree, "ostree": h.ostree, "systemctl": h.systemctl, "systemd-run": h.systemdRun,
		machine.ShutdownName: h.shutdown,
	}
	program, known := programs[name]
	if !known {
		return fmt.Errorf("%q is none of the programs that this one stands in for", name)
	}
	if last := len(args) - 1; last >= 0 && args[last] == "--help" {
		return h.help(append([]string{name}, args[:last]...))
	}
	return program(ctx, args)
}

// help prints how a command is used that other versions of the program lack.
func (h *host) help(command []string) error {
	known := []string{"bootc loader-entries set-options-for-source", "rpm-ostree kargs", "ostree admin lock-finalization"}
	if !slices.Contains(known, strings.Join(command, " ")) {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), errUsage)
	}
	_, err := fmt.Fprintln(h.out, "Usage: "+strings.Join(command, " ")+" [OPTIONS]")
	return err
}

// writable is set where the disk can be written.
const writable = "LAYERWRIGHT_HOST_WRITABLE"

// change runs what changes the disk, which the rest of the host sees read-only: as the real
// programs do, in mounts of its own. It has processes of its own too, since ostree looks at those
// of process 1, which a container may not.
func (h *host) change(ctx context.Context, do func() error) error {
	if os.Getenv(writable) != "" {
		if err := remount(); err != nil {
			return err
		}
		return do()
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), writable+"=1")
	cmd.Stdout, cmd.Stderr = h.out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	h.child = true
	return cmd.Run()
}

// remount makes the disk writable in the mounts of this process.
func remount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, path := range []string{"/sysroot", "/boot"} {
		err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it is no mount of its own
			return fmt.Errorf("making %s writable: %w", path, err)
		}
	}
	return nil
}

// ostreeVersion is the one whose commands there are beside those of the program that there is.
const ostreeVersion = "2026.4"

// ostree is the real program, with the libraries that the image lacks.
func (h *host) ostree(ctx context.Context, args []string) error {
	switch {
	case slices.Equal(args, []string{"--version"}):
		_, err := fmt.Fprintf(h.out, "libostree:\n Version: '%s'\n", ostreeVersion)
		return err
	case len(args) > 1 && args[0] == "admin" && args[1] == "lock-finalization":
		return h.change(ctx, func() error { return h.lockFinalization(ctx, args[2:]) })
	case len(args) > 1 && args[0] == "admin" && args[1] == "undeploy" && len(args) == 3 && args[2] == "0":
		return h.change(ctx, func() error { return h.undeployFirst(ctx) })
	}
	return h.change(ctx, func() error {
		cmd := exec.CommandContext(ctx, h.sysroot.Tool[0], append(slices.Clone(h.sysroot.Tool[1:]), args...)...)
		cmd.Stdout, cmd.Stderr = h.out, os.Stderr
		return cmd.Run()
	})
}

// undeployFirst removes what boots next. What is staged takes its lock with it.
func (h *host) undeployFirst(ctx context.Context) error {
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	if f.staged != nil {
		return h.sysroot.Unstage(ctx)
	}
	return h.sysroot.Undeploy(ctx, 0)
}

// lockFinalization locks or unlocks what is staged.
func (h *host) lockFinalization(ctx context.Context, flags []string) error {
	f, err := h.find(ctx)
	if err != nil {
		return err
	}
	if f.staged == nil {
		return errors.New("No staged deployment") //nolint:staticcheck // the program's own words
	}
	isUnlock := slices.Contains(flags, "--unlock") || slices.Contains(flags, "-u")
	said := "Staged deployment is now finalization locked"
	switch isLocked := h.sysroot.IsLocked(); {
	case isUnlock && !isLocked:
		said = "Staged deployment is already prepared for finalization"
	case !isUnlock && isLocked:
		said = "Staged deployment is already finalization locked"
	default:
		if isUnlock {
			said = "Staged deployment is now queued to apply on shutdown"
		}
		err = h.sysroot.Lock(!isUnlock)
	}
	if err == nil {
		_, err = fmt.Fprintln(h.out, said)
	}
	return err
}

// shutdown is what ostree's own unit does when a host shuts down.
func (h *host) shutdown(ctx context.Context, _ []string) error {
	return h.change(ctx, func() error { return h.sysroot.FinishStaged(ctx) })
}
